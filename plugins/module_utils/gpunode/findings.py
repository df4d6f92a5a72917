"""Findings: what a rule says about a snapshot or a measurement, and the verdict that follows from many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"
UNKNOWN: Final = "unknown"
SEVERITIES: Final = (ERROR, WARNING, UNKNOWN, INFO)
"""All severities, in the order in which a person should read them."""

PASS: Final = "pass"  # noqa: S105 - a verdict
WARN: Final = "warn"
FAIL: Final = "fail"

EXIT_HEALTHY: Final = 0
EXIT_FINDING: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3


@dataclass(frozen=True)
class Finding:
    """One statement about the node, with what it was read from and what to do.

    ``id`` is lower-case words with dashes and never changes meaning. ``subject`` names the thing (``GPU3``, ``GPU0->GPU5``,
    ``host``). ``evidence`` quotes what was read and where. ``remedy`` is what to run or set next. ``source`` says where the rule
    comes from when it is public knowledge. ``required`` marks an unknown that the run was asked to settle: it decides the exit code.
    """

    id: str
    severity: str
    subject: str
    summary: str
    evidence: str = ""
    remedy: str = ""
    source: str = ""
    required: bool = False

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"unknown severity {self.severity!r} of finding {self.id!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the result's ``findings``; empty optional keys are left out."""
        data = {
            "id": self.id,
            "severity": self.severity,
            "subject": self.subject,
            "summary": self.summary,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }
        if self.source:
            data["source"] = self.source
        return data


def by_consequence(findings: Iterable[Finding]) -> list[Finding]:
    """Order findings by severity; the order of equals, which is the rules' own, stays."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def verdict(findings: Iterable[Finding]) -> str:
    """``fail`` with any error, else ``unknown`` with a required unknown, else ``warn`` with a warning, else ``pass``."""
    found = list(findings)
    if any(finding.severity == ERROR for finding in found):
        return FAIL
    if any(finding.severity == UNKNOWN and finding.required for finding in found):
        return UNKNOWN
    if any(finding.severity == WARNING for finding in found):
        return WARN
    return PASS


def exit_code(findings: Iterable[Finding]) -> int:
    """Exit code of a check: 1 for an error, else 3 for a required unknown, else 0."""
    return {FAIL: EXIT_FINDING, UNKNOWN: EXIT_UNKNOWN}.get(verdict(findings), EXIT_HEALTHY)
