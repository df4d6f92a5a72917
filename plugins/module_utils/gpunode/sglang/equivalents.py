"""What people write for another engine, for a release of old, or from memory, and what sglang calls it now."""

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
"""Flags of vLLM's server and what to write instead. A release of sglang that knows a flag of the name wins over these tables."""

TGI = {
    "--max-batch-prefill-tokens": "Use --max-prefill-tokens.",
    "--max-concurrent-requests": "Use --max-running-requests.",
    "--max-input-length": "Use --context-length.",
    "--max-input-tokens": "Use --context-length.",
    "--num-shard": "Use --tp-size.",
    "--sharded": "Use --tp-size.",
}
"""Flags of text-generation-inference."""

LLAMA_CPP = {
    "--ctx-size": "Use --context-length.",
    "--flash-attn": "Leave it out, or use --attention-backend.",
    "--n-gpu-layers": "Leave it out: sglang keeps the whole model on the GPUs.",
    "--parallel": "Use --max-running-requests.",
    "--split-mode": "Use --tp-size.",
}
"""Flags of llama.cpp's server."""

TENSORRT_LLM = {
    "--kv_cache_free_gpu_memory_fraction": "Use --mem-fraction-static.",
    "--max_batch_size": "Use --max-running-requests.",
    "--max_num_tokens": "Use --max-prefill-tokens.",
    "--max_seq_len": "Use --context-length.",
}
"""Flags of TensorRT-LLM's server."""

OLDER = {
    "--disable-disk-cache": "Leave it out.",
    "--disable-flashinfer": "Use --attention-backend triton.",
    "--disable-flashinfer-sampling": "Use --sampling-backend pytorch.",
    "--disable-mla": "Leave it out.",
    "--disable-regex-jump-forward": "Leave it out.",
    "--enable-deepep-moe": "Use --moe-a2a-backend deepep.",
    "--enable-ep-moe": "Use --ep-size.",
    "--enable-flashinfer-cutlass-moe": "Use --moe-runner-backend flashinfer_cutlass.",
    "--enable-flashinfer-mla": "Use --attention-backend flashinfer.",
    "--enable-flashinfer-trtllm-moe": "Use --moe-runner-backend flashinfer_trtllm.",
    "--enable-flashmla": "Use --attention-backend flashmla.",
    "--enable-llama4-multimodal": "Use --enable-multimodal.",
    "--enable-mla": "Leave it out.",
    "--enable-triton-kernel-moe": "Use --moe-runner-backend triton_kernel.",
    "--file-storage-pth": "Use --file-storage-path.",
    "--schedule-heuristic": "Use --schedule-policy.",
}
"""Flags that releases of sglang before the first of the tables had, as older recipes have them."""

OTHERS = (("vLLM", VLLM), ("text-generation-inference", TGI), ("llama.cpp", LLAMA_CPP), ("TensorRT-LLM", TENSORRT_LLM))

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
