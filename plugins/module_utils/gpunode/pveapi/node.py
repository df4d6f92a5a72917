"""What a node's own files say about its guests, and the one thing that the API cannot write: raw lines of a container."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ..pve.conffile import parse
from .base import ApiError, Deadline
from .shells import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .shells import Shell

GUESTS: Final = "/etc/pve/nodes"
LOCK: Final = "/run/lock/lxc/pve-config-{vmid}.lock"
"""The lock that Proxmox itself takes for each change of a container's configuration."""
MODIFIED: Final = "detected modified configuration - file changed by other user? Try again."


class Node(Protocol):
    """Files of a node."""

    def name(self) -> str:
        """The node's name in its cluster."""

    def read_many(self, patterns: Sequence[str]) -> Mapping[str, str]:
        """Texts of the files that match the patterns, by path; what does not exist is missing."""

    def missing_devices(self, paths: Sequence[str]) -> list[str]:
        """Of these paths those that are no device nodes."""

    def replace_config(self, path: str, vmid: int, digest: str, text: str, deadline: Deadline) -> None:
        """Write a configuration if its digest is still this one, under Proxmox's lock. Raises ``ApiError``."""


class LocalNode:
    """This machine."""

    def name(self) -> str:
        """See ``Node.name``."""
        try:
            return Path("/etc/pve/local").readlink().name
        except OSError:
            return os.uname().nodename.partition(".")[0]

    def read_many(self, patterns: Sequence[str]) -> Mapping[str, str]:
        """See ``Node.read_many``."""
        found = {}
        for pattern in patterns:
            for path in sorted(glob.glob(pattern)) if any(sign in pattern for sign in "*?[") else [pattern]:  # noqa: PTH207 - text paths
                text = read_file(path)
                if text is not None:
                    found[path] = text
        return found

    def missing_devices(self, paths: Sequence[str]) -> list[str]:
        """See ``Node.missing_devices``."""
        return [path for path in paths if not _is_device(path)]

    def replace_config(self, path: str, vmid: int, digest: str, text: str, deadline: Deadline) -> None:
        """See ``Node.replace_config``."""
        lock = Path(LOCK.format(vmid=vmid))
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a") as handle:
            number = 0
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if not deadline.pause(number):
                        raise ApiError(f"can't lock file '{lock}' - got timeout") from None
                number += 1
            now = read_file(path)
            if now is None or parse(now).digest != digest:
                raise ApiError(MODIFIED)
            temporary = Path(f"{path}.tmp.{os.getpid()}")
            try:
                temporary.write_text(text, "utf-8", "surrogateescape")
                temporary.replace(path)
            except OSError as error:
                temporary.unlink(missing_ok=True)
                raise ApiError(f"{path} cannot be written: {error.strerror}") from None


def _is_device(path: str) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


class RemoteNode:
    """A node behind a shell."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def name(self) -> str:
        """See ``Node.name``."""
        return self._run("basename $(readlink /etc/pve/local || hostname -s)").strip()

    def read_many(self, patterns: Sequence[str]) -> Mapping[str, str]:
        """See ``Node.read_many``."""
        for pattern in patterns:
            if not re.fullmatch(r"[A-Za-z0-9_./*?-]+", pattern):
                raise ValueError(f"{pattern!r} is no plain pattern")
        text = self._run(
            f'for f in {" ".join(patterns)}; do [ -f "$f" ] || continue; printf \'%s\\0\' "$f"; cat "$f"; printf \'\\0\'; done'
        )
        parts = text.split("\0")
        return dict(zip(parts[0:-1:2], parts[1::2], strict=False))

    def missing_devices(self, paths: Sequence[str]) -> list[str]:
        """See ``Node.missing_devices``."""
        return [line for line in self._run('for f; do [ -c "$f" ] || [ -b "$f" ] || echo "$f"; done', *paths).splitlines() if line]

    def replace_config(self, path: str, vmid: int, digest: str, text: str, deadline: Deadline) -> None:
        """See ``Node.replace_config``."""
        lock = LOCK.format(vmid=vmid)
        script = (
            'set -e; umask 027; mkdir -p "${2%/*}"; exec 9>>"$2"; '
            'flock -w "$3" 9 || { echo "can\'t lock file \'$2\' - got timeout" >&2; exit 3; }; '
            '[ "$(sha1sum <"$1" | cut -d " " -f 1)" = "$4" ] || { echo "$5" >&2; exit 4; }; '
            't="$1.tmp.$$"; trap \'rm -f "$t"\' EXIT; cat >"$t"; '
            # A connection that breaks ends the input as if that were all.
            '[ "$(sha1sum <"$t" | cut -d " " -f 1)" = "$6" ] || { echo "the new configuration arrived cut short" >&2; exit 5; }; '
            'mv "$t" "$1"'
        )
        self._run(script, path, lock, str(max(1, int(deadline.left))), digest, MODIFIED, parse(text).digest, data=text)

    def _run(self, script: str, *arguments: str, data: str = "") -> str:
        code, out, err = self.shell.run(["sh", "-c", script, "sh", *arguments], data=data)
        if code != 0:
            raise ApiError(err.strip() or f"a command on the node failed with status {code}")
        return out


def running(unix_sockets: str, vmid: int) -> bool:
    """Whether a container runs, as Proxmox itself tells: its monitor's command socket is in /proc/net/unix."""
    return re.search(rf" @/var/lib/lxc/{vmid}/command$", unix_sockets, re.MULTILINE) is not None
