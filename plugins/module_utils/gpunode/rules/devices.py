"""Rules about GPUs and what serves them: count, loss, Xid errors, device nodes, HMM, options of the module."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..findings import ERROR, INFO, WARNING, Finding
from ..parsers.driver_files import parse_majors, parse_registry
from ..parsers.text import NotUnderstoodError
from .known import known_xid
from .lost import check_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..snapshot import Part
    from ..state import State

# Xid numbers by consequence (NVIDIA, 'XID Errors'). Those not listed are warnings.
_XID_APPLICATION: Final = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
"""A program misbehaved or was killed: says nothing about the hardware."""
_XID_FATAL: Final = frozenset({48, 64, 74, 79, 95, 109, 110, 119, 120, 123, 136, 140, 143, 149})
"""The GPU, its memory, its links or its firmware failed: what runs on it is lost."""
_XID_RECOVERY: Final = 154
_RECOVERY_HARMLESS: Final = re.compile(r"to 0x0 \(None\)")
_RECOVERY_NEEDED: Final = re.compile(r"(?:to 0x\d+ \(([^)]+)\)|action: (.+))")
_CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_LAZY_NODES: Final = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_YES: Final = ("", "1", "y", "yes", "t", "true", "on")
"""What the kernel takes for true; a parameter without a value is."""
_REGISTRY_NAMES: Final = ("RegistryDwords",)


def check_devices(state: State, expect_gpus: int | None, pairs_failing: bool) -> Iterator[Finding]:
    """Yield findings about the GPUs themselves. ``pairs_failing``: measurement shows harm, so that likely causes are errors."""
    yield from check_lost(state)
    yield from _count(state, expect_gpus)
    yield from _xid(state)
    yield from _nodes(state)
    yield from _hmm(state, pairs_failing)
    yield from _options(state, pairs_failing)


def _count(state: State, expect: int | None) -> Iterator[Finding]:
    count = state.count
    on_bus = len(state.pci_gpus) if state.pci_gpus is not None else None
    counted = {gpu.bdf for gpu in state.gpus if gpu.index is not None}
    if count is None:
        if expect is not None and on_bus is not None and on_bus < expect:
            yield Finding(
                "gpu-missing",
                ERROR,
                "host",
                f"{on_bus} of {expect} GPUs are on the PCI bus",
                "/sys/bus/pci/devices or lspci; the driver tells no number",
                "look at power, risers and slots; then at the driver",
            )
        return
    if expect is not None and count < expect:
        bus = f"; the PCI bus shows {on_bus}" if on_bus is not None else ""
        yield Finding(
            "gpu-missing",
            ERROR,
            "host",
            f"{count} of {expect} GPUs are there",
            f"the driver offers {count}{bus}",
            "lspci -d 10de: -k tells whether the card is on the bus; when it is not: power, riser, slot; when it is: its driver",
        )
    elif on_bus is not None and count < on_bus:
        absent = ", ".join(bdf for bdf in state.pci_gpus or [] if bdf not in counted) or "?"
        yield Finding(
            "gpu-missing",
            ERROR,
            "host",
            f"{on_bus} NVIDIA GPUs are on the PCI bus, the driver offers {count}",
            f"not offered: {absent}" if counted else "nvidia-smi names no addresses",
            "dmesg | grep -E 'NVRM|nvidia' says why the driver did not take it",
        )
    elif expect is not None and count > expect:
        yield Finding(
            "topology-changed",
            WARNING,
            "host",
            f"{count} GPUs are there, {expect} were expected",
            f"the driver offers {count}",
            "correct the expected number in the inventory",
        )


def xid_severity(number: int, text: str) -> str:
    """Severity of an Xid by its consequence."""
    if number in _XID_APPLICATION:
        return INFO
    if number == _XID_RECOVERY:
        if _RECOVERY_HARMLESS.search(text):
            return INFO
        return ERROR if _RECOVERY_NEEDED.search(text) else WARNING
    return ERROR if number in _XID_FATAL else WARNING


def _xid(state: State) -> Iterator[Finding]:
    """One finding per GPU and number, the last text as evidence."""
    log = state.kernel_log
    names = {gpu.bdf: gpu.name for gpu in state.gpus}
    works = {gpu.bdf for gpu in state.gpus if gpu.index in state.proven}
    grouped: dict[tuple[str, int], list[str]] = {}
    for xid in log.xids if log else []:
        grouped.setdefault((xid.bus_id, xid.number), []).append(xid.text)
    for (bdf, number), texts in sorted(grouped.items()):
        name = names.get(bdf, bdf)
        times = f" {len(texts)} times" if len(texts) > 1 else ""
        severity = xid_severity(number, texts[-1])
        if severity == ERROR and bdf in works:
            severity, times = WARNING, f"{times} since boot; it works now"
        meaning = " (a program's fault, not the card's)" if number in _XID_APPLICATION else ""
        said = f"Xid (PCI:{bdf[:-2]}): {number}, {texts[-1]}"
        known = known_xid(said)
        remedy = known.problem.remedy if known else "reset the GPU or reboot, and watch"
        yield Finding(
            "xid",
            severity,
            name,
            f"Xid {number} on {name}{times}{meaning}" + (f". {known.problem.cause}" if known else ""),
            f"kernel log: {said}",
            f"nothing; by itself it asks for no action ({texts[-1]})" if number == _XID_RECOVERY and severity == INFO else remedy,
            "NVIDIA, 'XID Errors'",
        )


def _wanted_nodes(state: State) -> list[str]:
    minors = [gpu.info.minor for gpu in state.gpus if gpu.info and gpu.info.minor is not None]
    count = state.count or 0
    numbers = minors if len(minors) == count else list(range(count))
    return [*(f"/dev/nvidia{number}" for number in sorted(numbers)), *_CONTROL_NODES]


def _nodes(state: State) -> Iterator[Finding]:
    if state.driver_loaded is False:
        return  # without the module there are none, and that is a finding of its own
    majors: dict[str, int] = {}
    reading = state.host.file("/proc/devices")
    if reading.ok:
        try:
            majors = parse_majors(reading.text)
        except NotUnderstoodError as error:
            state.refusals["/proc/devices"] = f"not understood: {error.why}"
    for part in (state.host, state.container):
        if part is None or not part.has_nodes():
            continue
        told = part.data["nodes"]
        missing = [path for path in _wanted_nodes(state) if path in told and told[path] is None]
        missing += [path for path in sorted(told) if told[path] is None and path not in missing and _is_gpu_node(path)]
        stale = list(_stale(part, majors))
        inside = part is not state.host
        if missing:
            lazy = not inside and set(missing) <= set(_LAZY_NODES) and not _serves_containers(state)
            yield Finding(
                "device-node-missing",
                WARNING if lazy else ERROR,
                part.name if inside else "host",
                f"{', '.join(missing)} {'do' if len(missing) > 1 else 'does'} not exist" + (f" in {part.name}" if inside else ""),
                f"looked for in {part.name}: {', '.join(missing)}",
                "restart the container after the host has the nodes (dev[n] in its configuration)"
                if inside
                else "nvidia-modprobe -u -c 0 -c 1 … makes them; a unit before pve-guests.service must do so at each boot",
            )
        if stale:
            yield Finding(
                "device-node-missing",
                ERROR,
                part.name if inside else "host",
                "device nodes carry a major number of an earlier boot: " + ", ".join(path for path, _, _ in stale),
                "; ".join(f"{path} has major {had}, /proc/devices says {wants}" for path, had, wants in stale),
                "restart the container; pass devices as dev[n], which looks the number up at each start",
            )


def _serves_containers(state: State) -> bool:
    """Containers need the nodes when they start; elsewhere the first CUDA program makes those of nvidia-uvm."""
    configured = any("/dev/nvidia" in state.host.file(match[0]).text for match in state.host.paths("files", r"/etc/pve/lxc/\d+\.conf"))
    return configured or state.container is not None


def _is_gpu_node(path: str) -> bool:
    return bool(re.fullmatch(r"/dev/nvidia\d+", path)) or path in _CONTROL_NODES


def _stale(part: Part, majors: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    for path, name in (("/dev/nvidia-uvm", "nvidia-uvm"), ("/dev/nvidia-uvm-tools", "nvidia-uvm")):
        node = part.node(path)
        if node is not None and name in majors and isinstance(node.get("major"), int) and node["major"] != majors[name]:
            yield path, node["major"], majors[name]


def _hmm(state: State, failing: bool) -> Iterator[Finding]:
    """HMM is on when a GPU says so; the parameter and the option file are only its causes."""
    modes = {gpu.name: gpu.info.addressing_mode for gpu in state.gpus if gpu.info and gpu.info.addressing_mode}
    live = state.host.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    disabled = live.text.strip() if live.ok else None
    on = [name for name, mode in modes.items() if mode == "HMM"]
    option = state.modprobe.get("nvidia_uvm", "uvm_disable_hmm") if state.modprobe else None
    set_off = option is not None and option[0].strip('"').lower() in _YES
    log = state.kernel_log
    remedy = (
        "echo 'options nvidia_uvm uvm_disable_hmm=1' >/etc/modprobe.d/nvidia-uvm.conf; stop what uses the GPUs, reload nvidia_uvm "
        "(or reboot), make the device nodes anew"
    )
    source = "NVIDIA CUDA release notes, known issue on HMM and KASLR; NVIDIA/open-gpu-kernel-modules#1082"
    allowed = not modes and disabled == "N"
    if on or allowed or (log and log.hmm_failure):
        evidence = [f"nvidia-smi -q: Addressing Mode HMM on {', '.join(on)}"] if on else []
        evidence += [f"/sys/module/nvidia_uvm/parameters/uvm_disable_hmm: {disabled}"] if disabled else []
        evidence += [f"kernel log: {log.hmm_failure}"] if log and log.hmm_failure else []
        yield Finding(
            "hmm-enabled",
            ERROR if failing or (log and log.hmm_failure) else WARNING,
            "host",
            "heterogeneous memory management (HMM) is on: peer-to-peer can lock up and CUDA may fail to start"
            if on
            else "heterogeneous memory management (HMM) is not switched off",
            "; ".join(evidence),
            remedy,
            source,
        )
    if option and not set_off:  # kmod takes the last of several: another file would not help
        remedy = (
            f"take uvm_disable_hmm={option[0]} out of {option[1]}, or write 1 there; stop what uses the GPUs, reload nvidia_uvm (or reboot)"
        )
    if state.modprobe is not None and not set_off and (on or disabled == "Y" or allowed):
        yield Finding(
            "hmm-option-missing",
            WARNING,
            "host",
            (f"{option[1]} switches HMM on" if option else "no file in modprobe.d switches HMM off")
            + ("; it is off now, the next load of the module switches it on" if disabled == "Y" else ""),
            f"uvm_disable_hmm={option[0]} in {option[1]}" if option else "no 'options nvidia_uvm uvm_disable_hmm=1' in modprobe.d",
            remedy,
            source,
        )


def _options(state: State, failing: bool) -> Iterator[Finding]:
    """Options of nvidia.ko that modprobe.d asks for and the running module does not have."""
    if state.modprobe is None or state.params is None:
        return
    wrong = []
    for option, (value, path) in sorted(state.modprobe.options.get("nvidia", {}).items()):
        name = option.removeprefix("NVreg_")
        if name == option or name not in state.params:
            continue
        have = state.params[name]
        same = parse_registry(value) == parse_registry(have) if name in _REGISTRY_NAMES else _number(value) == _number(have)
        if not same:
            wrong.append((name, value, path, have))
    if wrong:
        yield Finding(
            "nvreg-not-active",
            ERROR if failing else WARNING,
            "host",
            "the running module does not have the options that modprobe.d asks for: " + ", ".join(name for name, *_ in wrong),
            "; ".join(f"{path}: {name}={value}, /proc/driver/nvidia/params: {have or '(empty)'}" for name, value, path, have in wrong),
            "reload the nvidia modules or reboot; when the module is in the initramfs: update-initramfs -u -k all first",
        )


def _number(text: str) -> int | str:
    try:
        return int(text, 0)
    except ValueError:
        return text
