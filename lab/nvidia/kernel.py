"""The driver as the kernel would hold it: modules loaded and unloaded, GPUs bound, /proc and /sys/module written from the state."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from . import fabric, kmsg, model, paths, pci, state, users

if TYPE_CHECKING:
    from pathlib import Path

# Parameters of nvidia.ko in the order of /proc/driver/nvidia/params, with their defaults.
PARAMS: dict[str, int | str] = {
    "ResmanDebugLevel": 4294967295,
    "RmLogonRC": 1,
    "ModifyDeviceFiles": 1,
    "DeviceFileUID": 0,
    "DeviceFileGID": 0,
    "DeviceFileMode": 438,
    "InitializeSystemMemoryAllocations": 1,
    "UsePageAttributeTable": 4294967295,
    "EnableMSI": 1,
    "EnablePCIeGen3": 0,
    "MemoryPoolSize": 0,
    "KMallocHeapMaxSize": 0,
    "VMallocHeapMaxSize": 0,
    "IgnoreMMIOCheck": 0,
    "EnableStreamMemOPs": 0,
    "EnableUserNUMAManagement": 1,
    "NvLinkDisable": 0,
    "RmProfilingAdminOnly": 0,
    "PreserveVideoMemoryAllocations": 0,
    "EnableS0ixPowerManagement": 0,
    "S0ixPowerManagementVideoMemoryThreshold": 256,
    "DynamicPowerManagement": 3,
    "DynamicPowerManagementVideoMemoryThreshold": 200,
    "RegisterPCIDriver": 1,
    "EnablePCIERelaxedOrderingMode": 0,
    "EnableResizableBar": 0,
    "EnableGpuFirmware": 18,
    "EnableGpuFirmwareLogs": 2,
    "RmNvlinkBandwidthLinkCount": 0,
    "EnableDbgBreakpoint": 0,
    "OpenRmEnableUnsupportedGpus": 1,
    "DmaRemapPeerMmio": 1,
    "ImexChannelCount": 2048,
    "CreateImexChannel0": 0,
    "GrdmaPciTopoCheckOverride": 0,
    "CoherentGPUMemoryMode": "",
    "RegistryDwords": "",
    "RegistryDwordsPerDevice": "",
    "RmMsg": "",
    "GpuBlacklist": "",
    "TemporaryFilePath": "",
    "ExcludedGpus": "",
}
# The one parameter whose module option has another name.
OPTION_OF = {"RmProfilingAdminOnly": "RestrictProfilingToAdminUsers"}

# What /sys/module/nvidia_uvm/parameters shows; parameters of nvidia.ko have no permissions there and show nothing.
UVM_PARAMETERS = {
    "uvm_disable_hmm": "N",
    "uvm_ats_mode": "1",
    "uvm_debug_prints": "0",
    "uvm_enable_builtin_tests": "0",
    "uvm_enable_debug_procfs": "0",
    "uvm_enable_va_space_mm": "1",
    "uvm_global_oversubscription": "1",
    "uvm_leak_checker": "0",
    "uvm_perf_prefetch_enable": "1",
    "uvm_perf_prefetch_threshold": "51",
    "uvm_perf_thrashing_enable": "1",
    "uvm_perf_migrate_cpu_preunmap_enable": "1",
}
DRM_PARAMETERS = {"modeset": "Y", "fbdev": "Y"}
SIZES = {
    "nvidia": 16183296,
    "nvidia_uvm": 2158592,
    "nvidia_modeset": 1638400,
    "nvidia_drm": 151552,
    "nvidia_peermem": 16384,
    "nouveau": 3571712,
}
NEEDS = {"nvidia_uvm": ["nvidia"], "nvidia_modeset": ["nvidia"], "nvidia_drm": ["nvidia_modeset"], "nvidia_peermem": ["nvidia"]}
GPU_FIRMWARE = "gsp_ga10x.bin"
NVIDIA_MAJOR = 195
_BOOLEANS = {"1": "Y", "y": "Y", "yes": "Y", "true": "Y", "on": "Y", "0": "N", "n": "N", "no": "N", "false": "N", "off": "N", "": "Y"}


class KernelError(Exception):
    """The kernel said no; the text is what perror would print."""


def release() -> str:
    """The running kernel's release, as the node pretends."""
    try:
        return paths.KERNEL_RELEASE.read_text().strip()
    except OSError:
        return subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()


def canonical(name: str) -> str:
    """A module's name as the kernel keeps it."""
    return name.replace("-", "_")


def modinfo(path: Path, field: str) -> list[str]:
    """A field of a built module, read by the real modinfo; empty when there is none."""
    done = subprocess.run(["/usr/sbin/modinfo", "-F", field, str(path)], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def split_parameters(text: str) -> dict[str, str]:
    """Split a parameter string as the kernel does: blanks separate, double quotes hold together and vanish; the last value wins."""
    found: dict[str, str] = {}
    for match in re.finditer(r'(?:[^\s"]|"[^"]*"?)+', text):
        name, equals, value = match.group().partition("=")
        found[canonical(name.strip('"'))] = value.replace('"', "") if equals else ""
    return found


def holders(loaded: dict[str, Any], name: str) -> list[str]:
    """Loaded modules that need a module, newest first."""
    return [other for other in reversed(list(loaded)) if name in NEEDS.get(other, [])]


# ----------------------------------------------------------------------------------------------------------- loading


def insert(path: Path, options: str) -> None:
    """Load a module file with its options, as finit_module would.

    Raises KernelError with the kernel's reason: Key was rejected by service, Invalid argument, No such device.
    """
    name = canonical(path.name.removesuffix(".xz").removesuffix(".zst").removesuffix(".gz").removesuffix(".ko"))
    with state.change() as now:
        if name in now["loaded"]:
            raise KernelError("File exists")
        _signature(now, path, name)
        for needed in NEEDS.get(name, []):
            if needed not in now["loaded"]:
                kmsg.log(f"{name}: Unknown symbol lab_{needed}_register (err -2)", level=kmsg.WARNING)
                raise KernelError("Unknown symbol in module, or unknown parameter (see dmesg)")
        version = (modinfo(path, "version") or [""])[0]
        known = {canonical(line.partition(":")[0]) for line in modinfo(path, "parm")}
        given = split_parameters(options)
        parameters: dict[str, str] = {}
        for option, value in given.items():
            if known and option not in known:
                kmsg.log(f"{name}: unknown parameter '{option}' ignored", level=kmsg.WARNING)
            else:
                parameters[option] = value
        entry = {
            "version": version,
            "path": str(path),
            "params": parameters,
            "license": (modinfo(path, "license") or [""])[0],
            "srcversion": (modinfo(path, "srcversion") or [""])[0],
            "size": SIZES.get(name, 65536),
        }
        if name.startswith("nvidia"):
            _check_booleans(name, parameters)
        if name == "nvidia":
            _probe(now, entry)
        elif name == "nvidia_uvm":
            now["majors"]["nvidia-uvm"] = _major(now)
            kmsg.log(f"nvidia-uvm: Loaded the UVM driver, major device number {now['majors']['nvidia-uvm']}.")
        elif name == "nvidia_modeset":
            kmsg.log(f"nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  {version}  Release Build  (lab)")
        elif name == "nvidia_drm":
            for minor, gpu in enumerate(bound(now), 1):
                kmsg.log(
                    f"[drm] [nvidia-drm] [GPU ID 0x0000{gpu['bdf'][5:7]}00] Loading driver",
                    f"[drm] Initialized nvidia-drm 0.0.0 for {gpu['bdf']} on minor {minor}",
                )
        now["loaded"][name] = entry
        render(now)


def _signature(now: dict[str, Any], path: Path, name: str) -> None:
    if not now["secure_boot"]:
        if "nvidia" not in now["loaded"] and name == "nvidia":
            kmsg.log(
                "nvidia: loading out-of-tree module taints kernel.",
                "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
            )
        return
    from . import secure_boot

    if not secure_boot.trusted(path):
        kmsg.log("Loading of module with unavailable key is rejected", level=kmsg.NOTICE)
        raise KernelError("Key was rejected by service")


def _check_booleans(name: str, parameters: dict[str, str]) -> None:
    for option in ("uvm_disable_hmm", "modeset", "fbdev"):
        if option in parameters and parameters[option].lower() not in _BOOLEANS:
            kmsg.log(f"{name}: `{parameters[option]}' invalid for parameter `{option}'", level=kmsg.ERROR)
            raise KernelError("Invalid argument")


def _major(now: dict[str, Any]) -> int:
    """A free dynamic character major. Which one depends on what else the kernel numbered before: it changes at every load."""
    taken = set(now["majors"].values()) | _real_majors()
    free = [number for number in range(234, 255) if number not in taken] or [number for number in range(384, 512) if number not in taken]
    return random.choice(free)


def _real_majors() -> set[int]:
    try:
        text = (paths.ROOT / "run/lab/nvidia/real-proc-devices").read_text()
    except OSError:
        return set()
    return {int(match) for match in re.findall(r"^\s*(\d+) ", text.partition("Block devices")[0], re.MULTILINE)}


def _probe(now: dict[str, Any], entry: dict[str, Any]) -> None:
    """Bind what is free on the bus, and say what the real driver says."""
    version = entry["version"]
    now["majors"]["nvidia-nvlink"] = _major(now)
    kmsg.log(f"nvidia-nvlink: Nvlink Core is being initialized, major device number {now['majors']['nvidia-nvlink']}")
    foreign = [gpu for gpu in now["gpus"] if gpu["driver"] not in {None, "nvidia"}]
    for gpu in now["gpus"]:
        if gpu["driver"] is None and not gpu["lost"]:
            gpu["driver"] = "nvidia"
            kmsg.log(f"nvidia {gpu['bdf']}: enabling device (0000 -> 0002)")
    if foreign:
        kmsg.log(
            f"NVRM: The NVIDIA probe routine was not called for {len(foreign)} device(s).",
            "NVRM: This can occur when a driver such as: ",
            "NVRM: nouveau, rivafb, nvidiafb or rivatv ",
            "NVRM: was loaded and obtained ownership of the NVIDIA device(s).",
            "NVRM: Try unloading the conflicting kernel module (and/or",
            "NVRM: reconfigure your kernel without the conflicting",
            "NVRM: driver(s)), then try loading the NVIDIA kernel module",
            "NVRM: again.",
            level=kmsg.ERROR,
        )
    probed = [gpu for gpu in now["gpus"] if gpu["driver"] == "nvidia"]
    if not probed:
        kmsg.log("NVRM: No NVIDIA graphics adapter probed!", level=kmsg.ERROR)
        now["majors"].pop("nvidia-nvlink")
        raise KernelError("No such device")
    for name in ("nvidia-caps", "nvidia-caps-imex-channels"):
        now["majors"][name] = _major(now)
    for minor, gpu in enumerate(probed):
        gpu["minor"] = minor
    firmware = paths.ROOT / "lib/firmware/nvidia" / version / GPU_FIRMWARE
    entry["firmware"] = firmware.exists()
    kmsg.log(f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (lab)")
    if not entry["firmware"]:
        kmsg.log(
            *(f"nvidia {gpu['bdf']}: Direct firmware load for nvidia/{version}/{GPU_FIRMWARE} failed with error -2" for gpu in probed),
            *(f"NVRM: GPU {gpu['bdf']}: RmInitAdapter failed! (0x61:0x56:2017)" for gpu in probed),
            level=kmsg.ERROR,
        )


def bind(now: dict[str, Any], gpu: dict[str, Any]) -> None:
    """Take one GPU from whoever has it and give it to nvidia.ko where that is loaded."""
    gpu["driver"] = None
    if "nvidia" in now["loaded"]:
        gpu["minor"] = next(minor for minor in range(len(now["gpus"])) if minor not in {other["minor"] for other in bound(now)})
        gpu["driver"] = "nvidia"


def bound(now: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that nvidia.ko drives, by minor number."""
    return sorted((gpu for gpu in now["gpus"] if gpu["driver"] == "nvidia"), key=lambda gpu: int(gpu["minor"]))


def remove(name: str) -> None:
    """Unload a module, as delete_module would.

    Raises KernelError: "not found" when it is not loaded, "in use" when a module or a process holds it.
    """
    name = canonical(name)
    with state.change() as now:
        if name not in now["loaded"]:
            raise KernelError("not found")
        if holders(now["loaded"], name):
            raise KernelError("in use by: " + " ".join(holders(now["loaded"], name)))
        if users.count(name):
            raise KernelError("in use")
        del now["loaded"][name]
        if name == "nvidia":
            kmsg.log(f"nvidia-nvlink: Unregistered Nvlink Core, major device number {now['majors'].get('nvidia-nvlink')}")
            for key in ("nvidia-nvlink", "nvidia-caps", "nvidia-caps-imex-channels"):
                now["majors"].pop(key, None)
        elif name == "nvidia_uvm":
            now["majors"].pop("nvidia-uvm", None)
            kmsg.log("nvidia-uvm: Unloaded the UVM driver.")
        for gpu in now["gpus"]:
            if gpu["driver"] == name:
                gpu["driver"] = None
                gpu.pop("minor", None)
                gpu.update(persistence=False, power_limit=model.POWER_MAX_W)
        render(now)


# ----------------------------------------------------------------------------------------------------------- showing


def hmm_disabled(now: dict[str, Any]) -> bool:
    """Whether the loaded nvidia_uvm runs without HMM."""
    if now["loaded"].get("nvidia_uvm", {}).get("hmm_forced"):
        return False
    value = now["loaded"].get("nvidia_uvm", {}).get("params", {}).get("uvm_disable_hmm", "N")
    return _BOOLEANS.get(value.lower(), "N") == "Y"


def render(now: dict[str, Any]) -> None:
    """Write sysfs and /proc from the state."""
    pci.links(now)
    _render_modules(now)
    _render_devices(now)
    _render_driver(now)
    fabric.write(now)


def _render_modules(now: dict[str, Any]) -> None:
    lines = []
    used = users.counts() if now["loaded"] else {}
    for name in reversed(list(now["loaded"])):
        entry = now["loaded"][name]
        used_by = holders(now["loaded"], name)
        count = len(used_by) + used.get(name, 0)
        lines.append(f"{name} {entry['size']} {count} {''.join(other + ',' for other in used_by) or '-'} Live 0x0000000000000000 (OE)\n")
        folder = paths.SYS_MODULE / name
        for key in ("version", "srcversion"):
            if entry.get(key):
                state.write(folder / key, entry[key] + "\n")
        state.write(folder / "initstate", "live\n")
        state.write(folder / "refcnt", f"{count}\n")
        state.write(folder / "coresize", f"{entry['size']}\n")
        state.write(folder / "taint", "OE\n")
        (folder / "holders").mkdir(exist_ok=True)
        for link in (folder / "holders").iterdir():
            if link.name not in used_by:
                link.unlink()
        for other in used_by:
            if not (folder / "holders" / other).is_symlink():
                (folder / "holders" / other).symlink_to(f"../../{other}")
        for option, value in _visible(now, name).items():
            state.write(folder / "parameters" / option, value + "\n")
    kept = set(now["loaded"])
    for folder in paths.SYS_MODULE.iterdir() if paths.SYS_MODULE.is_dir() else ():
        if folder.name not in kept and (folder / "initstate").exists() and (folder / "coresize").exists():
            shutil.rmtree(folder)
    state.write(paths.PROC_MODULES, "".join(lines))


def _visible(now: dict[str, Any], name: str) -> dict[str, str]:
    """A module's readable parameters as sysfs shows them."""
    given = now["loaded"][name]["params"]
    if name == "nvidia_uvm":
        shown = {option: given.get(option, default) for option, default in UVM_PARAMETERS.items()}
        shown["uvm_disable_hmm"] = "Y" if hmm_disabled(now) else "N"
        return shown
    if name == "nvidia_drm":
        return {option: _BOOLEANS.get(given.get(option, default).lower(), default) for option, default in DRM_PARAMETERS.items()}
    return {}


def _render_devices(now: dict[str, Any]) -> None:
    """Write /proc/devices: the machine's own majors and the driver's."""
    try:
        text = (paths.RUN / "real-proc-devices").read_text()
    except OSError:
        text = "Character devices:\n  1 mem\n  5 /dev/tty\n\nBlock devices:\n  7 loop\n"
    characters, _, blocks = text.partition("\n\n")
    lines = [line for line in characters.splitlines()[1:] if "nvidia" not in line]
    if "nvidia" in now["loaded"]:
        lines += [f"{NVIDIA_MAJOR} nvidia", f"{NVIDIA_MAJOR} nvidiactl"]
        if "nvidia_modeset" in now["loaded"]:
            lines.append(f"{NVIDIA_MAJOR} nvidia-modeset")
    lines += [f"{major:3d} {name}" for name, major in now["majors"].items()]
    lines.sort(key=lambda line: int(line.split()[0]))
    state.write(paths.PROC_DEVICES, "Character devices:\n" + "\n".join(lines) + "\n\n" + blocks)


def params_text(options: dict[str, str]) -> str:
    """/proc/driver/nvidia/params for the options that nvidia.ko was loaded with."""
    lines = []
    for name, default in PARAMS.items():
        given = options.get("NVreg_" + OPTION_OF.get(name, name))
        if isinstance(default, str):
            lines.append(f'{name}: "{given or default}"')
        else:
            lines.append(f"{name}: {default if given is None else int(given, 0) & 0xFFFFFFFF}")
    return "\n".join(lines) + "\n"


def _render_driver(now: dict[str, Any]) -> None:
    """Write /proc/driver/nvidia, or take it away."""
    folder = paths.PROC_DRIVER / "nvidia"
    if "nvidia" not in now["loaded"]:
        shutil.rmtree(folder, ignore_errors=True)
        return
    entry = now["loaded"]["nvidia"]
    version = entry["version"]
    built = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(0))
    state.write(
        folder / "version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (lab)  {built}\n"
        "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19) \n",
    )
    state.write(folder / "params", params_text(entry["params"]))
    state.write(folder / "registry", 'Binary: ""\n')
    state.write(folder / "suspend", "suspend hibernate resume\n")
    for path, minor, mode in (("mig/config", 1, 256), ("mig/monitor", 2, 292), ("fabric-imex-mgmt", 4323, 256)):
        state.write(folder / "capabilities" / path, f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
    keep = set()
    for gpu in bound(now):
        keep.add(gpu["bdf"])
        place = folder / "gpus" / gpu["bdf"]
        rows = (
            ("Model: \t\t", f"{gpu['name']}{model.SIMULATED}"),
            ("IRQ:   \t\t", str(gpu["irq"])),
            ("GPU UUID: \t", gpu["uuid"]),
            ("Video BIOS: \t", model.VBIOS.lower()),
            ("Bus Type: \t", "PCIe"),
            ("DMA Size: \t", "52 bits"),
            ("DMA Mask: \t", "0xfffffffffffff"),
            ("Bus Location: \t", gpu["bdf"]),
            ("Device Minor: \t", str(gpu["minor"])),
            ("GPU Firmware: \t", version if entry.get("firmware") else "N/A"),
        )
        text = "".join(f"{label} {value}\n" for label, value in rows)
        state.write(place / "information", text + "GPU Excluded:\t No\n")
        state.write(place / "registry", 'Binary: ""\n')
        state.write(place / "power", "Runtime D3 status:          Disabled by default\nVideo Memory:               Active\n")
    for place in (folder / "gpus").iterdir() if (folder / "gpus").is_dir() else ():
        if place.name not in keep:
            shutil.rmtree(place)
