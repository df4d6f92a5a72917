"""Faults of GPUs, driver and fabric: each does what the trouble does on a real host, now where it can and again at every boot.

`python -m lab fault NODE NAME [ARG...]` runs them inside the node.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import boot, config_space, kernel, kmsg, model, paths, pci, secure_boot, state

if TYPE_CHECKING:
    from collections.abc import Callable

_HMM_FILE = Path("etc/modprobe.d/zz-lab-hmm.conf")
_DKMS_FILE = paths.ETC / "dkms.mk"
_RUNFILE = (Path("usr/bin/nvidia-uninstall"), Path("var/log/nvidia-installer.log"))
_P2P = ("corrupt", "zeros", "lost", "mirror", "hang", "stuck", "late", "no-access", "staged", "slow", "impossible")


class FaultError(Exception):
    """An argument that makes no sense; the text says which would."""


def _remember(name: str, value: Any) -> None:
    state.save_faults(state.faults() | {name: value})


def _slot(words: list[str]) -> int:
    count = len(model.gpus())
    if not words or not words[0].isdigit() or int(words[0]) >= count:
        raise FaultError(f"which GPU? 0 to {count - 1}")
    return int(words[0])


def _add_slot(name: str, slot: int) -> None:
    _remember(name, sorted({*state.faults().get(name, []), slot}))


def _gpu(now: dict[str, Any], slot: int) -> dict[str, Any]:
    for gpu in now["gpus"]:
        if gpu["slot"] == slot:
            found: dict[str, Any] = gpu
            return found
    raise FaultError(f"GPU {slot} is not on the bus")


def gpu_off_bus(words: list[str]) -> str:
    """N: GPU N falls off the bus (Xid 79 while driven); from the next boot it is not there at all."""
    slot = _slot(words)
    _add_slot("gpu-off-bus", slot)
    with state.change() as now:
        gpu = _gpu(now, slot)
        bus = gpu["bdf"][:-2]
        if gpu["driver"] == "nvidia":
            gpu["lost"] = True
            kmsg.log(
                f"NVRM: GPU at PCI:{bus}: {gpu['uuid']}",
                f"NVRM: GPU Board Serial Number: {gpu['serial']}",
                f"NVRM: Xid (PCI:{bus}): 79, GPU has fallen off the bus.",
                f"NVRM: GPU {gpu['bdf']}: GPU has fallen off the bus.",
                f"NVRM: Xid (PCI:{bus}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
                level=kmsg.ERROR,
            )
        else:
            now["gpus"].remove(gpu)
            _unplug(gpu)
        kernel.render(now)
    return f"GPU {slot} ({gpu['bdf']}) is off the bus"


def _unplug(gpu: dict[str, Any]) -> None:
    shutil.rmtree(pci.folder(gpu), ignore_errors=True)
    (paths.SYS_PCI_BUS / "devices" / gpu["bdf"]).unlink(missing_ok=True)
    for link in paths.SYS_IOMMU.glob(f"*/devices/{gpu['bdf']}"):
        shutil.rmtree(link.parent.parent)


def gpu_vfio(words: list[str]) -> str:
    """N: GPU N belongs to vfio-pci, as on a host that passes it to a VM."""
    slot = _slot(words)
    _add_slot("gpu-vfio", slot)
    with state.change() as now:
        gpu = _gpu(now, slot)
        gpu["driver"] = "vfio-pci"
        gpu.pop("minor", None)
        kernel.render(now)
    return f"GPU {slot} ({gpu['bdf']}) is bound to vfio-pci"


def nouveau(_words: list[str]) -> str:
    """Nouveau is in the kernel and takes every free GPU at boot unless it is blacklisted; now too."""
    _remember("nouveau", True)
    boot._assign(state.faults())
    taken = sum(gpu["driver"] == "nouveau" for gpu in state.read()["gpus"])
    return f"nouveau holds {taken} GPUs"


def hmm_on(_words: list[str]) -> str:
    """HMM is on again: a later file in modprobe.d says so, and a loaded nvidia_uvm runs with it."""
    place = paths.ROOT / _HMM_FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("options nvidia_uvm uvm_disable_hmm=0\n")
    with state.change() as now:
        params = now["loaded"].get("nvidia_uvm", {}).get("params", {})
        if not state.faults().get("hmm-on"):
            _remember("hmm-on", {"before": params.get("uvm_disable_hmm")})
        if "nvidia_uvm" in now["loaded"]:
            params["uvm_disable_hmm"] = "0"
        kernel.render(now)
    return f"/{_HMM_FILE} switches HMM on"


def dkms_fails(words: list[str]) -> str:
    """[RELEASE...]: the module does not compile for these kernels (% stands for anything; default: all), as a driver too old for them."""
    _DKMS_FILE.parent.mkdir(parents=True, exist_ok=True)
    _DKMS_FILE.write_text(f"LAB_TOO_NEW := {' '.join(words) or '%'}\n")
    return f"modules will not build for {' '.join(words) or 'any kernel'}"


def nvidia_smi_hang(_words: list[str]) -> str:
    """nvidia-smi waits for ever and ignores SIGTERM, in node and guests."""
    _remember("nvidia-smi-hang", True)
    with state.change() as now:
        now["faults"]["nvidia-smi-hang"] = True
    return "nvidia-smi hangs"


def driver_mismatch(words: list[str]) -> str:
    """VMID [VERSION]: the user space inside a guest is upgraded to another version than the host's module."""
    if not words or not words[0].isdigit():
        raise FaultError("in which container? driver-mismatch VMID [VERSION]")
    version = words[1] if len(words) > 1 else "590.48.01"
    names = ("nvidia-driver-cuda", "libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4", "libcudadebugger1")
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
    enter = ["pct", "exec", words[0], "--", "env", "DEBIAN_FRONTEND=noninteractive"]
    subprocess.run([*enter, "apt-get", "update", "-qq"], check=True)  # lists of another day name packages that are not there any more
    subprocess.run([*enter, *command, *(f"{name}={version}-1" for name in names)], check=True)
    _remember("driver-mismatch", state.faults().get("driver-mismatch", {}) | {words[0]: version})
    return f"container {words[0]} has driver libraries {version}"


def driver_runfile(_words: list[str]) -> str:
    """What a driver installed from a .run file leaves on a host: its uninstaller and its log."""
    tool, log = (paths.ROOT / path for path in _RUNFILE)
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(
        f'#!/bin/sh\n# Left by the lab: takes itself and the log away, as the real one the driver.\nrm -f /{_RUNFILE[1]} "$0"\n'
    )
    tool.chmod(0o755)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("nvidia-installer log file '/var/log/nvidia-installer.log'\n")
    return "a .run driver was here"


def _acs(gpu: dict[str, Any]) -> int:
    """The ACS control word in the port above a GPU, as firmware, kernel or an administrator left it."""
    return int.from_bytes((pci.folder(gpu, "port") / "config").read_bytes()[config_space.ACS_OFFSET + 6 :][:2], "little")


def _link(name: str, key: str, words: list[str], allowed: range) -> str:
    slot = _slot(words)
    if len(words) < 2 or not words[1].isdigit() or int(words[1]) not in allowed:
        raise FaultError(f"{name} N VALUE, VALUE from {allowed.start} to {allowed.stop - 1}")
    _remember(name, state.faults().get(name, {}) | {str(slot): int(words[1])})
    with state.change() as now:
        gpu = _gpu(now, slot)
        gpu[key] = int(words[1])
        pci.configure(gpu, _acs(gpu))
        kernel.render(now)
    return f"GPU {slot} ({gpu['bdf']}) runs {pci.speed(gpu['gen'])} x{gpu['width']}"


def link_width(words: list[str]) -> str:
    """N LANES: the link of GPU N trained to fewer lanes."""
    return _link("link-width", "width", words, range(1, 17))


def link_speed(words: list[str]) -> str:
    """N GEN: the link of GPU N trained to a lower PCIe generation."""
    return _link("link-speed", "gen", words, range(1, 6))


def pcie_errors(words: list[str]) -> str:
    """N [COUNT]: correctable errors on the link of GPU N."""
    slot = _slot(words)
    count = int(words[1]) if len(words) > 1 else 4711
    _remember("pcie-errors", state.faults().get("pcie-errors", {}) | {str(slot): count})
    with state.change() as now:
        gpu = _gpu(now, slot)
        gpu.update(aer_correctable=count, replays=count)
        kmsg.log(
            f"pcieport {gpu['port']}: AER: Correctable error message received from {gpu['bdf']}",
            f"nvidia {gpu['bdf']}: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
            level=kmsg.WARNING,
        )
        kernel.render(now)
    return f"GPU {slot} counts {count} correctable errors"


def rebar_small(words: list[str]) -> str:
    """N: the firmware left BAR1 of GPU N at 256 MiB; from the next boot."""
    slot = _slot(words)
    _add_slot("rebar-small", slot)
    return f"GPU {slot} has a BAR1 of 256 MiB after the next boot"


def acs_on(_words: list[str]) -> str:
    """ACS redirection is on at every root port, now and after each boot."""
    with state.change() as now:
        if not state.faults().get("acs-on"):
            _remember("acs-on", {str(gpu["slot"]): _acs(gpu) for gpu in now["gpus"]})
        now["acs"] = config_space.ACS_REDIRECT
        for gpu in now["gpus"]:
            pci.configure(gpu, config_space.ACS_REDIRECT)
        kernel.render(now)
    return "ACS redirection is on"


def iommu_translated(_words: list[str]) -> str:
    """The IOMMU translates whatever the command line says, from the next boot (a firmware that forces it)."""
    _remember("iommu", "on")
    return "the IOMMU translates after the next boot"


def secure_boot_on(_words: list[str]) -> str:
    """Secure Boot is on and no key of this host is enrolled: modules built here are rejected."""
    _remember("secure-boot", True)
    with state.change() as now:
        now["secure_boot"] = True
    return "Secure Boot is on"


def mok_enroll(_words: list[str]) -> str:
    """Somebody stands at the console at the next boot and enrolls the keys that mokutil --import asked for."""
    secure_boot.enroll_pending()
    return "pending keys are enrolled at the next boot"


def xid(words: list[str]) -> str:
    """N CODE: the driver logs an Xid for GPU N; the GPU works on."""
    slot = _slot(words)
    code = words[1] if len(words) > 1 else "13"
    gpu = _gpu(state.read(), slot)
    kmsg.log(f"NVRM: Xid (PCI:{gpu['bdf'][:-2]}): {code}, pid='<unknown>', name=<unknown>, simulated by the lab", level=kmsg.ERROR)
    _remember("xid", True)
    return f"Xid {code} logged for GPU {slot}"


def p2p(words: list[str]) -> str:
    """A:B, A:*, all, near or far NAME: these pairs corrupt, zeros, lost, mirror, hang, stuck, late, no-access, staged, slow, impossible."""
    if len(words) != 2 or words[1] not in _P2P:
        raise FaultError(f"p2p PAIR NAME, NAME one of {', '.join(_P2P)}")
    slots = {gpu["slot"]: gpu["numa"] for gpu in model.gpus()}
    chosen = []
    for one, its_node in slots.items():
        for other, node in slots.items():
            wanted = {"all": True, "near": its_node == node, "far": its_node != node}.get(words[0])
            if wanted is None:
                match = re.fullmatch(r"(\d+|\*):(\d+|\*)", words[0])
                if not match:
                    raise FaultError("a pair is A:B, A:*, *:B, all, near or far")
                wanted = match.group(1) in {str(one), "*"} and match.group(2) in {str(other), "*"}
            if wanted and one != other:
                chosen.append(f"{one}:{other}")
    if not chosen:
        raise FaultError(f"{words[0]} names no pair")
    _remember("p2p", state.faults().get("p2p", {}) | dict.fromkeys(chosen, words[1]))
    with state.change() as now:
        kernel.render(now)
    return f"{len(chosen)} ordered pairs: {words[1]}"


def cuda_init(words: list[str]) -> str:
    """CODE: cuInit answers this error (3, 100, 802, 803, 999...)."""
    _remember("cuda-init", int(words[0]) if words else 999)
    with state.change() as now:
        kernel.render(now)
    return f"cuInit answers {words[0] if words else 999}"


def _remaining(kept: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What clearing does not undo, as on real hardware, and what does."""
    boot_wait = "until the next boot: "
    present = {gpu["slot"]: gpu for gpu in now["gpus"]}
    gone = [slot for slot in kept.get("gpu-off-bus", []) if slot not in present or present[slot].get("lost")]
    small = [gpu["slot"] for gpu in now["gpus"] if gpu["bar1_mib"] < model.BAR1_MIB]
    taken = [gpu["slot"] for gpu in now["gpus"] if gpu["driver"] == "nouveau"]
    logged = [name for name in ("gpu-off-bus", "pcie-errors", "xid") if name in kept]
    left = [f"{boot_wait}GPU {slot} stays off the bus" for slot in gone]
    left += [f"{boot_wait}BAR1 of GPU {slot} stays small" for slot in small]
    left += [f"{boot_wait}nouveau keeps GPU {slot}" for slot in taken]
    left += [f"{boot_wait}the IOMMU translates"] if kept.get("iommu") and now["iommu"] == "on" else []
    left += [f"{boot_wait}the kernel log keeps its lines of {', '.join(logged)}"] if logged else []
    for vmid, version in kept.get("driver-mismatch", {}).items():
        left.append(f"until site.yml --tags cuda_userspace: container {vmid} has driver libraries {version}")
    return left


def clear() -> list[str]:
    """Undo all that can be undone now, and return what the next boot or a run of the play undoes, in words."""
    kept = state.faults()
    state.save_faults({})
    _DKMS_FILE.unlink(missing_ok=True)
    for path in (_HMM_FILE, *_RUNFILE):
        (paths.ROOT / path).unlink(missing_ok=True)
    with state.change() as now:
        now["faults"] = {}
        now["secure_boot"] = False
        for gpu in now["gpus"]:
            gpu.update(gen=model.MAX_GEN, width=model.MAX_WIDTH, aer_correctable=0, replays=0)
            if gpu["slot"] in kept.get("gpu-vfio", []) and gpu["driver"] == "vfio-pci":
                kernel.bind(now, gpu)
            before = kept.get("acs-on") or {}
            if before or str(gpu["slot"]) in kept.get("link-width", {}) | kept.get("link-speed", {}):
                pci.configure(gpu, before.get(str(gpu["slot"]), _acs(gpu)))
        if kept.get("acs-on"):
            now["acs"] = boot.acs_word(now["iommu"])
        uvm = now["loaded"].get("nvidia_uvm")
        if uvm and kept.get("hmm-on"):
            uvm["params"].pop("uvm_disable_hmm", None)
            if (value := kept["hmm-on"]["before"]) is not None:
                uvm["params"]["uvm_disable_hmm"] = value
        kernel.render(now)
        return _remaining(kept, now)


def _of_words(fault: Callable[[list[str]], object]) -> Callable[..., object]:
    """A fault called with the command line's words one by one, as `lab fault` does, or with their list."""

    @functools.wraps(fault)
    def call(*words: str | list[str]) -> object:
        return fault([word for part in words for word in ([part] if isinstance(part, str) else part)])

    return call


_BY_NAME: dict[str, Callable[[list[str]], object]] = {
    "gpu-off-bus": gpu_off_bus,
    "gpu-vfio": gpu_vfio,
    "nouveau": nouveau,
    "hmm-on": hmm_on,
    "dkms-fails": dkms_fails,
    "nvidia-smi-hang": nvidia_smi_hang,
    "driver-mismatch": driver_mismatch,
    "driver-runfile": driver_runfile,
    "link-width": link_width,
    "link-speed": link_speed,
    "pcie-errors": pcie_errors,
    "rebar-small": rebar_small,
    "acs-on": acs_on,
    "iommu-translated": iommu_translated,
    "secure-boot": secure_boot_on,
    "mok-enroll": mok_enroll,
    "xid": xid,
    "p2p": p2p,
    "cuda-init": cuda_init,
}
FAULTS: dict[str, Callable[..., object]] = {name: _of_words(fault) for name, fault in _BY_NAME.items()}
