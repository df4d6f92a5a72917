"""Keys of an instance: how one logs in to its nodes with host key checking on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lab.console import run

if TYPE_CHECKING:
    from pathlib import Path

    from lab.instance import Instance, Node


def _key_pair(path: Path, comment: str) -> str:
    """Make an ed25519 key pair unless it is there and return the public half."""
    public = path.parent / f"{path.name}.pub"
    if not (path.exists() and public.exists()):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
    return public.read_text(encoding="ascii")


def client_key(instance: Instance) -> Path:
    """Return the private key that every node of the instance lets in, making it when missing."""
    path = instance.home / "ssh/id_ed25519"
    _key_pair(path, f"gpunode-lab-{instance.index}")
    return path


def known_hosts(instance: Instance) -> Path:
    """Return the file with the host keys of the instance's nodes."""
    return instance.home / "ssh/known_hosts"


def install(node: Node, tree: Path) -> None:
    """Put host key and authorised key into a node's tree before its first start."""
    public = _key_pair(node.home / "ssh/ssh_host_ed25519_key", f"root@{node.name}")
    target = tree / "etc/ssh"
    target.mkdir(parents=True, exist_ok=True)
    for name, mode in (("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)):
        (target / name).write_bytes((node.home / "ssh" / name).read_bytes())
        (target / name).chmod(mode)
    folder = tree / "root/.ssh"
    folder.mkdir(parents=True, exist_ok=True)
    (tree / "root").chmod(0o700)
    folder.chmod(0o700)
    authorised = folder / "authorized_keys"
    authorised.write_bytes((node.instance.home / "ssh/id_ed25519.pub").read_bytes())
    authorised.chmod(0o600)
    kind, key = public.split()[:2]
    remember(node, f"{node.address},{node.name} {kind} {key}\n")


def remember(node: Node, entry: str | None) -> None:
    """Replace the node's line in known_hosts (``None``: take it out)."""
    path = known_hosts(node.instance)
    lines = path.read_text(encoding="ascii").splitlines(keepends=True) if path.exists() else []
    lines = [line for line in lines if not line.startswith(f"{node.address},")]
    part = path.with_name(f"known_hosts.{os.getpid()}")
    part.write_text("".join([*lines, *([entry] if entry else [])]), encoding="ascii")
    part.replace(path)


def command(node: Node, remote: list[str], *, terminal: bool = False) -> list[str]:
    """Return the ssh command line that runs ``remote`` as root on the node (a shell when empty)."""
    options = [
        f"UserKnownHostsFile={known_hosts(node.instance)}", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "BatchMode=yes",
        "ConnectTimeout=5", "LogLevel=ERROR", "ControlMaster=no", "ControlPath=none",
    ]  # fmt: skip
    words = ["ssh", "-F", "none", "-i", str(client_key(node.instance))]
    for option in options:
        words += ["-o", option]
    return [*words, *(["-t"] if terminal else []), f"root@{node.address}", *remote]
