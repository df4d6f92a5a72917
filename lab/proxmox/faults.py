"""Faults of Proxmox VE, set inside a node: `python -m lab fault NODE NAME [ARGUMENT...]`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox.world import World, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

_FOREIGN_MARK = "lab: stands in the way"
_TEMPLATES, _HIDDEN = Path("/var/lib/vz/template/cache"), Path("/var/lib/vz/template/hidden-by-the-lab")
_HOLDER = "/run/lab/proxmox-lock-holder.pid"


def _world() -> World:
    return World(os.environ.get("LAB_PVE_ROOT", "/"))


def _set(name: str, value: Any) -> None:
    world = _world()
    write_file(world.path("/etc/lab/proxmox-faults.json"), json.dumps(world.lab("proxmox-faults", {}) | {name: value}) + "\n", 0o644)


def vmid_taken(number: str = "101") -> None:
    """The container number VMID (default 101) belongs to somebody else's container."""
    vmid = int(number)
    file = _world().lxc_config(vmid)
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


def template_missing() -> None:
    """No container template is in the storage `local` any more."""
    _HIDDEN.mkdir(exist_ok=True)
    for file in _TEMPLATES.glob("*.tar.*"):
        file.rename(_HIDDEN / file.name)


def storage_full(storage: str = "local") -> None:
    """The storage STORAGE (default local) has no space: unpacking runs into it."""
    _set("storage-full", storage)


def lock_held(number: str = "101", word: str = "backup") -> None:
    """The container VMID (default 101) carries the lock WORD (default backup) in its configuration."""
    file = _world().lxc_config(int(number))
    text = file.read_text()
    first = text.find("\n[")  # the live section ends at the first header
    place = len(text) if first < 0 else first + 1
    write_file(file, f"{text[:place]}lock: {word}\n{text[place:]}")


def lock_file_held(number: str = "101", seconds: str = "60") -> None:
    """Another process holds the lock file of container VMID (default 101) for SECONDS (default 60)."""
    path = Path(f"/run/lock/lxc/pve-config-{int(number)}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.fork():
        time.sleep(0.2)  # until it holds the lock
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    Path(_HOLDER).write_text(str(os.getpid()))
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        time.sleep(float(seconds))
    os._exit(0)


def slow_task(seconds: str = "10") -> None:
    """Every task waits SECONDS (default 10) before it does anything; a container being made is locked meanwhile."""
    _set("slow-task", float(seconds))


def daemon_down() -> None:
    """Stop pvedaemon: the HTTPS API answers 595 to everything that needs it."""
    subprocess.run(["systemctl", "stop", "pvedaemon.service"], check=True)


def vm_with_gpu(number: str = "201", address: str = "") -> None:
    """A virtual machine VMID (default 201) claims the PCI device ADDRESS (default: the first NVIDIA one) by hostpci0."""
    cards = [file.parent.name for file in sorted(Path("/sys/bus/pci/devices").glob("*/vendor")) if file.read_text().strip() == "0x10de"]
    address = address or (cards[0] if cards else "0000:01:00.0")
    lines = [f"#{_FOREIGN_MARK}", "cores: 8", f"hostpci0: {address},pcie=1", "memory: 65536", "name: old-kvm", "onboot: 1", "ostype: l26"]
    write_file(_world().qemu_config(int(number)), "\n".join(lines) + "\n")


def clear() -> None:
    """Undo every fault of this part."""
    world = _world()
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
    if world.systemd and subprocess.run(["systemctl", "is-enabled", "--quiet", "pvedaemon.service"], check=False).returncode == 0:
        subprocess.run(["systemctl", "start", "pvedaemon.service"], check=False)


# name: function of the words of the command line; its docstring's first line says what happens.
FAULTS: dict[str, Callable[..., object]] = {
    "vmid-taken-by-foreign": vmid_taken,
    "template-missing": template_missing,
    "storage-full": storage_full,
    "lock-held": lock_held,
    "lock-file-held": lock_file_held,
    "slow-task": slow_task,
    "pvedaemon-down": daemon_down,
    "vm-claims-gpu": vm_with_gpu,
}
