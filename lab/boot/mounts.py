"""mount(2) and umount(2) for the node's side of the lab."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 32, 4096, 2, 4, 8
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system or a bind mount; OSError naming the target when the kernel refuses."""
    place = os.fspath(target)
    done = _libc.mount(source.encode(), place.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    _check(done, f"mount {source} on {place}")


def bind(source: str | Path, target: str | Path, *, read_only: bool = False) -> None:
    """Show ``source`` (file or folder) at ``target``."""
    mount(os.fspath(source), target, flags=MS_BIND)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: str | Path) -> None:
    """Detach what is mounted on ``target``; OSError when nothing is."""
    place = os.fspath(target)
    _check(_libc.umount2(place.encode(), _MNT_DETACH), f"umount {place}")


def mounted(text: str | None = None) -> set[str]:
    """Return the mount points of this mount namespace (or of a given text in the form of /proc/self/mounts)."""
    lines = (Path("/proc/self/mounts").read_text(encoding="utf-8") if text is None else text).splitlines()
    return {line.split()[1].replace("\\040", " ") for line in lines if line.strip()}
