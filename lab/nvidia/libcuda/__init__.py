"""Build the stand-in libcuda.so.1: ``python -m lab.nvidia.libcuda FOLDER`` puts it there, under NVML's name too, and prints its path."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = (
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wl,-soname,libcuda.so.1",
)
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1")


def build(folder: Path) -> Path:
    """Compile the library, or take it from the cache when the sources are the same, and return its path in ``folder``.

    Raises subprocess.CalledProcessError with gcc's words on standard error. Under ``libnvidia-ml.so.1`` it answers the three NVML calls
    that tell free memory.
    """
    sources = sorted(HERE.glob("*.c"))
    content = b"".join(file.read_bytes() for file in [*sources, HERE / "lab.h"]) + " ".join(FLAGS).encode()
    cached = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "libcuda" / hashlib.sha256(content).hexdigest()[:16] / NAMES[0]
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=cached.parent)
        os.close(handle)
        subprocess.run(["gcc", *FLAGS, "-o", name, *map(str, sources)], check=True)
        Path(name).chmod(0o755)
        Path(name).replace(cached)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / NAMES[0]
    shutil.copy(cached, target)
    link = folder / NAMES[1]
    link.unlink(missing_ok=True)
    link.symlink_to(NAMES[0])
    return target
