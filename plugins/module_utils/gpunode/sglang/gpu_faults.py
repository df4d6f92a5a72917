"""What fails or misleads on which GPU architecture in which releases: data for the check of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Values = "Mapping[str, list[str]]"


@dataclass(frozen=True)
class GpuFault:
    """One known fault. ``since`` and ``until`` are releases, both included; an empty ``until`` means that it still holds.

    ``applies`` looks at the launch: flag to values, environment to values.
    """

    id: str
    severity: str
    architectures: tuple[str, ...]
    since: str
    until: str
    applies: Callable[[Mapping[str, list[str]], Mapping[str, str]], bool]
    summary: str
    remedy: str
    source: str


SM12X = ("sm120", "sm121")


def _is(flag: str, *values: str) -> Callable[[Mapping[str, list[str]], Mapping[str, str]], bool]:
    return lambda flags, _environment: bool(set(flags.get(flag, ())) & set(values))


def _has(flag: str) -> Callable[[Mapping[str, list[str]], Mapping[str, str]], bool]:
    return lambda flags, _environment: flag in flags


def _allreduce_fusion_backend(flags: Mapping[str, list[str]], environment: Mapping[str, str]) -> bool:
    del environment
    return "--flashinfer-allreduce-fusion-backend" in flags and "--enforce-disable-flashinfer-allreduce-fusion" not in flags


def _dsa_bf16(flags: Mapping[str, list[str]], environment: Mapping[str, str]) -> bool:
    del environment
    glm = any("glm-5" in value.lower() for value in flags.get("--model-path", ()))
    dense = bool({"flashinfer", "triton"} & set(flags.get("--attention-backend", ())))
    return glm and not dense and bool({"bf16", "bfloat16"} & set(flags.get("--kv-cache-dtype", ())))


def _dense_mla(flags: Mapping[str, list[str]], environment: Mapping[str, str]) -> bool:
    del environment
    return any("glm-5" in value.lower() for value in flags.get("--model-path", ())) and "flashinfer" in flags.get("--attention-backend", ())


def _large_decode_graph(flags: Mapping[str, list[str]], environment: Mapping[str, str]) -> bool:
    del environment
    for name in ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"):
        for value in flags.get(name, ()):
            if value.isdigit() and int(value) > 256:
                return True
    return False


FAULTS: tuple[GpuFault, ...] = (
    GpuFault(
        "allreduce-fusion-refused", "error", SM12X, "0.5.14", "", _has("--enable-flashinfer-allreduce-fusion"),
        "FlashInfer's all-reduce fusion ends the start on this GPU: it raises `requires SM90 or SM10X NVIDIA GPUs` at warm-up.",
        "Leave the flag out; it is never chosen by itself on SM120.",
        "sglang wheels 0.5.14 to 0.5.23, flashinfer_comm_fusion.py",
    ),
    GpuFault(
        "allreduce-fusion-refused", "error", SM12X, "0.5.14", "", _allreduce_fusion_backend,
        "FlashInfer's all-reduce fusion ends the start on this GPU: it raises `requires SM90 or SM10X NVIDIA GPUs` at warm-up.",
        "Leave the flag out, or add --enforce-disable-flashinfer-allreduce-fusion.",
        "sglang wheels 0.5.14 to 0.5.23, flashinfer_comm_fusion.py",
    ),
    GpuFault(
        "allreduce-fusion-no-effect", "warning", SM12X, "0.5.8.post1", "0.5.13.post1", _has("--enable-flashinfer-allreduce-fusion"),
        "FlashInfer's all-reduce fusion does nothing on this GPU, and from 0.5.14 on it ends the start.",
        "Leave the flag out.",
        "sglang wheels, srt/layers/communicator.py",
    ),
    GpuFault(
        "trtllm-attention", "error", SM12X, "0.5.8.post1", "",
        lambda flags, _environment: any(
            "trtllm" in value
            for name in ("--attention-backend", "--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend",
                         "--nsa-decode-backend", "--prefill-attention-backend", "--decode-attention-backend")
            for value in flags.get(name, ())
        ) and not _dense_mla(flags, _environment),
        "The TRT-LLM attention kernels are not built for this GPU: `TllmGenFmhaRunner: Unsupported architecture`.",
        "From 0.5.17 on use --kv-cache-dtype fp8_e4m3 and leave the backend to sglang (flashinfer_sparse_mla); before, --attention-backend "
        "flashinfer --kv-cache-dtype bf16.",
        "sgl-project/sglang#26087",
    ),
    GpuFault(
        "trtllm-moe", "error", SM12X, "0.5.8.post1", "", _is("--moe-runner-backend", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
        "The TRT-LLM MoE kernels are not built for this GPU.",
        "Use --moe-runner-backend flashinfer_cutlass.",
        "sglang cookbook: the recipe is for B200",
    ),
    GpuFault(
        "deep-gemm-moe", "error", SM12X, "0.5.8.post1", "0.5.16", _is("--moe-runner-backend", "deep_gemm"),
        "DeepGEMM has no kernels for this GPU in this release, and the Triton kernels that run instead exhaust shared memory.",
        "Use --moe-runner-backend flashinfer_cutlass.",
        "deepseek-ai/DeepGEMM#324; magik6k/glm-kimi-sm120-rtx6000bw",
    ),
    GpuFault(
        "cutlass-moe-not-used", "error", SM12X, "0.5.8.post1", "0.5.8.post1",
        lambda flags, _environment: "flashinfer_cutlass" in flags.get("--moe-runner-backend", ())
        and "modelopt_fp4" not in flags.get("--quantization", ()),
        "In this release FP8 MoE layers still run Triton kernels that need 147,456 bytes of shared memory; a block on SM120 has 101,376.",
        "Use a newer release, or an NVFP4 checkpoint.",
        "magik6k/glm-kimi-sm120-rtx6000bw",
    ),
    GpuFault(
        "triton-moe-shared-memory", "error", SM12X, "0.5.8.post1", "0.5.8.post1", _is("--moe-runner-backend", "triton"),
        "The Triton MoE kernel needs 147,456 bytes of shared memory without a tuned configuration; a block on SM120 has 101,376.",
        "Tune it for this GPU, or use --moe-runner-backend flashinfer_cutlass with an NVFP4 checkpoint.",
        "magik6k/glm-kimi-sm120-rtx6000bw",
    ),
    GpuFault(
        "dsa-needs-fp8-kv", "error", SM12X, "0.5.13", "", _dsa_bf16,
        "With a bf16 KV cache the sparse attention of this model falls to backends that are not built for SM120.",
        "Use --kv-cache-dtype fp8_e4m3 (0.5.17 or newer).",
        "sgl-project/sglang#26928",
    ),
    GpuFault(
        "dense-mla-quality", "warning", SM12X, "0.5.17", "", _dense_mla,
        "Dense MLA ignores the model's indexer: 75.9 % correct against 89.3 % with sparse attention on a long-context task.",
        "Leave --attention-backend out and use --kv-cache-dtype fp8_e4m3.",
        "local-inference-lab/rtx6kpro, 2026-04-20",
    ),
    GpuFault(
        "decode-graph-memory", "warning", SM12X, "0.5.8.post1", "", _large_decode_graph,
        "CUDA graphs for more than 256 requests ran out of memory on 96 GB cards.",
        "Cap them: --cuda-graph-max-bs-decode 256.",
        "sgl-project/sglang#29562",
    ),
    GpuFault(
        "fp4-nan-under-load", "warning", SM12X, "0.5.8.post1", "0.5.10.post1",
        lambda flags, _environment: "modelopt_fp4" in flags.get("--quantization", ())
        and "flashinfer_cudnn" not in flags.get("--fp4-gemm-backend", ()),
        "The FP4 GEMM of this release's flashinfer has a race: `probability tensor contains inf/nan` from about 64 requests on.",
        "Use sglang 0.5.11 or newer, or --fp4-gemm-backend flashinfer_cudnn with nvidia-cudnn-cu13==9.19.1.2.",
        "flashinfer-ai/flashinfer#2708, #2798",
    ),
)  # fmt: skip
"""In the order in which they are reported."""

NO_OP_ENVIRONMENT = {
    "SGLANG_ENABLE_DEEP_GEMM": "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGLANG_DISABLE_DEEP_GEMM": "SGLANG_ENABLE_JIT_DEEPGEMM=0",
    "HF_HUB_ENABLE_HF_TRANSFER": "HF_XET_HIGH_PERFORMANCE",
}
"""Variables that circulate in recipes and that no release reads, with what is read instead."""
