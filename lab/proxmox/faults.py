"""Faults of Proxmox VE, set inside a node: `python -m lab fault NODE NAME [ARGUMENT...]`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox.world import World, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

_FOREIGN_MARK = "lab: stands in the way"
_TEMPLATES, _HIDDEN = Path("/var/lib/vz/template/cache"), Path("/var/lib/vz/template/hidden-by-the-lab")
_HOLDER = "/run/lab/proxmox-lock-holder.pid"


def _set(name: str, value: Any) -> None:
    world = World()
    write_file(world.path("/etc/lab/proxmox-faults.json"), json.dumps(world.lab("proxmox-faults", {}) | {name: value}) + "\n", 0o644)


def _word(arguments: list[str], place: int, default: str) -> str:
    return arguments[place] if len(arguments) > place else default


def vmid_taken(arguments: list[str]) -> None:
    """The container number VMID (default 101) belongs to somebody else's container."""
    vmid = int(_word(arguments, 0, "101"))
    file = World().lxc_config(vmid)
    if file.exists():
        raise ValueError(f"{file} exists already: this fault needs a free number")
    lines = [
        f"#{_FOREIGN_MARK}",
        "arch: amd64",
        "cores: 2",
        "hostname: somebody-elses",
        "memory: 1024",
        "ostype: debian",
        f"rootfs: local:{vmid}/vm-{vmid}-disk-0.raw,size=8G",
        "swap: 512",
        "unprivileged: 1",
    ]
    write_file(file, "\n".join(lines) + "\n")


def template_missing(arguments: list[str]) -> None:
    """No container template is in the storage `local` any more."""
    del arguments
    _HIDDEN.mkdir(exist_ok=True)
    for file in _TEMPLATES.glob("*.tar.*"):
        file.rename(_HIDDEN / file.name)


def storage_full(arguments: list[str]) -> None:
    """The storage STORAGE (default local) has no space: unpacking runs into it."""
    _set("storage-full", _word(arguments, 0, "local"))


def lock_held(arguments: list[str]) -> None:
    """The container VMID (default 101) carries the lock WORD (default backup) in its configuration."""
    vmid, word = int(_word(arguments, 0, "101")), _word(arguments, 1, "backup")
    file = World().lxc_config(vmid)
    text = file.read_text()
    first = text.find("\n[")  # the live section ends at the first header
    place = len(text) if first < 0 else first + 1
    write_file(file, f"{text[:place]}lock: {word}\n{text[place:]}")


def lock_file_held(arguments: list[str]) -> None:
    """Another process holds the lock file of container VMID (default 101) for SECONDS (default 60)."""
    vmid, seconds = int(_word(arguments, 0, "101")), float(_word(arguments, 1, "60"))
    path = Path(f"/run/lock/lxc/pve-config-{vmid}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.fork():
        time.sleep(0.2)  # until it holds the lock
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    Path(_HOLDER).write_text(str(os.getpid()))
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        time.sleep(seconds)
    os._exit(0)


def slow_task(arguments: list[str]) -> None:
    """Every task waits SECONDS (default 10) before it does anything; a container being made is locked meanwhile."""
    _set("slow-task", float(_word(arguments, 0, "10")))


def daemon_down(arguments: list[str]) -> None:
    """Stop pvedaemon: the HTTPS API answers 595 to everything that needs it."""
    del arguments
    subprocess.run(["systemctl", "stop", "pvedaemon.service"], check=True)


def vm_with_gpu(arguments: list[str]) -> None:
    """A virtual machine VMID (default 201) claims the PCI device ADDRESS (default: the first NVIDIA one) by hostpci0."""
    vmid = int(_word(arguments, 0, "201"))
    cards = [file.parent.name for file in sorted(Path("/sys/bus/pci/devices").glob("*/vendor")) if file.read_text().strip() == "0x10de"]
    address = _word(arguments, 1, cards[0] if cards else "0000:01:00.0")
    lines = [f"#{_FOREIGN_MARK}", "cores: 8", f"hostpci0: {address},pcie=1", "memory: 65536", "name: old-kvm", "onboot: 1", "ostype: l26"]
    write_file(World().qemu_config(vmid), "\n".join(lines) + "\n")


def clear() -> None:
    """Undo every fault of this part."""
    world = World()
    world.path("/etc/lab/proxmox-faults.json").unlink(missing_ok=True)
    for file in (world.pve / "nodes").glob("*/*/*.conf"):
        text = file.read_text()
        if _FOREIGN_MARK in text:
            file.unlink()
        elif "\nlock: " in text:
            write_file(file, "".join(line for line in text.splitlines(keepends=True) if not line.startswith("lock: ")))
    for hidden in _HIDDEN.glob("*"):
        hidden.rename(_TEMPLATES / hidden.name)
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(Path(_HOLDER).read_text()), 15)
    Path(_HOLDER).unlink(missing_ok=True)
    if subprocess.run(["systemctl", "is-enabled", "--quiet", "pvedaemon.service"], check=False).returncode == 0:
        subprocess.run(["systemctl", "start", "pvedaemon.service"], check=False)


# name: function of the arguments; its docstring's first line says what happens.
FAULTS: dict[str, Callable[[list[str]], object]] = {
    "vmid-taken-by-foreign": vmid_taken,
    "template-missing": template_missing,
    "storage-full": storage_full,
    "lock-held": lock_held,
    "lock-file-held": lock_file_held,
    "slow-task": slow_task,
    "pvedaemon-down": daemon_down,
    "vm-claims-gpu": vm_with_gpu,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clear"]:
        clear()
    else:
        FAULTS[sys.argv[1]](sys.argv[2:])
