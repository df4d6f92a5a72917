"""The patches that sglang needs on certain GPUs, each tried against the published wheels it names."""

from __future__ import annotations

from .edit import Edit, Patch

PREFILL_ATTENTION = "sglang/kernels/ops/attention/prefill_attention.py"

PATCHES: tuple[Patch, ...] = (
    Patch(
        id="prefill-attention-sm120-block",
        package="sglang",
        versions=("0.5.23",),
        architectures=("sm120",),
        why="A 128 x 128 tile of the Triton prefill kernel needs 131,072 bytes of shared memory; a block on SM120 has 101,376.",
        upstream="sgl-project/sglang#27962 (open)",
        edits=(
            Edit(
                path=PREFILL_ATTENTION,
                old="    if (_is_cuda or _is_hip) and CUDA_CAPABILITY[0] > 8:\n        BLOCK = 128\n",
                new="    if (_is_cuda or _is_hip) and CUDA_CAPABILITY[0] > 8 and CUDA_CAPABILITY[0] != 12:\n        BLOCK = 128\n",
                present="CUDA_CAPABILITY[0] != 12",
            ),
        ),
    ),
)
