"""The patches and tables against the published wheels: where each patch applies, what it does, and that the tables equal the parsers."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import types
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpunode.sglang.flags_data import VERSIONS
from gpunode.wheelpatch.catalogue import PATCHES, applied_in
from gpunode.wheelpatch.edit import AnchorError, apply_edit
from gpunode.wheelpatch.wheel import METADATA, patch_wheel, revert_wheel, verify_record

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "plugins/filter")]
from sglang_launch import moe_tuning  # noqa: E402

from sglang_wheels import wheel as published  # noqa: E402

IDS = sorted({patch.id for patch in PATCHES})


@cache
def text_of(version: str, path: str) -> str | None:
    with zipfile.ZipFile(published(version)) as archive:
        if path == METADATA:
            path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(path).decode() if path in archive.namelist() else None


def outcome(patch_id: str, version: str) -> str:
    """applied, present, or refused: what happens when every edit of this id is tried on this wheel."""
    results = set()
    for patch in PATCHES:
        for edit in patch.edits if patch.id == patch_id else ():
            text = text_of(version, edit.path)
            if text is None:
                continue
            try:
                results.add("applied" if apply_edit(text, edit)[1] else "present")
            except AnchorError:
                results.add("refused")
    return results.pop() if len(results) == 1 else f"unclear {results}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("patch_id", IDS)
def test_a_patch_applies_to_the_versions_it_names_and_to_no_other(patch_id: str, version: str) -> None:
    named = any(version in patch.versions for patch in PATCHES if patch.id == patch_id)
    assert (outcome(patch_id, version) == "applied") is named


@pytest.mark.parametrize("version", ["0.5.8.post1", "0.5.12.post1", "0.5.17", "0.5.23"])
def test_the_patched_wheel_is_whole_and_the_way_back_is_exact(version: str, tmp_path: Path) -> None:
    patches = [patch for patch in PATCHES if version in patch.versions]
    wheel = published(version)
    manifest = patch_wheel(wheel, tmp_path, patches)
    assert [patch["state"] for patch in manifest["patches"]] == ["applied"] * len(patches)
    patched = tmp_path / manifest["wheel"]
    assert verify_record(patched) == []
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(patched) as after:
        edited = {edit.path for patch in patches for edit in patch.edits} - {METADATA} | {"sglang/_version.py"}
        names = [name for name in before.namelist() if not name.startswith("sglang-") and not name.endswith("/")]
        assert {name for name in names if before.read(name) != after.read(name)} == edited
        scope: dict[str, Any] = {}
        exec(after.read("sglang/_version.py"), scope)
    # What /server_info tells names every patch.
    assert scope["__version__"] == manifest["version"]
    assert applied_in(scope["__version__"]) == patches
    reverted = revert_wheel(patched, tmp_path / "back", PATCHES)
    assert reverted.name == wheel.name
    assert verify_record(reverted) == []
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(reverted) as after:
        record = f"sglang-{version}.dist-info/RECORD"
        same = {name for name in before.namelist() if not name.endswith("/")} - {record}
        assert same == set(after.namelist()) - {record}
        assert [name for name in same if before.read(name) != after.read(name)] == []


@pytest.mark.parametrize("version", ["0.5.8.post1", "0.5.9", "0.5.16", "0.5.23"])
def test_a_release_without_outlines_imports(version: str) -> None:
    """The patch leaves outlines out on Python 3.13: only its own backend may import it, and what came with it is asked for by name."""
    importing = set()
    with zipfile.ZipFile(published(version)) as archive:
        for name in archive.namelist():
            source = archive.read(name).decode() if name.startswith("sglang/") and name.endswith(".py") else ""
            if re.search(r"(?m)^\s*(?:import|from) outlines", source):
                importing.add(Path(name).name)
        chat = archive.read("sglang/srt/entrypoints/openai/serving_chat.py").decode()
    assert importing == {"outlines_backend.py", "outlines_jump_forward.py"}
    assert ("jsonschema" in chat) is ("Requires-Dist: jsonschema\n" in patched_text("outlines-where-wheels-exist", version))


def patched_text(patch_id: str, version: str) -> str:
    patch = next(patch for patch in PATCHES if patch.id == patch_id and version in patch.versions)
    (edit,) = patch.edits
    text = text_of(version, edit.path)
    assert text is not None
    return apply_edit(text, edit)[0]


def function(text: str, name: str, scope: dict[str, Any]) -> Any:
    """One function of a module, run without the module's imports."""
    node = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == name)
    node.decorator_list = []
    exec(compile(ast.Module([node], []), name, "exec"), scope)
    return scope[name]


TRITON = types.SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length(), cdiv=lambda a, b: -(-a // b))


@pytest.mark.parametrize(
    ("capability", "head", "blocks"),
    [((12, 0), 128, (64, 128)), ((12, 0), 192, (64, 64)), ((12, 1), 576, (32, 32)), ((9, 0), 128, (128, 64)), ((9, 0), 576, (32, 64))],
)
def test_extend_attention_takes_blocks_that_fit(capability: tuple[int, int], head: int, blocks: tuple[int, int]) -> None:
    scope = {"triton": TRITON, "_is_cuda": True, "_is_hip": False, "CUDA_CAPABILITY": capability}
    sizes = function(patched_text("extend-attention-sm120-blocks", "0.5.8.post1"), "_get_block_sizes_for_extend_attention", scope)(
        head, head
    )
    assert sizes[3:5] == blocks


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def stride(self, _axis: int) -> int:
        return 1


class Kernel:
    def __init__(self) -> None:
        self.block = 0

    def __getitem__(self, _grid: object) -> Any:
        return lambda *_arguments, **settings: setattr(self, "block", settings["BLOCK_M"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("capability", "block"), [((12, 0), 64), ((12, 1), 64), ((9, 0), 128), ((10, 0), 128), ((8, 0), 64)])
def test_prefill_attention_takes_a_tile_that_fits(version: str, capability: tuple[int, int], block: int) -> None:
    kernel = Kernel()
    scope = {"triton": TRITON, "_is_cuda": True, "_is_hip": False, "CUDA_CAPABILITY": capability, "_fwd_kernel": kernel}
    forward = function(patched_text("prefill-attention-sm120-block", version), "context_attention_fwd", scope)
    q, k = Tensor(10, 16, 128), Tensor(10, 2, 128)
    forward(q, k, k, q, Tensor(1), Tensor(1), 10)
    assert kernel.block == block


@pytest.mark.parametrize("version", ["0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1"])
@pytest.mark.parametrize(
    ("backend", "capability", "runs"), [("flashinfer_cutlass", 12, True), ("triton", 12, False), ("flashinfer_cutlass", 8, False)]
)
def test_autotune_covers_cutlass(version: str, backend: str, capability: int, runs: bool) -> None:
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(get_device_capability=lambda: (capability, 0)))
    run = function(patched_text("autotune-flashinfer-cutlass", version), "_should_run_flashinfer_autotune", {"torch": torch})
    arguments = types.SimpleNamespace(disable_flashinfer_autotune=False, moe_runner_backend=backend, moe_a2a_backend="none")
    no = types.SimpleNamespace(**{f"is_{kind}": lambda: False for kind in ("eagle", "standalone", "ngram", "speculative")})
    assert run(types.SimpleNamespace(server_args=arguments, spec_algorithm=no, is_draft_worker=False)) is runs


MOE_CONFIGS = ("sglang/srt/layers/moe/fused_moe_triton", "sglang/srt/layers/moe/moe_runner/triton_utils")
MOE_SHAPE: dict[str, Any] = {
    "model_type": "glm_moe_dsa", "architecture": "GlmMoeDsaForCausalLM", "layers": 78, "dense_layers": 3, "experts": 256,
    "shared_experts": 1, "experts_per_token": 8, "moe_intermediate": 2048, "heads": 64, "kv_heads": 64, "head_dim": 64,
    "kv_lora_rank": 512, "rope_head_dim": 64, "index_head_dim": 128, "context": 202752, "vocabulary": 154880, "dtype": "bfloat16",
    "mtp_declared": 1, "mtp_present": False,
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("quantization", "block", "fusion", "told"),
    [("none", (), True, (257, 256, None, [0, 0])), ("fp8", (128, 128), False, (256, 256, "fp8_w8a8", [128, 128]))],
)
def test_tuned_configurations_bear_the_name_that_the_release_looks_for(
    version: str, quantization: str, block: tuple[int, ...], fusion: bool, told: tuple[Any, ...]
) -> None:
    text = next(found for folder in MOE_CONFIGS if (found := text_of(version, f"{folder}/fused_moe_triton_config.py")))
    device = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    name = function(text, "get_config_file_name", {"Optional": Any, "get_device_name": lambda: device})(*told)
    flags = {"tp-size": 8, "moe-runner-backend": "triton", "disable-shared-experts-fusion": not fusion}
    ours = moe_tuning({"shape": MOE_SHAPE | {"quantization": quantization, "weight_block": block}}, flags, device, "3.6.0")
    assert (ours["file"], ours["folder"], ours["no_effect"]) == (name, "configs/triton_3_6_0", "")
    assert 'os.environ.get(\n        "SGLANG_MOE_CONFIG_DIR"' in text
    assert "f\"triton_{triton_version.replace('.', '_')}\"" in text


def test_tuning_says_where_it_has_no_effect() -> None:
    nvfp4 = {"shape": MOE_SHAPE | {"quantization": "modelopt NVFP4"}}
    told = moe_tuning(nvfp4, {"tp-size": 8, "moe-runner-backend": "flashinfer_cutlass", "quantization": "modelopt_fp4"}, "GPU", "3.6.0")
    assert (told["E"], told["N"]) == (257, 256)
    assert "flashinfer_cutlass, which reads no Triton configuration" in told["no_effect"]
    assert "FP4" in told["no_effect"]


@pytest.mark.parametrize("tool", ["sglang_flags.py", "sglang_profiles.py"])
def test_the_tables_equal_what_the_wheels_say(tool: str) -> None:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
