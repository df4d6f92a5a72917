"""What of the host's files, links and container could not be read, and which rules are blind without it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..findings import UNKNOWN, Finding
from ..snapshot import MISSING, NOT_READ
from .driver import is_driver
from .pcie import aer_totals, link_widths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..snapshot import Part
    from ..state import State

_CONTAINER_CONFIG: Final = r"/etc/pve/lxc/(\d+)\.conf"


def unknown(subject: str, summary: str, evidence: str, remedy: str, *, required: bool = False) -> Finding:
    """One thing that could not be read; ``required`` where the check stands on it."""
    return Finding("not-readable", UNKNOWN, subject, summary, evidence, remedy, required=required)


def check_unread_host(state: State) -> Iterator[Finding]:
    """Yield one unknown for each thing of the host that rules read and that nobody read, with the reason."""
    yield from _boot(state)
    yield from _modules(state)
    yield from _devices(state)
    yield from _nodes(state)


def _boot(state: State) -> Iterator[Finding]:
    if state.kernel is None:
        yield unknown("kernel", "which kernel runs could not be read", f"uname -r: {state.host.command('uname -r').why}", "uname -r")
    if state.command_line is None:
        why = state.host.file("/proc/cmdline").why or "empty"
        yield unknown(
            "kernel command line", "parameters of IOMMU, ACS and modules could not be read", f"/proc/cmdline: {why}", "cat /proc/cmdline"
        )


def _modules(state: State) -> Iterator[Finding]:
    """Options of the modules, and what the next kernel will have."""
    if state.modprobe is None:
        yield unknown(
            "module options",
            "what modprobe.d asks for (HMM, NVreg options) could not be read",
            "/etc/modprobe.d/*.conf: no file was read",
            "cat /etc/modprobe.d/*.conf",
        )
    if state.driver_loaded is not False:
        if state.params is None:
            reading = state.host.file("/proc/driver/nvidia/params")
            yield unknown(
                "module parameters",
                "which options the running module has could not be read",
                f"/proc/driver/nvidia/params: {state.refusals.get('/proc/driver/nvidia/params') or reading.why}",
                "cat /proc/driver/nvidia/params",
            )
        if state.driver is None and state.driver_version is not None:
            yield unknown(
                "kind of kernel module",
                "whether the open or the proprietary kernel module runs could not be read",
                f"/proc/driver/nvidia/version: {state.refusals.get('driver version') or state.driver_reading.why}",
                "cat /proc/driver/nvidia/version",
            )
    reading = state.host.command("dkms status")
    if state.dkms is None and reading.state != MISSING:
        why = state.refusals.get("dkms status") or reading.why
        yield unknown("DKMS", "for which kernels the module is built could not be read", f"dkms status: {why}", "dkms status")
    dkms_builds = any(is_driver(entry.module) for entry in state.dkms or ())
    if dkms_builds and not any(state.host.paths("links", r"/lib/modules/[^/]+/build")):
        yield unknown(
            "kernel headers",
            "whether DKMS can build for the installed kernels could not be read",
            "/lib/modules/*/build: was not read",
            "ls -l /lib/modules/*/build",
        )


def _devices(state: State) -> Iterator[Finding]:
    """Links, errors and owners of the GPUs."""
    gpus = state.gpus
    base = "/sys/bus/pci/devices"
    if no_owner := [gpu.name for gpu in gpus if gpu.driver is None]:
        yield unknown(
            "owner of the GPUs",
            f"which kernel driver owns {', '.join(no_owner)} could not be read",
            f"{base}/…/driver: was not read",
            "lspci -k -d 10de:",
        )
    if no_path := [gpu.name for gpu in gpus if not gpu.path and not state.host.link(f"{base}/{gpu.bdf}").ok]:
        yield unknown(
            "bridges",
            f"which bridges are above {', '.join(no_path)} could not be read: switches and uplinks are not judged",
            f"links of {base}: not read",
            f"ls -l {base}",
        )
    if no_width := [gpu.name for gpu in gpus if None in link_widths(state, gpu)[:2]]:
        yield unknown(
            "PCIe links",
            f"how many PCIe lanes {', '.join(no_width)} have could not be read",
            f"{base}/…/current_link_width, lspci LnkSta, nvidia-smi -q: none tells",
            "lspci -vvv -d 10de: | grep -E '^[0-9a-f]|LnkSta:'",
        )
    if gpus and not any(aer_totals(state, gpu.bdf) for gpu in gpus):
        yield unknown(
            "PCIe errors",
            "counts of PCIe errors since boot could not be read",
            f"{base}/…/aer_dev_*: not read, or not there",
            f"cat {base}/*/aer_dev_correctable (not there: the firmware keeps error reporting to itself)",
        )
    if state.has_nvlink and not state.nvlinks:
        reading = state.host.command("nvidia-smi nvlink -s")
        why = state.refusals.get("nvidia-smi nvlink -s") or reading.why or "empty"
        yield unknown("NVLink", "which NVLinks are up could not be read", f"nvidia-smi nvlink -s: {why}", "nvidia-smi nvlink -s")


def _nodes(state: State) -> Iterator[Finding]:
    if state.driver_loaded is False:
        return
    if not state.host.has_nodes():
        yield unknown(
            "device nodes",
            "whether the GPUs' device nodes are there could not be read",
            "/dev/nvidia*: not looked at",
            "ls -l /dev/nvidia*",
        )
    elif not (reading := state.host.file("/proc/devices")).ok or "/proc/devices" in state.refusals:
        yield unknown(
            "major numbers",
            "whether device nodes carry this boot's major numbers could not be read",
            f"/proc/devices: {state.refusals.get('/proc/devices') or reading.why}",
            "cat /proc/devices",
        )


def check_unread_container(state: State) -> Iterator[Finding]:
    """Yield what is not known of the container that has the GPUs, or of all of it."""
    part = state.container
    if part is None:
        yield from _not_looked_at(state)
        return
    enter = f"pct exec {part.data.get('vmid', 'VMID')} --"
    reading = part.command("nvidia-smi -L")
    if not reading.ok and not part.data.get("links") and not part.has_nodes():
        vmid = part.data.get("vmid", "VMID")
        yield unknown(
            part.name,
            f"nothing of {part.name} could be read: what the driver offers in it, its driver libraries and device nodes are not known",
            f"nvidia-smi -L in {part.name}: {reading.why}",
            f"pct status {vmid}; pct start {vmid} where it is stopped; then {enter} nvidia-smi -L",
        )
        return
    if reading.state in {MISSING, NOT_READ}:
        yield unknown(
            part.name,
            f"what the driver offers in {part.name} could not be read",
            f"nvidia-smi -L in {part.name}: {reading.why}",
            f"{enter} nvidia-smi -L",
        )
    if not _has_library(part):
        yield unknown(
            f"driver in {part.name}",
            f"which driver libraries {part.name} has could not be read",
            f"libcuda.so.1 in {part.name}: no link was read",
            f"{enter} sh -c 'ls -l /usr/lib/*/libcuda.so*'",
        )
    if not part.has_nodes():
        yield unknown(
            f"device nodes in {part.name}",
            f"whether {part.name} has the GPUs' device nodes could not be read",
            f"/dev/nvidia* in {part.name}: not looked at",
            f"{enter} sh -c 'ls -l /dev/nvidia*'",
        )


def _has_library(part: Part) -> bool:
    return any(part.link(match[0]).ok for match in part.paths("links", r".*/lib(?:cuda|nvidia-ml)\.so\.1"))


def _not_looked_at(state: State) -> Iterator[Finding]:
    """A container that has GPUs, by its configuration or because it was measured there, and of which nothing is known."""
    having = {match[1] for match in state.host.paths("files", _CONTAINER_CONFIG) if "/dev/nvidia" in state.host.file(match[0]).text}
    measured = re.fullmatch(r"container (\d+)", str(state.snapshot.measurement.get("where") or ""))
    having |= {measured[1]} if measured else set()
    for vmid in sorted(having, key=int):
        yield unknown(
            f"container {vmid}",
            f"container {vmid} has GPUs and was not looked into: its driver libraries and device nodes are not known",
            "it does not run, could not be entered, or another was chosen",
            f"pct status {vmid}; pct start {vmid}; then verify-p2p --container {vmid}",
        )
