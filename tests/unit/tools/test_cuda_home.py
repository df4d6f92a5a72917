"""The CUDA_HOME made of packages: everything that compilers of extensions look for, under the names they use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/sglang_venv/files/gpunode_cuda_home.py"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name in ("cu12/bin/nvcc", "cu13/bin/nvcc", "cu13/include/cuda.h", "cu13/nvvm/bin/cicc", "cu13/lib/libcudart.so.13",
                 "cu13/lib/libcudadevrt.a", "cu13/lib/libcublasLt.so.13", "cu13/lib/libnvrtc-builtins.so.13.0"):  # fmt: skip
        path = tmp_path / "site/nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "site"


def run(site: Path, target: Path) -> str:
    driver = site / "libcuda.so.1"
    driver.write_text("driver")
    command = [sys.executable, str(SCRIPT), str(site), str(target), str(driver)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_links_have_the_names_that_are_looked_for(site: Path, tmp_path: Path) -> None:
    home = tmp_path / "cuda"
    for _ in range(2):
        assert run(site, home) == str(home)
        found = {str(path.relative_to(home)): path.read_text() for path in home.rglob("lib*") if path.is_file()}
        assert found == {
            "lib64/libcudart.so": "cu13/lib/libcudart.so.13",
            "lib64/libcudart.so.13": "cu13/lib/libcudart.so.13",
            "lib64/libcudadevrt.a": "cu13/lib/libcudadevrt.a",
            "lib64/libcublasLt.so": "cu13/lib/libcublasLt.so.13",
            "lib64/libcublasLt.so.13": "cu13/lib/libcublasLt.so.13",
            "lib64/libnvrtc-builtins.so": "cu13/lib/libnvrtc-builtins.so.13.0",
            "lib64/libnvrtc-builtins.so.13.0": "cu13/lib/libnvrtc-builtins.so.13.0",
            "lib64/stubs/libcuda.so": "driver",
        }
        assert [(home / name).read_text() for name in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc")] == [
            "cu13/bin/nvcc", "cu13/include/cuda.h", "cu13/nvvm/bin/cicc",
        ]  # fmt: skip


def test_an_environment_without_a_compiler_gets_none(site: Path, tmp_path: Path) -> None:
    for nvcc in site.glob("nvidia/*/bin/nvcc"):
        nvcc.unlink()
    assert run(site, tmp_path / "cuda") == ""
    assert not (tmp_path / "cuda").exists()
