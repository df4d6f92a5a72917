"""JUnit XML: for CI systems that show results as test cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Sequence

PASSED: Final = "passed"
FAILURE: Final = "failure"
ERROR: Final = "error"
SKIPPED: Final = "skipped"


@dataclass(frozen=True)
class Case:
    """One test case; ``status`` is passed, failure, error or skipped."""

    name: str
    status: str = PASSED
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def _clean(text: str) -> str:
    """Characters that XML 1.0 does not allow become a question mark."""
    return "".join(
        char if char in "\t\n\r" or 0x20 <= ord(char) < 0xD800 or 0xE000 <= ord(char) <= 0xFFFD or ord(char) > 0xFFFF else "?"
        for char in text
    )


def render(suite: str, cases: Sequence[Case], timestamp: str | None = None) -> str:
    """Return the document of one suite."""
    counts = {status: sum(1 for case in cases if case.status == status) for status in (FAILURE, ERROR, SKIPPED)}
    stamp = f" timestamp={quoteattr(timestamp.rstrip('Z'))}" if timestamp else ""
    seconds = sum(case.seconds for case in cases)
    head = (
        f'<testsuite name={quoteattr(_clean(suite))} tests="{len(cases)}" failures="{counts[FAILURE]}" errors="{counts[ERROR]}" '
        f'skipped="{counts[SKIPPED]}" time="{seconds:.3f}"{stamp}>'
    )
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", head]
    for case in cases:
        begin = f'  <testcase classname={quoteattr(_clean(suite))} name={quoteattr(_clean(case.name))} time="{case.seconds:.3f}"'
        if case.status == PASSED:
            lines.append(begin + "/>")
            continue
        body = f"    <{case.status} message={quoteattr(_clean(case.message))}>{escape(_clean(case.text))}</{case.status}>"
        lines += [begin + ">", body, "  </testcase>"]
    return "\n".join([*lines, "</testsuite>", "</testsuites>"]) + "\n"
