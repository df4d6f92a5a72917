"""The inference server: kernels that this GPU does not have, flags, speculative decoding, and how it ends."""

from __future__ import annotations

from ..model import CERTAIN, GENERIC, LIKELY, SERVER, WARNING, Problem, Range, Sign

_SHARED = r"out of resource: shared memory, Required: (?P<required>\d+), Hardware limit: (?P<limit>\d+)"
_STOPPED = r"Stopping \S*sglang|SIGTERM received|Gracefully exiting"
"""Somebody stopped the server: how its processes end then says nothing."""

PROBLEMS = (
    Problem(
        id="triton-extend-attention",
        layer=SERVER,
        title="Triton's extend attention needs more shared memory than the GPU has",
        cause="The extend attention kernel picks Hopper's block sizes and needs 106496 bytes of shared memory; SM120 has 101376.",
        remedy="Use sglang 0.5.9 or newer (sglang_venv_version), or the extend_attention patch for SM120; or attention-backend flashinfer in sglang_server_flags.",
        consequence="The server starts and dies with the first longer request.",
        signs=(
            Sign(_SHARED, near=(r"extend_attention",), within=80),
            Sign(r"out of resource: shared memory, Required: 106496"),
        ),
        shows=(
            (
                '  File "/srv/venv/lib/python3.12/site-packages/sglang/srt/layers/attention/triton_ops/extend_attention.py", line 597, in extend_attention_fwd\n'
                "    _fwd_kernel[grid](\ntriton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376. "
                "Reducing block sizes or `num_stages` may help."
            ),
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, \nRequired: 106496, Hardware limit: 101376.",
        ),
        unlike=("triton_ops/extend_attention.py compiled for sm_120",),
        sources=("https://github.com/sgl-project/sglang/pull/14311", "https://github.com/magik6k/glm-kimi-sm120-rtx6000bw"),
        confidence=CERTAIN,
        affects=(Range("sglang", "", "0.5.9"),),
        refines=("triton-shared-memory",),
    ),
    Problem(
        id="triton-fused-moe",
        layer=SERVER,
        title="Triton's fused MoE kernel needs more shared memory than the GPU has",
        cause="There is no tuning file of the fused MoE kernel for this card, and its default configuration needs 147456 bytes of shared memory "
        "where 101376 are available.",
        remedy="Generate a tuning file for this card, model and tensor parallel size (playbooks/tune.yml), use a release that ships one, or another "
        "moe-runner-backend (NVFP4: flashinfer_cutlass).",
        consequence="The server starts and dies under load.",
        signs=(
            Sign(_SHARED, near=(r"fused_moe_triton|fused_moe_kernel|invoke_fused_moe|moe_runner/triton|fused_experts",), within=80),
            Sign(r"out of resource: shared memory, Required: 147456"),
        ),
        shows=(
            (
                '  File "/srv/venv/lib/python3.12/site-packages/sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_kernels.py", line 790, in '
                "invoke_fused_moe_kernel\n    fused_moe_kernel[grid](\ntriton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
                "Hardware limit: 101376. Reducing block sizes or `num_stages` may help."
            ),
        ),
        unlike=("Using default MoE kernel config. Performance might be sub-optimal! Config file not found at E=161,N=192.json",),
        sources=("https://github.com/sgl-project/sglang/pull/16975", "https://github.com/magik6k/glm-kimi-sm120-rtx6000bw"),
        confidence=CERTAIN,
        refines=("triton-shared-memory",),
    ),
    Problem(
        id="triton-shared-memory",
        layer=SERVER,
        title="A Triton kernel needs more shared memory than the GPU has",
        cause="A Triton kernel is tuned for a larger shared memory than this card has (SM120: 101376 bytes a block, Hopper and SM100 more than twice that).",
        remedy="Use another backend or a release with smaller blocks or fewer stages for this card; the traceback names the kernel "
        "(sglang_server_flags: attention-backend, moe-runner-backend).",
        signs=(
            Sign(r"out of resource: (?P<resource>shared memory|threads|registers|tensor memory)"),
            Sign(r"OutOfResources"),
            Sign(r"(?:uses|requires) too much shared data \(0x[\da-f]+ bytes, 0x[\da-f]+ max\)"),
            Sign(r"shared memory[^\n]{0,80}\b(?:exceeds|exceeding|larger than)[^\n]{0,60}\b(?:limit|maximum|available|capacity)"),
            Sign(r"(?:Failed to set|cudaFuncSetAttribute)\b.{0,80}\b(?:dynamic shared memory|MaxDynamicSharedMemorySize)\b"),
        ),
        shows=(
            (
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or "
                "`num_stages` may help."
            ),
            "ptxas error   : Entry function '_fwd_kernel' uses too much shared data (0x1c000 bytes, 0x18c00 max)",
        ),
        unlike=("shared memory per block: 101376",),
        sources=("https://github.com/triton-lang/triton/issues/8182", "https://github.com/sgl-project/sglang/issues/27962"),
        confidence=LIKELY,
    ),
    Problem(
        id="deepgemm-import",
        layer=SERVER,
        title="DeepGEMM cannot be imported on this GPU",
        cause="DeepGEMM of this release needs Hopper's or SM100's instructions: importing it fails on SM120 and the error is used as if it were the module.",
        remedy="SGLANG_ENABLE_JIT_DEEPGEMM=0 in sglang_server_environment (SGLANG_ENABLE_DEEP_GEMM is read by no release); sglang 0.5.17 brings SM120 kernels.",
        signs=(
            Sign(r"'ImportError' object has no attribute '(?P<attribute>\w+)'"),
            Sign(r"(?:deep_gemm|DeepGEMM).{0,80}\b(?:failed to import|import (?:failed|error)|cannot import)"),
        ),
        shows=("AttributeError: 'ImportError' object has no attribute 'get_num_sms'",),
        unlike=("DeepGemm is enabled but the scale_fmt of checkpoint is not ue8m0. This might cause accuracy degradation on Blackwell.",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=CERTAIN,
        affects=(Range("sglang", "", "0.5.17"),),
    ),
    Problem(
        id="deepgemm-unsupported",
        layer=SERVER,
        title="DeepGEMM has no kernels for this GPU",
        cause="The FP8 GEMM or MoE backend is DeepGEMM, which has no kernels for SM120 in this release.",
        remedy="In sglang_server_flags fp8-gemm-backend triton (or cutlass) and moe-runner-backend triton; or SGLANG_ENABLE_JIT_DEEPGEMM=0.",
        signs=(
            Sign(r"Assertion error \(\S*kernel_runtime\.hpp:\d+\)"),
            Sign(r"Assertion error \(\S*(?:jit|runtime|gemm|compiler|layout|smxx_layout|transform)\w*\.hpp:\d+\)"),
            Sign(r"(?:deep_gemm|DeepGEMM)\b[^\n]{0,120}\b(?:Unsupported|not supported|no kernel|Unknown (?:SM|arch))"),
            Sign(r"DeepGEMM\b[^\n]{0,60}\b(?:requires|only supports)\b[^\n]{0,40}(?:SM90|SM100|Hopper)"),
        ),
        shows=("RuntimeError: Assertion error (kernel_runtime.hpp:45): exit_code == 0",),
        unlike=("DeepGEMM warmup: 100%",),
        sources=("https://github.com/sgl-project/sglang/issues/18870", "https://github.com/deepseek-ai/DeepGEMM/issues/324"),
        confidence=LIKELY,
        affects=(Range("sglang", "", "0.5.17"),),
        archs=("sm120", "sm121"),
        refines=("deepgemm-jit-failed",),
    ),
    Problem(
        id="deepgemm-jit-failed",
        layer=SERVER,
        title="DeepGEMM could not compile or start a kernel",
        cause="Its just-in-time build failed: no nvcc or an old one, a stale cache, or an architecture that it has no kernels for.",
        remedy="nvcc --version (12.8 or newer), wipe ~/.deep_gemm or $SGLANG_DG_CACHE_DIR; or SGLANG_ENABLE_JIT_DEEPGEMM=0 in sglang_server_environment.",
        signs=(
            Sign(r"Assertion error \(\S*(?:kernel_runtime|jit|runtime|compiler|handle|device_runtime)\w*\.hpp:\d+\)"),
            Sign(r"(?:deep_gemm|DeepGEMM)\b[^\n]{0,120}\b(?:NVCC compilation failed|JIT|compile)\b[^\n]{0,60}\b(?:failed|error)\b"),
            Sign(r"NVCC compilation failed"),
        ),
        shows=("RuntimeError: Assertion error (/deepgemm/csrc/jit/handle.hpp:61): exit_code == 0\nNVIDIA H200",),
        unlike=("DeepGEMM JIT warmup session: 100%",),
        sources=("https://github.com/deepseek-ai/DeepGEMM",),
        confidence=LIKELY,
    ),
    Problem(
        id="sparse-attention-unsupported",
        layer=SERVER,
        title="Sparse attention has no kernels for this GPU",
        cause="The sparse attention backends (flashmla_sparse, trtllm) and their indexer exist for SM90 and SM100 only in this release.",
        remedy="On sglang 0.5.17 and newer dsa-prefill-backend and dsa-decode-backend flashinfer_sparse_mla with kv-cache-dtype fp8_e4m3; before it "
        "attention-backend flashinfer with kv-cache-dtype bf16 (dense, costs quality on long contexts). In sglang_server_flags.",
        signs=(
            Sign(r"Assertion error \(\S*attention\.hpp:\d+\): Unsupported architecture"),
            Sign(r"get_paged_mqa_logits_metadata.{0,160}"),
            Sign(r"Unsupported architecture", near=(r"nsa|dsa|mqa_logits|deep_gemm|sparse",), not_near=(r"TllmGen",), within=40),
            Sign(r"(?:flash_mla|FlashMLA)\b[^\n]{0,100}\b(?:only supports?|requires?|not supported|Unsupported)\b"),
        ),
        shows=(
            "RuntimeError: Assertion error (attention.hpp:159): Unsupported architecture",
            "RuntimeError: Assertion error (/tmp/deep_gemm/csrc/apis/attention.hpp:211): Unsupported architecture",
        ),
        unlike=("Set NSA backends for bfloat16 KV Cache: prefill=flashinfer, decode=flashinfer.",),
        sources=("https://github.com/sgl-project/sglang/issues/26087", "https://github.com/sgl-project/sglang/pull/26928"),
        confidence=LIKELY,
        refines=("deepgemm-unsupported", "deepgemm-jit-failed"),
    ),
    Problem(
        id="trtllm-attention-unsupported",
        layer=SERVER,
        title="The trtllm attention backend has no kernels for this GPU",
        cause="The sparse attention backend trtllm was chosen (by itself for FP8 KV on major 10 and above) and has no kernels for SM12x.",
        remedy="Name one that has: dsa-prefill-backend and dsa-decode-backend flashinfer_sparse_mla in sglang_server_flags (0.5.17 and newer), or "
        "attention-backend flashinfer with kv-cache-dtype bf16.",
        signs=(
            Sign(r"Error in function 'TllmGenFmhaRunner'"),
            Sign(r"TllmGenFmhaRunner.{0,160}Unsupported architecture"),
            Sign(
                r"trtllm[-_]gen\b[^\n]{0,80}\b(?:only supports?|not supported|Unsupported|requires?)\b[^\n]{0,60}(?:arch|sm_?\d|capability)"
            ),
            Sign(r"TRTLLM\b[^\n]{0,20}\b(?:MLA|attention|backend)\b[^\n]{0,60}\b(?:only supported|not supported|requires)\b"),
        ),
        shows=(
            (
                "tvm.error.InternalError: Error in function 'TllmGenFmhaRunner' at flashinfer/data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh:37: "
                "Unsupported architecture"
            ),
            (
                "Set DSA backends for fp8_e4m3 KV Cache: prefill=trtllm, decode=trtllm.\ntvm.error.InternalError: Error in function 'TllmGenFmhaRunner' at\n"
                "flashinfer/trtllm/fmha/fmhaRunner.cuh:37: Unsupported architecture"
            ),
        ),
        unlike=("Set DSA backends for fp8_e4m3 KV Cache: prefill=trtllm, decode=trtllm.",),
        sources=("https://github.com/sgl-project/sglang/issues/40558", "https://github.com/sgl-project/sglang/issues/26087"),
        confidence=CERTAIN,
        explains=("autotune-failed",),
        refines=("sparse-attention-unsupported", "autotune-failed"),
    ),
    Problem(
        id="trtllm-moe-unsupported",
        layer=SERVER,
        title="The trtllm MoE or GEMM backend does not support this GPU",
        cause="A TensorRT-LLM kernel for SM100 was chosen on another architecture.",
        remedy="In sglang_server_flags moe-runner-backend flashinfer_cutlass and fp4-gemm-backend flashinfer_cutlass (or flashinfer_cudnn) on SM120.",
        signs=(
            Sign(r"TRTLLMGenFusedMoE does not support (?P<arch>\w+)"),
            Sign(
                r"(?:trtllm|TrtllmGen)[^\n]{0,40}(?:moe|gemm)[^\n]{0,80}\b(?:does not support|not supported|only supports?|unsupported|requires)\b"
            ),
            Sign(r"Unsupported SM version for \S+ \S+ \S+ GEMM"),
            Sign(r"FP4 GEMM\b[^\n]{0,80}\b(?:not supported|only supported|requires)\b"),
        ),
        shows=("TRTLLMGenFusedMoE does not support sm120", "RuntimeError: Unsupported SM version for FP8 block scaling GEMM"),
        unlike=("FlashInfer TRTLLM MoE deferred finalize is disabled (moe_runner_backend=auto, quant_method=UnquantizedFusedMoEMethod).",),
        sources=("https://github.com/magik6k/glm-kimi-sm120-rtx6000bw",),
        confidence=LIKELY,
    ),
    Problem(
        id="allreduce-fusion-unsupported",
        layer=SERVER,
        title="FlashInfer's all-reduce fusion does not exist for this GPU",
        cause="FlashInfer builds the TRT-LLM all-reduce only for SM90 and SM100; the fusion was asked for or switched on by itself.",
        remedy="Take --enable-flashinfer-allreduce-fusion out of sglang_server_flags (from 0.5.14 it ends the server on SM120), or add "
        "--enforce-disable-flashinfer-allreduce-fusion.",
        signs=(
            Sign(r"No supported CUDA architectures found for major versions \[9, 10\]"),
            Sign(r"FlashInfer allreduce fusion requires SM90 or SM10X"),
            Sign(r"all_?reduce[ _]fusion[^\n]{0,100}\b(?:requires|not supported|unsupported|only supported)[^\n]{0,60}"),
            Sign(r"No supported CUDA architectures found", near=(r"allreduce|trtllm_comm|comm_fusion|trtllm_allreduce",), within=60),
        ),
        shows=(
            "Exception: Capture cuda graph failed: No supported CUDA architectures found for major versions [9, 10].",
            "ValueError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.",
        ),
        unlike=("enable_flashinfer_allreduce_fusion=False",),
        sources=("https://github.com/sgl-project/sglang/issues/15650", "https://github.com/sgl-project/sglang/pull/21446"),
        confidence=CERTAIN,
        refines=("no-supported-arch", "graph-capture-failed"),
    ),
    Problem(
        id="no-supported-arch",
        layer=SERVER,
        title="A FlashInfer module does not exist for this GPU",
        cause="FlashInfer builds this module for other architectures only, or FLASHINFER_CUDA_ARCH_LIST leaves this one out.",
        remedy="Choose another backend for what the traceback names (sglang_server_flags); unset FLASHINFER_CUDA_ARCH_LIST or set it to 12.0f.",
        signs=(
            Sign(r"No supported CUDA architectures found for major versions \[(?P<majors>[\d, ]+)\]"),
            Sign(r"BackendSupportedError|backend '?\w+'? (?:is )?not supported (?:for|on) (?:compute capability|sm)"),
            Sign(r"Unsupported compute capability: (?P<capability>[\d.]+)"),
            Sign(r"(?:compute|device) capability \(?1[12][.,]? ?\d\)? (?:is )?(?:not supported|unsupported)\b(?!, communicator)"),
        ),
        shows=(
            "RuntimeError: No supported CUDA architectures found for major versions [10].",
            "ValueError: Unsupported compute capability: 12.0",
        ),
        unlike=("SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available.",),
        sources=("https://github.com/sgl-project/sglang/issues/32933",),
        confidence=LIKELY,
    ),
    Problem(
        id="vllm-no-attention-backend",
        layer=SERVER,
        title="vLLM has no attention backend for this model on this GPU",
        cause="vLLM of this release has no attention backend for sparse MLA on SM120.",
        remedy="Serve GLM-5 with sglang on this card (sglang_server), or a vLLM that has FLASHINFER_MLA_SPARSE_SM120.",
        signs=(
            Sign(r"No valid attention backend found for cuda"),
            Sign(r"No valid attention backend.{0,160}AttentionSelectorConfig"),
            Sign(r"Selected backend \S+ is not valid for this configuration"),
        ),
        shows=(
            (
                "ValueError: No valid attention backend found for cuda with\nAttentionSelectorConfig(head_size=576, dtype=torch.bfloat16, kv_cache_dtype=auto,\n"
                "use_mla=True, use_sparse=True, ...)"
            ),
        ),
        unlike=("Using FLASHINFER_MLA_SPARSE_SM120 attention backend out of potential backends: [FLASHINFER_MLA_SPARSE_SM120]",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=CERTAIN,
    ),
    Problem(
        id="decode-context-parallel",
        layer=SERVER,
        title="The attention backend cannot do decode context parallelism",
        cause="The attention backend (SM120's sparse MLA) does not declare that it returns the softmax LSE.",
        remedy="Run without decode context parallelism (no --decode-context-parallel-size, --dcp-size), or a release or patch whose backend returns it.",
        signs=(
            Sign(r"Decode Context Parallelism.{0,40}requires attention impl\w* to return the softmax LSE"),
            Sign(r"return the softmax LSE during decode"),
            Sign(r"can_return_lse_for_decode"),
            Sign(r"(?:\bDCP|decode[ -]context[ -]parallel(?:ism)?)\b[^\n]{0,80}\b(?:not supported|unsupported|requires)\b"),
        ),
        shows=(
            (
                "AssertionError: Decode Context Parallelism (DCP) requires attention implementations to return the softmax LSE during decode, but "
                "FlashInferMLASparseSM120Impl does not. Try a different backend by setting --attention-backend or disable DCP."
            ),
        ),
        unlike=("dcp_size=1",),
        sources=("https://github.com/hermia-ai/glm-5.2-sm120-stock-vllm/blob/main/docs/BUGS.md",),
        confidence=CERTAIN,
    ),
    Problem(
        id="cudnn-no-plan",
        layer=SERVER,
        title="cuDNN has no plan for this operation on this GPU",
        cause="The cuDNN FP4 backend finds no execution plan: cuDNN is too old for this architecture, or the shapes do not fit.",
        remedy="nvidia-cudnn-cu13 9.19 or newer in the environment, or fp4-gemm-backend flashinfer_cutlass in sglang_server_flags.",
        signs=(
            Sign(r"No execution plans support the graph"),
            Sign(r"cudnnGraphNotSupportedError"),
            Sign(r"\[cudnn_frontend\] Error: "),
        ),
        shows=("cudnn._compiled_module.cudnnGraphNotSupportedError: [cudnn_frontend] Error: No execution plans support the graph.",),
        unlike=("cudnn version: 91900",),
        sources=("https://github.com/magik6k/glm-kimi-sm120-rtx6000bw",),
        confidence=LIKELY,
    ),
    Problem(
        id="cutlass-failed",
        layer=SERVER,
        title="A CUTLASS kernel cannot be set up on this GPU",
        cause="The GEMM or grouped GEMM has no configuration for these shapes on this architecture, or needs more shared memory than it has.",
        remedy="Another backend for what the traceback names (fp8-gemm-backend, fp4-gemm-backend, moe-runner-backend in sglang_server_flags), or a newer release.",
        signs=(
            Sign(
                r"(?:cutlass|CUTLASS)[^\n]{0,100}\b(?:Error Internal|internal error|Failed to (?:run|initialize)|cannot implement|initialization failed)"
            ),
            Sign(r"(?:Failed to (?:run|initialize)|Error Internal)[^\n]{0,80}\b(?:cutlass|CUTLASS|grouped gemm)"),
            Sign(r"\[TensorRT-LLM\]\[ERROR\] Assertion failed: "),
        ),
        shows=("RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Failed to run cutlass FP4 gemm. Error: Error Internal",),
        unlike=("Using CUTLASS 4.8.0",),
        sources=("https://github.com/NVIDIA/cutlass/issues/3096",),
        confidence=GENERIC,
    ),
    Problem(
        id="autotune-failed",
        layer=SERVER,
        title="FlashInfer's autotuning fails or never ends",
        cause="A tactic that autotuning tries hangs or crashes on this GPU; the server stays in its start.",
        remedy="--disable-flashinfer-autotune in sglang_server_flags (or the operation in --flashinfer-autotune-skip-ops); wipe "
        "$SGLANG_CACHE_DIR/flashinfer/autotune after an upgrade.",
        signs=(
            Sign(r"\bautotun(?:er|ing|e)\b[^\n]{0,80}\b(?:timed out|hangs?|crash(?:ed|es)|failed with)\b"),
            Sign(r"Error in function '\w+'", near=(r"\[AutoTuner\]: Tuning \w+",), not_near=(r"TllmGen",), within=15),
        ),
        shows=("[AutoTuner]: Tuning fp4_gemm failed with RuntimeError: cudaErrorInvalidValue",),
        unlike=("[AutoTuner]: Tuning fp4_gemm: 100%|##########| 22/22 [00:08<00:00,  2.57profile/s]",),
        sources=("https://github.com/vllm-project/vllm/issues/53963",),
        confidence=LIKELY,
    ),
    Problem(
        id="flag-underscore",
        layer=SERVER,
        title="A flag is written with underscores",
        cause="Command-line options are written with hyphens; the one named is spelt with an underscore.",
        remedy="Write it with hyphens (--reasoning-parser, --enable-metrics) in sglang_server_flags; gpunode check-launch checks all of them.",
        signs=(Sign(r"unrecognized arguments: (?:[^\n]{0,400}? )?(?P<flag>--[a-z0-9-]+_[a-z0-9_-]+)"),),
        shows=("launch_server.py: error: unrecognized arguments: --reasoning_parser kimi_k2",),
        unlike=("launch_server.py: error: unrecognized arguments: --nsa-prefill-backend trtllm",),
        sources=("https://github.com/sgl-project/sglang/issues/12818",),
        confidence=CERTAIN,
        refines=("flag-unknown",),
    ),
    Problem(
        id="flag-renamed",
        layer=SERVER,
        title="A flag was renamed or removed in this sglang",
        cause="--nsa-* became --dsa-* (0.5.13, removed 0.5.20), --cuda-graph-max-bs became --cuda-graph-max-bs-decode (0.5.14, removed 0.5.20), "
        "--enable-nan-detection and --enable-piecewise-cuda-graph are gone.",
        remedy="gpunode check-launch --sglang VERSION --gpu sm120 -- FLAGS names the new form; correct sglang_server_flags.",
        signs=(
            Sign(
                r"unrecognized arguments: (?:[^\n]{0,400}? )?(?P<flag>--(?:nsa-\w+-backend|cuda-graph-(?:max-)?bs|enable-nan-detection|enable-piecewise-cuda-graph|"
                r"enable-flashinfer-allreduce-fusion|collect-tokens-histogram|enable-dp-attention|dsa-\w+-backend))\b"
            ),
            Sign(r"ambiguous option: (?P<flag>--(?:cuda-graph-(?:max-)?bs|nsa-\w+-backend))(?:=\S*)? could match"),
        ),
        shows=(
            "sglang serve: error: unrecognized arguments: --nsa-prefill-backend trtllm --nsa-decode-backend trtllm",
            "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
        ),
        unlike=("The argument --nsa-prefill-backend is deprecated, use --dsa-prefill-backend",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=CERTAIN,
        refines=("flag-unknown", "flag-ambiguous"),
    ),
    Problem(
        id="flag-ambiguous",
        layer=SERVER,
        title="A flag is abbreviated, and several begin so",
        cause="Options may be cut short while only one begins so; this release has several, which the line lists.",
        remedy="Write the option in full in sglang_server_flags (--pp is --pp-size, --tp is --tp-size).",
        signs=(Sign(r"ambiguous option: (?P<flag>--\S+) could match"),),
        shows=("sglang serve: error: ambiguous option: --pp could match --pp-size, --pp-max-micro-batch-size, --pp-async-batch-depth",),
        unlike=("usage: launch_server.py [-h] --model-path MODEL_PATH [--pp-size PP_SIZE]",),
        sources=("https://docs.python.org/3/library/argparse.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="flag-fork-only",
        layer=SERVER,
        title="A flag belongs to a fork",
        cause="The option (or choice) exists in forks of sglang for this hardware, in no published release.",
        remedy="Leave it out, or install that fork; for PCIe all-reduce use SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 from 0.5.22.",
        signs=(
            Sign(r"unrecognized arguments: (?:[^\n]{0,400}? )?(?P<flag>--enable-pcie-oneshot-allreduce)"),
            Sign(r"argument (?P<flag>--[\w-]+): invalid choice: '?(?P<choice>b12x)'?"),
        ),
        shows=(
            "launch_server.py: error: unrecognized arguments: --enable-pcie-oneshot-allreduce",
            "launch_server.py: error: argument --moe-runner-backend: invalid choice: 'b12x' (choose from auto, deep_gemm, triton)",
        ),
        unlike=("enable_pcie_oneshot_allreduce=True",),
        sources=("https://github.com/local-inference-lab/rtx6kpro",),
        confidence=CERTAIN,
        refines=("flag-unknown", "flag-invalid-choice"),
    ),
    Problem(
        id="flag-unknown",
        layer=SERVER,
        title="The server does not know a flag",
        cause="The option does not exist in this version: misspelt, of a newer or older release, or of another server.",
        remedy="gpunode check-launch --sglang VERSION -- FLAGS; correct sglang_server_flags.",
        signs=(
            Sign(r"error: unrecognized arguments: (?P<flag>\S+)"),
            Sign(r"error: the following arguments are required: (?P<flag>\S+)"),
            Sign(
                r"error: argument (?P<flag>--\S+): (?:expected (?:one|at least one) argument|ignored explicit argument|invalid \w+ value)"
            ),
        ),
        shows=("launch_server.py: error: unrecognized arguments: --gpu-memory-utilization 0.9",),
        unlike=("usage: launch_server.py [-h] --model-path MODEL_PATH",),
        sources=("https://docs.sglang.io/advanced_features/server_arguments.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="flag-invalid-choice",
        layer=SERVER,
        title="A flag has a value that this version does not offer",
        cause="The choice is of another release or for another GPU.",
        remedy="Take one of the choices that the message lists; gpunode check-launch knows them by version (sglang_server_flags).",
        signs=(Sign(r"argument (?P<flag>--?[\w/, -]+): invalid choice: '?(?P<choice>[^' ]+)'?"),),
        shows=(
            "launch_server.py: error: argument --dsa-decode-backend: invalid choice: 'flashinfer' (choose from 'flashmla_sparse', 'flashmla_kv')",
        ),
        unlike=("invalid choice of words",),
        sources=("https://docs.sglang.io/advanced_features/server_arguments.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="server-option-conflict",
        layer=SERVER,
        title="Two options of the server exclude each other",
        cause="The server refuses a combination of options for this model or backend.",
        remedy="The assertion names them: change sglang_server_flags accordingly (page-size 64 for sparse MLA, radix cache with some drafts, and so on).",
        signs=(
            Sign(
                r"(?:AssertionError|ValueError): [^\n]{0,160}--[a-z][\w-]+[^\n]{0,120}\b(?:is not (?:supported|compatible)|cannot be used|must be|is required|incompatible|only supports?)"
            ),
            Sign(
                r"(?:AssertionError|ValueError): [^\n]{0,160}\b(?:is not (?:supported|compatible)|cannot be used|must be (?:set|used|enabled|disabled)|incompatible)[^\n]{0,160}--[a-z][\w-]+"
            ),
        ),
        shows=("AssertionError: --page-size must be 64 when --attention-backend is flashmla",),
        unlike=("WARNING server_args.py:2003: Pipeline parallelism is incompatible with overlap schedule.",),
        sources=("https://docs.sglang.io/advanced_features/server_arguments.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="context-too-long",
        layer=SERVER,
        title="A request is longer than the context",
        cause="Prompt and requested output exceed the configured context length (or the KV pool).",
        remedy="Shorten the request, or raise context-length and memory in sglang_server_flags.",
        severity=WARNING,
        signs=(
            Sign(
                r"(?:Requested token count|input \(\d+ tokens\)|maximum context length)[^\n]{0,160}\b(?:exceeds|longer than|is \d+ tokens)"
            ),
            Sign(r"Input length \(?\d+(?: tokens)?\)? exceeds the maximum allowed length"),
        ),
        shows=(
            "ValueError: Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens",
        ),
        unlike=("context_length=202752",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=CERTAIN,
    ),
    Problem(
        id="compile-failed",
        layer=SERVER,
        title="torch.compile or Triton failed to compile",
        cause="Compiling a graph or kernel failed; the first error below names the place.",
        remedy="Without torch.compile (--enable-torch-compile off, vLLM --enforce-eager) to get going; wipe ~/.triton/cache and torch's inductor cache.",
        signs=(
            Sign(r"torch\._(?:dynamo|inductor)\.exc\.\w+"),
            Sign(r"triton\.compiler\.errors\.\w+"),
            Sign(r"BackendCompilerFailed"),
            Sign(r"PassManager::run failed"),
        ),
        shows=("triton.compiler.errors.CompilationError: at 12:4:", "RuntimeError: PassManager::run failed"),
        unlike=("torch.compile takes 27.20 s in total",),
        sources=("https://github.com/triton-lang/triton",),
        confidence=GENERIC,
    ),
    Problem(
        id="server-watchdog",
        layer=SERVER,
        title="The scheduler's watchdog fired",
        cause="One forward pass did not end within the watchdog's time: a hung collective, a kernel compiled in the middle of serving, or a GPU that stopped.",
        remedy="Look for an Xid and at nvidia-smi (100 % and low power: a hung collective; then gpunode verify-p2p); a slow first request: raise "
        "watchdog-timeout in sglang_server_flags.",
        signs=(
            Sign(r"Watchdog timeout \(self\.watchdog_last"),
            Sign(r"(?:Scheduler|Detokenizer|Tokenizer) watchdog timeout|watchdog timeout \(\w+"),
            Sign(r"EngineCore.{0,60}\b(?:timed out|TimeoutError: RPC call)"),
        ),
        shows=("Watchdog timeout (self.watchdog_last_forward_ct=812, self.forward_ct=812, self.watchdog_timeout=300)",),
        unlike=("watchdog_timeout=300",),
        sources=("https://docs.sglang.io/advanced_features/server_arguments.html",),
        confidence=GENERIC,
        tags=("server-hang",),
    ),
    Problem(
        id="server-unhealthy",
        layer=SERVER,
        title="The server's health check fails",
        cause="The server did not generate one token in time: it is starting, overloaded, or hung.",
        remedy="Its journal at that time; SGLANG_HEALTH_CHECK_TIMEOUT for long prefills; gpunode smoke --concurrency 1.",
        severity=WARNING,
        signs=(
            Sign(r"Health check failed\. Server couldn'?t get a response from detokenizer"),
            Sign(r"Health check timed? ?out"),
        ),
        shows=(
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 10:00:00. last_heartbeat time: 09:59:00",
        ),
        unlike=('INFO:     127.0.0.1:52812 - "GET /health HTTP/1.1" 200 OK',),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=GENERIC,
        tags=("server-hang",),
    ),
    Problem(
        id="server-killed",
        layer=SERVER,
        title="A process of the server was killed",
        cause="It ended by SIGKILL: the kernel's OOM killer (host memory, not GPU memory), systemd's stop timeout, or somebody.",
        remedy="journalctl -k | grep -i oom on the host at that time; raise gpu_container_memory_mib; TimeoutStopSec of the unit.",
        signs=(
            Sign(r"exit ?code:? ?-9\b|exited with (?:code )?-9\b|code=killed, status=9/KILL", not_near=(_STOPPED,), within=15),
            Sign(r"(?:worker|process|child)\b[^\n]{0,60}\b(?:was killed|killed by signal 9|SIGKILL)\b"),
        ),
        shows=(
            "sglang.service: Main process exited, code=killed, status=9/KILL",
            "Rank 3 scheduler is dead. Please check if there are relevant logs. Exit code: -9",
        ),
        unlike=("sglang.service: Killing process 4711 (python3) with signal SIGTERM.",),
        sources=("https://docs.kernel.org/mm/oom.html",),
        confidence=LIKELY,
        tags=("killed",),
    ),
    Problem(
        id="server-ended",
        layer=SERVER,
        title="The server ended with an exception",
        cause="A worker raised an exception. Where nothing else is named here, it is none of this catalogue: the last line of the first traceback "
        "is the message to look for.",
        remedy="Read the first traceback in the journal (journalctl -u sglang -b), the other ranks' are echoes; gpunode diagnose --all shows what else was seen.",
        signs=(
            Sign(r"Scheduler hit an exception: Traceback"),
            Sign(r"SIGQUIT received\. signum|Received sigquit from a child process"),
            Sign(r"EngineDeadError|EngineCore (?:encountered a fatal error|failed to start|hit an exception)"),
            Sign(r"(?:WorkerProc|Worker process|TpModelWorkerClient|DetokenizerManager|TokenizerManager) hit an exception"),
            Sign(r"Rank \d+ scheduler is (?:dead|died)"),
            Sign(r"Initialization failed\. Please see the error messages above"),
            Sign(r"Engine core initialization failed"),
            Sign(
                r"sglang\S*\.service: (?:Failed with result|Main process exited, code=(?:exited|dumped), status=(?!0/))",
                not_near=(_STOPPED,),
                within=15,
            ),
        ),
        shows=(
            "[2026-11-30 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\nZeroDivisionError: division by zero",
        ),
        unlike=("[2026-11-30 10:00:00] The server is fired up and ready to roll!",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=GENERIC,
        tags=("aftermath",),
    ),
    Problem(
        id="gpu-error-other",
        layer=SERVER,
        title="A CUDA call failed",
        cause="Its text stands behind the colon; where nothing else is named here, it has no entry of its own.",
        remedy="Look for an Xid on the host at that time; run once with CUDA_LAUNCH_BLOCKING=1.",
        signs=(
            Sign(r"(?:torch\.AcceleratorError|RuntimeError): CUDA error: (?P<error>[^\n]{3,80})"),
            Sign(r"(?:Triton Error \[CUDA\]|CUDA driver error): (?P<error>[^\n]{3,80})"),
        ),
        shows=("torch.AcceleratorError: CUDA error: operation not supported on global/shared address space",),
        unlike=("CUDA error checking enabled",),
        sources=("https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",),
        confidence=GENERIC,
        tags=("aftermath", "cuda-error"),
    ),
    Problem(
        id="grammar-token-rejected",
        layer=SERVER,
        title="A request with structured output ends the server",
        cause="The model produced a token that the request's grammar (JSON schema, regular expression, tool call) does not allow, and the release does not "
        "catch it: known with speculative decoding, special tokens and reasoning parsers.",
        remedy="Take newer releases of sglang and xgrammar (sglang_venv_version). Until then try grammar-backend llguidance in sglang_server_flags, or leave "
        "speculative decoding out; the request that did it stands just before in the journal.",
        signs=(
            Sign(r"Tokens? not accepted(?:: ?| during retokenization)"),
            Sign(r"cannot be accepted by the GrammarMatcher"),
            Sign(r"Invalid token id \d+ for GrammarMatcher"),
            Sign(r"GrammarMatcher has (?:already )?terminated"),
        ),
        shows=("ValueError: Tokens not accepted: 151551\nAccepted tokens: []", "AssertionError: Tokens not accepted: tokens [271, 9]"),
        unlike=("[2026-11-30 10:00:00 TP0] Grammar backend: xgrammar",),
        sources=("https://github.com/sgl-project/sglang/issues/12461", "https://github.com/sgl-project/sglang/issues/15050"),
        confidence=LIKELY,
        explains=("server-ended",),
    ),
    Problem(
        id="unit-cannot-start",
        layer=SERVER,
        title="systemd could not start the server's process",
        cause="Something that the unit names is not there: the program (203), its user (217), its folder (200) or a mount (226). The server itself never ran.",
        remedy="The line names what is missing: install the release (sglang_venv role; readlink -f /opt/sglang/current), make the user "
        "(sglang_server_user), or mount the folder (gpu_container_mounts); then systemctl restart sglang.",
        signs=(
            Sign(r"Failed (?:to locate executable|at step \w+ spawning) (?P<path>\S+): "),
            Sign(r"Failed to determine (?:user credentials|supplementary groups)"),
            Sign(r"Failed to set up mount namespacing: (?P<path>\S+): "),
            Sign(r"Changing to the requested working directory failed"),
            Sign(r"sglang\S*\.service: Main process exited, code=exited, status=2[0-4]\d/[A-Z]+"),
        ),
        shows=(
            "systemd[1]: sglang.service: Failed to locate executable /opt/sglang/current/bin/python: No such file or directory",
            "systemd[1]: sglang.service: Main process exited, code=exited, status=217/USER",
        ),
        unlike=("systemd[1]: Started sglang.service - sglang server.",),
        sources=("https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html",),
        confidence=CERTAIN,
        explains=("server-ended",),
    ),
    Problem(
        id="unit-start-timeout",
        layer=SERVER,
        title="systemd stopped the server while it was starting",
        cause="The unit's TimeoutStartSec is shorter than loading, capturing and tuning take (7 to 8 minutes for 440 GB, longer with cold caches).",
        remedy="Let the role write the unit, which sets no such limit, or raise TimeoutStartSec; look where the time went before it.",
        signs=(
            Sign(r"sglang\S*\.service: [Ss]tart operation timed out"),
            Sign(r"sglang\S*\.service: start-(?:pre|post) operation timed out"),
        ),
        shows=("systemd[1]: sglang.service: start operation timed out. Terminating.",),
        unlike=("systemd[1]: apt-daily.service: start operation timed out. Terminating.",),
        sources=("https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html",),
        confidence=CERTAIN,
        explains=("server-ended", "server-killed"),
    ),
    Problem(
        id="flags-contradict",
        layer=SERVER,
        title="sglang refuses flags that do not go together",
        cause="Each flag is right by itself; the server's own checks refuse the combination before the model is loaded. The line names it.",
        remedy="gpunode check-launch --sglang VERSION --gpu ARCH -- FLAGS names the pair and what to change; correct sglang_server_flags.",
        signs=(
            Sign(r"Unknown speculative algorithm name: (?P<algorithm>\S+)"),
            Sign(r"served_model_name cannot contain a colon"),
            Sign(
                r"Pipeline parallelism (?:is not compatible with|currently only supports) [^\n]{0,80}(?:speculative decoding|overlap schedule|EAGLE)"
            ),
            Sign(r"chunked_prefill_size must be divisible by page_size"),
            Sign(r"tp_size must be divisible by (?:number of nodes|attn_cp_size|moe_dp_size|attn_dp_size)"),
            Sign(r"multi-node data[ -]parallel (?:is|replicas are) not supported"),
            Sign(r"FlashInfer (?:Cutlass|TRTLLM|CuteDSL) MOE (?:currently )?supports only"),
            Sign(r"The expert parallel size must be 1 or the same as the tensor parallel size"),
            Sign(r"enable-hierarchical-cache and disable-radix-cache are mutually exclusive"),
            Sign(r"Config file must be YAML format, got"),
            Sign(r"--dp-size \d+ with --attn-dp-size \d+"),
        ),
        shows=(
            "AssertionError: served_model_name cannot contain a colon (':') character. Invalid value: 'a:b'",
            "AssertionError: chunked_prefill_size must be divisible by page_size",
            "ValueError: Unknown speculative algorithm name: MTP",
        ),
        unlike=("Pipeline parallelism is enabled. pp_size=2",),
        sources=("https://docs.sglang.ai/advanced_features/server_arguments.html",),
        confidence=CERTAIN,
        explains=("server-ended",),
    ),
    Problem(
        id="context-length-too-long",
        layer=SERVER,
        title="The context length asked for is longer than the model's",
        cause="context-length in the flags exceeds what config.json allows.",
        remedy="Leave context-length out of sglang_server_flags, or lower it. Only where the model is known to extend (a rope scaling in its card) set "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN to 1 in sglang_server_environment.",
        signs=(
            Sign(r"context_length \(\d+\) is greater than the derived context_length \(\d+\)[^\n]{0,400}To allow overriding"),
            Sign(r"context_length \(\d+\) is greater than the derived context_length", near=(r"\bValueError\b",), within=6),
            Sign(r"max_model_len \(\d+\) is greater than the derived max_model_len"),
        ),
        shows=(
            (
                "ValueError: User-specified context_length (262144) is greater than the derived context_length (202752). This may lead to incorrect model "
                "outputs or CUDA errors. To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
            ),
        ),
        unlike=("max_total_num_tokens=412345, max_running_requests=256, context_len=202752",),
        sources=("https://docs.sglang.ai/advanced_features/server_arguments.html",),
        confidence=CERTAIN,
        explains=("server-ended",),
    ),
)
