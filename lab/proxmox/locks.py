"""The lock files of guests and storages."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from typing import TYPE_CHECKING

from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from lab.proxmox.world import World


@contextlib.contextmanager
def locked(path: Path, shown: str, timeout: int = 10) -> Iterator[None]:
    """Hold a lock file for the body; says so while it waits, and gives up with Proxmox's words after `timeout` seconds.

    Waits in the main thread of a process (an alarm ends it); every caller here is one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(descriptor, shown, timeout)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, shown: str, timeout: int) -> None:
    class TimeUpError(Exception):
        pass

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeUpError

    sys.stderr.write("trying to acquire lock...\n")
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(timeout)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        sys.stderr.write(" OK\n")
    except TimeUpError:
        raise PveError(f"can't lock file '{shown}' - got timeout") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def lock_config(world: World, vmid: int, timeout: int = 10) -> contextlib.AbstractContextManager[None]:
    """The lock of one container's configuration."""
    shown = f"/run/lock/lxc/pve-config-{vmid}.lock"
    return locked(world.path(shown), shown, timeout)
