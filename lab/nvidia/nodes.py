"""nvidia-modprobe: loads the modules and makes the device nodes that the driver itself does not make."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import Any

from . import kernel, paths, state

CONTROL_MINOR, MODESET_MINOR = 255, 254
_HELP = """
nvidia-modprobe: Load the NVIDIA kernel module and create NVIDIA
character device files.

Usage: nvidia-modprobe [options]
  -v, --version          -h, --help
  -c MINOR, --create-nvidia-device-file=MINOR
  -f FILE, --create-nvidia-capability-device-file=FILE
  -u, --unified-memory   -m, --modeset
  -i RANGE, --imex-channels=RANGE
  -s, --nvswitch         -l, --nvlink
"""


def make(path: str, major: int, minor: int, *, mode: int = 0o666, uid: int = 0, gid: int = 0) -> None:
    """Make a character device node, or put right one that is stale. Raises OSError, as for a guest without the capability."""
    place = paths.ROOT / path.lstrip("/")
    wanted = os.makedev(major, minor)
    try:
        existing = place.lstat()
    except FileNotFoundError:
        existing = None
    if existing and not (stat.S_ISCHR(existing.st_mode) and existing.st_rdev == wanted):
        place.unlink()
        existing = None
    if existing is None:
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, stat.S_IFCHR | mode, wanted)
    place.chmod(mode)
    os.chown(place, uid, gid)


def _policy(now: dict[str, Any]) -> tuple[bool, dict[str, int]]:
    """What NVreg_ModifyDeviceFiles and NVreg_DeviceFile* say: whether nodes may be touched, and how they look."""
    given = now["loaded"]["nvidia"]["params"]

    def value(name: str, default: int) -> int:
        return int(given.get("NVreg_" + name, str(default)), 0)

    return value("ModifyDeviceFiles", 1) == 1, {
        "mode": value("DeviceFileMode", 0o666),
        "uid": value("DeviceFileUID", 0),
        "gid": value("DeviceFileGID", 0),
    }


def create(minors: list[int], *, control: bool = True, uvm: bool = False, modeset: bool = False, capabilities: bool = False) -> bool:
    """Make the nodes asked for, as far as the driver is loaded; False when it is not."""
    now = state.read()
    if "nvidia" not in now["loaded"]:
        return False
    allowed, look = _policy(now)
    if allowed:
        if control:
            make("/dev/nvidiactl", kernel.NVIDIA_MAJOR, CONTROL_MINOR, **look)
        for minor in minors:
            make(f"/dev/nvidia{minor}", kernel.NVIDIA_MAJOR, minor, **look)
        if modeset and "nvidia_modeset" in now["loaded"]:
            make("/dev/nvidia-modeset", kernel.NVIDIA_MAJOR, MODESET_MINOR, **look)
    if uvm and "nvidia_uvm" in now["loaded"]:
        major = now["majors"]["nvidia-uvm"]
        make("/dev/nvidia-uvm", major, 0)
        make("/dev/nvidia-uvm-tools", major, 1)
    if capabilities:
        major = now["majors"]["nvidia-caps"]
        make("/dev/nvidia-caps/nvidia-cap1", major, 1, mode=0o400)
        make("/dev/nvidia-caps/nvidia-cap2", major, 2, mode=0o444)
    return not uvm or "nvidia_uvm" in now["loaded"]


def load(*names: str) -> bool:
    """Load modules through modprobe, quietly; True when all are there."""
    for name in names:
        if kernel.canonical(name) not in state.read()["loaded"]:
            subprocess.run(["modprobe", name], capture_output=True, check=False)
    return all(kernel.canonical(name) in state.read()["loaded"] for name in names)


def as_root() -> None:
    """What every tool of the driver does first when it may: load the module, make the nodes of all GPUs."""
    if os.geteuid() != 0 or not paths.PROC_DRIVER.is_dir():
        return
    if load("nvidia"):
        now = state.read()
        create([int(gpu["minor"]) for gpu in kernel.bound(now)], capabilities=True)


def main(arguments: list[str] | None = None) -> int:
    """The command: silent, 0 when everything asked for is there, else 1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    minors: list[int] = []
    uvm = modeset = capability = False
    index = 0
    while index < len(words):
        word, _, attached = words[index].partition("=")
        if word in {"-h", "--help"}:
            print(_HELP)
            return 0
        if word in {"-v", "--version"}:
            print(f"\nnvidia-modprobe:  version {os.environ.get('LAB_NVIDIA_VERSION', 'unknown')}\n")
            return 0
        if word in {"-c", "--create-nvidia-device-file", "-f", "--create-nvidia-capability-device-file", "-i", "--imex-channels"}:
            if not attached:
                index += 1
                attached = words[index] if index < len(words) else ""
            if word.startswith(("-c", "--create-nvidia-device")):
                if not attached.isdigit():
                    print(
                        f"\nERROR: Invalid commandline, please run `{'nvidia-modprobe'} --help` for usage information.\n", file=sys.stderr
                    )
                    return 1
                minors.append(int(attached))
            else:
                capability = True
        elif word in {"-u", "--unified-memory"}:
            uvm = True
        elif word in {"-m", "--modeset"}:
            modeset = True
        elif word not in {"-s", "--nvswitch", "-l", "--nvlink"}:
            print("\nERROR: Invalid commandline, please run `nvidia-modprobe --help` for usage information.\n", file=sys.stderr)
            return 1
        index += 1
    if os.geteuid() != 0 or not paths.PROC_DRIVER.is_dir():  # a guest: nothing to load, and no right to make nodes
        return 0 if all((paths.ROOT / "dev" / f"nvidia{minor}").exists() for minor in minors) and "nvidia" in state.read()["loaded"] else 1
    wanted = ["nvidia", *(["nvidia-uvm"] if uvm else []), *(["nvidia-modeset"] if modeset else [])]
    if not load(*wanted):
        return 1
    known = {int(gpu["minor"]) for gpu in kernel.bound(state.read())}
    if not create([minor for minor in minors if minor in known], uvm=uvm, modeset=modeset, capabilities=capability):
        return 1
    return 0 if set(minors) <= known or 255 in minors else 1


if __name__ == "__main__":
    sys.exit(main())
