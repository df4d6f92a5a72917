"""The .run file of the lab: it carries its archive, answers as NVIDIA's installer does, and refuses what that one refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.apt import File, Package
from lab.nvidia import repository, runfile


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = Package(
        name="nvidia-driver-cuda",
        version="580.159.04-1",
        description="x",
        files={
            "/usr/bin/nvidia-smi": File(text="#!/bin/sh\n", mode=0o755),
            "/usr/src/nvidia-580.159.04/dkms.conf": "x\n",
            "/usr/lib/systemd/system/x.service": "[Unit]\n",
        },
        links={"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.580.159.04"},
    )
    monkeypatch.setattr(repository, "driver", lambda _: [package])
    target = tmp_path / "NVIDIA-Linux-x86_64-580.159.04.run"
    runfile.write("580.159.04", target)
    return target


def call(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(file), *options], cwd=file.parent, capture_output=True, text=True, check=False)


def test_it_carries_its_archive(run_file: Path) -> None:
    assert call(run_file, "--extract-only").returncode == 0
    tree = run_file.with_suffix("")
    assert (tree / "usr/bin/nvidia-smi").stat().st_mode & 0o111
    assert (tree / "usr/src/nvidia-580.159.04/dkms.conf").read_text() == "x\n"
    assert (tree / "usr/lib/x86_64-linux-gnu/libcuda.so.1").is_symlink()
    assert not (tree / "usr/lib/systemd").exists(), "NVIDIA's installer brings no unit"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--info"], 0, "580.159.04"),
        (["--version"], 0, "version 580.159.04"),
        (["--silnet"], 1, "unrecognized option: '--silnet'"),
        (["--silent", "--kernel-module-type=proprietary"], 1, "open kernel modules"),
    ],
)
def test_it_answers(run_file: Path, options: list[str], code: int, says: str) -> None:
    result = call(run_file, *options)
    assert result.returncode == code
    assert says in result.stdout + result.stderr
