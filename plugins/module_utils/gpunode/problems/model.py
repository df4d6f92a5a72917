"""What a known problem is, what counts as its sign, and what a match says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from ..findings import ERROR, INFO, WARNING, Finding

HOST: Final = "host"
CONTAINER: Final = "container"
RUNTIME: Final = "runtime"
SERVER: Final = "server"
MODEL: Final = "model"
NETWORK: Final = "network"
LAYERS: Final = (HOST, CONTAINER, RUNTIME, MODEL, SERVER, NETWORK)
"""The layers from the hardware upwards: where several roots stand side by side, the lower layer is read first."""

CERTAIN: Final = "certain"
LIKELY: Final = "likely"
GENERIC: Final = "generic"
CONFIDENCES: Final = (CERTAIN, LIKELY, GENERIC)
"""``certain``: message and cause belong together. ``likely``: the usual cause. ``generic``: names the event, not its reason."""

SUBJECTS: Final = ("sglang", "vllm", "transformers", "flashinfer", "torch", "driver", "kernel", "pve")
"""Whose versions a range may name."""

ANYTHING: Final = "*"
"""In ``explains``: every other problem of the same or a higher layer."""


@dataclass(frozen=True)
class Sign:
    """One way in which a problem shows.

    ``text`` is a regular expression over the message without its time stamps and prefixes; a blank in it stands for any white space,
    a line break included, since messages are wrapped where they are posted. ``near`` must all be found within ``within`` lines, none
    of ``not_near`` may; ``also`` must be found anywhere in what was read, ``unless`` nowhere. ``times`` is how often it must occur.
    ``differ`` names two groups whose texts must differ. ``source`` limits the sign to sources of that name (a shell pattern), such
    as ``/sys/module/nvidia_uvm/parameters/uvm_disable_hmm`` of a snapshot.
    """

    text: str
    near: tuple[str, ...] = ()
    not_near: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    within: int = 60
    times: int = 1
    differ: tuple[str, str] | None = None
    source: str = ""


@dataclass(frozen=True)
class Range:
    """Versions of ``subject`` that are affected: from ``since`` (included) until ``until`` (not included); empty is open."""

    subject: str
    since: str = ""
    until: str = ""

    def excludes(self, version: str) -> bool:
        """Whether a known version lies outside."""
        have = version_key(version)
        return bool((self.since and have < version_key(self.since)) or (self.until and have >= version_key(self.until)))

    def __str__(self) -> str:
        text = self.subject
        if self.since:
            text += f" from {self.since}"
        if self.until:
            text += f" before {self.until}"
        return text


@dataclass(frozen=True)
class Problem:
    """An entry of the catalogue; ``id`` is lower-case words with dashes and never changes meaning.

    ``explains`` names ids or tags of what follows from it in time; ``refines`` those that are the same event told in general words.
    ``archs`` limits it to GPU architectures (``sm120``) where they are known, ``affects`` to versions. ``shows`` are messages that
    must lead to this entry first, ``unlike`` messages that must not lead to it: they are the entry's tests.
    """

    id: str
    layer: str
    title: str
    cause: str
    remedy: str
    signs: tuple[Sign, ...]
    shows: tuple[str, ...]
    unlike: tuple[str, ...]
    sources: tuple[str, ...]
    consequence: str = ""
    severity: str = ERROR
    confidence: str = LIKELY
    affects: tuple[Range, ...] = ()
    archs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    refines: tuple[str, ...] = ()

    @property
    def harmless(self) -> bool:
        """Frightening to read, nothing to do."""
        return self.severity == INFO


@dataclass(frozen=True)
class Context:
    """What is known beside the text: versions by subject, the GPU architecture (``sm120``). Empty means not known."""

    versions: dict[str, str] = field(default_factory=dict)
    arch: str = ""

    def excludes(self, problem: Problem) -> bool:
        """Whether what is known contradicts the problem; what is not known never does."""
        if problem.archs and self.arch and self.arch not in problem.archs:
            return True
        return any(span.subject in self.versions and span.excludes(self.versions[span.subject]) for span in problem.affects)


@dataclass(frozen=True)
class Evidence:
    """A place that proves a match: source, line number from 1, the text as it stands there, seconds on its clock when it has one."""

    source: str
    line: int
    text: str
    clock: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"source": self.source, "line": self.line, "text": self.text}


@dataclass(frozen=True)
class Match:
    """A problem that was found, with its proof.

    ``count`` is how often the deciding line was seen (at least, in floods). ``because_of`` is the id of the match that explains
    this one, empty for a root. ``details`` are the named parts of the message, such as the bus id of a GPU.
    """

    problem: Problem
    evidence: tuple[Evidence, ...]
    count: int = 1
    because_of: str = ""
    details: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.problem.id

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the result's ``problems``."""
        known = self.problem
        return {
            "id": known.id,
            "layer": known.layer,
            "severity": known.severity,
            "confidence": known.confidence,
            "title": known.title,
            "cause": known.cause,
            "remedy": known.remedy,
            "consequence": known.consequence,
            "affects": [str(span) for span in known.affects],
            "sources": list(known.sources),
            "because_of": self.because_of or None,
            "count": self.count,
            "details": self.details,
            "evidence": [place.to_dict() for place in self.evidence],
        }

    def to_finding(self) -> Finding:
        """The match as a finding of the id ``known-problem``, its subject being the problem's id."""
        places = "; ".join(f"{place.source}:{place.line}: {place.text}" for place in self.evidence[:3])
        return Finding(
            id="known-problem",
            severity=self.problem.severity,
            subject=self.problem.id,
            summary=f"{self.problem.title}: {self.problem.cause}",
            evidence=places,
            remedy=self.problem.remedy,
            source=self.problem.sources[0] if self.problem.sources else "",
        )


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version for comparison: ``0.5.10.post1`` is (0, 5, 10, 1), ``580.95.05`` (580, 95, 5)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


__all__ = [
    "ANYTHING",
    "CERTAIN",
    "CONFIDENCES",
    "CONTAINER",
    "ERROR",
    "GENERIC",
    "HOST",
    "INFO",
    "LAYERS",
    "LIKELY",
    "MODEL",
    "NETWORK",
    "RUNTIME",
    "SERVER",
    "SUBJECTS",
    "WARNING",
    "Context",
    "Evidence",
    "Match",
    "Problem",
    "Range",
    "Sign",
    "version_key",
]
