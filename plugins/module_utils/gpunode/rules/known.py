"""What the catalogue of known problems adds to the rules: the remedy of each Xid, and causes in the kernel log that no rule asks for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from ..findings import ERROR, INFO, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..problems import Match
    from ..state import State

_TOLD: Final = {
    "acs-redirect": ("acs-redirect",),
    "acs-override": ("acs-redirect",),
    "dkms-not-built": ("dkms-not-built", "driver-not-loaded"),
    "dkms-headers-missing": ("headers-missing",),
    "driver-container-mismatch": ("container-driver-mismatch", "driver-version-mismatch"),
    "driver-library-mismatch": ("container-driver-mismatch", "driver-version-mismatch"),
    "driver-userspace-newer": ("driver-version-mismatch",),
    "driver-not-loaded": ("driver-not-loaded",),
    "driver-open-required": ("driver-proprietary",),
    "gpu-does-not-answer": ("gpu-lost",),
    "hmm-enabled": ("hmm-enabled",),
    "iommu-page-fault": ("iommu-translated",),
    "nouveau-loaded": ("nouveau-loaded", "gpu-wrong-driver"),
    "pcie-bar-space": ("rebar-small",),
    "pcie-corrected": ("pcie-errors",),
    "pcie-fatal": ("pcie-errors",),
    "secure-boot-key": ("secure-boot-key",),
}
"""Problems of the catalogue, and the findings that say the same from what the node is now: these are enough."""
_OVERCOME: Final = frozenset(
    {
        "dkms-not-built",
        "dkms-headers-missing",
        "dkms-build-failed",
        "dkms-compiler-mismatch",
        "driver-container-mismatch",
        "driver-gpu-unsupported",
        "driver-half-installed",
        "driver-library-mismatch",
        "driver-not-loaded",
        "driver-open-required",
        "driver-userspace-newer",
        "module-in-use",
        "nouveau-loaded",
        "rm-init-adapter-failed",
        "secure-boot-key",
    }
)
"""What keeps a driver from taking GPUs: history where it has all of them now (a boot's first attempts, an update)."""
_OF_NOW: Final = frozenset({"hmm-enabled", "acs-redirect", "pcie-bar-space"})
"""Conditions that rules read where they are now: the log tells how they were at boot."""


def check_known(state: State, told: Sequence[Finding]) -> Iterator[Finding]:
    """Yield causes in the kernel log that none of the other findings tells. Warnings at most: the log is the past, pairs are measured.

    An Xid has a finding of its own, and so has what follows from one.
    """
    text = state.kernel_log_text
    if not text:
        return
    from ..problems import Context, match

    versions = {"driver": state.driver_version} if state.driver_version else {}
    ids = {finding.id for finding in told}
    every = state.count is not None and state.driver_loaded is True and state.count == len(state.pci_gpus or [])
    for found in match(text.splitlines(), Context(versions), source="kernel log"):
        name = found.id
        if found.problem.harmless or found.because_of or name.startswith("xid-") or name in _OF_NOW:
            continue
        if ids.intersection(_TOLD.get(name, ())) or (every and name in _OVERCOME):
            continue
        finding = found.to_finding()
        severity = WARNING if finding.severity == ERROR else INFO
        yield dataclasses.replace(finding, severity=severity, summary=f"since boot: {finding.summary}")


def known_xid(line: str) -> Match | None:
    """The entry of the catalogue for the driver's line of an Xid."""
    from ..problems import match

    return next((found for found in match([line]) if found.problem.id.startswith("xid-")), None)
