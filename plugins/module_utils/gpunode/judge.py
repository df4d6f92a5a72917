"""The judgement of a node: all rules over a snapshot, and the result as others read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .findings import UNKNOWN, Finding, by_consequence, exit_code, verdict
from .rules import baseline as baselines
from .rules import environment as surroundings
from .rules.compare import check_baseline
from .rules.devices import check_devices
from .rules.driver import check_driver
from .rules.fabric import check_fabric
from .rules.flags import check_flags
from .rules.isolation import check_isolation
from .rules.known import check_known
from .rules.lost import lost_gpus
from .rules.measurement import check_measurement
from .rules.pairs import check_pairs, failing, good
from .rules.pcie import check_pcie
from .rules.unread import check_unread
from .state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot import Snapshot

RESULT_SCHEMA: Final = "gpunode.p2p/1"
TOLERANCE_PCT: Final = 10.0
"""Copies repeat within 2 % on an idle node; 10 % keeps thermal and scheduling noise of a busy one out."""


@dataclass(frozen=True)
class Options:
    """What the caller expects. ``measured``: pairs are required, so that their absence is an unknown that decides."""

    measured: bool = True
    expect_gpus: int | None = None
    min_gbps: float | None = None
    tolerance_pct: float = TOLERANCE_PCT


@dataclass
class Judgement:
    """Findings, those of most consequence first, and the state that they were read from."""

    state: State
    findings: list[Finding]
    baseline: Mapping[str, Any] | None = None
    changed: list[dict[str, str]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """pass, warn, fail or unknown."""
        return verdict(self.findings)

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 an error, 3 could not tell what was asked."""
        return exit_code(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The result, schema gpunode.p2p/1."""
        state = self.state
        lost = lost_gpus(state)
        here = surroundings.environment(state)
        data: dict[str, Any] = {
            "schema": RESULT_SCHEMA,
            "host": state.snapshot.data.get("host"),
            "collected_at": state.snapshot.data.get("collected_at"),
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "gpus": [_gpu(gpu, lost) for gpu in state.gpus] or [{"index": index} for index in range(state.count or 0)],
            "topology": state.topology.to_dict() if state.topology else None,
            "p2p_status": {letter: status.matrix for letter, status in state.p2p_status.items()},
            "pairs": [pair.to_dict() for pair in state.pairs or []],
            "baseline": None,
            "environment": here,
            "measurement": state.snapshot.measurement,
            "simulated": state.simulated,
        }
        short = {letter: status.rows for letter, status in state.p2p_status.items() if status.rows != status.gpus}
        if short:
            data["p2p_status_rows"] = short
        if self.baseline is not None:
            not_kept, not_read = surroundings.not_compared(self.baseline["environment"], here)
            data["baseline"] = {
                "saved_at": self.baseline.get("saved_at"),
                "host": self.baseline.get("host"),
                "changed": self.changed,
                "not_kept": not_kept,
                "not_read": not_read,
            }
        return data


def _gpu(gpu: Any, lost: set[str]) -> dict[str, Any]:
    info = gpu.info
    told = {
        "index": gpu.index,
        "bdf": gpu.bdf,
        "name": info.name if info else None,
        "uuid": info.uuid if info else None,
        "driver": gpu.driver,
        "memory_mib": info.fb_total_mib if info else None,
        "memory_used_mib": info.fb_used_mib if info else None,
        "bar1_mib": info.bar1_total_mib if info else None,
        "link_width": info.width_current if info else None,
        "addressing_mode": info.addressing_mode if info else None,
        "bridges": gpu.path or None,
        "answers": False if gpu.bdf in lost else None,
    }
    return {key: value for key, value in told.items() if value is not None}


def judge(snapshot: Snapshot, options: Options | None = None, baseline: Mapping[str, Any] | None = None) -> Judgement:
    """Apply every rule to a snapshot. ``baseline`` is what ``rules.baseline.load`` returned; nothing is read or touched."""
    options = options or Options()
    state = State(snapshot)
    if baseline is None and options.expect_gpus is None and state.driver_loaded is False and state.pci_gpus == []:
        return Judgement(state, [_no_gpu()])
    harm = failing(state.pairs)
    changed = surroundings.changes(baseline["environment"], surroundings.environment(state)) if baseline is not None else []
    findings: list[Finding] = []
    compared = list(check_baseline(state, baseline, options.tolerance_pct, changed)) if baseline is not None else []
    findings += check_driver(state)
    named = any(finding.id == "gpu-missing" and finding.subject != "host" for finding in compared)
    findings += [
        finding
        for finding in check_devices(state, options.expect_gpus, harm)
        if not (named and finding.id == "gpu-missing" and finding.subject == "host")  # the baseline tells which one
    ]
    findings += check_fabric(state)
    findings += check_measurement(state)
    known_pairs = baselines.known_pairs(baseline)
    pairs = list(check_pairs(state, options.measured, options.min_gbps, surroundings.suspects(changed), known_pairs))
    known = baselines.known_links(baseline)
    findings += pairs
    findings += _without_doubles(compared, pairs)
    findings += check_flags(state)
    acs_was_off = baseline is not None and baseline["environment"].get("acs") == "off"
    findings += check_isolation(state, harm, good(state.pairs), was_off=acs_was_off)
    findings += check_pcie(state, harm, known)
    findings += check_unread(state)
    findings += check_known(state, findings)
    return Judgement(state, by_consequence(findings), baseline, changed)


def _no_gpu() -> Finding:
    """A machine without any NVIDIA GPU, of which nobody said that it should have some: there is nothing to judge."""
    return Finding(
        "not-readable",
        UNKNOWN,
        "GPU count",
        "no NVIDIA GPU is on the PCI bus and no driver is loaded: there is nothing to check here",
        "/sys/bus/pci/devices, lspci, /proc/driver/nvidia/version",
        "run it on the node, or with --host; --expect-gpus makes missing GPUs an error",
        required=True,
    )


def _without_doubles(compared: list[Finding], pairs: list[Finding]) -> list[Finding]:
    """Leave out what the measurement or the count says already, unless the baseline makes it graver."""
    told = {(finding.id, finding.subject): finding.severity for finding in pairs}
    return [finding for finding in compared if told.get((finding.id, finding.subject)) != finding.severity]
