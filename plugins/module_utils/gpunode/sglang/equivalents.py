"""What people write for another engine, or from memory, and what sglang calls it: flags of vLLM, values by their common names."""

from __future__ import annotations

VLLM = {
    "--all2all-backend": "Use --moe-a2a-backend.",
    "--async-scheduling": "Leave it out: sglang overlaps scheduling by default.",
    "--block-size": "Use --page-size.",
    "--compilation-config": "Use --cuda-graph-config (0.5.14 and newer).",
    "--data-parallel-backend": "Leave it out.",
    "--disable-log-requests": "Leave it out: sglang logs no requests by default.",
    "--distributed-executor-backend": "Leave it out: sglang starts its own workers; over nodes: --nnodes, --node-rank.",
    "--enable-auto-tool-choice": "Leave it out: --tool-call-parser is enough.",
    "--enable-chunked-prefill": "Leave it out: it is on by default; --chunked-prefill-size sets its size.",
    "--enable-expert-parallel": "Use --ep-size with the size of the expert-parallel group, for example that of --tp-size.",
    "--enable-prefix-caching": "Leave it out: the radix cache is on by default.",
    "--enable-sleep-mode": "Use --enable-memory-saver.",
    "--enforce-eager": "Use --disable-cuda-graph.",
    "--gpu-memory-utilization": "Use --mem-fraction-static, and leave it more room (0.85): it covers weights and KV cache alone.",
    "--hf-overrides": "Use --json-model-override-args.",
    "--kv-transfer-config": "Use --disaggregation-mode and --disaggregation-transfer-backend.",
    "--limit-mm-per-prompt": "Use --limit-mm-data-per-request.",
    "--lora-modules": "Use --lora-paths.",
    "--max-loras": "Use --max-loras-per-batch.",
    "--max-model-len": "Use --context-length.",
    "--max-num-batched-tokens": "Use --chunked-prefill-size.",
    "--max-num-seqs": "Use --max-running-requests.",
    "--max-seq-len": "Use --context-length.",
    "--max-seq-len-to-capture": "Leave it out.",
    "--moe-backend": "Use --moe-runner-backend.",
    "--no-enable-prefix-caching": "Use --disable-radix-cache.",
    "--num-scheduler-steps": "Leave it out.",
    "--override-generation-config": "Use --preferred-sampling-params.",
    "--speculative-config": "Use --speculative-algorithm and the three numbers: --speculative-num-steps, -eagle-topk, -num-draft-tokens.",
    "--swap-space": "Use --enable-hierarchical-cache with --hicache-ratio.",
    "--task": "Leave it out; an embedding model wants --is-embedding.",
    "--tokenizer": "Use --tokenizer-path.",
    "--use-v2-block-manager": "Leave it out.",
}  # fmt: skip
"""Flags of vLLM's server and what to write instead. A release of sglang that knows a flag of the name wins over this table."""

VALUES = {
    ("--dtype", "bf16"): "bfloat16",
    ("--dtype", "fp16"): "float16",
    ("--dtype", "fp32"): "float32",
    ("--kv-cache-dtype", "fp8"): "fp8_e4m3",
    ("--kv-cache-dtype", "e4m3"): "fp8_e4m3",
    ("--kv-cache-dtype", "e5m2"): "fp8_e5m2",
    ("--quantization", "fp4"): "modelopt_fp4",
    ("--quantization", "nvfp4"): "modelopt_fp4",
}
"""Values by their common names, and the choice that they stand for. A release that has the choice wins over this table."""
