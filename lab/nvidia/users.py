"""Who uses the GPUs: processes that mapped the driver's library, the persistence daemon, and what each one says it holds.

A process that wants to be seen with memory and load keeps an open memfd named lab-gpu-use with JSON in it:
{"gpus": {"0": {"used_mib": 80000, "utilisation": 97, "power_w": 410}}, "name": "sglang::scheduler"}.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import paths

PROC = paths.ROOT / "proc"
MEMFD = "lab-gpu-use"
_LIBRARY = "libcuda.so"
_PERSISTENCED_PID = paths.ROOT / "run/nvidia-persistenced/nvidia-persistenced.pid"


def _pids() -> list[str]:
    return [entry.name for entry in (PROC.iterdir() if PROC.is_dir() else ()) if entry.name.isdigit() and int(entry.name) != os.getpid()]


def persistenced() -> int | None:
    """The pid of a running persistence daemon."""
    try:
        pid = int(_PERSISTENCED_PID.read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


def computing() -> list[int]:
    """Processes that have libcuda mapped, in this node and its guests."""
    found = []
    for pid in _pids():
        try:
            mapped = _LIBRARY in (PROC / pid / "maps").read_text(errors="replace")
        except OSError:
            continue
        if mapped:
            found.append(int(pid))
    return found


def counts() -> dict[str, int]:
    """How many references processes hold on each module."""
    computing_now = len(computing())
    return {"nvidia_uvm": computing_now, "nvidia": 2 * computing_now + (1 if persistenced() else 0)}


def count(module: str) -> int:
    """How many references processes hold on one module."""
    return counts().get(module, 0)


def declared() -> list[dict[str, Any]]:
    """What the processes that can be seen from here say they hold: pid, name, gpus."""
    found = []
    for pid in _pids():
        try:
            for entry in (PROC / pid / "fd").iterdir():
                if str(entry.readlink()).startswith("/memfd:" + MEMFD):
                    said = json.loads(entry.read_text())
                    found.append({"pid": int(pid), "name": said.get("name") or _command(pid), "gpus": said.get("gpus", {})})
        except (OSError, ValueError):
            continue
    return found


def _command(pid: str) -> str:
    return (PROC / pid / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
