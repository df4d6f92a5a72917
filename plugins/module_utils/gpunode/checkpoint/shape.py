"""What config.json and the weights' headers say of a model: layers, experts, quantisation, MTP, bytes of KV cache a token."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .complete import INDEX, read_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:\.|_|$)|\.(?:eh_proj|enorm|hnorm)\b")
SIMULATED_KEY = "gpunode_simulated"
"""What a stand-in's config.json holds, so that nobody takes its weights for a model's."""
INDEXER_SCALE_BYTES = 4
"""The indexer's cache holds one float32 scale beside its fp8 values (sglang: 128 + 4 bytes a token and layer for GLM-5)."""
SPARSE_FP8_SCALES_BYTES = 16
"""An fp8 cache for sparse MLA holds four float32 scales for its 512 values, and keeps the 64 rotary values in bf16: 656 bytes."""


@dataclass(frozen=True)
class Shape:
    """The model as data. Counts are 0 where the model has none of it.

    ``weight_block`` is the block that shares one scale (``(128, 128)``), empty where weights have no block scales. ``mtp_declared`` is
    what config.json says, ``mtp_present`` whether such weights are in the checkpoint (None: headers not read).
    """

    model_type: str
    architecture: str
    layers: int
    dense_layers: int
    experts: int
    shared_experts: int
    experts_per_token: int
    moe_intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_lora_rank: int
    rope_head_dim: int
    index_head_dim: int
    context: int
    vocabulary: int
    quantization: str
    dtype: str
    mtp_declared: int
    mtp_present: bool | None
    weight_block: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def read_shape(path: Path) -> Shape:
    """Shape of the checkpoint in this folder; raises ValueError when config.json is missing or no JSON."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path / 'config.json'} cannot be read: {error}") from None
    return shape_of(config, _quantization_file(path), tensor_names(path))


def is_simulated(path: Path) -> bool:
    """Whether config.json says that a stand-in made the checkpoint; one that cannot be read says nothing."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get(SIMULATED_KEY) is True


def tensor_names(path: Path) -> list[str] | None:
    """Names of all tensors, by the index or by the headers; None when neither can be read."""
    try:
        if (path / INDEX).is_file():
            return list(json.loads((path / INDEX).read_text())["weight_map"])
        files = sorted(path.glob("*.safetensors"))
        return [name for file in files for name in read_header(file)] if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _quantization_file(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads((path / "hf_quant_config.json").read_text())
    except (OSError, ValueError):
        return {}
    found = data.get("quantization", {}) if isinstance(data, dict) else {}
    return found if isinstance(found, dict) else {}


def shape_of(config: Mapping[str, Any], quantization_file: Mapping[str, Any], names: Iterable[str] | None) -> Shape:
    """Shape from data alone; a multimodal model's text part counts."""
    text = config.get("text_config")
    text = {**config, **text} if isinstance(text, dict) else dict(config)

    def number(*keys: str) -> int:
        return next((int(text[key]) for key in keys if isinstance(text.get(key), (int, float)) and not isinstance(text[key], bool)), 0)

    layers = number("num_hidden_layers", "n_layer")
    heads = number("num_attention_heads", "n_head")
    hidden = number("hidden_size")
    experts = number("n_routed_experts", "num_local_experts", "num_experts")
    quantization = text.get("quantization_config") or {}
    method = str(quantization.get("quant_method") or "")
    algorithm = str(quantization.get("quant_algo") or quantization_file.get("quant_algo") or "")
    return Shape(
        model_type=str(config.get("model_type", "")),
        architecture=str((config.get("architectures") or [""])[0]),
        layers=layers,
        dense_layers=(number("first_k_dense_replace") if experts else layers),
        experts=experts,
        shared_experts=number("n_shared_experts"),
        experts_per_token=number("num_experts_per_tok", "moe_topk"),
        moe_intermediate=number("moe_intermediate_size") or (number("intermediate_size") if experts else 0),
        heads=heads,
        kv_heads=number("num_key_value_heads") or heads,
        head_dim=number("head_dim") or (hidden // heads if heads else 0),
        kv_lora_rank=number("kv_lora_rank"),
        rope_head_dim=number("qk_rope_head_dim"),
        index_head_dim=number("index_head_dim"),
        context=number("max_position_embeddings"),
        vocabulary=number("vocab_size"),
        quantization=" ".join(dict.fromkeys(part for part in (method, algorithm) if part)) or "none",
        dtype=str(text.get("dtype") or text.get("torch_dtype") or ""),
        mtp_declared=number("num_nextn_predict_layers", "mtp_num_hidden_layers"),
        weight_block=tuple(int(size) for size in quantization.get("weight_block_size") or ()),
        mtp_present=None if names is None else any(_is_mtp(name, layers) for name in names),
    )


def _is_mtp(name: str, layers: int) -> bool:
    found = _LAYER.search(name)
    return bool(_MTP.search(name)) or bool(found and layers and int(found.group(1)) >= layers)


def moe_shape(shape: Shape, tp: int, *, fused: bool | None = None) -> tuple[int, int]:
    """E and N of the fused MoE kernel for this tensor parallel size, as sglang names its tuned configurations.

    ``fused`` adds the shared experts to E (sglang does where the shared expert is quantised as the others); None takes that for granted.
    Raises ValueError for a model without experts, or where N does not divide.
    """
    if not shape.experts:
        raise ValueError(f"{shape.model_type or 'this model'} has no experts")
    if shape.moe_intermediate % tp:
        raise ValueError(f"the experts' {shape.moe_intermediate} columns do not divide by --tp-size {tp}")
    return shape.experts + (shape.shared_experts if fused is not False else 0), shape.moe_intermediate // tp


def kv_bytes_per_token(shape: Shape, kv_dtype: str, tp: int) -> int:
    """Bytes of KV cache that one token takes on one GPU.

    Latent attention (MLA) is kept whole on every rank; grouped heads are spread over the ranks, at least one each. ``kv_dtype`` is a value
    of --kv-cache-dtype; anything that begins with fp8 takes one byte a value.
    """
    fp8 = kv_dtype.startswith(("fp8", "mxfp8"))
    if shape.kv_lora_rank:
        values = shape.kv_lora_rank + shape.rope_head_dim
        if not shape.index_head_dim:
            return values * (1 if fp8 else 2) * shape.layers
        cache = shape.kv_lora_rank + SPARSE_FP8_SCALES_BYTES + 2 * shape.rope_head_dim if fp8 else values * 2
        return (cache + shape.index_head_dim + INDEXER_SCALE_BYTES) * shape.layers
    heads = max(1, shape.kv_heads // tp)
    return 2 * heads * shape.head_dim * (1 if fp8 else 2) * shape.layers
