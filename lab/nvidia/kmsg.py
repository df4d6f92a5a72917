"""The kernel log of this boot: a file of syslog-style lines that `dmesg -F` reads."""

from __future__ import annotations

import fcntl
import time
from typing import TYPE_CHECKING

from . import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6


def _seconds() -> float:
    """Seconds since the node's boot: its kernel log began when the file was made."""
    try:
        return time.time() - paths.KMSG.with_suffix(".epoch").stat().st_mtime
    except OSError:
        return 0.0


def start(lines: Iterable[tuple[float, str]]) -> None:
    """Begin the log of a boot with (seconds, text) lines."""
    paths.KMSG.parent.mkdir(parents=True, exist_ok=True)
    paths.KMSG.with_suffix(".epoch").write_text("")
    paths.KMSG.write_text("".join(f"<{INFO}>[{seconds:12.6f}] {text}\n" for seconds, text in lines))


def log(*lines: str, level: int = INFO) -> None:
    """Append lines to the kernel log, with the time of now."""
    paths.KMSG.parent.mkdir(parents=True, exist_ok=True)
    seconds = _seconds()
    with paths.KMSG.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.writelines(f"<{level}>[{seconds:12.6f}] {line}\n" for line in lines)
