"""The builder of source packages: resumed after a kill, not repeated, kept apart by toolchain."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/sglang_venv/files/gpunode_build_wheel.py"
spec = importlib.util.spec_from_file_location("gpunode_build_wheel", SCRIPT)
assert spec is not None
assert spec.loader is not None
builder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(builder)

SETUP = """
import os, pathlib, time
from setuptools import setup
from setuptools.command.build_py import build_py

class Build(build_py):
    def run(self):
        objects = pathlib.Path("build/objects")
        objects.mkdir(parents=True, exist_ok=True)
        todo = [n for n in range(6) if not (objects / f"{n}.o").exists()]
        for done, n in enumerate(todo, 1):
            time.sleep(float(os.environ.get("STEP_S", "0")))
            (objects / f"{n}.o").write_text(os.environ["TORCH_CUDA_ARCH_LIST"])
            print(f"[{done}/{len(todo)}] compiled {n} with MAX_JOBS={os.environ['MAX_JOBS']}", flush=True)
        super().run()

setup(name="tiny", version="1.0", packages=["tiny", "tiny.cute"], cmdclass={"build_py": Build})
"""


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("setup.py", SETUP), ("tiny/__init__.py", "VALUE = 7\n"), ("tiny/cute/__init__.py", "")):
            entry = tarfile.TarInfo(f"tiny-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A toolchain that says which version it is and compiles nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("nvcc", "Cuda compilation tools, release 13.0, V13.0.88"), ("c++", "14.2.0")):
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (folder / name).chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "STEP_S": "0", "CUDA_HOME": str(tmp_path)}


def command(sdist: Path, *more: str) -> list[str]:
    base = sdist.parent
    return [
        sys.executable,
        str(SCRIPT),
        "--arch",
        "sm120",
        "--wheelhouse",
        str(base / "house"),
        "--work",
        str(base / "work"),
        *more,
        str(sdist),
    ]


def test_a_killed_build_goes_on_and_a_finished_one_is_not_repeated(sdist: Path, environment: dict[str, str]) -> None:
    first = subprocess.Popen(
        command(sdist), env=environment | {"STEP_S": "0.4"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while len(list(sdist.parent.glob("work/*/source/*/build/objects/*.o"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    there = len(list(sdist.parent.glob("work/*/source/*/build/objects/*.o")))
    second = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True)
    assert "going on with tiny-1.0" in second.stdout
    assert f"[{6 - there}/{6 - there}] compiled" in second.stdout
    wheel = Path(second.stdout.splitlines()[-1])
    assert wheel.parent.name.startswith(f"cp3{sys.version_info[1]}-notorch-sm120-nvcc13.0-gcc14.2.0-")
    note = json.loads((wheel.parent / "tiny-1.0.json").read_text())
    assert note["resumed"] is True
    third = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True)
    assert "in the wheelhouse already" in third.stdout
    assert "compiled" not in third.stdout


def test_another_variable_is_another_build(sdist: Path, environment: dict[str, str]) -> None:
    subprocess.run(command(sdist), env=environment, capture_output=True, check=True)
    again = subprocess.run(command(sdist, "--env", "TINY=1"), env=environment, capture_output=True, text=True, check=True)
    assert "building tiny-1.0" in again.stdout


def test_without_nvcc_the_error_names_what_to_install(sdist: Path, environment: dict[str, str]) -> None:
    (sdist.parent / "bin/nvcc").unlink()
    result = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "cuda_userspace_toolkit_packages" in result.stderr


def test_a_build_that_fails_shows_its_last_lines(sdist: Path, environment: dict[str, str]) -> None:
    result = subprocess.run(command(sdist, "--env", "STEP_S=soon"), env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "could not convert string to float" in result.stderr
    assert json.loads(next(sdist.parent.glob("work/*/progress.json")).read_text())["state"] == "failed"


def test_folders_left_out_leave_a_right_record(sdist: Path, environment: dict[str, str]) -> None:
    result = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True)
    wheel = Path(result.stdout.splitlines()[-1])
    assert builder.leave_out(wheel, ["tiny/cute/"]) == 1
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("tiny-1.0.dist-info/RECORD").decode()
        assert sorted(line.split(",")[0] for line in record.splitlines()) == sorted(archive.namelist())
    assert builder.leave_out(wheel, ["tiny/cute/"]) == 0


@pytest.mark.parametrize(("gib_per_job", "gib", "cores", "expected"), [(5, 128, 16, 16), (5, 62, 64, 12), (9, 4, 8, 1), (5, 1, 2, 1)])
def test_jobs_follow_memory_and_cores(gib_per_job: float, gib: float, cores: int, expected: int) -> None:
    assert builder.jobs_for(gib_per_job, gib, cores) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("flash_attn-2.8.3.post2.tar.gz", ("flash-attn", "2.8.3.post2")), ("mamba_ssm-2.2.4.zip", ("mamba-ssm", "2.2.4"))],
)
def test_names_of_source_packages(name: str, expected: tuple[str, str]) -> None:
    assert builder.package_of(Path(name)) == expected
