"""Filters over the catalogue of known problems: text of a journal in, what is known about it out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from ansible.errors import AnsibleFilterError

from gpunode import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def known_problems(
    text: str | Iterable[str], sglang: str = "", gpu: str = "", driver: str = "", harmless: bool = False
) -> list[dict[str, Any]]:
    """Known problems in a journal or a command's output, as mappings, roots before consequences.

    ``text`` is a string or a list of lines. ``sglang``, ``driver`` (versions) and ``gpu`` (``sm120``) narrow the answer where they are
    known. The keys are those of ``gpunode diagnose --output json``: id, title, cause, remedy, because_of, evidence and so on.
    """
    lines = text.split("\n") if isinstance(text, str) else [str(line) for line in text]
    versions = {name: value for name, value in (("sglang", sglang), ("driver", driver)) if value}
    found = problems.match(lines, problems.Context(versions, gpu), source="journal")
    return [match.to_dict() for match in found if harmless or not match.problem.harmless]


def problems_advice(found: Iterable[Mapping[str, Any]], most: int = 3) -> str:
    """The first root causes of ``known_problems`` as text for a failure message; empty when nothing is known."""
    if isinstance(found, str):
        raise AnsibleFilterError("problems_advice takes the result of known_problems")
    return problems.advice(found, most)


class FilterModule:
    """The filters, by the names that playbooks use."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """All of them."""
        return {"known_problems": known_problems, "problems_advice": problems_advice}
