"""Where everything of the stand-in lies, and what this node is called."""

from __future__ import annotations

import functools
import json
import os
import socket
from pathlib import Path
from typing import Any

VERSION = "9.2.11"
RELEASE = "9.2"
REPO_ID = "14a22df35955"


class World:
    """One node's files below `root`: "/" on a lab node, a temporary folder in unit tests."""

    def __init__(self, root: Path | str = "/") -> None:
        self.root = Path(root)

    def path(self, absolute: str) -> Path:
        """The place of an absolute path of the node."""
        return self.root / absolute.lstrip("/")

    @functools.cached_property
    def node(self) -> str:
        """The node's name: the host name without its domain."""
        try:
            name = self.path("/etc/hostname").read_text().strip()
        except OSError:
            name = socket.gethostname()
        return name.split(".", maxsplit=1)[0]

    @property
    def pve(self) -> Path:
        """The place of the cluster file system."""
        return self.path("/etc/pve")

    def lxc_config(self, vmid: int) -> Path:
        """A container's configuration file."""
        return self.pve / "nodes" / self.node / "lxc" / f"{vmid}.conf"

    def qemu_config(self, vmid: int) -> Path:
        """A virtual machine's configuration file."""
        return self.pve / "nodes" / self.node / "qemu-server" / f"{vmid}.conf"

    def guests(self) -> dict[int, tuple[str, str]]:
        """Every guest of the cluster: number -> (node, "lxc" or "qemu")."""
        found: dict[int, tuple[str, str]] = {}
        for kind, folder in (("lxc", "lxc"), ("qemu", "qemu-server")):
            for file in (self.pve / "nodes").glob(f"*/{folder}/*.conf"):
                if file.stem.isdigit():
                    found[int(file.stem)] = (file.parent.parent.name, kind)
        return found

    def lab(self, name: str, default: Any = None) -> Any:
        """A JSON document of the lab's configuration of this node (/etc/lab/NAME.json)."""
        try:
            return json.loads(self.path(f"/etc/lab/{name}.json").read_text())
        except FileNotFoundError:
            return default

    def fault(self, name: str) -> Any:
        """The argument of a fault that is set, or None."""
        faults = self.lab("proxmox-faults", {})
        return faults.get(name)

    @functools.cached_property
    def systemd(self) -> bool:
        """Whether services start through systemd here (a lab node) or directly (a bare machine, in tests)."""
        return str(self.root) == "/" and Path("/run/systemd/system").is_dir()


def write_file(path: Path, text: str, mode: int = 0o640) -> None:
    """Write a file so that readers see the old or the new text, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.rename(path)
