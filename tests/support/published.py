"""Packages of the index, unpacked in the cache: what a lock names is what a test runs."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.support.debian import CACHE

ROOT = Path(__file__).resolve().parents[2]


def locked(lock: str, name: str) -> str:
    """The requirement with which a lock of this repository names a package."""
    found = re.search(rf"^{name}==[^\s;]+", (ROOT / lock).read_text(), re.MULTILINE)
    assert found, f"{lock} names no {name}"
    return found[0]


@cache
def published(requirement: str) -> Path:
    """A wheel from the package index, unpacked in the cache."""
    name, _, version = requirement.partition("==")
    folder = CACHE / f"{name}-{version}"
    if not (folder / ".complete").exists():
        command = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", str(folder), requirement]
        uv = sorted(CACHE.parent.glob("uv-*/bin/uv"))
        command[0] = str(uv[-1]) if uv else "uv"
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("uv is not here: tools/setup.sh controller installs it")
        if done.returncode:
            pytest.skip(f"{requirement} cannot be had: {done.stderr.strip()[-300:]}")
        (folder / ".complete").touch()
    return folder
