"""How the stand-in behaves: a small JSON file that the lab writes; absent means a healthy server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

DEFAULT_FILE = Path("/etc/lab/sglang/config.json")
# load_s: from start to healthy, half of it before the port opens (as a real server, which binds when the weights are loaded).
# time_scale: how many times faster than the real figures everything happens. faults: names of faults.py.
DEFAULTS: dict[str, Any] = {"load_s": 3.0, "time_scale": 1.0, "faults": {}, "gpu_memory_gib": 95.6, "check_gpus": None}


class Settings:
    """The file, read again when it changes, so that a fault takes hold in a running server."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(os.environ.get("GPUNODE_LAB_SGLANG", DEFAULT_FILE))
        self._stamp = -1
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        try:
            stamp = self.path.stat().st_mtime_ns
        except OSError:
            return DEFAULTS[name]
        if stamp != self._stamp:
            self._values = json.loads(self.path.read_text(encoding="utf-8"))
            self._stamp = stamp
        return self._values.get(name, DEFAULTS[name])

    def fault(self, name: str) -> Any:
        """What the file says of a fault: None when it is not set, else its argument (True without one)."""
        return self.get("faults").get(name)
