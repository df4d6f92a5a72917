"""A healthy node to spoil, and its judgement."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support import healthy

from gpunode.judge import Judgement, Options, judge
from gpunode.snapshot import Snapshot

_HEALTHY = {count: healthy.make_node(count) for count in (1, 2, 4, 8)}


class Node:
    """A snapshot to spoil, and its judgement."""

    def __init__(self, count: int = 8) -> None:
        self.data = copy.deepcopy(_HEALTHY[count]) if count in _HEALTHY else healthy.make_node(count)
        self.commands: dict[str, Any] = self.data["commands"]
        self.files: dict[str, Any] = self.data["files"]
        self.links: dict[str, Any] = self.data["links"]
        self.nodes: dict[str, Any] = self.data["nodes"]
        self.pairs: list[dict[str, Any]] = self.data["measured"]

    def pair(self, one: int, other: int) -> dict[str, Any]:
        return next(pair for pair in self.pairs if (pair["src"], pair["dst"]) == (one, other))

    def each(self, chosen: Any, **changes: Any) -> None:
        for pair in self.pairs:
            if chosen(pair["src"], pair["dst"]):
                pair.update(changes)

    def smi(self, old: str, new: str, count: int = -1) -> None:
        entry = self.commands["nvidia-smi -q"]
        assert old in entry["stdout"]
        entry["stdout"] = entry["stdout"].replace(old, new, count)

    def judge(self, baseline: Any = None, **options: Any) -> Judgement:
        return judge(Snapshot(self.data), Options(**options), baseline)

    def found(self, baseline: Any = None, **options: Any) -> dict[str, str]:
        """Finding id to its severity, the gravest of each."""
        return {finding.id: finding.severity for finding in reversed(self.judge(baseline, **options).findings)}

    def only(self, finding_id: str, baseline: Any = None, **options: Any) -> Any:
        """The one finding with this id."""
        matching = [finding for finding in self.judge(baseline, **options).findings if finding.id == finding_id]
        assert len(matching) == 1, [(finding.id, finding.subject) for finding in self.judge(baseline, **options).findings]
        return matching[0]


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def make() -> type[Node]:
    return Node


@pytest.fixture
def texts() -> Any:
    """The makers of texts, by name."""

    class Texts:
        topo = staticmethod(healthy.topo_text)
        status = staticmethod(healthy.status_text)
        smi = staticmethod(healthy.smi_text)
        lspci = staticmethod(healthy.lspci_text)
        run = staticmethod(healthy.run)
        path = staticmethod(healthy.path)

    return Texts
