"""Known problems: the field's knowledge as data, and the search that finds it in logs.

``match(lines, context)`` diagnoses text at hand; ``Diagnosis`` streams any number of sources. Everything here is standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .advice import advice
from .catalogue import BY_ID, CATALOGUE
from .judge import Diagnosis, findings, match_lines, ordered
from .model import Context, Evidence, Match, Problem, Range, Sign

if TYPE_CHECKING:
    from collections.abc import Iterable


def match(lines: Iterable[str], context: Context | None = None, source: str = "text") -> list[Match]:
    """Known problems in these lines, roots before consequences; harmless ones included (``match.problem.harmless``).

    ``context`` holds versions (``{"sglang": "0.5.9"}``) and the GPU's architecture where they are known: entries that they contradict
    are left out. ``source`` is what the evidence is quoted under.
    """
    return match_lines(CATALOGUE, lines, context, source)


def diagnosis(context: Context | None = None) -> Diagnosis:
    """A diagnosis over the whole catalogue, to be fed source by source."""
    return Diagnosis(CATALOGUE, context)


__all__ = [
    "BY_ID",
    "CATALOGUE",
    "Context",
    "Diagnosis",
    "Evidence",
    "Match",
    "Problem",
    "Range",
    "Sign",
    "advice",
    "diagnosis",
    "findings",
    "match",
    "ordered",
]
