"""Published wheels of sglang, for the tools that make tables of them and the tests that compare: the releases with a profile, fetched once.

Wheels lie in ${GPUNODE_CACHE:-/var/cache/gpunode}/wheels; the package index is the one that pip is configured with.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "wheels"
VERSIONS: Final = (
    "0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.14",
    "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23",
)  # fmt: skip
"""Releases on PyPI that have a profile, oldest first."""


def wheel(version: str) -> Path:
    """The published wheel of this version, fetched when the cache has none."""
    found = sorted(CACHE.glob(f"sglang-{version}-*.whl"))
    if not found:
        CACHE.mkdir(parents=True, exist_ok=True)
        environment = CACHE / "pip"
        if not (environment / "bin/python").exists():
            subprocess.run(["/usr/bin/python3", "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin/python"), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        # The flags do not depend on the interpreter that a wheel was built for: any of them serves.
        target = ["--python-version", "3.12", "--platform", "manylinux_2_34_x86_64", "--platform", "manylinux2014_x86_64"]
        subprocess.run([*pip, *target, "--dest", str(CACHE), f"sglang=={version}"], check=True)
        found = sorted(CACHE.glob(f"sglang-{version}-*.whl"))
    return found[0]
