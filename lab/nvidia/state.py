"""The state of the driver in this boot: one JSON file, replaced whole, changed under a lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from . import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EMPTY: dict[str, Any] = {
    "boot": 0,
    "cmdline": "",
    "iommu": "pt",
    "loaded": {},  # module name with underscores -> {"version", "path", "params", "size", "license"}
    "order": [],  # in the order of loading
    "majors": {},  # dynamic character majors of this load
    "gpus": [],  # hardware of this boot with its live values
    "secure_boot": False,
    "faults": {},
}


def write(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write a small file in place: bind mounts and open readers keep their inode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        data = text.encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        if mode is not None:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def read() -> dict[str, Any]:
    """The state as the tools see it, from node or guest; the empty state before the first boot."""
    try:
        state: dict[str, Any] = json.loads((paths.channel() / "state.json").read_text())
    except (OSError, ValueError):
        return json.loads(json.dumps(EMPTY))
    return EMPTY | state


@contextlib.contextmanager
def change() -> Iterator[dict[str, Any]]:
    """Hold the lock, hand out the state and write it back when the block ends without an error."""
    folder = paths.PROC_DRIVER / paths.PRIVATE
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read()
        yield state
        temporary = folder / "state.json.new"
        temporary.write_text(json.dumps(state, indent=1))
        temporary.replace(folder / "state.json")


def faults() -> dict[str, Any]:
    """Faults that survive a reboot: name -> argument."""
    try:
        loaded: dict[str, Any] = json.loads((paths.ETC / "faults.json").read_text())
    except (OSError, ValueError):
        return {}
    return loaded


def save_faults(values: dict[str, Any]) -> None:
    """Replace the persistent faults."""
    paths.ETC.mkdir(parents=True, exist_ok=True)
    temporary = paths.ETC / "faults.json.new"
    temporary.write_text(json.dumps(values, indent=1) + "\n")
    temporary.replace(paths.ETC / "faults.json")
