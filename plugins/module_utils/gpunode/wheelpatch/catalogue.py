"""The patches that sglang needs on certain GPUs, each tried against the published wheels it names."""

from __future__ import annotations

from itertools import product

from .edit import Edit, Patch, selected
from .wheel import METADATA, patched_version

SM12X = ("sm120", "sm121")
_TRITON_OPS = "sglang/srt/layers/attention/triton_ops"
_KERNELS = "sglang/kernels/ops/attention"
_OLD_PLACE = (
    "0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.14",
    "0.5.15", "0.5.15.post1",
)  # fmt: skip
"""Releases whose Triton attention lies in srt/layers/attention/triton_ops."""
_NEW_PLACE = ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")


def _prefill_attention(folder: str, versions: tuple[str, ...]) -> Patch:
    return Patch(
        id="prefill-attention-sm120-block",
        package="sglang",
        versions=versions,
        architectures=SM12X,
        why="A 128 x 128 tile of the Triton prefill kernel needs 131,072 bytes of shared memory; a block on SM120 has 101,376.",
        upstream="sgl-project/sglang#27962 (open)",
        edits=(
            Edit(
                path=f"{folder}/prefill_attention.py",
                old="    if (_is_cuda or _is_hip) and CUDA_CAPABILITY[0] > 8:\n        BLOCK = 128\n",
                new="    if (_is_cuda or _is_hip) and CUDA_CAPABILITY[0] > 8 and CUDA_CAPABILITY[0] != 12:\n        BLOCK = 128\n",
                present="CUDA_CAPABILITY[0] != 12",
            ),
        ),
    )


_CUTLASS_LEFT_OUT = (
    "            # TODO: flashinfer_cutlass will cause some flashinfer compilation errors. To be fixed.\n"
    '            # "flashinfer_cutlass",\n'
)

PATCHES: tuple[Patch, ...] = (
    Patch(
        id="extend-attention-sm120-blocks",
        package="sglang",
        versions=("0.5.8.post1",),
        architectures=SM12X,
        why="Blocks chosen for Hopper need 106,496 bytes of shared memory; a block on SM120 has 101,376.",
        upstream="sgl-project/sglang#14311 (merged, in 0.5.9)",
        edits=(
            Edit(
                path=f"{_TRITON_OPS}/extend_attention.py",
                old=(
                    "        if _is_cuda and CUDA_CAPABILITY[0] >= 9:\n"
                    "            # Hopper architecture (H100, etc.)\n"
                    "            if Lq <= 256:\n"
                ),
                new=(
                    "        if _is_cuda and CUDA_CAPABILITY[0] == 12:\n"
                    "            # 101,376 bytes of shared memory a block\n"
                    "            if Lq <= 128:\n"
                    "                BLOCK_M, BLOCK_N = (64, 128)\n"
                    "            elif Lq <= 256:\n"
                    "                BLOCK_M, BLOCK_N = (64, 64)\n"
                    "            else:\n"
                    "                BLOCK_M, BLOCK_N = (32, 32)\n"
                    "        elif _is_cuda and CUDA_CAPABILITY[0] >= 9:\n"
                    "            # Hopper architecture (H100, etc.)\n"
                    "            if Lq <= 256:\n"
                ),
                present="CUDA_CAPABILITY[0] == 12",
            ),
        ),
    ),
    _prefill_attention(_TRITON_OPS, _OLD_PLACE),
    _prefill_attention(_KERNELS, _NEW_PLACE),
    Patch(
        id="autotune-flashinfer-cutlass",
        package="sglang",
        versions=("0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1"),
        architectures=SM12X,
        why="FlashInfer's autotuner skips the CUTLASS MoE runner, the one that runs NVFP4 on SM120: its kernels stay untuned.",
        upstream="sgl-project/sglang, allowed from 0.5.13 on",
        edits=(
            Edit(
                path="sglang/srt/model_executor/model_runner.py",
                old=_CUTLASS_LEFT_OUT,
                new='            "flashinfer_cutlass",\n',
                present='\n            "flashinfer_cutlass",\n',
            ),
        ),
    ),
    Patch(
        id="transformers-for-glm5",
        package="sglang",
        versions=("0.5.8.post1", "0.5.9"),
        architectures=(),
        model_types=("glm_moe_dsa",),
        why="transformers 4.57.1 does not know glm_moe_dsa: the start ends with KeyError. 5.2.0 is the first that does.",
        upstream="huggingface/transformers 5.2.0; sglang 0.5.10 pins 5.3.0",
        edits=(
            Edit(
                path=METADATA,
                old="\nRequires-Dist: transformers==4.57.1\n",
                new="\nRequires-Dist: transformers>=5.2.0,<5.4\n",
                present="\nRequires-Dist: transformers>=5.2.0,<5.4\n",
            ),
        ),
    ),
    Patch(
        id="outlines-where-wheels-exist",
        package="sglang",
        versions=(*_OLD_PLACE, *_NEW_PLACE),
        architectures=(),
        why="outlines 0.1.11 needs outlines-core 0.1.26, which has no wheel for Python 3.13 (Debian 13): it asks for Rust and crates.",
        upstream="outlines-core 0.1.26; only --grammar-backend outlines imports it, the default is xgrammar",
        edits=(
            Edit(
                path=METADATA,
                old="\nRequires-Dist: outlines==0.1.11\n",
                # jsonschema came with outlines alone, and serving_chat.py imports it.
                new='\nRequires-Dist: outlines==0.1.11; python_version < "3.13"\nRequires-Dist: jsonschema\n',
                present='\nRequires-Dist: outlines==0.1.11; python_version < "3.13"\n',
            ),
        ),
    ),
)


def applied_in(version: str, package: str = "sglang") -> list[Patch] | None:
    """The patches that a version's local label stands for, as a server reports it (``0.5.23+gpunode.1a2b3c4d``).

    An empty list for a published version; None where the label is not one of this catalogue, so that nothing is known.
    """
    base, _, label = version.partition("+")
    if not label:
        return []
    architectures = {"", *(name for patch in PATCHES for name in patch.architectures)}
    models = {"", *(name for patch in PATCHES for name in patch.model_types)}
    for architecture, model in product(sorted(architectures), sorted(models)):
        patches = selected(PATCHES, package, base, architecture, model)
        if patched_version(base, patches) == version:
            return patches
    return None
