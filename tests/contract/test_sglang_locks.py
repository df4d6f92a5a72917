"""The locks against the package index: what the patched wheel asks for, from wheels, with hashes, on each Python that a container has.

``uv pip install --dry-run`` resolves what is locked against the packages' own metadata and downloads none of them: what it accepts is what
``uv pip check`` accepts after an installation.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from sglang_lock import metadata  # noqa: E402
from sglang_wheels import CACHE  # noqa: E402

LOCKS = sorted((ROOT / "roles/sglang_venv/files/locks").glob("sglang-*.txt"))
PYTHONS = ("3.11", "3.12", "3.13")
"""Of Debian 12, Ubuntu 24.04 and Debian 13."""


@pytest.fixture(scope="session")
def uv() -> Path:
    """The uv that the role installs, in an environment of its own."""
    defaults = (ROOT / "roles/sglang_venv/defaults/main.yml").read_text()
    version = re.search(r'sglang_venv_uv_version: "(.+)"', defaults)[1]  # type: ignore[index]
    home = CACHE.parent / f"uv-{version}"
    if not (home / "bin/uv").exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin/python"), "-m", "pip", "install", "--quiet", f"uv=={version}"], check=True)
    return home / "bin/uv"


def described(version: str, folder: Path) -> Path:
    """A wheel for any Python with the patched wheel's metadata and nothing else."""
    info = f"sglang-{version}.dist-info"
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata(version))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def install(uv: Path, lock: str, wheel: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Install the lock and the wheel, all but the doing."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements = wheel.with_suffix(".requirements.txt")
    requirements.write_text(f"{lock}\nsglang @ {wheel.as_uri()} --hash=sha256:{digest}\n")
    command = [str(uv), "pip", "install", "--dry-run", "--require-hashes", "--only-binary=:all:", "--python", sys.executable]
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_34", "--target", str(wheel.parent / "target")]
    return subprocess.run(
        [*command, "--requirements", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"UV_CACHE_DIR": str(CACHE.parent / "uv-cache"), "NO_COLOR": "1"},
    )


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_holds_what_the_patched_wheel_and_its_packages_ask_for(lock: Path, python: str, uv: Path, tmp_path: Path) -> None:
    wheel = described(lock.stem.removeprefix("sglang-"), tmp_path)
    result = install(uv, lock.read_text(), wheel, python)
    assert result.returncode == 0, result.stderr
    assert " + torch==" in result.stderr


def test_a_lock_that_is_wrong_is_refused(uv: Path, tmp_path: Path) -> None:
    lock = next(path for path in LOCKS if path.stem == "sglang-0.5.23").read_text()
    wheel = described("0.5.23", tmp_path)
    other = re.sub(r"(?m)^tokenizers==\S+", "tokenizers==0.22.0", lock)
    assert other != lock
    assert "tokenizers==0.23.2" in install(uv, other, wheel, "3.12").stderr
    without = re.sub(r"(?ms)^tokenizers==.*?(?=^[a-z])", "", lock)
    result = install(uv, without, wheel, "3.12")
    assert result.returncode != 0
    assert "tokenizers" in result.stderr
    changed = re.sub(r"(?ms)^(tokenizers==[^\n]*\n).*?(?=^[a-z])", r"\1    --hash=sha256:" + "0" * 64 + "\n", lock)
    assert "tokenizers" in install(uv, changed, wheel, "3.12").stderr
