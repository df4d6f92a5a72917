"""The virtual environment: CUDA, PyTorch, compiled extensions, package versions, building them."""

from __future__ import annotations

from ..model import CERTAIN, GENERIC, LIKELY, RUNTIME, Problem, Range, Sign

PROBLEMS = (
    Problem(
        id="torch-arch-missing",
        layer=RUNTIME,
        title="PyTorch was built without this GPU's architecture",
        cause="The installed torch wheel has no code for this GPU (sm_120 needs CUDA 12.8 or newer).",
        remedy="Install a torch wheel built for CUDA 12.8 or newer (sglang_venv takes the one that the release pins); python -c 'import torch; "
        "print(torch.cuda.get_arch_list())'.",
        consequence="`no kernel image is available` at the first kernel.",
        signs=(
            Sign(r"with CUDA capability (?P<arch>sm_\d+a?) is not compatible with the current PyTorch installation"),
            Sign(r"The current PyTorch install supports CUDA capabilities [sm_\d ]+"),
        ),
        shows=(
            (
                "NVIDIA RTX PRO 6000 Blackwell Server Edition with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
                "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90."
            ),
        ),
        unlike=("torch.cuda.get_arch_list() = ['sm_80', 'sm_90', 'sm_100', 'sm_120']",),
        sources=("https://github.com/pytorch/pytorch/issues/167244",),
        confidence=CERTAIN,
        explains=("no-kernel-image", "cuda-error"),
        refines=("no-kernel-image",),
    ),
    Problem(
        id="flash-attention-hopper",
        layer=RUNTIME,
        title="FlashAttention 3 has no code for this GPU",
        cause="FlashAttention 3 is built for SM90 only; it was chosen as attention backend on another architecture.",
        remedy="Set attention-backend flashinfer (or triton) in sglang_server_flags on SM120.",
        signs=(
            Sign(
                r"(?:hopper/|flash_fwd_launch_template|flash_attn_3|flash_attn_interface|\bfa3\b)[^\n]{0,160}no kernel image is available"
            ),
            Sign(
                r"no kernel image is available",
                near=(r"flash_attn_interface|flash_attention_v3|flashattention_backend|hopper/|\bFA3\b",),
                within=30,
            ),
            Sign(r"FlashAttention v?-?3 (?:Backend )?(?:requires|only supports|is only supported|does not support)[^\n]{0,80}"),
            Sign(r"This flash attention build only supports|FlashAttention only supports Ampere GPUs or newer"),
        ),
        shows=(
            "CUDA error (_deps/repo-flash-attention-src/hopper/flash_fwd_launch_template.h:166): no kernel image is available for execution on the device",
            "CUDA error (hopper/flash_fwd_launch_template.h:197): no kernel image is available for execution on the device",
        ),
        unlike=("Attention backend not specified. Use flashinfer backend by default.",),
        sources=("https://github.com/Dao-AILab/flash-attention/issues/1785",),
        confidence=CERTAIN,
        refines=("no-kernel-image",),
    ),
    Problem(
        id="no-kernel-image",
        layer=RUNTIME,
        title="A compiled extension has no code for this GPU",
        cause="A wheel (sgl-kernel, flash-attn, vllm, torch ...) was built without this GPU's architecture; the traceback names the module that called it.",
        remedy="Take a release whose wheel has it (SM120: sglang-kernel 0.4 or newer with CUDA 13, torch from 2.9 for CUDA 12.8), or build it with "
        "TORCH_CUDA_ARCH_LIST=12.0 (flash-attn: FLASH_ATTN_CUDA_ARCHS=120); choose a backend that has kernels (sglang_server_flags).",
        signs=(
            Sign(r"no kernel image is available(?: for execution on the device)?"),
            Sign(r"cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"),
            Sign(r"No compiled \w+ for CUDA device capability:? (?P<arch>\d+)"),
        ),
        shows=(
            "RMSNorm failed with error code no kernel image is available for execution on the device",
            "No compiled cutlass_scaled_mm for CUDA device capability: 120",
        ),
        unlike=("kernel image /boot/vmlinuz-7.0.14-14-pve is available",),
        sources=("https://github.com/sgl-project/sglang/issues/7249", "https://github.com/vllm-project/vllm/issues/32109"),
        confidence=LIKELY,
        tags=("cuda-error",),
        refines=("graph-capture-failed",),
    ),
    Problem(
        id="ptx-toolchain",
        layer=RUNTIME,
        title="PTX from a newer CUDA than the driver",
        cause="A kernel was compiled by a CUDA toolkit that is newer than what the driver supports.",
        remedy="Update the driver on host and container (nvidia_driver_version), or build with a CUDA toolkit no newer than the `CUDA Version` of nvidia-smi.",
        signs=(
            Sign(r"PTX was compiled with an unsupported toolchain"),
            Sign(r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion"),
        ),
        shows=("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",),
        unlike=("ptxas info    : Compiling entry function",),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
        confidence=CERTAIN,
        tags=("cuda-error",),
    ),
    Problem(
        id="driver-too-old-for-cuda",
        layer=RUNTIME,
        title="The driver is older than this CUDA needs",
        cause="torch or a container image was built for a newer CUDA than the driver supports.",
        remedy="Update the driver on the host and in the container alike (nvidia_driver_version; CUDA 13 needs 580 or newer), or install wheels of an "
        "older CUDA.",
        signs=(
            Sign(r"CUDA driver version is insufficient for CUDA runtime version"),
            Sign(r"The NVIDIA driver on your system is too old"),
            Sign(r"unsatisfied condition: cuda ?>= ?[\d.]+"),
            Sign(r"cudaErrorInsufficientDriver"),
        ),
        shows=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver",
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver to a newer version",
        ),
        unlike=("CUDA Version: 13.2",),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
        confidence=CERTAIN,
        explains=("cuda-no-device", "docker-gpu-driver-missing"),
        refines=("docker-gpu-driver-missing",),
    ),
    Problem(
        id="cuda-compat-library",
        layer=RUNTIME,
        title="The forward-compatibility library is in the way",
        cause="An image brings a compat libcuda (/usr/local/cuda*/compat) that is older than the host's driver or not allowed on this kind of GPU.",
        remedy="Hide it (an empty mount over /usr/local/cuda-*/compat) or take it out of LD_LIBRARY_PATH.",
        signs=(
            Sign(r"forward compatibility was attempted on non supported HW"),
            Sign(r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|Error 804"),
            Sign(r"(?:CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|Error 803)"),
        ),
        shows=(
            "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
        ),
        unlike=("/usr/local/cuda-13.0/compat/libcuda.so.1",),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
        confidence=CERTAIN,
        explains=("cuda-no-device", "driver-library-mismatch"),
    ),
    Problem(
        id="transformers-glm-moe-dsa",
        layer=RUNTIME,
        title="transformers does not know glm_moe_dsa",
        cause="transformers is older than 5.2 and does not know the model type glm_moe_dsa (sglang 0.5.8 and 0.5.9 pin 4.57.1).",
        remedy="Upgrade transformers to 5.2 or newer in the environment, or sglang to 0.5.10 or newer, which pins one that works (sglang_venv_version).",
        signs=(
            Sign(r"KeyError: '?glm_moe_dsa'?"),
            Sign(r"model type `?'?glm_moe_dsa'?`? but Transformers does not recognize this architecture"),
            Sign(r"glm_moe_dsa", near=(r"Transformers does not recognize|KeyError|Unrecognized configuration class",), within=10),
        ),
        shows=(
            "    raise KeyError(key)\nKeyError: 'glm_moe_dsa'\n\nDuring handling of the above exception, another exception occurred:",
            (
                "ValueError: The checkpoint you are trying to load has model type `glm_moe_dsa` but Transformers does not recognize this architecture. This could "
                "be because of an issue with the checkpoint, or because your version of Transformers is out of date."
            ),
        ),
        unlike=("model_type: glm_moe_dsa, architectures: ['GlmMoeDsaForCausalLM']",),
        sources=("https://github.com/zai-org/GLM-5/issues/22",),
        confidence=CERTAIN,
        affects=(Range("transformers", "", "5.2"),),
        refines=("transformers-too-old",),
        explains=("tokenizer-missing",),
    ),
    Problem(
        id="transformers-too-old",
        layer=RUNTIME,
        title="transformers does not know this model type",
        cause="The installed transformers is older than the model.",
        remedy="Upgrade transformers to the release that the model's page names, within what this sglang allows; better a newer sglang (sglang_venv_version).",
        signs=(
            Sign(r"model type `?'?(?P<model>[\w-]+)'?`? but Transformers does not recognize this architecture"),
            Sign(r"KeyError: '(?P<model>[a-z]\w{2,40})'", near=(r"configuration_auto\.py|CONFIG_MAPPING",), within=8),
            Sign(r"Unrecognized configuration class"),
        ),
        shows=(
            "ValueError: The checkpoint you are trying to load has model type `kimi_k3` but Transformers does not recognize this architecture.",
        ),
        unlike=("KeyError: 'content'",),
        sources=("https://github.com/huggingface/transformers",),
        confidence=CERTAIN,
    ),
    Problem(
        id="package-import-mismatch",
        layer=RUNTIME,
        title="Two packages of the environment do not fit each other",
        cause="A package is older or newer than its caller expects: a name or an argument does not exist.",
        remedy="Rebuild the release of the environment from its lock (sglang_venv) instead of upgrading single packages; pip check names the conflict.",
        signs=(
            Sign(r"ImportError: cannot import name '(?P<name>\w+)' from '(?P<package>[\w.]+)'"),
            Sign(r"AttributeError: (?:partially initialized )?module '(?P<package>[\w.]+)' has no attribute '(?P<name>\w+)'"),
            Sign(
                r"VersionConflict|pkg_resources\.ContextualVersionConflict|is required for a normal functioning of this module, but found"
            ),
            Sign(r"TypeError: (?P<name>[\w.]+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'"),
            Sign(r"TypeError: (?P<name>[\w.]+)\(\) missing \d+ required (?:positional|keyword-only) arguments?"),
        ),
        shows=(
            "ImportError: cannot import name 'Glm4MoeConfig' from 'transformers' (/srv/venv/lib/python3.12/site-packages/transformers/__init__.py)",
            "ImportError: tokenizers>=0.23,<0.24 is required for a normal functioning of this module, but found tokenizers==0.22.1.",
        ),
        unlike=(
            "[2026-01-28 21:17:09 TP0] Ignore import error when loading sglang.srt.models.glmasr: cannot import name 'GlmAsrConfig' from 'transformers' (/x)",
        ),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=LIKELY,
    ),
    Problem(
        id="flashinfer-version",
        layer=RUNTIME,
        title="FlashInfer does not fit the server",
        cause="The installed FlashInfer is older than the server's calls need, or its parts (flashinfer-cubin, jit-cache) are of other versions.",
        remedy="Install the flashinfer-python that the server's release pins (vLLM 0.25.1: 0.6.14 with FLASHINFER_DISABLE_VERSION_CHECK=1), remove "
        "flashinfer-cubin of another version, and wipe ~/.cache/flashinfer.",
        signs=(
            Sign(
                r"TypeError: (?P<name>[\w.]*(?:trtllm|flashinfer|fmha|mla|cutlass_fused|BatchDecode|BatchPrefill)[\w.]*)\(\) got an unexpected keyword argument '(?P<argument>\w+)'"
            ),
            Sign(r"got an unexpected keyword argument", near=(r"site-packages/flashinfer/|import flashinfer",), within=12),
            Sign(r"flashinfer-(?:cubin|jit-cache) version .{0,60}\b(?:does not|doesn'?t) match"),
            Sign(r"flashinfer\S* .{0,40}version (?:mismatch|conflict)"),
            Sign(r"Please (?:install|upgrade|update).{0,40}flashinfer.{0,40}(?:version|>=|==)"),
        ),
        shows=(
            "TypeError: trtllm_batch_decode_with_kv_cache_mla() got an unexpected keyword argument 'kv_scale_format'",
            "RuntimeError: flashinfer-cubin version (0.6.13) does not match flashinfer version (0.6.14). Please install the same version",
        ),
        unlike=("flashinfer version: 0.6.14",),
        sources=("https://github.com/hermia-ai/glm-5.2-sm120-stock-vllm/blob/main/docs/BUGS.md",),
        confidence=CERTAIN,
        refines=("package-import-mismatch",),
    ),
    Problem(
        id="abi-mismatch",
        layer=RUNTIME,
        title="A compiled extension was built for another PyTorch",
        cause="An extension (flash-attn, sgl-kernel, vllm ...) was compiled against another torch than the installed one: its symbols do not exist.",
        remedy="Reinstall it for this torch: the wheel that the release pins, or build it again with --no-build-isolation (sglang_venv's wheelhouse does).",
        signs=(
            Sign(r"undefined symbol: _ZN\d*(?:3c10|2at|5torch)\w*"),
            Sign(r"undefined symbol: (?P<symbol>_Z\w+|aoti_\w+|c10_\w+|torch_\w+)"),
            Sign(r"operator torchvision::\w+ does not exist"),
            Sign(r"Detected that PyTorch and \w+ were compiled with different CUDA (?:major )?versions"),
            Sign(r"(?:compiled|built) (?:with|against) (?:PyTorch|torch).{0,60}\b(?:but|while).{0,60}\b(?:installed|running|found)"),
        ),
        shows=(
            (
                "ImportError: /srv/venv/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: "
                "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
            ),
            "RuntimeError: operator torchvision::nms does not exist",
        ),
        unlike=("nvidia: Unknown symbol drm_gem_object_free (err -2)",),
        sources=("https://github.com/Dao-AILab/flash-attention/issues/919",),
        confidence=CERTAIN,
        explains=("import-failed", "package-import-mismatch"),
        refines=("import-failed",),
    ),
    Problem(
        id="nvidia-library-mixed",
        layer=RUNTIME,
        title="NVIDIA's libraries are mixed",
        cause="Another NCCL, cuBLAS, cuDNN or nvJitLink is loaded than the one that belongs to the wheels (LD_LIBRARY_PATH, a system CUDA).",
        remedy="Unset LD_LIBRARY_PATH in the unit, remove system packages that shadow the environment's, and reinstall the nvidia-* wheels that torch pins.",
        signs=(
            Sign(r"undefined symbol: (?P<symbol>(?:nccl|cublas|cudnn|cusparse|nvJitLink|__nvJitLink|cu[A-Z])\w*)"),
            Sign(r"NCCL version .{0,40}\b(?:mismatch|different)|NCCL WARN .{0,40}version mismatch"),
            Sign(r"cuDNN version incompatibility"),
            Sign(r"Loaded runtime CuDNN library: [\d.]+ but source was compiled with"),
        ),
        shows=(
            "ImportError: /srv/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
            "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 19, 0) but found runtime version (9, 10, 2).",
        ),
        unlike=("vLLM is using nccl==2.28.9",),
        sources=("https://github.com/pytorch/pytorch/issues/119932",),
        confidence=CERTAIN,
        explains=("import-failed",),
        refines=("import-failed",),
    ),
    Problem(
        id="cuda-library-missing",
        layer=RUNTIME,
        title="A CUDA library is missing",
        cause="An extension needs a CUDA library of a version that the environment does not have (often CUDA 12 against 13).",
        remedy="Install the wheels of one CUDA version (nvidia-cuda-runtime and friends of torch's version), or the CUDA toolkit of that version "
        "(cuda_userspace); ldd the extension shows which.",
        signs=(
            Sign(
                r"(?P<library>lib(?:cudart|nvrtc|cublas|cublasLt|cudnn|cupti|nccl(?!-)|nvJitLink|cusparse|cusolver|cufft|curand|nvshmem\w*)\S*): cannot open shared object file"
            ),
            Sign(r"Failed to load .{0,40}(?P<library>lib(?:cudart|nvrtc|cudnn)\S*)"),
        ),
        shows=("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",),
        unlike=("ImportError: libGL.so.1: cannot open shared object file: No such file or directory",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=CERTAIN,
        explains=("import-failed",),
    ),
    Problem(
        id="import-failed",
        layer=RUNTIME,
        title="A package is missing or cannot be loaded",
        cause="The environment lacks a package that the server imports, or its compiled part does not load.",
        remedy="Rebuild the release of the environment (sglang_venv); the traceback names the module. fastsafetensors, ray and others are extras to install.",
        signs=(
            Sign(r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'"),
            Sign(r"Could not load any common_ops library"),
            Sign(r"ImportError: .{0,200}\.so\S*: cannot open shared object file"),
            Sign(r"Please (?:install|pip install) (?P<module>[\w-]+) (?:first|to use|via|with)"),
        ),
        shows=("ModuleNotFoundError: No module named 'sgl_kernel'", "[sgl_kernel] CRITICAL: Could not load any common_ops library!"),
        unlike=("Ignore import error when loading sglang.srt.models.glm_ocr: No module named 'transformers.models.glm_ocr'",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=LIKELY,
    ),
    Problem(
        id="numpy-abi",
        layer=RUNTIME,
        title="An extension was built for another NumPy",
        cause="A module was compiled against NumPy 1 and NumPy 2 is installed (or the other way round).",
        remedy="Pin the numpy that the server's release names, or update the module.",
        signs=(
            Sign(r"A module that was compiled using NumPy 1\.x cannot be run in NumPy"),
            Sign(r"numpy\.dtype size changed, may indicate binary incompatibility"),
            Sign(r"numpy\.core\.multiarray failed to import"),
        ),
        shows=(
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
        ),
        unlike=("numpy 2.3.1",),
        sources=("https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",),
        confidence=CERTAIN,
        explains=("import-failed", "package-import-mismatch"),
    ),
    Problem(
        id="nvcc-arch-unknown",
        layer=RUNTIME,
        title="The CUDA compiler is too old for this GPU",
        cause="nvcc or ptxas of the toolkit at hand does not know the architecture (compute_120 needs CUDA 12.8 or newer).",
        remedy="Install a toolkit of 12.8 or newer and point CUDA_HOME to it (cuda_userspace); for Triton set TRITON_PTXAS_PATH to its ptxas.",
        signs=(
            Sign(r"nvcc fatal\s*: Unsupported gpu architecture '(?P<arch>\w+)'"),
            Sign(r"ptxas fatal\s*: Value '(?P<arch>\w+)' is not defined for option 'gpu-name'"),
            Sign(r"SM ?1[02]\.x requires CUDA ?>= ?[\d.]+"),
            Sign(r"FlashInfer requires GPUs with sm75 or higher"),
            Sign(r"Unknown CUDA arch \((?P<arch>[\w.+]+)\) or GPU not supported"),
            Sign(r"No supported gpu backend found|`?ptxas`? (?:failed|version).{0,60}\b(?:sm_1\d\d|too old)"),
        ),
        shows=(
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
        ),
        unlike=("ptxas info    : 0 bytes gmem",),
        sources=("https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/",),
        confidence=CERTAIN,
        explains=("build-failed",),
    ),
    Problem(
        id="nvcc-missing",
        layer=RUNTIME,
        title="Kernels cannot be compiled: the CUDA toolkit is missing",
        cause="FlashInfer, DeepGEMM or an extension compile kernels at run time and find no nvcc (CUDA_HOME), ninja or headers.",
        remedy="Install the CUDA toolkit in the container and set CUDA_HOME in the unit (cuda_userspace, sglang_server_environment); pip install ninja. "
        "A header alone is missing: its library's -dev package belongs into cuda_userspace_toolkit_packages (libcurand-dev for curand_kernel.h).",
        signs=(
            Sign(r"Could not find (?:nvcc|CUDA installation|cuda lib directory)|nvcc: (?:command )?not found|nvcc not found"),
            Sign(r"CUDA_HOME environment variable is not set"),
            Sign(r"No such file or directory: '?\S*(?:bin/nvcc|\bninja)'?"),
            Sign(r"Ninja is required to load C\+\+ extensions"),
            Sign(r"\bnvcc: not found"),
            Sign(
                r"fatal error: (?:cuda\w*|cublas\w*|curand\w*|cusparse\w*|cusolver\w*|cufft\w*|cudnn\w*|nvrtc|nvml|nvtx3/\S+|nv/target|cccl/\S+|thrust/\S+|cub/\S+)(?:\.h(?:pp)?|\.cuh)?: No such file"
            ),
        ),
        shows=(
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "/srv/x/cutlass/util/reference/device/tensor_fill.h:51:10: fatal error: curand_kernel.h: No such file or directory",
            "/bin/sh: 1: :/usr/local/cuda-13.0/bin/nvcc: not found",
        ),
        unlike=("nvcc: NVIDIA (R) Cuda compiler driver",),
        sources=("https://docs.flashinfer.ai/installation.html",),
        confidence=CERTAIN,
        explains=("build-failed", "flashinfer-jit-failed", "no-supported-arch", "autotune-failed"),
    ),
    Problem(
        id="compiler-missing",
        layer=RUNTIME,
        title="Triton finds no C compiler or Python headers",
        cause="Triton and torch.compile build small host modules at run time.",
        remedy="apt install gcc g++ python3-dev in the container (cuda_userspace_packages), or set CC.",
        signs=(
            Sign(r"Failed to find C compiler"),
            Sign(r"fatal error: Python\.h: No such file"),
            Sign(r"InvalidCxxCompiler: No working C\+\+ compiler found"),
            Sign(r"(?:gcc|g\+\+|c\+\+|cc): (?:command )?not found"),
        ),
        shows=("RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",),
        unlike=("gcc (Debian 14.2.0-19) 14.2.0",),
        sources=("https://github.com/triton-lang/triton",),
        confidence=CERTAIN,
        explains=("build-failed",),
    ),
    Problem(
        id="build-memory",
        layer=RUNTIME,
        title="A build ran out of memory or crashed the compiler",
        cause="Too many compilers at once (flash-attn needs 8 to 9 GB each), or nvcc itself crashes (12.8 and 12.9 do on backward kernels for SM120).",
        remedy="MAX_JOBS=8 NVCC_THREADS=2, only this architecture (FLASH_ATTN_CUDA_ARCHS=120), more gpu_container_memory_mib; another CUDA release when nvcc "
        "segfaults.",
        signs=(
            Sign(r"fatal error: Killed signal terminated program \w+"),
            Sign(r"(?:nvcc|cicc|ptxas|cudafe\+\+)[^\n]{0,60}\b(?:died due to signal \d+|Segmentation fault|core dumped|Killed)\b"),
            Sign(r"nvcc error\s*: '\w+' died"),
            Sign(r"virtual memory exhausted: Cannot allocate memory"),
        ),
        shows=(
            "g++: fatal error: Killed signal terminated program cc1plus",
            "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
        ),
        unlike=("[12/72] c++ -MMD -MF flash_fwd.o",),
        sources=("https://github.com/Dao-AILab/flash-attention/issues/2361",),
        confidence=CERTAIN,
        explains=("build-failed", "host-memory-exhausted", "container-memory-exhausted"),
    ),
    Problem(
        id="flashinfer-jit-failed",
        layer=RUNTIME,
        title="FlashInfer could not compile a kernel at run time",
        cause="Its build with ninja and nvcc ended with an error: a toolkit that is missing, too old for the GPU or of another version than the headers, or too "
        "little memory.",
        remedy="Read the first `error:` or `fatal` above; nvcc --version must be 12.9 or newer for SM120 (cuda_userspace_toolkit_packages); wipe "
        "~/.cache/flashinfer; MAX_JOBS=4 when compilers were killed.",
        signs=(
            Sign(r"'ninja'[^\n]{0,200}\bflashinfer\b[^\n]{0,300}returned non-zero exit status"),
            Sign(r"Ninja build failed", near=(r"flashinfer",)),
            Sign(r"flashinfer[^\n]{0,120}\bJIT\b[^\n]{0,60}\b(?:failed|error)\b"),
            Sign(r"ninja: build stopped: subcommand failed", near=(r"/flashinfer/|flashinfer\.jit",)),
        ),
        shows=(
            (
                "subprocess.CalledProcessError: Command '['ninja', '-v', '-C', '/root/.cache/flashinfer/0.6.14/120f/cached_ops', '-f', "
                "'/root/.cache/flashinfer/0.6.14/120f/cached_ops/sampling/build.ninja']' returned non-zero exit status 1."
            ),
        ),
        unlike=("flashinfer.jit: Finished loading JIT ops: sampling",),
        sources=("https://github.com/vllm-project/vllm/issues/50705", "https://github.com/vllm-project/vllm/issues/23176"),
        confidence=LIKELY,
        refines=("build-failed",),
    ),
    Problem(
        id="nccl-too-old",
        layer=RUNTIME,
        title="This NCCL is older than the GPU",
        cause="NCCL before 2.26 asks for more shared memory than consumer and workstation Blackwell have.",
        remedy="Update NCCL (nvidia-nccl-cu13 2.27 or newer) with the torch that pins it; do not mix a system libnccl in.",
        consequence="The first collective fails with `invalid argument` or hangs.",
        signs=(Sign(r"ncclMaxSharedMem \d+ exceeds device/fn maxSharedMem \d+"),),
        shows=(
            (
                "node:11344:11344 [1] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856\n"
                "node:11344:11344 [1] enqueue.cc:1470 NCCL WARN Cuda failure 1 'invalid argument'"
            ),
        ),
        unlike=("NCCL INFO NCCL version 2.28.9+cuda13.0",),
        sources=("https://github.com/NVIDIA/nccl/issues/1637",),
        confidence=CERTAIN,
        tags=("collective",),
        explains=("collective",),
        refines=("nccl-system-error",),
    ),
    Problem(
        id="build-failed",
        layer=RUNTIME,
        title="An extension could not be built",
        cause="Compiling a package or a kernel failed; the first `error:` above it is the reason.",
        remedy="Read the first error of the compiler; check nvcc --version against torch.version.cuda; build with --no-build-isolation.",
        signs=(
            Sign(r"RuntimeError: Error (?:compiling|building) (?:objects for )?extension"),
            Sign(r"Error building extension '(?P<extension>[^']+)'"),
            Sign(r"ninja: build stopped: subcommand failed"),
            Sign(r"Failed (?:building|to build) (?:wheel for |installable wheels)?(?P<package>[\w-]*)"),
            Sign(r"The detected CUDA version \((?P<found>[\d.]+)\) mismatches the version that was used to compile PyTorch"),
            Sign(r"Failed to build `?(?P<package>[\w.=-]+)`?"),
        ),
        shows=("RuntimeError: Error compiling objects for extension\nERROR: Failed building wheel for flash-attn",),
        unlike=("Successfully built flash-attn",),
        sources=("https://github.com/Dao-AILab/flash-attention",),
        confidence=GENERIC,
    ),
    Problem(
        id="dependency-conflict",
        layer=RUNTIME,
        title="The packages asked for cannot be installed together",
        cause="Their requirements contradict each other, a version does not exist for this Python, or only as a pre-release.",
        remedy="Take the set that the server's release pins (sglang_venv's locks); pre-releases (flash-attn-4) need an exact version or --prerelease=allow.",
        signs=(
            Sign(r"ResolutionImpossible|Cannot install .{0,160}because these package versions have conflicting dependencies"),
            Sign(r"No solution found when resolving dependencies"),
            Sign(r"No matching distribution found for (?P<package>\S+)"),
            Sign(r"Package '\S+' requires a different Python"),
            Sign(r"error: externally-managed-environment"),
        ),
        shows=(
            "  x No solution found when resolving dependencies:\n  `-> Because sglang==0.5.9 depends on transformers==4.57.1 and you require transformers>=5.2",
            "ERROR: No matching distribution found for flash-attn-4",
        ),
        unlike=("Resolved 214 packages in 1.22s",),
        sources=("https://docs.astral.sh/uv/concepts/resolution/",),
        confidence=CERTAIN,
    ),
    Problem(
        id="hash-mismatch",
        layer=RUNTIME,
        title="A downloaded package is not the one that was locked",
        cause="The file's hash differs from the lock: a broken download, a cache, or a replaced file.",
        remedy="Clear the cache (uv cache clean PACKAGE) and try again; if it stays, do not install it: find out who replaced the file.",
        signs=(
            Sign(r"THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"),
            Sign(r"Hash mismatch for `?(?P<package>[^\s`]+)`?"),
            Sign(r"Hash Sum mismatch"),
        ),
        shows=("error: Failed to download `torch==2.14.1`\n  Caused by: Hash mismatch for `torch==2.14.1`",),
        unlike=("Verified hash of torch-2.14.1",),
        sources=("https://pip.pypa.io/en/stable/topics/secure-installs/",),
        confidence=CERTAIN,
    ),
    Problem(
        id="nccl-desync",
        layer=RUNTIME,
        title="A collective timed out",
        cause="One rank did not join a collective (it crashed, hung or took another path), so the others waited until the watchdog fired.",
        remedy="Look at the rank that the report names as lagging or dead: its own last lines are the cause, the timeout is a consequence. If all ranks "
        "waited in the first collective, it is P2P: gpunode verify-p2p.",
        signs=(
            Sign(r"Watchdog caught collective operation timeout"),
            Sign(r"(?:lagging/dead/mismatched ranks|ranks that caused the desync)"),
            Sign(r"ProcessGroupNCCL\b.{0,60}watchdog\b.{0,80}\b(?:timeout|terminated)\b"),
            Sign(r"WorkNCCL\(.{0,160}\) ran for \d+ milliseconds before timing out"),
            Sign(r"Some NCCL operations have failed or timed out"),
            Sign(r"Received a (?:dump|timeout) signal due to a collective timeout"),
            Sign(r"\bHeartbeat monitor timed out\b"),
            Sign(r"watchdog got stuck for \d+ ?seconds without making progress"),
        ),
        shows=(
            (
                "[rank3]:[E1130 10:01:02.000000000 ProcessGroupNCCL.cpp:685] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
                "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds before timing out."
            ),
            "[rank0]:[E1130 01:04:03.3 ProcessGroupNCCL.cpp:1413] [PG 3 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        ),
        unlike=("Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",),
        sources=("https://github.com/stas00/ml-engineering/blob/master/debug/pytorch.md",),
        confidence=LIKELY,
        tags=("collective",),
        explains=("server-hang",),
    ),
    Problem(
        id="nccl-system-error",
        layer=RUNTIME,
        title="NCCL fails",
        cause="A call of NCCL to CUDA, the system or a peer failed; its WARN line before the exception says which.",
        remedy="Run once with NCCL_DEBUG=INFO (sglang_server_environment) and read the first NCCL WARN; shared memory, P2P and network interface are "
        "the usual reasons.",
        signs=(
            Sign(r"nccl(?:UnhandledCudaError|SystemError|InternalError|InvalidUsage|RemoteError)\b"),
            Sign(r"NCCL error[: ].{0,80}\b(?:unhandled|internal error|invalid usage|remote process|system error)"),
            Sign(r"NCCL WARN Cuda failure"),
            Sign(r"RuntimeError: NCCL (?:error|Error \d+)"),
        ),
        shows=(
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details), "
                "NCCL version 2.28.9\nncclUnhandledCudaError: Call to CUDA function failed."
            ),
        ),
        unlike=("NCCL INFO Bootstrap: Using eth0:192.0.2.9<0>",),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
        confidence=GENERIC,
        tags=("collective",),
    ),
    Problem(
        id="nccl-peer-failure",
        layer=RUNTIME,
        title="Another rank is gone",
        cause="The process at the other end of a connection died; this one only notices it.",
        remedy="Find the rank that ended first: its traceback, an Xid, or the OOM killer.",
        signs=(
            Sign(r"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"),
            Sign(r"Connection closed by (?:remote )?peer", near=(r"nccl|gloo|TCPStore|ProcessGroup",), within=20),
            Sign(r"\[c10d\] .{0,60}\b(?:recvValue|sendBytes) failed|TCPStore.{0,80}\b(?:Broken pipe|Connection (?:reset|closed))"),
        ),
        shows=("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",),
        unlike=("Connection closed by authenticating user root 192.0.2.1 port 5022 [preauth]",),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
        confidence=GENERIC,
        tags=("collective",),
        refines=("nccl-system-error",),
    ),
    Problem(
        id="cublas-failed",
        layer=RUNTIME,
        title="cuBLAS or cuDNN cannot work",
        cause="The library found no memory for its workspace, or an earlier asynchronous error surfaced in it.",
        remedy="Leave more memory free (mem-fraction-static in sglang_server_flags); run once with CUDA_LAUNCH_BLOCKING=1 to see the real place.",
        signs=(
            Sign(
                r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|NOT_SUPPORTED|INVALID_VALUE|ARCH_MISMATCH)"
            ),
            Sign(r"CUDNN_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|SUBLIBRARY_\w+|NOT_SUPPORTED)"),
        ),
        shows=("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",),
        unlike=("cuBLAS version 13.1",),
        sources=("https://docs.nvidia.com/cuda/cublas/",),
        confidence=GENERIC,
        tags=("cuda-error",),
    ),
)
