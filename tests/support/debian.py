"""Programs of Debian packages that are not installed: fetched with apt and unpacked into the cache, so that no service is started here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "test-programs"


def program(package: str, name: str) -> str:
    """Path of the program; skips the test where it is not installed and its package cannot be had."""
    found = shutil.which(name) or shutil.which(name, path=str(CACHE / package / "usr/bin"))
    if found:
        return found
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip(f"{name} is not installed, and this machine has no apt to fetch {package} with")
    folder = CACHE / f"{package}.{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        got = subprocess.run(["apt-get", "-q", "download", package], cwd=folder, capture_output=True, text=True, check=False)
        debs = list(folder.glob("*.deb"))
        if not debs:
            pytest.skip(
                f"{name} is not installed, and `apt-get download {package}` ended with {got.returncode}: {got.stderr.strip()[-300:]}"
            )
        subprocess.run(["dpkg-deb", "-x", str(debs[0]), str(folder / "root")], check=True)
        target = CACHE / package
        shutil.rmtree(target, ignore_errors=True)
        (folder / "root").rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return str(CACHE / package / "usr/bin" / name)
