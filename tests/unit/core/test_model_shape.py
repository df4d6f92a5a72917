"""What a checkpoint is and whether it fits, against figures that operators published."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gpunode.checkpoint.complete import check
from gpunode.checkpoint.fit import findings, fit
from gpunode.checkpoint.hashes import verify_hashes
from gpunode.checkpoint.shape import Shape, kv_bytes_per_token, moe_shape, shape_of

GLM5: dict[str, Any] = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "num_hidden_layers": 78, "num_attention_heads": 64,
    "num_key_value_heads": 64, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "max_position_embeddings": 202752,
    "num_nextn_predict_layers": 1, "hidden_size": 6144, "head_dim": 64,
}  # fmt: skip
LLAMA = {"model_type": "llama", "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192}


def shape(config: dict[str, Any], names: list[str] | None = None, **quantization: str) -> Shape:
    return shape_of(config, quantization, names)


@pytest.mark.parametrize(
    ("config", "tp", "fused", "expected"),
    [
        (GLM5, 8, None, (257, 256)),
        (GLM5, 8, False, (256, 256)),
        (GLM5, 4, None, (257, 512)),
        ({**GLM5, "n_routed_experts": 160, "moe_intermediate_size": 1536}, 8, True, (161, 192)),
        ({"num_local_experts": 8, "intermediate_size": 14336}, 2, None, (8, 7168)),
    ],
)
def test_moe_shapes_that_sglang_looks_up(config: dict[str, Any], tp: int, fused: bool | None, expected: tuple[int, int]) -> None:
    assert moe_shape(shape(config), tp, fused=fused) == expected


def test_shapes_that_do_not_divide_or_have_no_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="do not divide by --tp-size 6"):
        moe_shape(shape(GLM5), 6)
    with pytest.raises(ValueError, match="has no experts"):
        moe_shape(shape(LLAMA), 8)


@pytest.mark.parametrize(
    ("config", "kv", "tp", "expected"),
    [
        (GLM5, "bf16", 8, (576 * 2 + 132) * 78),
        (GLM5, "fp8_e4m3", 8, (656 + 132) * 78),
        ({**GLM5, "index_head_dim": 0}, "bf16", 8, 576 * 2 * 78),
        (LLAMA, "bf16", 8, 2 * 1 * 128 * 2 * 80),
        (LLAMA, "fp8_e5m2", 4, 2 * 2 * 128 * 80),
        (LLAMA, "auto", 16, 2 * 1 * 128 * 2 * 80),
    ],
)
def test_bytes_of_kv_cache_a_token(config: dict[str, Any], kv: str, tp: int, expected: int) -> None:
    assert kv_bytes_per_token(shape(config), kv, tp) == expected


def test_glm5_on_eight_cards_holds_what_its_operators_saw() -> None:
    """57.06 GiB of weights, 314,304 tokens of bf16 cache at 0.92 (local-inference-lab/rtx6kpro); 97,887 MiB a card."""
    figures = fit(shape(GLM5), 446_000_000_000, gpu_memory_mib=97887, tp=8, kv_dtype="bf16", mem_fraction=0.92)
    assert figures.weights_gib == pytest.approx(57.06, rel=0.01)
    assert figures.max_tokens == pytest.approx(314_304, rel=0.03)
    assert figures.fits
    assert [finding.id for finding in findings(figures)] == ["model-fits"]


@pytest.mark.parametrize(
    ("memory", "context", "requests", "expected"),
    [(48_000, 0, 0, "model-does-not-fit"), (73_000, 0, 0, "context-does-not-fit"), (97_887, 8192, 512, "kv-cache-small")],
)
def test_what_does_not_fit_is_told_before_the_server_starts(memory: int, context: int, requests: int, expected: str) -> None:
    figures = fit(
        shape(GLM5), 446_000_000_000, gpu_memory_mib=memory, kv_dtype="bf16", mem_fraction=0.92, context=context, requests=requests
    )
    assert [finding.id for finding in findings(figures)] == [expected]


@pytest.mark.parametrize(
    ("names", "present"),
    [
        (["model.layers.77.mlp.up_proj.weight"], False),
        (["model.layers.78.eh_proj.weight"], True),
        (["model.layers.78.mlp.experts.0.up_proj.weight"], True),
        (["mtp.layers.0.norm.weight"], True),
        (None, None),
    ],
)
def test_mtp_weights_are_looked_for_and_not_believed(names: list[str] | None, present: bool | None) -> None:
    found = shape(GLM5, names)
    assert (found.mtp_declared, found.mtp_present) == (1, present)


def test_quantisation_comes_from_either_file() -> None:
    assert shape({**GLM5, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}).quantization == "modelopt NVFP4"
    assert shape(GLM5, quant_algo="NVFP4").quantization == "NVFP4"
    assert shape(GLM5).quantization == "none"


def test_the_text_part_of_a_multimodal_model_counts() -> None:
    found = shape({"model_type": "kimi_k25", "text_config": {**GLM5, "num_hidden_layers": 61}})
    assert (found.model_type, found.layers, found.experts) == ("kimi_k25", 61, 256)


def snapshot(root: Path) -> Path:
    repository = root / "models--org--m"
    folder = repository / "snapshots" / "c0ffee"
    (repository / "blobs").mkdir(parents=True)
    folder.mkdir(parents=True)
    large, small = b"x" * 5000, b"{}"
    for name, data, digest in (
        ("model.bin", large, hashlib.sha256(large).hexdigest()),
        ("config.json", small, hashlib.sha1(b"blob 2\0{}", usedforsecurity=False).hexdigest()),
    ):
        (repository / "blobs" / digest).write_bytes(data)
        (folder / name).symlink_to(Path("../../blobs") / digest)
    return folder


def test_hashes_find_one_wrong_byte(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    assert verify_hashes(folder) == (2, [])
    blob = (folder / "model.bin").resolve()
    blob.write_bytes(b"y" + blob.read_bytes()[1:])
    checked, problems = verify_hashes(folder)
    assert checked == 2
    assert len(problems) == 1
    assert problems[0].startswith("model.bin: its content has the hash")


def test_a_half_file_beside_its_whole_blob_is_no_fault(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    blob = (folder / "model.bin").resolve()
    (blob.parent / f"{blob.name}.7a80606d.incomplete").touch()
    (blob.parent / ("0" * 64 + ".incomplete")).touch()
    assert [problem for problem in check(folder).problems if "half" in problem] == ["0" * 64 + ".incomplete is half-downloaded"]
