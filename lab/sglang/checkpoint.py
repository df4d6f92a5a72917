"""A small checkpoint with GLM-5's shape: a Hugging Face cache with blobs, refs and a snapshot; real safetensors, a few KB each.

`python3 -m lab.sglang.checkpoint HUB_FOLDER [REPO_ID]` makes it (idempotent) and prints the snapshot's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

REPO = "lukealonso/GLM-5-NVFP4"
REVISION = "6944a23f9ffb9668ac970901526c6cc72c34f4e2"
SHARDS = 8

CONFIG: dict[str, Any] = {
    "gpunode_simulated": True,  # reports of this checkpoint say so
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "vocab_size": 154880,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 2048,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 192,
    "qk_head_dim": 256,
    "v_head_dim": 256,
    "head_dim": 64,
    "index_topk": 2048,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "max_position_embeddings": 202752,
    "num_nextn_predict_layers": 1,
    "eos_token_id": [154820, 154827, 154829],
    "pad_token_id": 154820,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "exclude_modules": ["lm_head", "model.layers.*.self_attn*"],
    },
}
QUANT = {
    "producer": {"name": "modelopt", "version": "0.41.0"},
    "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16},
}


def _safetensors(names: list[str]) -> bytes:
    """A valid safetensors file of tiny BF16 tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        header[name] = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [offset, offset + 32]}
        offset += 32
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"\0" * offset


def _shards() -> tuple[dict[str, bytes], dict[str, str]]:
    layers = int(CONFIG["num_hidden_layers"])
    names: list[list[str]] = [[] for _ in range(SHARDS)]
    names[0].append("model.embed_tokens.weight")
    for layer in range(layers):
        parts = ["input_layernorm.weight", "self_attn.q_a_proj.weight", "self_attn.kv_a_proj_with_mqa.weight", "self_attn.o_proj.weight"]
        parts += (
            ["mlp.down_proj.weight"]
            if layer < int(CONFIG["first_k_dense_replace"])
            else ["mlp.gate.weight", "mlp.experts.0.down_proj.weight"]
        )
        names[layer * SHARDS // layers] += [f"model.layers.{layer}.{part}" for part in parts]
    names[-1] += ["model.norm.weight", "lm_head.weight"]
    files, where = {}, {}
    for number, members in enumerate(names, 1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        files[file] = _safetensors(members)
        where.update(dict.fromkeys(members, file))
    return files, where


def files() -> dict[str, bytes]:
    """Every file of the checkpoint by name."""
    shards, where = _shards()
    index = {"metadata": {"total_size": 32 * len(where)}, "weight_map": where}
    texts = {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": CONFIG["eos_token_id"], "temperature": 1.0, "top_p": 0.95},
        "hf_quant_config.json": QUANT,
        "model.safetensors.index.json": index,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "model_max_length": 202752},
        "tokenizer.json": {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0}, "merges": []}},
    }
    return {**{name: (json.dumps(value, indent=2) + "\n").encode() for name, value in texts.items()}, **shards}


def create(hub: Path, repo: str = REPO, revision: str = REVISION) -> Path:
    """Make the checkpoint in a Hugging Face cache and return the snapshot's folder; what is there and whole is left alone."""
    base = hub / f"models--{repo.replace('/', '--')}"
    snapshot = base / "snapshots" / revision
    for folder in (base / "blobs", base / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        digest = hashlib.sha256(content).hexdigest()
        blob = base / "blobs" / digest
        if not blob.exists():
            blob.write_bytes(content)
        link = snapshot / name
        wanted = os.path.relpath(blob, snapshot)
        if not (link.is_symlink() and str(link.readlink()) == wanted):
            link.unlink(missing_ok=True)
            link.symlink_to(wanted)
    ref = base / "refs" / "main"
    if not ref.exists() or ref.read_text(encoding="utf-8") != revision:
        ref.write_text(revision, encoding="utf-8")
    return snapshot


if __name__ == "__main__":
    print(create(Path(sys.argv[1]), *(sys.argv[2:3])))
