"""What fails or misleads on which GPU architecture in which releases: data for the check of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .launch import Launched


@dataclass(frozen=True)
class GpuFault:
    """One known fault. ``since`` and ``until`` are releases, both included; an empty ``until`` means that it still holds.

    ``architectures`` is empty where every GPU is concerned. ``applies`` looks at the launch. A fault with ``patch`` does not hold
    in a release that has this patch.
    """

    id: str
    severity: str
    architectures: tuple[str, ...]
    since: str
    until: str
    applies: Callable[[Launched], bool]
    summary: str
    remedy: str
    source: str
    patch: str = ""


SM12X = ("sm120", "sm121")
"""Workstation and server-edition Blackwell: 101,376 bytes of shared memory a block, no TMEM."""
SM10X = ("sm100", "sm103")
HOPPER_AND_OLDER = ("sm80", "sm86", "sm89", "sm90")
OLDEST = "0.5.8.post1"
CUTLASS_QUANTIZATIONS = {"modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed"}

_FUSION = "FlashInfer's all-reduce fusion ends the start on this GPU: it raises `requires SM90 or SM10X NVIDIA GPUs` at warm-up."
_FUSION_SOURCE = "sglang wheels 0.5.14 to 0.5.23, flashinfer_comm_fusion.py"
_FLASHINFER_DENSE = "--attention-backend flashinfer --kv-cache-dtype bf16"
_SPARSE_ON_SM120 = "Use sglang 0.5.17 or newer with --kv-cache-dtype fp8_e4m3 and leave the backend to it (flashinfer_sparse_mla)"


def _large_decode_graph(launched: Launched) -> bool:
    return (launched.number("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs") or 0) > 256


FAULTS: tuple[GpuFault, ...] = (
    GpuFault(
        "allreduce-fusion-refused", "error", SM12X, "0.5.14", "",
        lambda launched: launched.has("--enable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend")
        and not launched.has("--enforce-disable-flashinfer-allreduce-fusion"),
        _FUSION, "Leave the flag out: it is never chosen by itself on SM120. --enforce-disable-flashinfer-allreduce-fusion wins over it.",
        _FUSION_SOURCE,
    ),
    GpuFault(
        "allreduce-fusion-no-effect", "warning", SM12X, OLDEST, "0.5.13.post1",
        lambda launched: launched.has("--enable-flashinfer-allreduce-fusion"),
        "FlashInfer's all-reduce fusion does nothing on this GPU, and from 0.5.14 on it ends the start.", "Leave the flag out.",
        "sglang wheels, srt/layers/communicator.py",
    ),
    GpuFault(
        "sparse-attention-unsupported", "error", SM12X, OLDEST, "0.5.16",
        lambda launched: launched.sparse_attention and not launched.dense_attention,
        "Sparse attention of this model does not run on this GPU in this release: DeepGEMM says `Unsupported architecture`.",
        f"{_SPARSE_ON_SM120}; in this release {_FLASHINFER_DENSE}.", "sgl-project/sglang#26087, #26928",
    ),
    GpuFault(
        "trtllm-attention", "error", SM12X, "0.5.17", "",
        lambda launched: launched.sparse_attention and not launched.dense_attention and "trtllm" in launched.sparse_backends,
        "The TRT-LLM kernels of sparse attention are not built for this GPU: `TllmGenFmhaRunner: Unsupported architecture`.",
        "Leave --dsa-prefill-backend and --dsa-decode-backend out and use --kv-cache-dtype fp8_e4m3 (flashinfer_sparse_mla is chosen).",
        "sgl-project/sglang#26087",
    ),
    GpuFault(
        "trtllm-attention", "error", (*SM12X, "sm90"), OLDEST, "0.5.9", lambda launched: "trtllm_mha" in launched.all_backends,
        "This release refuses trtllm_mha on everything but SM100.", "Use --attention-backend flashinfer.",
        "sglang wheels 0.5.8.post1 and 0.5.9, srt/server_args.py",
    ),
    GpuFault(
        "trtllm-attention", "error", (*SM12X, "sm90"), "0.5.10", "0.5.18", lambda launched: "trtllm_mha" in launched.prefill_backends,
        "This release refuses trtllm_mha for prefill on everything but SM100.",
        "Use it for decoding alone: --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha.",
        "sglang wheels 0.5.10 to 0.5.18, srt/server_args.py",
    ),
    GpuFault(
        "trtllm-attention", "error", SM12X, "0.5.19", "",
        lambda launched: "trtllm_mha" in launched.prefill_backends and "fp8_e4m3" in launched.values("--kv-cache-dtype"),
        "trtllm_mha prefill on SM120 refuses an fp8_e4m3 KV cache.", "Use --prefill-attention-backend flashinfer, or a bf16 KV cache.",
        "sglang wheels 0.5.19 to 0.5.23, arg_groups/attention_hook.py",
    ),
    GpuFault(
        "trtllm-attention", "error", SM12X, OLDEST, OLDEST, lambda launched: "trtllm_mla" in launched.all_backends,
        "This release refuses trtllm_mla on everything but SM100.", "Use --attention-backend flashinfer, or 0.5.9 and newer.",
        "sglang wheel 0.5.8.post1, srt/server_args.py",
    ),
    GpuFault(
        "trtllm-attention", "error", HOPPER_AND_OLDER, OLDEST, "", lambda launched: "trtllm_mla" in launched.all_backends,
        "trtllm_mla exists for SM100 and SM12x alone.", "Leave the backend out.", "sglang wheels, srt/server_args.py",
    ),
    GpuFault(
        "fa3-hopper-only", "error", (*SM10X, *SM12X), OLDEST, "", lambda launched: "fa3" in launched.all_backends,
        "FlashAttention 3 asserts Hopper (SM90; SM80 without MLA).", "Use flashinfer, or leave the backend out.",
        "sglang wheels, layers/attention/attention_registry.py",
    ),
    GpuFault(
        "mla-backend-of-another-gpu", "error", (*SM12X, *HOPPER_AND_OLDER), OLDEST, "",
        lambda launched: "cutlass_mla" in launched.all_backends,
        "The kernels of cutlass_mla are built for SM100 alone.", "Leave the backend out, or use flashinfer.",
        "sglang wheels, layers/attention/cutlass_mla_backend.py; sgl-kernel, cutlass_mla_kernel",
    ),
    GpuFault(
        "mla-backend-of-another-gpu", "error", SM12X, OLDEST, "", lambda launched: "flashmla" in launched.all_backends,
        "FlashMLA's kernels are built for SM90 and SM100.", "Leave the backend out, or use flashinfer.",
        "sglang wheels, layers/attention/flashmla_backend.py; sgl-flash-mla",
    ),
    GpuFault(
        "fp8-gemm-backend", "error", SM12X, OLDEST, "0.5.16", lambda launched: "deep_gemm" in launched.fp8_gemm,
        "DeepGEMM has no kernels for this GPU in this release: `DeepGEMM is not available`, or `Unsupported architecture`.",
        "Leave --fp8-gemm-backend out, or use triton or cutlass.", "sglang wheels, deep_gemm_wrapper/configurer.py; DeepGEMM#324",
    ),
    GpuFault(
        "fp8-gemm-backend", "error", (*SM12X, *HOPPER_AND_OLDER), OLDEST, "", lambda launched: "flashinfer_trtllm" in launched.fp8_gemm,
        "The TRT-LLM FP8 GEMM kernels are built for SM100 alone.", "Leave --fp8-gemm-backend out, or use triton or cutlass.",
        "sglang wheels, layers/quantization/fp8_utils.py",
    ),
    GpuFault(
        "fp4-gemm-backend", "error", SM12X, OLDEST, "", lambda launched: "flashinfer_trtllm" in launched.values("--fp4-gemm-backend"),
        "The TRT-LLM FP4 GEMM kernels are not built for this GPU.",
        "Leave --fp4-gemm-backend out, or use flashinfer_cutlass or flashinfer_cudnn.",
        "flashinfer, gemm/gemm_base.py: mm_fp4",
    ),
    GpuFault(
        "nvfp4-needs-blackwell", "error", HOPPER_AND_OLDER, OLDEST, "0.5.12.post1",
        lambda launched: "modelopt_fp4" in launched.values("--quantization"),
        "NVFP4 asks for compute capability 10.0 in this release.", "Use 0.5.13 or newer (Marlin kernels), or an FP8 checkpoint.",
        "sglang wheels, layers/quantization/modelopt_quant.py: get_min_capability",
    ),
    GpuFault(
        "trtllm-moe", "error", SM12X, OLDEST, "",
        lambda launched: bool(launched.values("--moe-runner-backend") & {"flashinfer_trtllm", "flashinfer_trtllm_routed"}),
        "The TRT-LLM MoE kernels are not built for this GPU.", "Use --moe-runner-backend flashinfer_cutlass.",
        "sglang cookbook: the recipe is for B200",
    ),
    GpuFault(
        "deep-gemm-moe", "error", SM12X, OLDEST, "0.5.16", lambda launched: "deep_gemm" in launched.values("--moe-runner-backend"),
        "DeepGEMM has no kernels for this GPU in this release, and the Triton kernels that run instead exhaust shared memory.",
        "Use --moe-runner-backend flashinfer_cutlass.", "deepseek-ai/DeepGEMM#324; magik6k/glm-kimi-sm120-rtx6000bw",
    ),
    GpuFault(
        "cutlass-moe-quantization", "error", (), OLDEST, "", lambda launched: launched.last("--moe-runner-backend") == "flashinfer_cutlass"
        and "$" not in launched.last("--quantization") and bool(launched.values("--quantization") - CUTLASS_QUANTIZATIONS),
        "flashinfer_cutlass takes ModelOpt checkpoints and bfloat16 alone: the start ends with `Invalid quantization`.",
        "Leave --moe-runner-backend out for this quantization.", "sglang wheels, srt/server_args.py, arg_groups/moe_hook.py",
    ),
    GpuFault(
        "cutlass-moe-not-used", "error", SM12X, OLDEST, OLDEST,
        lambda launched: "flashinfer_cutlass" in launched.values("--moe-runner-backend")
        and "modelopt_fp4" not in launched.values("--quantization"),
        "In this release FP8 MoE layers still run Triton kernels that need 147,456 bytes of shared memory; a block on SM120 has 101,376.",
        "Use a newer release, or an NVFP4 checkpoint.", "magik6k/glm-kimi-sm120-rtx6000bw",
    ),
    GpuFault(
        "triton-moe-shared-memory", "error", (*SM12X, "sm89"), OLDEST, OLDEST,
        lambda launched: "triton" in launched.values("--moe-runner-backend")
        or (launched.fp8_moe and not launched.has("--moe-runner-backend")),
        "The Triton MoE kernel needs 147,456 bytes of shared memory without a tuned configuration; a block on this GPU has 101,376.",
        "Tune it for this GPU (playbooks/tune_moe.yml), or use --moe-runner-backend flashinfer_cutlass with an NVFP4 checkpoint.",
        "magik6k/glm-kimi-sm120-rtx6000bw; sgl-project/sglang#8513",
    ),
    GpuFault(
        "extend-attention-shared-memory", "error", SM12X, OLDEST, OLDEST,
        lambda launched: not launched.has("--attention-backend") or "triton" in launched.prefill_backends,
        "Triton's extend attention needs 106,496 bytes of shared memory, a block on SM120 has 101,376: a longer request ends the server.",
        "Use 0.5.9 or newer, --attention-backend flashinfer, or the patch.", "sgl-project/sglang#14322, #14311",
        patch="extend-attention-sm120-blocks",
    ),
    GpuFault(
        "prefill-attention-shared-memory", "warning", SM12X, OLDEST, "",
        lambda launched: "triton" in launched.prefill_backends or "triton_attn" in launched.values("--mm-attention-backend"),
        "Triton's prefill attention takes 131,072 bytes of shared memory on a GPU whose blocks have 101,376.",
        "Use --attention-backend flashinfer, or the patch.", "sgl-project/sglang#27962", patch="prefill-attention-sm120-block",
    ),
    GpuFault(
        "dsa-needs-fp8-kv", "error", SM12X, "0.5.17", "",
        lambda launched: launched.sparse_attention and not launched.dense_attention
        and bool(launched.values("--kv-cache-dtype") & {"bf16", "bfloat16"}),
        "With a bf16 KV cache the sparse attention of this model falls to backends that are not built for SM120.",
        "Use --kv-cache-dtype fp8_e4m3.", "sgl-project/sglang#26928",
    ),
    GpuFault(
        "dense-mla-quality", "warning", SM12X, "0.5.17", "", lambda launched: launched.sparse_attention and launched.dense_attention,
        "Dense MLA ignores the model's indexer: 75.9 % correct against 89.3 % with sparse attention on a long-context task.",
        "Leave --attention-backend out and use --kv-cache-dtype fp8_e4m3.", "local-inference-lab/rtx6kpro, 2026-04-20",
    ),
    GpuFault(
        "fp8-kv-garbled", "warning", SM12X, OLDEST, "0.5.12.post1",
        lambda launched: launched.sparse_attention and launched.dense_attention
        and any(value.startswith("fp8") for value in launched.values("--kv-cache-dtype")),
        "An FP8 KV cache under dense MLA gave garbled answers on this GPU in releases of that time.",
        "Use --kv-cache-dtype bf16, or 0.5.17 and newer with sparse attention.", "local-inference-lab/rtx6kpro, models/glm5.md",
    ),
    GpuFault(
        "autotune-left-out", "warning", SM12X, OLDEST, "0.5.12.post1",
        lambda launched: "flashinfer_cutlass" in launched.values("--moe-runner-backend")
        and not launched.has("--disable-flashinfer-autotune"),
        "FlashInfer's autotuner skips flashinfer_cutlass in this release: throughput stays far below what the GPU gives.",
        "Use 0.5.13 or newer, or the patch.", "sglang wheels, srt/model_executor/model_runner.py", patch="autotune-flashinfer-cutlass",
    ),
    GpuFault(
        "decode-graph-memory", "warning", SM12X, OLDEST, "", _large_decode_graph,
        "CUDA graphs for more than 256 requests ran out of memory on 96 GB cards.", "Cap them: --cuda-graph-max-bs-decode 256.",
        "sgl-project/sglang#29562",
    ),
    GpuFault(
        "fp4-nan-under-load", "warning", SM12X, OLDEST, "0.5.10.post1",
        lambda launched: "modelopt_fp4" in launched.values("--quantization")
        and "flashinfer_cudnn" not in launched.values("--fp4-gemm-backend"),
        "The FP4 GEMM of this release's flashinfer has a race: `probability tensor contains inf/nan` from about 64 requests on.",
        "Use sglang 0.5.11 or newer, or --fp4-gemm-backend flashinfer_cudnn with nvidia-cudnn-cu13==9.19.1.2.",
        "flashinfer-ai/flashinfer#2708, #2798",
    ),
    GpuFault(
        "transformers-too-old", "warning", (), OLDEST, "0.5.9", lambda launched: "glm-5" in launched.model or "glm5" in launched.model,
        "This release pins transformers 4.57.1, which does not know glm_moe_dsa: the start ends with KeyError unless it is overridden.",
        "Use 0.5.10 or newer, or transformers>=5.2,<5.4.", "sglang wheels, METADATA; transformers 5.2.0",
        patch="transformers-for-glm5",
    ),
    GpuFault(
        "shared-experts-fusion", "error", (), OLDEST, "0.5.17",
        lambda launched: launched.plain_shared_expert and not launched.has("--disable-shared-experts-fusion")
        and "flashinfer_trtllm" not in launched.values("--moe-runner-backend"),
        "The NVFP4 checkpoints of GLM-5.1 and 5.2 keep the shared expert in bf16: fused, loading ends with `3072 ... must match ... 6144`.",
        "Add --disable-shared-experts-fusion, or use 0.5.18 or newer.", "sgl-project/sglang#29562, #29580; model cards",
    ),
    GpuFault(
        "mtp-weights-missing", "warning", (), OLDEST, "",
        lambda launched: "lukealonso/glm-5-nvfp4" in launched.model and "mtp" not in launched.model
        and launched.last("--speculative-algorithm").upper() in {"EAGLE", "NEXTN"}
        and not launched.has("--speculative-draft-model-path"),
        "This checkpoint declares a draft layer and ships no weights of it: speculation drafts nothing that is right.",
        "Use festr2/GLM-5-NVFP4-MTP, or leave --speculative-algorithm out.", "local-inference-lab/rtx6kpro, models/glm5.md",
    ),
    GpuFault(
        "outlines-left-out", "warning", (), OLDEST, "", lambda launched: "outlines" in launched.values("--grammar-backend"),
        "outlines 0.1.11 has no wheel for Python 3.13 (Debian 13): there a release has none, and the first request with a grammar fails.",
        "Leave --grammar-backend out (xgrammar), or run the release with Python 3.11 or 3.12.", "outlines-core 0.1.26 on the package index",
    ),
)  # fmt: skip
"""In the order in which they are reported."""
