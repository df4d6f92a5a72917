"""The patches against the published wheels: each applies exactly once to each version that it names."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from gpunode.wheelpatch.catalogue import PATCHES
from gpunode.wheelpatch.wheel import patch_wheel, verify_record

CACHE = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "wheels"
CASES = sorted({(patch.package, version) for patch in PATCHES for version in patch.versions})


def published(package: str, version: str) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    found = sorted(CACHE.glob(f"{package}-{version}-*.whl"))
    if not found:
        command = ["/usr/bin/python3", "-m", "venv", str(CACHE / "pip")]
        subprocess.run(command, check=True)
        pip = [str(CACHE / "pip/bin/python"), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", str(CACHE), f"{package}=={version}"], check=True)
        found = sorted(CACHE.glob(f"{package}-{version}-*.whl"))
    return found[0]


@pytest.mark.parametrize(("package", "version"), CASES)
def test_every_patch_applies_to_the_published_wheel(package: str, version: str, tmp_path: Path) -> None:
    patches = [patch for patch in PATCHES if patch.package == package and version in patch.versions]
    wheel = published(package, version)
    manifest = patch_wheel(wheel, tmp_path, patches)
    assert [patch["state"] for patch in manifest["patches"]] == ["applied"] * len(patches)
    assert verify_record(tmp_path / manifest["wheel"]) == []
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(tmp_path / manifest["wheel"]) as after:
        edited = {edit.path for patch in patches for edit in patch.edits}
        names = [name for name in before.namelist() if not name.startswith(f"{package}-") and not name.endswith("/")]
        changed = {name for name in names if before.read(name) != after.read(name)}
    assert changed == edited
