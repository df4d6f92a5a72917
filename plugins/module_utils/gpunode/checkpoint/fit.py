"""Whether a checkpoint fits on the GPUs with the context and the requests that are asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..findings import ERROR, INFO, WARNING, Finding
from .shape import Shape, kv_bytes_per_token

GIB = 2**30
WEIGHTS_FACTOR = 1.1
"""Weights on a GPU over checkpoint divided by ranks: norms, routers and latent projections are kept whole on each. GLM-5-NVFP4: about
415 GiB over 8 is 51.9, and sglang logs 57.06 (local-inference-lab/rtx6kpro, models/glm5.md)."""
CONTEXT_GIB = 1.0
"""What the CUDA context and NCCL take before the fraction is applied: 95 of 95.6 GiB free on an idle card, and NCCL's buffers."""
SHORT_REQUEST = 1024
"""Tokens of a short request (prompt and answer), by which the KV cache is told in requests."""


@dataclass(frozen=True)
class Fit:
    """Figures for one GPU, in GiB, and how far the KV cache goes. ``max_tokens`` is 0 when the weights alone do not fit."""

    weights_gib: float
    budget_gib: float
    kv_gib: float
    kv_bytes_per_token: int
    max_tokens: int
    full_contexts: int
    context: int
    requests: int
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def fit(
    shape: Shape,
    size_bytes: int,
    *,
    gpu_memory_mib: int,
    tp: int = 8,
    pp: int = 1,
    kv_dtype: str = "bf16",
    mem_fraction: float = 0.9,
    context: int = 0,
    requests: int = 0,
) -> Fit:
    """Weights and KV cache against one GPU's memory; ``context`` 0 takes the model's own."""
    weights = size_bytes * WEIGHTS_FACTOR / (tp * pp) / GIB
    budget = (gpu_memory_mib / 1024 - CONTEXT_GIB) * mem_fraction
    kv = budget - weights
    per_token = max(1, kv_bytes_per_token(shape, kv_dtype, tp) // pp)
    tokens = max(0, int(kv * GIB / per_token))
    wanted = context or shape.context
    return Fit(
        weights_gib=round(weights, 2),
        budget_gib=round(budget, 2),
        kv_gib=round(max(0.0, kv), 2),
        kv_bytes_per_token=per_token,
        max_tokens=tokens,
        full_contexts=tokens // wanted if wanted else 0,
        context=wanted,
        requests=requests,
        fits=tokens > 0 and tokens >= wanted,
    )


def findings(result: Fit) -> list[Finding]:
    """What the figures mean; an error where the server would not start or not take one request of the asked context."""
    told = f"weights {result.weights_gib} GiB, budget {result.budget_gib} GiB, KV cache {result.kv_gib} GiB on each GPU (estimated)"
    if not result.max_tokens:
        remedy = "Use more GPUs (--tp-size, --pp-size), a smaller quantisation, or a larger mem-fraction-static."
        return [Finding("model-does-not-fit", ERROR, "model", "The weights do not fit into the GPUs' memory.", told, remedy)]
    if not result.fits:
        summary = f"The KV cache holds {result.max_tokens:,} tokens, less than one context of {result.context:,}."
        remedy = f"Set context-length to {result.max_tokens // 1024 * 1024} or less, or use an fp8 KV cache."
        return [Finding("context-does-not-fit", ERROR, "model", summary, told, remedy)]
    if result.requests and result.max_tokens < result.requests * SHORT_REQUEST:
        summary = (
            f"The KV cache holds {result.max_tokens:,} tokens: {result.requests} requests have {result.max_tokens // result.requests} each."
        )
        return [Finding("kv-cache-small", WARNING, "model", summary, told, "Lower max-running-requests or use an fp8 KV cache.")]
    summary = f"It fits: {result.max_tokens:,} tokens of KV cache, {result.full_contexts} full contexts of {result.context:,}."
    return [Finding("model-fits", INFO, "model", summary, told)]
