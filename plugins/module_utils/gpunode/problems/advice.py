"""Known problems as text for the message of something that failed: what it is, why, what to do, and the line that proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_ROOTS: Final = 3
"""Causes that are told: who reads a failure's message wants the first one, and knows with three whether it is another."""


def advice(found: Iterable[Mapping[str, Any]], most: int = MOST_ROOTS) -> str:
    """The first root causes of matches as plain data (``Match.to_dict``), harmless ones left out; empty when there are none."""
    roots = [problem for problem in found if not problem["because_of"] and problem["severity"] != "info"][:most]
    return "\n".join(
        f"Known problem {problem['id']}: {problem['title']}. {problem['cause']}\n"
        f"  Do: {problem['remedy']}\n  Proof: {problem['evidence'][0]['text']}"
        for problem in roots
    )
