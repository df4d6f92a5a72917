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
sys.modules[spec.name] = builder
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


FLASH_SETUP = """
import json, os, pathlib
from setuptools import setup

NAMES = ("FLASH_ATTN_CUDA_ARCHS", "FLASH_ATTENTION_FORCE_BUILD", "NVCC_THREADS", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST")
pathlib.Path("flash_attn_2_cuda.py").write_text("TOLD = " + repr({name: os.environ.get(name) for name in NAMES}))
setup(name="flash_attn", version="2.8.3", packages=["flash_attn", "flash_attn.cute"], py_modules=["flash_attn_2_cuda"])
"""


def pack(path: Path, **files: str) -> Path:
    """A source package with these files."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    return pack(tmp_path / "tiny-1.0.tar.gz", **{"setup.py": SETUP, "tiny/__init__.py": "VALUE = 7\n", "tiny/cute/__init__.py": ""})


@pytest.fixture
def flash(tmp_path: Path) -> Path:
    """A source package that is laid out as flash-attn from 2.8.3 on, and keeps what it was told."""
    files = {"setup.py": FLASH_SETUP, "flash_attn/__init__.py": "", "flash_attn/cute/__init__.py": "OWNER = 'flash-attn'\n"}
    return pack(tmp_path / "flash_attn-2.8.3.tar.gz", **files)


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


def test_without_nvcc_the_error_names_what_to_install(flash: Path, environment: dict[str, str]) -> None:
    (flash.parent / "bin/nvcc").unlink()
    result = subprocess.run(command(flash), env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "cuda_userspace_toolkit_packages" in result.stderr


def test_a_package_without_cuda_is_built_without_nvcc(sdist: Path, environment: dict[str, str]) -> None:
    (sdist.parent / "bin/nvcc").unlink()
    result = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True)
    assert "-sm120-nonvcc-gcc14.2.0-" in result.stdout.splitlines()[-1]
    failed = subprocess.run(command(sdist, "--env", "STEP_S=soon"), env=environment, capture_output=True, text=True, check=False)
    assert "nvcc was not found" in failed.stderr


def test_flash_attn_is_told_the_architecture_and_shares_no_folder_with_flash_attn_4(flash: Path, environment: dict[str, str]) -> None:
    result = subprocess.run(command(flash, "--jobs", "3"), env=environment, capture_output=True, text=True, check=True)
    site = flash.parent / "site"
    (site / "flash_attn/cute").mkdir(parents=True)
    (site / "flash_attn/cute/__init__.py").write_text("OWNER = 'flash-attn-4'\n")
    with zipfile.ZipFile(result.stdout.splitlines()[-1]) as archive:
        archive.extractall(site)
    code = "import json, flash_attn.cute, flash_attn_2_cuda; print(json.dumps([flash_attn.cute.OWNER, flash_attn_2_cuda.TOLD]))"
    owner, told = json.loads(subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True).stdout)
    assert owner == "flash-attn-4"
    assert told == {
        "FLASH_ATTN_CUDA_ARCHS": "120",
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "NVCC_THREADS": "2",
        "MAX_JOBS": "3",
        "TORCH_CUDA_ARCH_LIST": "12.0",
    }


def test_jobs_are_told_from_memory_and_cores(flash: Path, environment: dict[str, str]) -> None:
    result = subprocess.run(command(flash), env=environment, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(result.stdout.splitlines()[-1]) as archive:
        told = archive.read("flash_attn_2_cuda.py").decode()
    jobs = builder.jobs_for(5, builder.memory_gib(), len(os.sched_getaffinity(0)))
    assert f"'MAX_JOBS': '{jobs}'" in told


def test_a_package_that_compiles_for_every_gpu_is_held_to_one(tmp_path: Path, environment: dict[str, str]) -> None:
    """What stands before nvcc drops other architectures; a call without any gets the one that is wanted; links and questions pass."""
    nvcc = tmp_path / "bin/nvcc"
    nvcc.write_text(f"#!{sys.executable}\nimport json, sys\nprint('release 13.0,', json.dumps(sys.argv[1:]))\n")
    calls = (
        ["-gencode", "arch=compute_90,code=sm_90", "-gencode", "arch=compute_90a,code=sm_90a", "-gencode",
         "arch=compute_120,code=[sm_120,compute_120]", "-c", "a.cu"],
        ["-gencode", "arch=compute_80,code=sm_80", "-c", "a.cu"],
        ["-V"],
    )  # fmt: skip
    setup = f"""
import json, os, subprocess
from setuptools import setup
for call in {calls!r}:
    print("CALLED", subprocess.run([os.environ["PYTORCH_NVCC"], *call], capture_output=True, text=True, check=True).stdout, flush=True)
setup(name="causal_conv1d", version="1.0", py_modules=["causal_conv1d_cuda"])
"""
    files = {"setup.py": setup, "causal_conv1d_cuda.py": ""}
    sdist = pack(tmp_path / "causal_conv1d-1.0.tar.gz", **files)
    result = subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True)
    seen = [json.loads(line.partition(", ")[2]) for line in result.stdout.splitlines() if line.startswith("CALLED")]
    assert seen == [
        ["-gencode", "arch=compute_120,code=[sm_120,compute_120]", "-c", "a.cu"],
        ["-c", "a.cu", "-gencode", "arch=compute_120,code=sm_120"],
        ["-V"],
    ]


FACTS = {"python": "cp313", "torch": "2.14.1+cu130", "nvcc": "13.0", "cxx": "14.2.0", "libc": "glibc2.41"}


@pytest.mark.parametrize(
    ("fact", "other"),
    [("python", "cp312"), ("torch", "2.13.0+cu130"), ("torch", "2.14.1+cu129"), ("nvcc", "12.9"), ("cxx", "12.2.0"), ("libc", "glibc2.36")],
)
def test_the_shelf_changes_with_what_decides_the_binary_interface(fact: str, other: str) -> None:
    shelf = builder.key_of(FACTS, "sm120")
    assert builder.key_of({**FACTS, fact: other}, "sm120") != shelf
    assert builder.key_of(FACTS, "sm90") != shelf


def test_where_builds_nothing_and_finds_what_was_built(sdist: Path, environment: dict[str, str]) -> None:
    def where() -> dict[str, object]:
        ended = subprocess.run(command(sdist, "--where"), env=environment, capture_output=True, text=True, check=True)
        return json.loads(ended.stdout)

    before = where()
    assert (before["stem"], before["wheel"], before["requires"]) == ("tiny-1.0", "", [])
    assert not (sdist.parent / "work").exists()
    wheel = Path(subprocess.run(command(sdist), env=environment, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert where()["wheel"] == str(wheel)
    assert wheel.parent.name == before["key"]
    wheel.write_bytes(wheel.read_bytes()[:-1])
    assert where()["wheel"] == "", "a wheel that is cut short is no wheel"


def test_a_library_that_may_be_half_written_goes(tmp_path: Path) -> None:
    for when, name in enumerate(["lib/tiny/_first.cpython-313-x86_64-linux-gnu.so", "temp/second.o", "lib/tiny/_second.so"]):
        path = tmp_path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(when, when))
    assert builder.drop_half(tmp_path) == ["_second.so"]
    assert builder.drop_half(tmp_path) == [], "an object was written after the first library"
    assert [path.name for path in tmp_path.rglob("*.so")] == ["_first.cpython-313-x86_64-linux-gnu.so"]
    assert builder.drop_half(tmp_path / "nothing") == []


def test_what_a_package_asks_for_at_build_time(tmp_path: Path) -> None:
    assert builder.requires_of(tmp_path) == []
    text = '[build-system]\nrequires = [\n  "setuptools>=64",\n  "pybind11[global]>=2",\n  \'torch\',\n]\n[project]\nrequires = ["no"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert builder.requires_of(tmp_path) == ["setuptools>=64", "pybind11[global]>=2"]


def test_progress_is_told_while_a_compiler_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "PROGRESS_STEP_S", 0.02)
    progress = builder.Progress(tmp_path / "progress.json", "tiny-1.0", tmp_path)
    (tmp_path / "one.o").touch()
    progress.line("[2/7] nvcc")
    with progress.told():
        deadline = time.monotonic() + 10
        while '"done": 2' not in (tmp_path / "progress.json").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert "tiny-1.0: 2 of 7 steps, 1 objects" in capsys.readouterr().out


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
