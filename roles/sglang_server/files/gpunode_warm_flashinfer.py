"""Compile flashinfer's kernels for a GPU architecture before a server is stopped for them; what is compiled stays, and another run goes on.

    RELEASE/bin/python gpunode_warm_flashinfer.py --arch sm120 --stamp FILE --release ID

Runs with a release's Python and with the PATH, CUDA_HOME and FLASHINFER_WORKSPACE_BASE of its server, so that the server finds the result.
ninja's lines are the progress. What a flashinfer does not have is left out: the server compiles what is missing when it starts. Exit code:
0 everything that is there is compiled (FILE then holds ID), 1 something was not.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

KERNELS = {
    # NVFP4 experts and dense layers, quantisation of their input, sparse attention over an fp8 cache.
    "sm120": (
        ("flashinfer.jit.fp4_quantization", "gen_fp4_quantization_sm120f_module"),
        ("flashinfer.jit.gemm.core", "gen_gemm_sm120_module_cutlass_fp4"),
        ("flashinfer.jit.mla", "gen_sparse_mla_sm120_module"),
        ("flashinfer.jit.fused_moe", "gen_cutlass_fused_moe_sm120_module"),
    ),
}
"""Makers of kernels by architecture, quick ones first; names of flashinfer 0.6 and 0.7."""


def main() -> int:
    """Compile one kernel after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--stamp", type=Path, required=True)
    parser.add_argument("--release", required=True)
    options = parser.parse_args()
    build = importlib.import_module("flashinfer.jit.core").build_jit_specs
    wanted = KERNELS.get(options.arch, ())
    failed = []
    for number, (module, maker) in enumerate(wanted, 1):
        name = maker.removeprefix("gen_").removesuffix("_module")
        try:
            make = getattr(importlib.import_module(module), maker)
        except (ImportError, AttributeError):
            print(f"gpunode: {number} of {len(wanted)}: this flashinfer has no {name}", flush=True)
            continue
        began = time.monotonic()
        print(f"gpunode: {number} of {len(wanted)}: compiling {name}", flush=True)
        try:
            build([make()], verbose=True)
        except Exception as error:  # noqa: BLE001 - whatever one kernel fails with, the others are worth their time
            failed.append(name)
            print(f"gpunode: {name} was not compiled: {error}", flush=True)
        else:
            print(f"gpunode: {name} after {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"gpunode: the server compiles at its start: {', '.join(failed)}", file=sys.stderr)
        return 1
    options.stamp.write_text(f"{options.release}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
