"""GPU memory and faults of kernels in the server: what did not fit, what wrote NaN, what went out of bounds."""

from __future__ import annotations

from ..model import CERTAIN, GENERIC, LIKELY, SERVER, WARNING, Problem, Range, Sign

_OOM = (
    r"CUDA out of memory",
    r"torch\.(?:cuda\.)?OutOfMemoryError",
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
    r"CUDA error: out of memory",
)
_ILLEGAL = r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress"
_ASSERT = r"device-side assert\b|CUDA_ERROR_ASSERT|cudaErrorAssert"

PROBLEMS = (
    Problem(
        id="graph-capture-memory",
        layer=SERVER,
        title="No memory left for capturing CUDA graphs",
        cause="The static pool (weights and KV cache) leaves too little memory for graph capture.",
        remedy="In sglang_server_flags lower mem-fraction-static (by 0.03 to 0.05) or the largest captured batch (cuda-graph-max-bs, from 0.5.14 "
        "cuda-graph-max-bs-decode: 256 on 96 GB cards).",
        consequence="The server ends during its start.",
        signs=(
            Sign(r"Capture cuda graph failed: .{0,40}out of memory"),
            *(
                Sign(
                    text,
                    near=(
                        r"Captur(?:e|ing) (?:cuda graph|batches|num tokens|target)|cuda_graph_runner|graph_capture|capture_model|capture_graph",
                    ),
                    within=40,
                )
                for text in _OOM
            ),
        ),
        shows=(
            (
                "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity of 95.00 GiB of which "
                "300.00 MiB is free.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"
            ),
        ),
        unlike=("Capture target decode CUDA graph end. elapsed=4.01 s, mem usage=0.04 GB, avail mem=82.74 GB.",),
        sources=("https://github.com/sgl-project/sglang/issues/5285", "https://github.com/sgl-project/sglang/issues/29562"),
        confidence=CERTAIN,
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
        refines=("gpu-memory-request", "gpu-memory-load", "graph-capture-failed"),
    ),
    Problem(
        id="graph-capture-failed",
        layer=SERVER,
        title="Capturing CUDA graphs failed",
        cause="A kernel failed while it was captured: the words behind the colon are the cause, not the capture.",
        remedy="Read the text behind `Capture cuda graph failed:`; --disable-cuda-graph only to find out whether it is the capture.",
        signs=(
            Sign(r"Capture cuda graph failed: "),
            Sign(r"operation (?:not permitted|failed due to a previous error) (?:when|during) (?:stream is )?captur(?:e|ing)"),
            Sign(r"CUDA_ERROR_STREAM_CAPTURE_\w+|cudaErrorStreamCapture(?:Unsupported|Invalidated|Implicit|Isolation|Merge|Unjoined)\b"),
        ),
        shows=("Exception: Capture cuda graph failed: operation failed due to a previous error during capture",),
        unlike=("Capture cuda graph begin. This can take up to several minutes. avail mem=12.48 GB",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=GENERIC,
    ),
    Problem(
        id="nccl-memory",
        layer=SERVER,
        title="NCCL's buffers do not fit beside the model",
        cause="NCCL's buffers (more with a graph file or many channels) do not fit beside the static memory fraction.",
        remedy="Lower mem-fraction-static (vLLM: --gpu-memory-utilization) to 0.93 or less in sglang_server_flags, or fewer channels (NCCL_MIN_NCHANNELS).",
        signs=(
            Sign(r"Failed to CUDA (?:calloc|malloc|host alloc)(?: async)? (?P<bytes>\d+)? ?bytes"),
            Sign(r"NCCL WARN (?:Cuda failure \d* ?'?out of memory|Failed to (?:cuda ?)?(?:m|c)alloc)"),
            Sign(r"NCCL.{0,80}\b(?:Cuda failure|CUDA error).{0,20}out of memory"),
        ),
        shows=("NCCL error: Failed to CUDA calloc 10485760 bytes", "NCCL WARN Cuda failure 2 'out of memory'"),
        unlike=("NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=CERTAIN,
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
        refines=("nccl-system-error", "gpu-memory-request"),
    ),
    Problem(
        id="kv-pool-negative",
        layer=SERVER,
        title="Nothing is left for the KV cache",
        cause="After the weights nothing is left for the KV cache at this memory fraction.",
        remedy="Raise mem-fraction-static in sglang_server_flags, spread the model over more GPUs, or use a smaller quantisation; check with "
        "gpunode model-info PATH --tp N whether it fits at all.",
        signs=(
            Sign(r"larger than the profiled value -\d+"),
            Sign(r"Not enough memory\. Please try to increase --?mem[-_]fraction[-_]static"),
            Sign(r"No available memory for the cache blocks"),
            Sign(r"max_total_num_tokens=-?0?\b(?:,|\s)"),
            Sign(r"RuntimeError: Not enough memory\b"),
            Sign(r"Available KV cache memory: (?:-\d|0\.0\d? GiB)"),
        ),
        shows=(
            "[DP0 TP0] max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.84",
        ),
        unlike=(
            "max_total_num_tokens=4649960, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=32",
            "max_total_tokens=131072 is larger than the profiled value 90112. Use the profiled value instead.",
        ),
        sources=("https://github.com/sgl-project/sglang/issues/7691", "https://github.com/sgl-project/sglang/issues/4330"),
        confidence=CERTAIN,
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
        refines=("kv-cache-too-small",),
    ),
    Problem(
        id="kv-cache-too-small",
        layer=SERVER,
        title="The KV cache cannot hold one request of the configured length",
        cause="What is left for the KV cache after the weights is less than one request of the full context length needs.",
        remedy="Raise the memory fraction (mem-fraction-static, vLLM --gpu-memory-utilization) or lower the length (context-length, --max-model-len) in "
        "sglang_server_flags.",
        signs=(
            Sign(r"To serve at least one request with (?:the )?(?:model'?s? )?max seq len"),
            Sign(r"max seq(?:uence)? len \(?\d+\)?.{0,80}larger than the maximum number of tokens that can be stored in KV cache"),
            Sign(r"KV cache is needed, (?:which is )?larger than (?:the )?available"),
        ),
        shows=(
            (
                "ValueError: To serve at least one request with the models's max seq len (202752), (11.75 GiB KV cache is needed, which is larger than the "
                "available KV cache memory (11.36 GiB)."
            ),
        ),
        unlike=("GPU KV cache size: 1,064,126 tokens",),
        sources=("https://github.com/vllm-project/vllm", "https://github.com/voipmonitor/rtx6kpro"),
        confidence=CERTAIN,
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
    ),
    Problem(
        id="kv-cache-full",
        layer=SERVER,
        title="The KV cache runs full while serving",
        cause="More tokens are in flight than the cache holds: requests are taken back and done again.",
        remedy="Lower max-running-requests, raise mem-fraction-static, use an fp8 KV cache where the backend is right with it (sglang_server_flags).",
        severity=WARNING,
        signs=(
            Sign(r"KV cache pool is full\. Retract requests"),
            Sign(r"(?:Decode|Prefill) out of memory\. (?:Try to lower your batch size|retract)"),
            Sign(r"Sequence group \S+ is preempted by"),
        ),
        shows=("KV cache pool is full. Retract requests. #retracted_reqs: 4, #new_token_ratio: 0.7 -> 0.9",),
        unlike=("Decode batch, #running-req: 32, #token: 40211, token usage: 0.41, cuda graph: True",),
        sources=("https://docs.sglang.io/advanced_features/hyperparameter_tuning.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="draft-model-memory",
        layer=SERVER,
        title="Speculative decoding loads the model twice",
        cause="Without the second version of speculative decoding NEXTN becomes EAGLE and loads the whole model again as its own draft.",
        remedy="SGLANG_ENABLE_SPEC_V2=True in sglang_server_environment for sglang 0.5.9 and 0.5.10 (newer do it by themselves), or leave speculation out.",
        signs=(
            *(
                Sign(
                    text,
                    near=(r"eagle_worker|draft_worker|init_draft|EAGLEWorker|NEXTN|speculative_draft_model_path='",),
                    within=60,
                    not_near=(r"Capture cuda graph failed",),
                )
                for text in _OOM[:2]
            ),
        ),
        shows=(
            (
                '  File "/srv/venv/lib/python3.12/site-packages/sglang/srt/speculative/eagle_worker.py", line 152, in __init__\n    super().__init__(\n'
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 94.97 GiB"
            ),
        ),
        unlike=("speculative_algorithm='NEXTN'",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=LIKELY,
        affects=(Range("sglang", "0.5.9", "0.5.11"),),
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
        refines=("gpu-memory-request", "gpu-memory-load"),
    ),
    Problem(
        id="gpu-memory-load",
        layer=SERVER,
        title="The weights do not fit into the GPUs' memory",
        cause="Memory ran out while the model was created or its weights were loaded: too few GPUs for this checkpoint, or others use them.",
        remedy="gpunode model-info PATH --tp N; nvidia-smi shows who else holds memory; more GPUs (tp-size, pp-size) or a smaller quantisation.",
        signs=(
            *(
                Sign(
                    text,
                    near=(r"create_weights|load_model|load_weights|model_loader|initialize_model|Load weight begin|DefaultModelLoader",),
                    not_near=(r"Capture cuda graph|The server is fired up|fused_marlin|#running-req",),
                    within=40,
                )
                for text in _OOM
            ),
        ),
        shows=(
            (
                '  File "/srv/venv/lib/python3.12/site-packages/sglang/srt/model_loader/loader.py", line 270, in _initialize_model\n'
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.12 GiB. GPU 3 has a total capacity of 94.97 GiB of which 412.00 MiB is free."
            ),
        ),
        unlike=("Load weight begin. avail mem=94.30 GB",),
        sources=("https://docs.sglang.io/advanced_features/hyperparameter_tuning.html",),
        confidence=LIKELY,
        tags=("gpu-memory",),
        explains=("collective", "server-hang"),
        refines=("gpu-memory-request",),
    ),
    Problem(
        id="gpu-memory-request",
        layer=SERVER,
        title="GPU memory ran out while serving",
        cause="The memory fraction leaves no room for the workspace that a batch needs (MoE kernels, long prefill, logits).",
        remedy="In sglang_server_flags lower mem-fraction-static by 0.02 to 0.05, chunked-prefill-size or max-running-requests; nvidia-smi shows whether "
        "another process takes the memory.",
        consequence="The scheduler ends and takes the server with it.",
        signs=(*(Sign(text) for text in _OOM),),
        shows=(
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB.\nvllm/model_executor/layers/fused_moe/experts/marlin_moe.py:fused_marlin_moe\n"
                "output = torch.empty_like(hidden_states)"
            ),
            "torch.AcceleratorError: CUDA error: out of memory",
        ),
        unlike=("flashinfer.jit: [Autotuner]: OOM detected, falling back to default tactic",),
        sources=("https://github.com/sjug/rtx6kpro/blob/main/models/kimi-k26-v8.md",),
        confidence=LIKELY,
        tags=("gpu-memory", "cuda-error"),
        explains=("collective", "server-hang"),
    ),
    Problem(
        id="gpu-memory-unbalanced",
        layer=SERVER,
        title="The GPUs have different amounts of free memory",
        cause="Another process occupies some of the GPUs (a server that was not stopped, a leftover worker).",
        remedy="nvidia-smi; fuser -v /dev/nvidia*; stop the other process (pkill of its whole group), then start the server again.",
        signs=(
            Sign(r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes"),
            Sign(r"Free memory on device \S* ?\(.{0,30}\) on startup is less than desired GPU memory utilization"),
        ),
        shows=(
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=12.1, local_gpu_memory=94.3",
        ),
        unlike=("Init torch distributed ends. mem usage=0.09 GB",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=CERTAIN,
        explains=("gpu-memory",),
    ),
    Problem(
        id="nan-logits",
        layer=SERVER,
        title="NaN in the logits",
        cause="A race in FlashInfer's CUTLASS FP4 GEMM (before 0.6.8) writes NaN into the logits under load; a wrong scale format of DeepGEMM or an FP8 KV "
        "cache without scales do the same.",
        remedy="In sglang_server_flags fp4-gemm-backend flashinfer_cudnn (with nvidia-cudnn-cu13 9.19.1.2), or sglang 0.5.11 and newer; wipe the JIT cache "
        "(rm -rf ~/.cache/flashinfer) after the upgrade. Kimi and GLM with FP8 KV: kv-cache-dtype bf16.",
        consequence="The sampler's assertion ends the server, usually at 64 concurrent requests and more.",
        signs=(
            Sign(r"probability tensor contains either"),
            Sign(r"Detected errors during sampling! NaN in the (?:logits|probs)"),
            Sign(
                r"(?:NaN|nan|Inf|inf)s? (?:values? )?(?:detected|found|encountered|in|are) (?:in )?(?:the )?(?:logits|probs|probabilities|hidden[ _]states|output)"
            ),
        ),
        shows=(
            (
                "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: Assertion `probability tensor contains either `inf`, `nan` or "
                "element < 0` failed."
            ),
        ),
        unlike=("sampling_backend='flashinfer', enable_nan_detection=False",),
        sources=("https://github.com/flashinfer-ai/flashinfer/issues/2708", "https://github.com/sgl-project/sglang/issues/20043"),
        confidence=LIKELY,
        affects=(Range("flashinfer", "", "0.6.8"),),
        tags=("numerics",),
        explains=("collective", "server-hang", "cuda-device-assert", "cuda-error"),
        refines=("cuda-device-assert",),
    ),
    Problem(
        id="eagle-prefix-nan",
        layer=SERVER,
        title="Speculative decoding fails on a cached prefix",
        cause="NaN logits reach the verify step of EAGLE when a request hits a cached prefix; they come from the race in the FP4 GEMM.",
        remedy="A release with sglang PR 19897, or fp4-gemm-backend flashinfer_cudnn in sglang_server_flags; meanwhile --disable-radix-cache or no speculation.",
        signs=(
            Sign(
                _ASSERT, near=(r"eagle_worker|_zero_fill_draft_kv|draft_extend|eagle_(?:info|utils)|verify_tree|speculative/",), within=60
            ),
        ),
        shows=(
            "eagle_worker_v2.py:510 _zero_fill_draft_kv_for_cached_prefix\ntorch.AcceleratorError: CUDA error: device-side assert triggered",
        ),
        unlike=("eagle_worker_v2.py:510 draft model loaded",),
        sources=("https://github.com/sgl-project/sglang/issues/20043", "https://github.com/sgl-project/sglang/pull/19897"),
        confidence=LIKELY,
        affects=(Range("sglang", "", "0.5.11"),),
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
        refines=("cuda-device-assert",),
    ),
    Problem(
        id="index-out-of-vocabulary",
        layer=SERVER,
        title="An index is outside of its table",
        cause="A token id beyond the model's vocabulary (or a position beyond its length) was looked up: prompt ids of another tokenizer, or a broken request.",
        remedy="Send only ids below vocab_size of config.json (the endpoints do not check them); with text prompts check that tokenizer and model belong together.",
        consequence="One such request ends the whole server.",
        signs=(
            Sign(
                r"(?:index out of bounds|srcIndex < srcSelectDimSize|-sizes\[i\] <= index && index < sizes\[i\]|index >= -sizes\[i\])",
                near=(r"Assert(?:ion|ed)|IndexKernel|Indexing\.cu",),
                within=5,
            ),
            Sign(r"vectorized_gather_kernel.{0,120}Assertion"),
            Sign(r"IndexKernel\.cu:\d+.{0,160}Assertion"),
            Sign(r"token ids? .{0,40}\b(?:out of (?:range|vocabulary)|exceeds? .{0,20}vocab(?:ulary|_size)?)"),
        ),
        shows=(
            (
                "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [412,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` "
                "failed.\nRuntimeError: Triton Error [CUDA]: device-side assert triggered"
            ),
        ),
        unlike=("IndexError: list index out of range",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=LIKELY,
        tags=("cuda-error",),
        explains=("collective", "server-hang", "cuda-device-assert"),
        refines=("cuda-device-assert",),
    ),
    Problem(
        id="cuda-device-assert",
        layer=SERVER,
        title="A kernel's own check failed (device-side assert)",
        cause="A kernel found its input impossible: a token id beyond the vocabulary, NaN probabilities, or an index out of range; the line with "
        "`Assertion` before it says which.",
        remedy="Look for `Assertion ... failed` above; send only token ids below the vocabulary size; for NaN see nan-logits; run once with "
        "CUDA_LAUNCH_BLOCKING=1 to get the true traceback.",
        consequence="The process's CUDA context is dead: the server ends.",
        signs=(Sign(_ASSERT),),
        shows=(
            "RuntimeError: Triton Error [CUDA]: device-side assert triggered",
            "torch.AcceleratorError: CUDA error: device-side assert triggered",
        ),
        unlike=("Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",),
        sources=("https://github.com/sgl-project/sglang/issues/20043",),
        confidence=GENERIC,
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
    ),
    Problem(
        id="moe-tma-descriptor",
        layer=SERVER,
        title="The MoE kernel cannot set up its transfer",
        cause="The grouped GEMM got a null or corrupted pointer: memory was corrupted before (vLLM 0.25.1: an indexer change on SM120 with expert "
        "parallelism); the MoE kernel only reports it.",
        remedy="Stay on vLLM 0.24.0 or revert its PR 47502; otherwise change the attention backend, and find the first wrong kernel with "
        "CUDA_LAUNCH_BLOCKING=1.",
        signs=(
            Sign(r"Failed to initialize (?:the )?(?:cutlass )?TMA (?:descriptor|WS grouped gemm)"),
            Sign(r"TMA desc: globalDim"),
            Sign(r"Failed to initialize cutlass TMA WS"),
        ),
        shows=(
            "[TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS\ngrouped gemm.\nError: Failed to initialize the TMA descriptor 700",
        ),
        unlike=("TMA warp specialized grouped gemm tactic 14 selected",),
        sources=("https://github.com/nick-oconnor/sm120-enablement/blob/main/notes/incident-v0251-sparse-attn-regression.md",),
        confidence=LIKELY,
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
        refines=("cuda-illegal-access",),
    ),
    Problem(
        id="graph-capture-corruption",
        layer=SERVER,
        title="The model runner corrupts memory during graph capture",
        cause="vLLM's V2 model runner is broken for this attention path and corrupts memory while CUDA graphs are captured.",
        remedy="Do not set VLLM_USE_V2_MODEL_RUNNER=1; otherwise another attention backend or release.",
        signs=(
            Sign(
                _ILLEGAL,
                near=(
                    r"_final_lse_from_split_workspace|logsumexp\(chunk_lse|VLLM_USE_V2_MODEL_RUNNER|gpu_model_runner_v2|v1/worker/gpu/(?:model_runner|cudagraph)",
                ),
                within=30,
            ),
            Sign(r"Capture cuda graph failed: .{0,60}illegal memory access"),
            Sign(
                _ILLEGAL,
                near=(r"capture_model|cuda_graph_runner\.py|cudagraph_utils|Capturing (?:CUDA graphs|batches)",),
                within=40,
                not_near=(r"eagle|draft|spec_decode",),
            ),
        ),
        shows=(
            (
                "b12x/attention/mla/api.py:_final_lse_from_split_workspace\ntorch.logsumexp(chunk_lse, dim=-1, out=final_lse)\n"
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
            ),
        ),
        unlike=("VLLM_USE_V2_MODEL_RUNNER=1",),
        sources=("https://github.com/sjug/rtx6kpro/blob/main/models/glm5.1_v3.md",),
        confidence=LIKELY,
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
        refines=("cuda-illegal-access", "graph-capture-failed"),
    ),
    Problem(
        id="cuda-illegal-access",
        layer=SERVER,
        title="A kernel accessed memory that is not its own",
        cause="A software fault of a kernel. Under load on these cards it is most often speculative decoding: the GDN (hybrid) attention backend reads cache "
        "blocks that were freed.",
        remedy="Lower the number of speculative tokens to 2 or switch speculative decoding off (sglang_server_flags); then change attention or MoE backend or "
        "release. Run once with CUDA_LAUNCH_BLOCKING=1 to name the kernel; with an Xid 48, 94 or 95 beside it, it is the hardware.",
        consequence="The process's CUDA context is dead: the server ends.",
        signs=(Sign(_ILLEGAL), Sign(r"CUDA error: misaligned address|CUDA_ERROR_MISALIGNED_ADDRESS")),
        shows=("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",),
        unlike=("MMU Fault: ENGINE GRAPHICS",),
        sources=("https://github.com/vllm-project/vllm/issues/34948",),
        confidence=GENERIC,
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
    ),
    Problem(
        id="cuda-launch-failure",
        layer=SERVER,
        title="A kernel failed on the GPU (unspecified launch failure)",
        cause="The GPU stopped a kernel: the kernel log at that time has an Xid that says why.",
        remedy="journalctl -k | grep Xid on the host (gpunode diagnose reads both); without an Xid change backend or release.",
        signs=(
            Sign(r"unspecified launch failure|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED"),
            Sign(r"the launch timed out and was terminated|CUDA_ERROR_LAUNCH_TIMEOUT"),
            Sign(r"CUDA error: an illegal instruction was encountered|CUDA_ERROR_ILLEGAL_INSTRUCTION"),
            Sign(r"CUDA error: (?:hardware stack error|context is destroyed)|CUDA_ERROR_HARDWARE_STACK_ERROR"),
        ),
        shows=("torch.AcceleratorError: CUDA error: unspecified launch failure",),
        unlike=("launch_server.py: started",),
        sources=("https://docs.nvidia.com/deploy/xid-errors/index.html",),
        confidence=GENERIC,
        tags=("cuda-error",),
        explains=("collective", "server-hang"),
    ),
    Problem(
        id="kv-pool-leak",
        layer=SERVER,
        title="The server ends itself because its KV cache's books do not balance",
        cause="When idle sglang counts the free, cached and protected tokens of its pools; a slot that no request owns any more is a fault of the release "
        "(speculative decoding, paged or hybrid caches, mixed chunks), not of memory or hardware.",
        remedy="Take a newer release (sglang_venv_version). Until then set SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE to 0 in sglang_server_environment, "
        "so that it warns instead of ending, and restart it before the lost tokens are felt; or leave out the feature that the release leaks with.",
        consequence="The server restarts in the first idle moment after load.",
        signs=(Sign(r"(?:pool(?:_allocator)?|cache) memory leak detected"),),
        shows=(
            "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=1200, protected_size=0, self.max_total_num_tokens=1300",
            "ValueError: pool memory leak detected! [full] total=9116160, available=768, evictable=9115392, protected=0, session_held=0, uncached=0",
        ),
        unlike=("resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown",),
        sources=(
            "https://github.com/sgl-project/sglang/issues/11970",
            "https://github.com/sgl-project/sglang/issues/36081",
        ),
        confidence=CERTAIN,
        explains=("server-ended",),
    ),
)
