"""What could not be read, and what that hides: never fine, never a failure by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .isolation import iommu_type
from .unread_host import check_unread_container, check_unread_host, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..findings import Finding
    from ..state import State


@dataclass(frozen=True)
class _Command:
    """A command whose output hides something where it is not there."""

    line: str
    subject: str
    hides: str
    remedy: str


_COMMANDS: Final = (
    _Command("nvidia-smi topo -m", "topology", "paths between the GPUs", "run nvidia-smi topo -m on the node"),
    _Command("nvidia-smi topo -p2p r", "peer read status", "what the driver says about peer reads", "run nvidia-smi topo -p2p r"),
    _Command("nvidia-smi topo -p2p w", "peer write status", "what the driver says about peer writes", "run nvidia-smi topo -p2p w"),
)


_HANGS: Final = (
    "nvidia-smi hangs in the driver: dmesg | grep -E 'NVRM|Xid' tells on which GPU, ps -eo pid,stat,wchan:30,args | grep ' D' who waits "
    "with it; a process that SIGKILL does not end is gone only after a reboot"
)


def check_unread(state: State) -> Iterator[Finding]:
    """Yield one unknown for each thing that was not read, with the reason; those that the check stands on are required."""
    if state.driver_loaded is False:
        why = "the driver is not loaded"
        summary = "GPU count, topology, peer status and settings are the driver's to tell"
        yield unknown("GPU count", summary, why, "load the driver first", required=True)
    else:
        yield from _of_driver(state)
    yield from _bus(state)
    yield from _log(state)
    yield from check_unread_host(state)
    yield from check_unread_container(state)


def _of_driver(state: State) -> Iterator[Finding]:
    """What only the driver tells."""
    yield from _required(state)
    for command in _COMMANDS:
        reading = state.host.command(command.line)
        refused = state.refusals.get(command.line) if reading.ok else None
        if refused or not reading.ok:
            yield unknown(
                command.subject, f"{command.hides} could not be read", f"{command.line}: {refused or reading.why}", command.remedy
            )
    for letter in ("n", "a", "p"):
        line = f"nvidia-smi topo -p2p {letter}"
        if state.host.command(line).ok and line in state.refusals:
            yield unknown(
                f"topo -p2p {letter}", "the output is not what nvidia-smi prints", f"{line}: {state.refusals[line]}", f"run {line}"
            )
    yield from _cut(state)
    yield from _settings(state)


def _required(state: State) -> Iterator[Finding]:
    if state.count is None:
        smi = state.smi_reading
        why = state.refusals.get("nvidia-smi -q") or smi.why
        yield unknown(
            "GPU count",
            "how many GPUs the driver offers could not be read",
            f"nvidia-smi -q: {why}",
            _HANGS if "overran" in why else "run nvidia-smi on the node",
            required=True,
        )
    if state.driver_version is None:
        reading = state.driver_reading
        why = state.refusals.get("driver version") or reading.why
        yield unknown(
            "driver",
            "which NVIDIA driver runs could not be read",
            f"/proc/driver/nvidia/version: {why}",
            "cat /proc/driver/nvidia/version on the node",
            required=True,
        )


def _cut(state: State) -> Iterator[Finding]:
    """Outputs that end too early are used as far as they go."""
    cut = {"nvidia-smi topo -m": state.topology is not None and not state.topology.complete}
    cut |= {f"nvidia-smi topo -p2p {letter}": not status.complete for letter, status in state.p2p_status.items()}
    cut["nvidia-smi -q"] = state.smi is not None and not state.smi.complete
    for line, short in cut.items():
        if short:
            notes = "; ".join(state.topology.notes) if line.endswith("-m") and state.topology else "fewer GPUs than it says, or no end"
            yield unknown(f"output of {line}", "the output is cut: what is missing was not judged", notes, f"run {line} again, whole")


def _settings(state: State) -> Iterator[Finding]:
    if state.smi is None:
        reading = state.smi_reading
        why = state.refusals.get("nvidia-smi -q") or reading.why
        yield unknown(
            "GPU settings",
            "addressing mode, BAR1 and link widths could not be read",
            f"nvidia-smi -q: {why}",
            _HANGS if "overran" in why else "run nvidia-smi -q",
        )
    elif not any(gpu.info and gpu.info.addressing_mode for gpu in state.gpus):
        live = state.host.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
        if not live.ok:
            yield unknown(
                "HMM",
                "whether heterogeneous memory management is on could not be read",
                f"nvidia-smi -q tells no addressing mode; uvm_disable_hmm {live.why}",
                "cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm (the module loads with the first CUDA program)",
            )


def _bus(state: State) -> Iterator[Finding]:
    if not state.gpus:
        if state.count:
            yield unknown(
                "PCI addresses",
                "where the GPUs are on the PCI bus could not be read: IOMMU, ACS, links and PCIe errors are not judged",
                "/sys/bus/pci/devices, lspci -vvv, nvidia-smi -q: none tells",
                "lspci -Dnn -d 10de:",
            )
        return
    blind = [gpu.name for gpu in state.gpus if iommu_type(state, gpu.bdf) is None]
    if blind:
        yield unknown(
            "IOMMU",
            "whether the IOMMU translates the GPUs' addresses could not be read",
            f"no iommu_group of {', '.join(blind)} in /sys/bus/pci/devices",
            "cat /sys/kernel/iommu_groups/*/type on the node",
        )
    reading = state.host.command("lspci -vvv")
    refused = state.refusals.get("lspci -vvv")
    denied = [device.bdf for device in (state.lspci or {}).values() if device.is_bridge and device.access_denied]
    if state.lspci is None or denied:
        why = "capabilities: access denied" if denied else refused or reading.why
        yield unknown(
            "ACS",
            "whether bridges redirect peer-to-peer traffic could not be read",
            f"lspci -vvv: {why}",
            "run lspci -vvv as root (pciutils)",
        )


def _log(state: State) -> Iterator[Finding]:
    if state.kernel_log is not None:
        return
    reading = state.host.command("dmesg")
    why = reading.why or "empty"
    yield unknown("kernel log", "Xid errors and page faults since boot could not be read", f"dmesg: {why}", "run dmesg as root")
