"""Rules about the kernel driver: is it there, is it the right one, will the next kernel have it, does user space match."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..findings import ERROR, INFO, WARNING, Finding
from ..snapshot import MISSING
from ..state import NO_DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..snapshot import Part
    from ..state import State

_OPEN_ONLY: Final = ("Blackwell",)
"""Architectures that only the open kernel modules drive."""
_BESIDE: Final = ("nvidia-fs", "nvidia-peermem", "nvidia-peer-memory", "nvidia-mlnx", "nvidia-hwmon")
"""Modules of DKMS that use the driver: one that is installed says nothing of the driver's own build."""
_FOREIGN_OPEN: Final = ("nouveau", "nova_core")
_MISMATCH_TEXT: Final = re.compile(r"Driver/library version mismatch")
_LIBRARY: Final = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,}\.\d+(?:\.\d+)*)$")


def check_driver(state: State) -> Iterator[Finding]:
    """Yield findings about the driver, causes before consequences."""
    loaded = state.driver_loaded
    yield from _secure_boot(state, loaded)
    yield from _dkms(state, loaded)
    yield from _headers(state, loaded)
    yield from _foreign(state)
    if loaded is False:
        yield Finding(
            "driver-not-loaded",
            ERROR,
            "host",
            "the NVIDIA kernel module is not loaded",
            _not_loaded_evidence(state),
            "modprobe nvidia; when it fails: dmesg | tail, dkms status",
        )
    yield from _flavour(state)
    yield from _versions(state)
    yield from _container(state)


def _not_loaded_evidence(state: State) -> str:
    if state.driver_reading.state == MISSING:
        return "/proc/driver/nvidia/version does not exist"
    said = NO_DRIVER.search(state.smi_said(state.host))
    return f"nvidia-smi: {said[0]}" if said else "/sys/module/nvidia does not exist"


def _secure_boot(state: State, loaded: bool | None) -> Iterator[Finding]:
    log = state.kernel_log
    if log is None or not log.key_rejected or loaded:
        return
    secure = state.host.command("mokutil --sb-state")
    told = f"; mokutil --sb-state: {secure.text.strip().splitlines()[0]}" if secure.ok and secure.text.strip() else ""
    yield Finding(
        "secure-boot-key",
        ERROR,
        "host",
        "Secure Boot refuses the NVIDIA module: the key that DKMS signed it with is not enrolled",
        f"kernel log: {log.key_rejected}{told}",
        "mokutil --import /var/lib/dkms/mok.pub, then reboot and confirm the key at the console (or switch Secure Boot off)",
        "Proxmox VE administration guide, 'Using DKMS/Third Party Modules With Secure Boot'",
    )


def is_driver(module: str) -> bool:
    """Whether a module of DKMS is the driver itself: nvidia, nvidia-current, nvidia-srv, … but not what is built beside it."""
    return module.startswith("nvidia") and module.replace("_", "-") not in _BESIDE


def _installed_kernels(state: State) -> list[str]:
    return [match[1] for match in state.host.paths("links", r"/lib/modules/([^/]+)/build")]


def _release_key(release: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.findall(r"\d+|[a-z]+", release)]


def _dkms(state: State, loaded: bool | None) -> Iterator[Finding]:
    """Report a kernel without a built module: an error for the running one when nothing is loaded, else a warning before the reboot."""
    entries = [entry for entry in state.dkms or [] if is_driver(entry.module)]
    if not entries or state.kernel is None:
        return
    built = {entry.kernel for entry in entries if entry.state == "installed"}
    evidence = "dkms status: " + "; ".join(
        f"{entry.module}/{entry.version}" + (f", {entry.kernel}" if entry.kernel else "") + f": {entry.state}" for entry in entries
    )
    newer = [kernel for kernel in _installed_kernels(state) if _release_key(kernel) > _release_key(state.kernel)]
    for kernel in [state.kernel, *newer]:
        if kernel in built:
            continue
        running = kernel == state.kernel
        if running and loaded:
            continue  # loaded from elsewhere: built into the package, or by NVIDIA's installer
        yield Finding(
            "dkms-not-built",
            ERROR if running else WARNING,
            f"kernel {kernel}",
            f"DKMS has not built the NVIDIA module for the {'running' if running else 'newer installed'} kernel {kernel}",
            evidence,
            f"apt install proxmox-headers-{kernel} (or linux-headers-{kernel}), then dkms autoinstall -k {kernel}; "
            "when the build fails: /var/lib/dkms/nvidia/*/build/make.log",
        )


def _headers(state: State, loaded: bool | None) -> Iterator[Finding]:
    if loaded and not any(is_driver(entry.module) for entry in state.dkms or []) and state.host.command("dkms status").why != "was not run":
        return  # this driver was not built here, and does not need to be
    for kernel in _installed_kernels(state):
        if state.kernel is None or _release_key(kernel) < _release_key(state.kernel):
            continue
        link = state.host.link(f"/lib/modules/{kernel}/build")
        proof = state.host.file(f"/lib/modules/{kernel}/build/include/config/kernel.release")
        if MISSING not in {link.state, proof.state}:
            continue
        running = kernel == state.kernel
        yield Finding(
            "headers-missing",
            ERROR if running and loaded is False else WARNING,
            f"kernel {kernel}",
            f"the headers of the {'running' if running else 'newer installed'} kernel {kernel} are missing, so DKMS cannot build for it",
            f"/lib/modules/{kernel}/build " + ("does not exist" if link.state == MISSING else f"points to {link.text}, which is empty"),
            f"apt install proxmox-headers-{kernel} proxmox-default-headers (Debian: linux-headers-{kernel})",
        )


def _foreign(state: State) -> Iterator[Finding]:
    """GPUs that another driver owns, or none."""
    owners = {gpu.name: gpu.driver for gpu in state.gpus if gpu.driver is not None and gpu.driver != "nvidia"}
    open_drivers = {name: driver for name, driver in owners.items() if driver in {"nouveau", "nova", "nova_core", "NovaCore"}}
    modules = [name for name in _FOREIGN_OPEN if any(state.host.paths("files", rf"/sys/module/{name}/.*")) and _exists(state, name)]
    log = state.kernel_log
    if open_drivers or modules:
        yield Finding(
            "nouveau-loaded",
            ERROR if open_drivers else WARNING,
            ", ".join(open_drivers) or "host",
            f"{next(iter(open_drivers.values()), modules[0] if modules else '')} is loaded"
            + (f" and owns {', '.join(open_drivers)}" if open_drivers else ""),
            ", ".join(f"{name}: driver {driver}" for name, driver in open_drivers.items()) or f"/sys/module/{modules[0]} exists",
            "echo 'blacklist nouveau' >/etc/modprobe.d/nouveau.conf; update-initramfs -u -k all; reboot",
        )
    others = {name: driver for name, driver in owners.items() if name not in open_drivers}
    taken = {name: driver for name, driver in others.items() if driver}
    idle = [name for name, driver in others.items() if not driver]
    loaded = state.driver_loaded
    for name, driver in taken.items():
        yield Finding(
            "gpu-wrong-driver",
            ERROR,
            name,
            f"{name} belongs to the driver {driver}, not to nvidia",
            f"/sys/bus/pci/devices: {name} driver {driver}",
            "remove it from vfio-pci.ids or driverctl (/etc/modprobe.d, kernel command line), then reboot"
            if driver == "vfio-pci"
            else f"unbind it from {driver}: echo ADDRESS > /sys/bus/pci/drivers/{driver}/unbind, then modprobe nvidia",
        )
    if idle and loaded:
        yield Finding(
            "gpu-wrong-driver",
            ERROR,
            ", ".join(idle),
            f"no driver owns {', '.join(idle)}",
            "/sys/bus/pci/devices/…/driver does not exist",
            "dmesg | grep -E 'NVRM|nvidia' says why the driver did not take it",
        )
    if log is not None and log.not_probed and not taken and not open_drivers and not idle:
        yield Finding(
            "gpu-wrong-driver",
            ERROR,
            "host",
            f"another driver owns {log.not_probed} of the NVIDIA devices",
            f"kernel log: NVRM: The NVIDIA probe routine was not called for {log.not_probed} device(s)",
            "lspci -k -d 10de: names the owner; blacklist it or unbind the cards, then reboot",
        )


def _exists(state: State, module: str) -> bool:
    return any(state.host.file(match[0]).ok for match in state.host.paths("files", rf"/sys/module/{module}/.*"))


def _flavour(state: State) -> Iterator[Finding]:
    if state.driver is None or state.driver.open:
        return
    names = {gpu.info.architecture or "" for gpu in state.gpus if gpu.info} | {
        architecture for architecture in _OPEN_ONLY for gpu in state.gpus if gpu.info and architecture in (gpu.info.name or "")
    }
    needs = sorted(names & set(_OPEN_ONLY))
    known = any(names)
    severity = ERROR if needs else INFO if known else WARNING
    reason = f"{needs[0]} GPUs run with the open modules only" if needs else "the open modules are what this node is meant to run"
    yield Finding(
        "driver-proprietary",
        severity,
        "host",
        f"the proprietary kernel module {state.driver.version} is loaded; {reason}",
        "/proc/driver/nvidia/version: no 'Open Kernel Module'",
        "apt install nvidia-kernel-open-dkms of the same version, then reload the module or reboot",
        "NVIDIA driver installation guide, 'Kernel modules'",
    )


def _versions(state: State) -> Iterator[Finding]:
    """The module that runs, its user space, and the module on disk must be one version."""
    found = {}
    if state.driver is not None:
        found["/proc/driver/nvidia/version"] = state.driver.version
    for path in ("/sys/module/nvidia/version", "/sys/module/nvidia_uvm/version"):
        if (reading := state.host.file(path)).ok and reading.text.strip():
            found[path] = reading.text.strip()
    if state.smi is not None and state.smi.driver_version:
        found["nvidia-smi"] = state.smi.driver_version
    found.update(_libraries(state.host))
    log = state.kernel_log
    said = _MISMATCH_TEXT.search(state.smi_said(state.host))
    told = f"; nvidia-smi: {said[0]}" if said else ""
    if len(set(found.values())) > 1 or said:
        clients = sorted({pair for pair in log.api_mismatches if pair[0] != pair[1]}) if log else []
        told += "".join(f"; kernel log: API mismatch, client {client}, module {module}" for client, module in clients)
        yield Finding(
            "driver-version-mismatch",
            ERROR,
            "host",
            "the NVIDIA kernel module and its user space are of different versions",
            ", ".join(f"{where} {version}" for where, version in found.items()) + told,
            "reboot, or unload and load the modules, so that the installed version runs; dkms status shows what is built",
        )
        return
    disk = state.host.command("modinfo -F version nvidia")
    running = state.driver_version
    if disk.ok and running and disk.text.strip() and disk.text.strip() != running:
        yield Finding(
            "driver-version-mismatch",
            WARNING,
            "host",
            f"version {running} runs, {disk.text.strip()} is installed for this kernel: the next load changes the version",
            f"modinfo -F version nvidia: {disk.text.strip()}; loaded: {running}",
            "reboot at a quiet time, and give the containers the same version",
        )


def _libraries(part: Part) -> Iterator[tuple[str, str]]:
    """Driver libraries by the version that their links point to."""
    for match in part.paths("links", r".*/lib(?:cuda|nvidia-ml)\.so\.1"):
        reading = part.link(match[0])
        if reading.ok and (library := _LIBRARY.search(reading.text)):
            yield match[0], library[1]


def _container(state: State) -> Iterator[Finding]:
    part = state.container
    running = state.driver_version
    if part is None:
        return
    log = state.kernel_log
    versions = dict(_libraries(part))
    wrong = {path: version for path, version in versions.items() if running and version != running}
    said = _MISMATCH_TEXT.search(state.smi_said(part))
    clients = sorted({pair for pair in log.api_mismatches if pair[0] != pair[1]}) if log and said else []
    if not wrong and not said:
        return
    told = [f"{path} is {version}" for path, version in wrong.items()]
    told += [f"nvidia-smi in it: {said[0]}"] if said else []
    told += [f"kernel log: API mismatch, client {client}, module {module}" for client, module in clients]
    yield Finding(
        "container-driver-mismatch",
        ERROR,
        part.name,
        f"the driver libraries in {part.name} are not of the host's version {running or '(unknown)'}",
        "; ".join(told),
        f"install exactly {running or 'the host version'} in the container, without kernel modules, and pin it "
        "(site.yml --tags cuda_userspace does)",
    )
