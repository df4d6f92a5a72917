"""The warm-up of flashinfer's kernels: each that is there, in order, past one that fails; the stamp only when all went well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/sglang_server/files/gpunode_warm_flashinfer.py"
CORE = """
def build_jit_specs(specs, verbose=False):
    print("BUILT", *specs, verbose)
    if specs[0] == BROKEN:
        raise RuntimeError("nvcc ended with 2")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A flashinfer of an older time: it has no sparse attention for this architecture."""
    files = {
        "flashinfer/__init__.py": "",
        "flashinfer/jit/__init__.py": "",
        "flashinfer/jit/core.py": f"BROKEN = None\n{CORE}",
        "flashinfer/jit/fp4_quantization.py": "def gen_fp4_quantization_sm120f_module(): return 'fp4'\n",
        "flashinfer/jit/gemm/__init__.py": "",
        "flashinfer/jit/gemm/core.py": "def gen_gemm_sm120_module_cutlass_fp4(): return 'gemm'\n",
        "flashinfer/jit/mla.py": "",
        "flashinfer/jit/fused_moe.py": "def gen_cutlass_fused_moe_sm120_module(fast=False): return 'moe'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def warm(site: Path, arch: str = "sm120") -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--arch", arch, "--stamp", str(site / "stamp"), "--release", "0.5.23-1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(site)})
    return result.returncode, [line for line in (result.stdout + result.stderr).splitlines() if line.startswith(("BUILT", "gpunode"))]


def test_what_is_there_is_compiled_and_kept_in_mind(site: Path) -> None:
    code, lines = warm(site)
    assert code == 0
    assert [line for line in lines if line.startswith("BUILT")] == ["BUILT fp4 True", "BUILT gemm True", "BUILT moe True"]
    assert "gpunode: 3 of 4: this flashinfer has no sparse_mla_sm120" in lines
    assert (site / "stamp").read_text() == "0.5.23-1\n"


def test_one_that_fails_does_not_keep_the_others(site: Path) -> None:
    (site / "flashinfer/jit/core.py").write_text(f"BROKEN = 'gemm'\n{CORE}")
    code, lines = warm(site)
    assert code == 1
    assert "BUILT moe True" in lines
    assert lines[-1] == "gpunode: the server compiles at its start: gemm_sm120_module_cutlass_fp4"
    assert not (site / "stamp").exists()


def test_an_architecture_without_kernels_of_its_own_is_done_at_once(site: Path) -> None:
    assert warm(site, "sm90") == (0, [])
