"""What a power-on does for the NVIDIA part: the PCI bus as firmware and kernel leave it, the kernel log, and who drives the GPUs.

Called by lab.boot inside the node, before sysinit.target. Calling it again while the node runs does nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import config_space, driver_core, kernel, kmsg, model, modules, numa, paths, pci, shims, state

_TUPLE = r"(?:^|\s)(?:amd_|intel_)?iommu=(\S+)"
_MS_BIND_REC = 4096 | 16384
_SECONDS_OF_BOOT = 2.553212


def iommu_mode(cmdline: str, fault: str | None = None) -> str:
    """off, pt (identity) or on (translated), as a kernel decides it from its command line: without a word it translates."""
    words = [word for value in re.findall(_TUPLE, cmdline) for word in value.split(",")]
    if fault:
        return fault
    if "off" in words:
        return "off"
    if "pt" in words or re.search(r"(?:^|\s)iommu\.passthrough=1(?:\s|$)", cmdline):
        return "pt"
    return "on"


def acs_word(iommu: str, *, forced: bool = False) -> int:
    """The ACS control word of the root ports after boot: with a live IOMMU the kernel asks for redirection."""
    return config_space.ACS_REDIRECT if forced or iommu != "off" else config_space.ACS_FIRMWARE


def hardware(faults: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that answer at power-on, with what the persistent faults do to them."""
    present = [gpu for gpu in model.gpus() if gpu["slot"] not in faults.get("gpu-off-bus", [])]
    for gpu in present:
        gpu["width"] = faults.get("link-width", {}).get(str(gpu["slot"]), gpu["width"])
        gpu["gen"] = faults.get("link-speed", {}).get(str(gpu["slot"]), gpu["gen"])
        gpu["aer_correctable"] = faults.get("pcie-errors", {}).get(str(gpu["slot"]), 0)
        gpu["replays"] = gpu["aer_correctable"]
        if gpu["slot"] in faults.get("rebar-small", []):
            gpu["bar1_mib"] = 256
    return present


def _log(cmdline: str, now: dict[str, Any]) -> None:
    release = kernel.release()
    lines = [
        (
            0.0,
            f"Linux version {release} (build@proxmox) (gcc (Debian 14.2.0-19) 14.2.0) #1 SMP PREEMPT_DYNAMIC PMX {release}",
        ),
        (0.0, f"Command line: {cmdline}"),
        (0.000004, "secureboot: Secure boot " + ("enabled" if now["secure_boot"] else "disabled")),
        (0.762537, f"Kernel command line: {cmdline}"),
    ]
    if "pcie_acs_override" in cmdline:
        lines.append((0.762601, "Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA"))
    domain = {"off": "Translated", "pt": "Passthrough (set via kernel command line)", "on": "Translated"}[now["iommu"]]
    lines.append((_SECONDS_OF_BOOT, f"iommu: Default domain type: {domain}"))
    if now["iommu"] == "off":
        lines.append((_SECONDS_OF_BOOT, "iommu: DMA domain TLB invalidation policy: lazy mode"))
    else:
        lines.append((_SECONDS_OF_BOOT, "AMD-Vi: Interrupt remapping enabled"))
    for gpu in now["gpus"]:
        lines.append((_SECONDS_OF_BOOT + 0.1, f"pci {gpu['bdf']}: [10de:2bb5] type 00 class 0x030200 PCIe Legacy Endpoint"))
        if gpu["width"] < model.MAX_WIDTH or gpu["gen"] < model.MAX_GEN:
            per_lane = {1: 2.0, 2: 4.0, 3: 7.876, 4: 15.753, 5: 31.507}
            lines.append(
                (
                    _SECONDS_OF_BOOT + 0.2,
                    (
                        f"pci {gpu['bdf']}: {per_lane[gpu['gen']] * gpu['width']:.3f} Gb/s available PCIe bandwidth, limited by "
                        f"{pci.speed(gpu['gen']).removesuffix(' PCIe')} PCIe x{gpu['width']} link at {gpu['port']} "
                        f"(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
                    ),
                )
            )
    kmsg.start(lines)


# ------------------------------------------------------------------------------------------------- who takes the GPUs


def _configured(pattern: str) -> list[str]:
    """Lines of the whole modprobe configuration that match, as kmod reads it."""
    shown = modules._kmod("modprobe", ["--showconfig"]).stdout
    return [line for line in shown.splitlines() if re.match(pattern, line)]


def _listed_at_boot() -> set[str]:
    """Modules that /etc/modules and modules-load.d name."""
    found = set()
    for place in (paths.ROOT / "etc/modules", *sorted((paths.ROOT / "etc/modules-load.d").glob("*.conf"))):
        with contextlib.suppress(OSError):
            found |= {kernel.canonical(line.split()[0]) for line in place.read_text().splitlines() if line.strip() and line[0] not in "#;"}
    return found


def vfio_claims() -> bool:
    """Whether vfio-pci is configured for these GPUs and loaded before nvidia: options with the id, and somebody who loads it early."""
    ids = f"{model.VENDOR_ID:04x}:{model.DEVICE_ID:04x}"
    wanted = any(ids in line.lower() for line in _configured(r"options vfio[_-]pci "))
    early = "vfio_pci" in _listed_at_boot() or any("vfio" in line for line in _configured(r"softdep (nvidia|nouveau) pre:"))
    return wanted and early


def _assign(faults: dict[str, Any]) -> None:
    """Let the drivers that come first take their GPUs."""
    vfio = vfio_claims()
    nouveau = bool(faults.get("nouveau")) and not _configured(r"(blacklist nouveau$|install nouveau |alias nouveau )")
    with state.change() as now:
        if nouveau:
            now["loaded"]["nouveau"] = {
                "version": "",
                "path": "",
                "params": {},
                "license": "GPL and additional rights",
                "srcversion": "",
                "size": 3571712,
            }
        if vfio:
            now["vfio_ids"] = [driver_core.IDS]
        for gpu in now["gpus"]:
            if gpu["driver"] is not None:
                continue
            if vfio or gpu["slot"] in faults.get("gpu-vfio", []):
                gpu["driver"] = "vfio-pci"
                kmsg.log(f"vfio-pci {gpu['bdf']}: vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none")
            elif nouveau:
                gpu["driver"] = "nouveau"
                kmsg.log(f"nouveau {gpu['bdf']}: NVIDIA GB202 (1b2000a1)")
        kernel.render(now)


def _cold_plug() -> None:
    """What udev does for each GPU: modprobe -b with its alias, so that blacklists count."""
    for gpu in state.read()["gpus"]:
        if gpu["driver"] is None:
            alias = (pci.folder(gpu) / "modalias").read_text().strip()
            modules.modprobe(["-b", "-q", alias])
            return


# -------------------------------------------------------------------------------------------------------------- mounts


def _copy_tree(source: Path, target: Path) -> None:
    """Copy what can be read of a sysfs folder: small files, folders and links, as they are now."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        place = target / entry.name
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir(follow_symlinks=False):
            _copy_tree(Path(entry.path), place)
        else:
            with contextlib.suppress(OSError):
                place.write_bytes(Path(entry.path).read_bytes())


def _dress() -> None:
    """Show the prepared trees where a kernel would have them."""
    from lab.boot import mounts

    def bind(source: Path, target: Path, *, deep: bool = False) -> None:
        mounts.mount(str(source), target, flags=_MS_BIND_REC if deep else 4096)

    devices = paths.RUN / "sys/devices"
    devices.mkdir(parents=True, exist_ok=True)
    real = Path("/sys/devices")
    for entry in sorted(real.iterdir()):
        if entry.is_dir():
            (devices / entry.name).mkdir(exist_ok=True)
            bind(entry, devices / entry.name, deep=True)
    for entry in sorted(paths.SYS_PCI_DEVICES.iterdir()):
        (devices / entry.name).mkdir(exist_ok=True)
        bind(entry, devices / entry.name)
    bind(devices, real, deep=True)
    if (real / "system/node").is_dir():
        numa.build(paths.RUN / "sys/node")
        bind(paths.RUN / "sys/node", real / "system/node")
    shown = [(paths.SYS_MODULE, "/sys/module"), (paths.SYS_PCI_BUS, "/sys/bus/pci"), (paths.SYS_IOMMU, "/sys/kernel/iommu_groups")]
    shown += [(paths.SYS_CLASS_IOMMU, "/sys/class/iommu"), (paths.PROC_DRIVER, "/proc/driver"), (paths.PROC_DEVICES, "/proc/devices")]
    shown += [(paths.PROC_MODULES, "/proc/modules")]
    fragment = ["lxc.mount.entry = /sys/devices sys/devices none rbind,ro 0 0"]
    for source, target in shown:
        if Path(target).exists():  # a machine without PCI or modules has no place for them
            bind(source, Path(target))
            fragment.append(f"lxc.mount.entry = {source} {target[1:]} none bind,ro,optional 0 0")
    fragment.append(f"lxc.mount.entry = {paths.FABRIC} etc/lab/fabric.conf none bind,ro,create=file 0 0")
    paths.GUEST_FRAGMENTS.mkdir(parents=True, exist_ok=True)
    (paths.GUEST_FRAGMENTS / "20-nvidia.conf").write_text("\n".join(fragment) + "\n")


def prepare(cmdline: str) -> None:
    """Write the state and the trees of a fresh boot."""
    faults = state.faults()
    shutil.rmtree(paths.RUN, ignore_errors=True)
    paths.PROC_DRIVER.mkdir(parents=True)
    iommu = iommu_mode(cmdline, faults.get("iommu"))
    state.write(paths.RUN / "real-proc-devices", Path("/proc/devices").read_text())
    with state.change() as now:
        now.update(cmdline=cmdline, iommu=iommu, acs=acs_word(iommu, forced=bool(faults.get("acs-on"))), gpus=hardware(faults))
        now["secure_boot"] = bool(faults.get("secure-boot"))
        now["faults"] = {name: value for name, value in faults.items() if name == "nvidia-smi-hang"}
        _log(cmdline, now)
        driver_core.make_controls()
        pci.build(now)
        if Path("/") == paths.ROOT:
            _copy_tree(Path("/sys/module"), paths.SYS_MODULE)
        paths.SYS_MODULE.mkdir(parents=True, exist_ok=True)
        kernel.render(now)


def main() -> None:
    """Power on: called by lab.boot at each boot of the node."""
    if (paths.PROC_DRIVER / paths.PRIVATE / "state.json").exists():
        return
    prepare(Path("/proc/cmdline").read_text().strip())
    shims.install()
    _dress()
    from . import secure_boot

    secure_boot.power_on()
    subprocess.Popen([sys.executable, "-m", driver_core.__name__], stdin=subprocess.DEVNULL, start_new_session=True)
    _assign(state.faults())
    _cold_plug()
