"""What NVML would answer: the devices that can be seen from here, or the error that the real library gives."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from lab.nvidia import kernel, kmsg, model, nodes, paths, state, users

# Exit codes of nvidia-smi(1).
NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LOST, MISMATCH = 6, 9, 12, 15, 18
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib")
_CUDA_OF_BRANCH = {570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3"}


class NvmlError(Exception):
    """NVML could not do it: text and exit code of nvidia-smi."""

    def __init__(self, text: str, code: int) -> None:
        """Keep the text to print and the code to exit with."""
        super().__init__(text)
        self.code = code


def library_version() -> str | None:
    """The version of the libnvidia-ml.so.1 that a program here would load; None when there is none."""
    for folder in _LIBRARY_FOLDERS:
        try:
            target = str((paths.ROOT / folder / "libnvidia-ml.so.1").readlink())
        except OSError:
            continue
        match = re.search(r"libnvidia-ml\.so\.(\d[\d.]+)$", target)
        if match:
            return match.group(1)
    return None


def cuda_version(driver: str) -> str:
    """The CUDA version that a driver branch speaks."""
    return _CUDA_OF_BRANCH.get(int(driver.partition(".")[0]), "13.0")


def _usable(path: Path, major: int, minor: int) -> bool:
    """Whether a device node is there, is the right one, and may be opened."""
    if Path("/") != paths.ROOT and path.exists() and not stat.S_ISCHR(path.stat().st_mode):
        return True  # a test's world cannot make nodes
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(major, minor) and os.access(path, os.R_OK | os.W_OK)


def _log_mismatch(library: str, module: str) -> None:
    """Write what the kernel module says of a client of another version; a guest has no way to the node's kernel log."""
    if os.geteuid() == 0 and paths.PROC_DRIVER.is_dir():
        kmsg.log(
            f"NVRM: API mismatch: the client 'nvidia-smi' (pid {os.getpid()})",
            f"NVRM: has the version {library}, but this kernel module has",
            f"NVRM: the version {module}.  Please make sure that this",
            "NVRM: kernel module and all NVIDIA driver components",
            "NVRM: have the same version.",
            level=kmsg.ERROR,
        )


class Session:
    """An initialised NVML: version, devices in bus order, and what processes say they hold."""

    def __init__(self) -> None:
        """Initialise as nvmlInit does; raises NvmlError with nvidia-smi's own words."""
        library = library_version()
        if library is None:
            raise NvmlError(
                "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is "
                "properly installed and present in your system.\n"
                "Please also try adding directory that contains libnvidia-ml.so to your system PATH.",
                LIBRARY_NOT_FOUND,
            )
        nodes.as_root()
        self.state = state.read()
        module = self.state["loaded"].get("nvidia")
        if module is None or not _usable(paths.ROOT / "dev/nvidiactl", kernel.NVIDIA_MAJOR, nodes.CONTROL_MINOR):
            raise NvmlError(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver "
                "is installed and running.\n",
                DRIVER_NOT_LOADED,
            )
        if module["version"] != library:
            _log_mismatch(library, module["version"])
            short = ".".join(library.split(".")[:2])
            raise NvmlError(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}", MISMATCH)
        self.driver: str = module["version"]
        self.library = library
        seen = kernel.bound(self.state) if module.get("firmware") else []
        self.gpus = [gpu for gpu in seen if _usable(paths.ROOT / f"dev/nvidia{gpu['minor']}", kernel.NVIDIA_MAJOR, int(gpu["minor"]))]
        if not self.gpus:
            raise NvmlError("No devices were found", NOT_FOUND)
        for index, gpu in enumerate(self.gpus):
            gpu["index"] = index
        self.hmm = "nvidia_uvm" in self.state["loaded"] and not kernel.hmm_disabled(self.state)
        self._use()

    def _use(self) -> None:
        """Add what processes declare: memory, utilisation, power, process list."""
        self.processes = users.declared()
        for gpu in self.gpus:
            mine = [(process, process["gpus"][str(gpu["slot"])]) for process in self.processes if str(gpu["slot"]) in process["gpus"]]
            gpu["processes"] = [
                {"pid": process["pid"], "name": process["name"], "used_mib": int(said.get("used_mib", 0))} for process, said in mine
            ]
            gpu["used_mib"] = min(sum(entry["used_mib"] for entry in gpu["processes"]), gpu["memory_mib"] - model.RESERVED_MIB)
            gpu["utilisation"] = max((int(said.get("utilisation", 0)) for _, said in mine), default=0)
            gpu["power_w"] = min(
                max((float(said.get("power_w", 0)) for _, said in mine), default=0.0) or 79.0 + gpu["slot"] * 1.37, gpu["power_limit"]
            )
            gpu["temperature"] = 28 + gpu["slot"] % 4 + gpu["utilisation"] // 3

    def refuse_lost(self, gpu: dict[str, Any]) -> None:
        """Raise what nvidia-smi says of a GPU that fell off the bus."""
        if gpu["lost"]:
            raise NvmlError(lost_text(gpu), LOST)

    def select(self, wanted: str | None) -> list[dict[str, Any]]:
        """The GPUs named by index, UUID, serial or bus id, separated by commas; all without a name."""
        if wanted is None:
            return self.gpus
        chosen = []
        for word in wanted.split(","):
            match = [gpu for gpu in self.gpus if word.strip() in names(gpu)]
            if not match:
                raise NvmlError("No devices were found", NOT_FOUND)
            chosen += match
        return chosen


def lost_text(gpu: dict[str, Any]) -> str:
    """The words for a GPU that fell off the bus."""
    return f"Unable to determine the device handle for GPU{gpu['index']}: {gpu['bdf']}: GPU is lost.  Reboot the system to recover this GPU"


def names(gpu: dict[str, Any]) -> set[str]:
    """Everything a GPU answers to."""
    return {str(gpu["index"]), gpu["uuid"], gpu["serial"], gpu["bdf"], bus_id(gpu), bus_id(gpu).lower(), gpu["bdf"].upper()}


def bus_id(gpu: dict[str, Any]) -> str:
    """The bus id as NVML spells it: eight digits of domain, upper case."""
    return "0000" + gpu["bdf"].upper()


def product(gpu: dict[str, Any]) -> str:
    """The product name, marked as simulated."""
    return str(gpu["name"]) + model.SIMULATED
