"""Rules about what keeps devices apart, and so peers from each other: the IOMMU and PCIe access control services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..findings import ERROR, INFO, WARNING, Finding
from ..snapshot import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..state import State

TRANSLATING: Final = ("DMA", "DMA-FQ")
"""Types of an IOMMU group whose devices' addresses are translated; 'identity' is iommu=pt."""
SAME_SWITCH: Final = ("PIX", "PXB")
ACS_RATIO: Final = 1.3
"""Bidirectional over unidirectional below which a pair under one switch is redirected: measured 1.0 with, 1.9 without redirection."""


def check_isolation(state: State, pairs_failing: bool, pairs_good: bool, *, was_off: bool = False) -> Iterator[Finding]:
    """Yield findings about IOMMU and ACS.

    ``pairs_failing`` and ``pairs_good``: what the measurement says weighs them. ``was_off``: the baseline had no redirection.
    """
    yield from _iommu(state, pairs_failing)
    yield from _acs(state, pairs_failing, pairs_good and not was_off, was_off)


def iommu_type(state: State, bdf: str) -> str | None:
    """Type of a device's IOMMU group; 'off' without a group, None where it was not read."""
    link = state.host.link(f"/sys/bus/pci/devices/{bdf}/iommu_group")
    if link.state == MISSING:
        return "off"
    if not link.ok:
        return None
    group = link.text.rstrip("/").rsplit("/", 1)[-1]
    kind = state.host.file(f"/sys/kernel/iommu_groups/{group}/type")
    return kind.text.strip() if kind.ok and kind.text.strip() else None


def _iommu(state: State, failing: bool) -> Iterator[Finding]:
    types = {gpu.name: iommu_type(state, gpu.bdf) for gpu in state.gpus}
    translated = [name for name, kind in types.items() if kind in TRANSLATING]
    log = state.kernel_log
    faults = log.io_page_faults if log else 0
    if not translated and not faults:
        return
    evidence = f"/sys/kernel/iommu_groups/…/type: {types[translated[0]]} for {', '.join(translated)}" if translated else ""
    if faults and log:
        evidence += ("; " if evidence else "") + f"kernel log: {faults} page faults, the first: {log.io_page_fault}"
    if state.command_line is not None:
        told = [word for word in state.command_line if "iommu" in word]
        evidence += f"; kernel command line: {' '.join(told) or 'no iommu parameter'}"
    passthrough = bool({"iommu=pt", "iommu.passthrough=1"} & set(state.command_line or ()))
    yield Finding(
        "iommu-translated",
        ERROR if failing or faults else WARNING,
        "host" if len(translated) != 1 else translated[0],
        "the IOMMU translates the GPUs' addresses: peer-to-peer may hang or lose data"
        if translated
        else "the IOMMU reports page faults of devices",
        evidence,
        ("iommu=pt is set and does not reach them: boot with" if passthrough else "boot with iommu=pt, or")
        + " amd_iommu=off / intel_iommu=off where no VM needs passthrough (GRUB: /etc/default/grub and update-grub; "
        "systemd-boot: /etc/kernel/cmdline and proxmox-boot-tool refresh)",
        "pytorch/pytorch#84803; tinygrad/open-gpu-kernel-modules#18; vllm-project/vllm#51513",
    )


def redirecting_bridges(state: State) -> dict[str, list[str]]:
    """Bridges that send peer traffic up to the root, with the GPUs below each; bridges without GPUs are left out when paths are known."""
    devices = state.lspci or {}
    redirecting = [bdf for bdf, device in devices.items() if device.is_bridge and device.acs_redirect]
    below = {bdf: [gpu.name for gpu in state.gpus if bdf in gpu.path] for bdf in redirecting}
    if any(gpu.path for gpu in state.gpus):
        return {bdf: names for bdf, names in below.items() if names}
    return below


def halved_pairs(state: State) -> list[str]:
    """Pairs under one switch whose two directions together are no faster than one."""
    return [
        f"{pair.name} {pair.bidirectional_gbps:.1f} of {pair.copy_gbps:.1f} GB/s"
        for pair in state.pairs or []
        if not state.is_light(pair)
        and pair.path in SAME_SWITCH
        and pair.copy_gbps
        and pair.bidirectional_gbps
        and pair.bidirectional_gbps / pair.copy_gbps < ACS_RATIO
    ]


def _acs(state: State, failing: bool, good: bool, was_off: bool) -> Iterator[Finding]:
    bridges = redirecting_bridges(state)
    halved = halved_pairs(state)
    log = state.kernel_log
    override = bool(log and log.acs_override)
    if not bridges and not halved:
        return
    shared = [bdf for bdf, names in bridges.items() if len(names) > 1 or (state.lspci or {})[bdf].port_type == "Downstream Port"]
    paths_known = any(gpu.path for gpu in state.gpus)
    if halved or (failing and bridges):
        severity = ERROR
    elif good and paths_known and not shared:
        severity = INFO  # a root port with one GPU: its traffic goes through the root in any case
    else:
        severity = WARNING
    shown = [f"{bdf} ACSCtl ReqRedir+/CmpltRedir+ above {', '.join(names) or 'unknown devices'}" for bdf, names in bridges.items()]
    evidence = (["lspci -vvv: " + "; ".join(shown)] if shown else []) + (
        ["both directions at once: " + ", ".join(halved)] if halved else []
    )
    evidence += ["kernel log: pcie_acs_override is active"] if override else []
    evidence += ["off in the baseline"] if was_off else []
    count = len(bridges)
    yield Finding(
        "acs-redirect",
        severity,
        _few(list(bridges)) or "switches",
        f"{count} PCIe bridge{'s' if count != 1 else ''} send{'s' if count == 1 else ''} peer-to-peer traffic up to the root complex"
        if bridges
        else "pairs under one switch share one direction's bandwidth, as with ACS redirection",
        "; ".join(evidence),
        "systemctl restart gpunode-acs.service (it clears the bits at every boot; systemctl status tells why they came back; "
        "where the unit is missing: site.yml --tags pve_host), or by hand setpci -s BRIDGE ECAP_ACS+6.w=0 on each; "
        "ACS off in the BIOS; no pcie_acs_override",
        "NVIDIA/nccl#2079; NCCL user guide, 'PCI Access Control Services'",
    )


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
