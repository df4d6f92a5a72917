"""The kernels are valid for every architecture we name, and the stand-in has exactly what the worker calls."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gpunode_tools.probe import worker


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_ptx_assembles(architecture, tmp_path):
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    (tmp_path / "k.ptx").write_text(worker.PTX, encoding="ascii")
    argv = [ptxas, f"-arch={architecture}", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas does not know {architecture}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "k.cubin").stat().st_size > 1000


def test_the_kernels_that_are_launched_exist():
    assert set(re.findall(r"\.entry gpunode_(\w+)\(", worker.PTX)) == {"chase", "copy", "producer", "consumer"}


def test_the_stand_in_exports_what_the_worker_uses(libcuda):
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(libcuda / "libcuda.so.1")], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[2] for line in listing.splitlines()}
    nvml = {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetMemoryInfo"}
    assert exported == set(worker._SIGNATURES) | nvml


def test_patterns_of_concurrent_copies():
    pairs = [(a, b) for a in range(16) for b in range(16) if a != b]
    tasks = worker.concurrent_patterns(pairs)
    rounds = [task for task in tasks if task["name"].startswith("all-to-all")]
    assert [task["name"] for task in rounds] == ["all-to-all 1/2", "all-to-all 2/2"]
    assert sorted(pair for task in rounds for pair in task["pairs"]) == sorted(pairs)
    for task in tasks:
        for gpu in range(16):
            partners = {other for pair in task["pairs"] if gpu in pair for other in pair} - {gpu}
            assert len(partners) <= 8
    assert [task["name"] for task in worker.concurrent_patterns([(0, 1), (1, 0)])] == ["all-to-all"]
    assert worker.concurrent_patterns([(0, 1)]) == []


@pytest.mark.parametrize(
    ("speed", "width", "limit"),
    [(32.0, 16, 63.02), (16.0, 16, 31.51), (8.0, 4, 3.94), (2.5, 16, 4.0), (None, None, None), (32.0, 255, None)],
)
def test_limit_of_a_link(speed, width, limit):
    wide = {"max_link_speed": 64.0, "max_link_width": 16}
    chain = [{"max_link_speed": speed, "max_link_width": width}]
    assert worker.link_limit_gbps(chain) == limit
    if limit:
        assert worker.link_limit_gbps([*chain, wide]) == limit
