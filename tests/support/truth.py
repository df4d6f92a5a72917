"""The truth server: built once, started on a port of its own, told what to do."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "truth_server/truth_server.c"


def build() -> Path:
    """Compile it, once for each state of its source; the test is skipped without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: tools/setup.sh lab")
    folder = Path(tempfile.gettempdir()) / f"gpunode-truth-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    program = folder / f"truth-{sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-Wno-format-truncation", "-o", f"{program}.new", SOURCE], check=True)
            Path(f"{program}.new").replace(program)
    return program


class Truth:
    """A running truth server."""

    def __init__(self, *prefix: str) -> None:
        self.process = subprocess.Popen([*prefix, str(build())], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("port "):
            raise RuntimeError(f"the truth server did not start: {line!r}")
        self.port = int(line.split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def _get(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read())

    def reset(self, **values: Any) -> None:
        """Set what follows (keys: see truth_server.c) and forget what was seen."""
        self._get("/reset?" + "&".join(f"{key}={value}" for key, value in values.items()), "POST")

    def truth(self, start: float = 0.0, end: float = 1e12) -> dict[str, Any]:
        """What really happened; `inside` counts tokens sent between two times of the monotonic clock."""
        found: dict[str, Any] = json.loads(self._get(f"/truth?from={start}&to={end}"))
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()
