"""Reports as people post them, retold: the first answer is the entry that ended the matter."""

from __future__ import annotations

import pytest

from gpunode.problems import match

REPORTS: tuple[tuple[str, str], ...] = (
    (
        "xid-gpu-hang",
        """[ 4211.552210] NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7
[ 4211.552233] NVRM: Xid (PCI:0000:01:00): 8, pid=48694, name=python3, channel 0x00000008""",
    ),
    (
        "no-kernel-image",
        """[2025-04-13 10:11:12 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/cuda_graph_runner.py", line 271, in __init__
    raise Exception(
Exception: Capture cuda graph failed: RMSNorm failed with error code no kernel image is available for execution on the device
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 32)""",
    ),
    (
        "no-supported-arch",
        """  File "/x/sglang/srt/multiplex/pdmux_context.py", in get_arch_constraints
    raise ValueError(f"Unsupported compute capability: {major}.{minor}")
ValueError: Unsupported compute capability: 12.0

Received sigquit from a child process. It usually means the child failed.""",
    ),
    (
        "nccl-too-old",
        """localhost:11344:11344 [1] NCCL INFO NCCL version 2.25.1+cuda12.2
localhost:11344:11344 [1] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856
localhost:11344:11344 [1] enqueue.cc:1470 NCCL WARN Cuda failure 1 'invalid argument'""",
    ),
    (
        "nvcc-arch-unknown",
        """(EngineCore pid=4140) Failed to get device capability: SM 12.x requires CUDA >= 12.9.
(EngineCore pid=4140) RuntimeError: FlashInfer requires GPUs with sm75 or higher""",
    ),
    (
        "flashinfer-jit-failed",
        """(EngineCore_0 pid=1179302) ERROR 08-19 13:12:57 [core.py:708] subprocess.CalledProcessError: Command '['ninja', '-v', '-C', '/home/u/.cache/flashinfer/86/cached_ops', '-f', '/home/u/.cache/flashinfer/86/cached_ops/sampling/build.ninja']' returned non-zero exit status 1.""",
    ),
    (
        "quantization-mismatch",
        """  File "/x/compressed_tensors_moe.py", line 120, in get_moe_method
    raise RuntimeError(
RuntimeError: Unsupported FusedMoe scheme: num_bits=4 type='float' strategy='tensor_group'""",
    ),
    (
        "hmm-init-failed",
        """kernel: nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:2211] request_free_mem_region() err -34
ollama: cuda driver library failed to get device context 3""",
    ),
    (
        "cuda-not-initialized",
        """time=2025-07-28T10:11:12 level=INFO msg="cuda driver library init failure: 3"
cuInit err: 3""",
    ),
    (
        "secure-boot-key",
        """modprobe: ERROR: could not insert 'nvidia_current': Required key not available""",
    ),
    (
        "dkms-headers-missing",
        """dkms: autoinstall for kernel 6.8.12-9-pve was skipped since the kernel headers for this kernel do not seem to be installed.""",
    ),
    (
        "dkms-build-failed",
        """Error! Bad return status for module build on kernel: 6.17.2-1-pve (x86_64)
Consult /var/lib/dkms/nvidia/580.95.05/build/make.log for more information.
dpkg: error processing package nvidia-kernel-dkms (--configure):""",
    ),
    (
        "driver-library-mismatch",
        """# nvidia-smi
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 570.195""",
    ),
    (
        "device-node-missing",
        """TASK ERROR: Device /dev/nvidia-caps/nvidia-cap1 does not exist""",
    ),
    (
        "pve-root-only",
        """proxmoxer.core.ResourceException: 403 Forbidden: Permission check failed (changing feature flags for privileged container is only allowed for root@pam)""",
    ),
    (
        "pve-locked",
        """TASK ERROR: CT is locked (mounted)""",
    ),
    (
        "pve-exists",
        """500 Internal Server Error: unable to create CT 101 - CT 101 already exists on node 'pve'""",
    ),
    (
        "container-start-failed",
        """run_buffer: 571 Script exited with status 2
lxc_init: 845 Failed to run lxc.hook.pre-start for container "101"
__lxc_start: 2034 Failed to initialize container "101"
startup for container '101' failed""",
    ),
    (
        "apparmor-mount-denied",
        """audit: type=1400 audit(1700000000.123:45): apparmor="DENIED" operation="mount" class="mount" info="failed flags match" error=-13 profile="lxc-105_</var/lib/lxc>" name="/mnt/share/" pid=4242 comm="mount.cifs" fstype="cifs" srcname="//192.0.2.3/x\"""",
    ),
    (
        "container-memory-exhausted",
        """[  +0.000001] Memory cgroup out of memory: Killed process 12345 (python3) total-vm:182736452kB, anon-rss:65536000kB, file-rss:0kB, shmem-rss:0kB, UID:100000 pgtable:1234kB oom_score_adj:0""",
    ),
    (
        "server-killed",
        """(EngineCore pid=99) WorkerProc was terminated
[2026-01-01 00:00:00] Rank 3 scheduler is dead. Please check if there are relevant logs.
[2026-01-01 00:00:00] Exit code: -9""",
    ),
    (
        "xid-memory-uncorrectable",
        """NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 0.""",
    ),
    (
        "xid-application",
        """Jan 10 03:04:05 gpu kernel: NVRM: Xid (PCI:0000:c3:00): 31, pid=11111, name=ray::RayWorkerW, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ""",
    ),
    (
        "xid-fallen-off-bus",
        """NVRM: GPU at PCI:0000:81:00: GPU-abc
NVRM: Xid (PCI:0000:81:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: GPU 0000:81:00.0: GPU has fallen off the bus.
NVRM: A GPU crash dump has been created. If possible, please run
NVRM: nvidia-bug-report.sh as root to collect this data before
NVRM: the NVIDIA kernel module is unloaded.
nvidia-modeset: ERROR: GPU:0: Failed detecting connected display devices""",
    ),
    (
        "pcie-fatal",
        """pcieport 0000:00:01.1: AER: Multiple Uncorrectable (Fatal) error message received from 0000:01:00.0
pcieport 0000:00:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)
pcieport 0000:00:01.1:   [ 5] SDES                   (First)
NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.""",
    ),
    (
        "iommu-page-fault",
        """[12345.678] nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0025 address=0x20000000000 flags=0x0000]
[12346.0] nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0025 address=0x20000001000 flags=0x0000]""",
    ),
    (
        "nccl-desync",
        """[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
[rank1]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 1""",
    ),
    (
        "shared-memory-full",
        """RuntimeError: unable to open shared memory object </torch_1234_567> in read-write mode: No space left on device (28)""",
    ),
    (
        "shared-memory-full",
        """misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes, error: No space left on device (28)""",
    ),
    (
        "rendezvous-port-in-use",
        """torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 20000, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use""",
    ),
    (
        "port-in-use",
        """[2026-01-01 10:00:00] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): [errno 98] address already in use""",
    ),
    (
        "disk-full",
        """OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/hub/models--x/blobs/abc.incomplete'""",
    ),
    (
        "shard-truncated",
        """safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered""",
    ),
    (
        "shard-truncated",
        """  File "/x/safetensors/torch.py", line 313, in load_file
    with safe_open(filename, framework="pt", device=device) as f:
safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge""",
    ),
    (
        "hub-forbidden",
        """huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-abc)

Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3/resolve/main/config.json.
Access to model meta-llama/Llama-3 is restricted. You must have access to it and be authenticated to access it. Please log in.""",
    ),
    (
        "transformers-too-old",
        """ValueError: The checkpoint you are trying to load has model type `qwen3_next` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint, or because your version of Transformers is out of date.""",
    ),
    (
        "model-architecture-unsupported",
        """ValueError: Model architectures ['Glm5ForCausalLM'] are not supported for now. Supported architectures: dict_keys(['BaichuanForCausalLM'])""",
    ),
    (
        "tensor-parallel-indivisible",
        """ValueError: Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.""",
    ),
    (
        "abi-mismatch",
        """ImportError: /venv/lib/python3.12/site-packages/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb""",
    ),
    (
        "import-failed",
        """ImportError:
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Attempted locations:
1. Architecture-specific pattern: /venv/sgl_kernel/sm100/common_ops.* - found files: ['/venv/..so']
2. Fallback pattern""",
    ),
    (
        "cuda-library-missing",
        """[sgl_kernel] CRITICAL: Could not load any common_ops library!
Error details from previous import attempts:
- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory""",
    ),
    (
        "libcuda-missing",
        """RuntimeError: Failed to infer device type
libcuda.so.1: cannot open shared object file: No such file or directory""",
    ),
    (
        "driver-too-old-for-cuda",
        """/venv/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by downloading and installing a new version""",
    ),
    (
        "ptx-toolchain",
        """torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.
CUDA kernel errors might be asynchronously reported at some other API call""",
    ),
    (
        "nvcc-missing",
        """  File "/venv/flashinfer/jit/cpp_ext.py", line 90, in get_cuda_path
    raise RuntimeError(
RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist""",
    ),
    (
        "nvcc-arch-unknown",
        """triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error
`ptxas` stderr:
ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'""",
    ),
    (
        "kv-pool-negative",
        """ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.""",
    ),
    (
        "kv-cache-too-small",
        """ValueError: To serve at least one request with the models's max seq len (262144), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory (10.91 GiB). Based on the available memory, the estimated maximum model length is 119136.""",
    ),
    (
        "graph-capture-memory",
        """(Worker_TP3 pid=1) ERROR [multiproc_executor.py:671] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 3 has a total capacity of 94.97 GiB of which 99.00 MiB is free.
(Worker_TP3 pid=1) ERROR   File "/vllm/v1/worker/gpu_model_runner.py", line 3601, in capture_model""",
    ),
    (
        "gpu-memory-unbalanced",
        """ValueError: Free memory on device cuda:0 (12.3/94.97 GiB) on startup is less than desired GPU memory utilization (0.9, 85.47 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.""",
    ),
    (
        "index-out-of-vocabulary",
        """/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:94: operator(): block: [0,0,0], thread: [0,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.
torch.AcceleratorError: CUDA error: device-side assert triggered""",
    ),
    (
        "flag-renamed",
        """launch_server.py: error: unrecognized arguments: --enable-flashinfer-allreduce-fusion""",
    ),
    (
        "flag-invalid-choice",
        """launch_server.py: error: argument --attention-backend: invalid choice: 'nsa_sparse' (choose from 'triton', 'torch_native', 'flashinfer')""",
    ),
    (
        "server-watchdog",
        """[2026-02-02 10:00:00 TP5] Watchdog timeout (self.watchdog_last_forward_ct=34, self.forward_ct=34, self.watchdog_timeout=300)
[2026-02-02 10:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.""",
    ),
    (
        "sparse-attention-unsupported",
        """RuntimeError: Assertion error (csrc/apis/../jit_kernels/impls/smxx_fp8_paged_mqa_logits.hpp:123): Unsupported architecture
  File "/venv/deep_gemm/__init__.py", in get_paged_mqa_logits_metadata""",
    ),
    (
        "deepgemm-unsupported",
        """RuntimeError: Assertion error (/deepgemm/csrc/apis/../jit/device_runtime.hpp:71): Unknown SM architecture""",
    ),
    (
        "trtllm-moe-unsupported",
        """RuntimeError: TRTLLMGenFusedMoE does not support SM120""",
    ),
    (
        "cudnn-no-plan",
        """cudnn._compiled_module.cudnnGraphNotSupportedError: [cudnn_frontend] Error: No valid engine configs for Matmul_""",
    ),
    (
        "name-resolution",
        """urllib3.exceptions.NameResolutionError: <urllib3.connection.HTTPSConnection object at 0x7f>: Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)""",
    ),
    (
        "hub-unreachable",
        """OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.
Check your internet connection or see how to run the library in offline mode""",
    ),
    (
        "trust-remote-code",
        """ValueError: The repository /models/x contains custom code which must be executed to correctly load the model. You can inspect the repository content at https://hf.co//models/x.
Please pass the argument `trust_remote_code=True` to allow custom code to be run.""",
    ),
    (
        "weight-shape-mismatch",
        """AssertionError: loaded_weight.shape=torch.Size([64, 6144]) param.shape=
  assert param_data.shape == loaded_weight.shape""",
    ),
    (
        "cuda-illegal-access",
        """[rank4]:[E1130 02:02:02 ProcessGroupNCCL.cpp:2057] [PG ID 2 PG GUID 3 Rank 4] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered""",
    ),
    (
        "soft-lockup",
        """Message from syslogd@pve at Nov 12 10:10:10 ...
 kernel:[12345.123456] watchdog: BUG: soft lockup - CPU#14 stuck for 26s! [nvidia-smi:4567]""",
    ),
    (
        "hung-task",
        """INFO: task nvidia-smi:12345 blocked for more than 122 seconds.
      Tainted: P           OE      6.8.12-4-pve #1
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.""",
    ),
    (
        "cuda-fabric-manager",
        """nvidia-smi -q -i 0 | grep -i -A 2 Fabric
    Fabric
        State                             : In Progress
RuntimeError: CUDA error: system not yet initialized""",
    ),
    (
        "rm-init-adapter-failed",
        """NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x22:0x56:897)
NVRM: GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 1""",
    ),
    (
        "driver-gpu-unsupported",
        """NVRM: The NVIDIA GPU 0000:04:00.0 (PCI ID: 10de:1b80)
NVRM: installed in this system is not supported by open
NVRM: nvidia.ko because it does not include the required GPU
NVRM: System Processor (GSP).""",
    ),
    (
        "gpu-memory-load",
        """[2026-03-03 11:00:00 TP2] Load weight begin. avail mem=94.20 GB
[2026-03-03 11:00:41 TP2] Scheduler hit an exception: Traceback (most recent call last):
  File "/sglang/srt/model_executor/model_runner.py", line 1100, in load_model
    self.model = get_model(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 2 has a total capacity of 94.97 GiB of which 200.00 MiB is free.""",
    ),
    (
        "nouveau-loaded",
        """ERROR: The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with the NVIDIA driver, and must be disabled before proceeding.""",
    ),
    (
        "lxc-idmap",
        """lxc-start 105 20240101 ERROR conf - newuidmap: uid range [1000-1001) -> [1000-1001) not allowed""",
    ),
    (
        "module-in-use",
        """modprobe: FATAL: Module nvidia is in use.""",
    ),
    (
        "boot-partition-full",
        """gzip: stdout: No space left on device
E: mkinitramfs failure gzip 1
update-initramfs: failed for /boot/initrd.img-6.8.12-8-pve with 1.""",
    ),
    (
        "libstdcxx-too-old",
        """ImportError: /opt/conda/lib/python3.11/site-packages/zmq/backend/cython/../../../../.././libstdc++.so.6: version `CXXABI_1.3.15' not found (required by /x.so)""",
    ),
    (
        "xid-row-remap-failed",
        """NVRM: Xid (PCI:0000:b1:00): 64, pid='<unknown>', name=<unknown>, Dynamic Page Retirement: Fatal error, unable to retire page (0x00000000001abcd2)""",
    ),
    (
        "nvswitch-sxid",
        """[Mon Jan 1 10:00:00 2026] nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)""",
    ),
    (
        "nccl-infiniband",
        """node1:123:456 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<48212> with status=5 opcode=48 len=0 vendor err 249 (Recv)""",
    ),
    (
        "nan-logits",
        """[2026-01-01 10:00:00 TP0] Detected errors during sampling! NaN in the logits.""",
    ),
    (
        "cublas-failed",
        """RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`""",
    ),
    (
        "memlock-limit",
        """NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory""",
    ),
    (
        "docker-gpu-driver-missing",
        """nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory: unknown""",
    ),
    (
        "container-device-denied",
        """NVRM: nvidia_open: access denied
ls: cannot open /dev/nvidia0: Operation not permitted""",
    ),
    (
        "pve-storage",
        """unable to create CT 300 - storage 'local' does not support container directories""",
    ),
    (
        "flash-attention-hopper",
        """AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.""",
    ),
    (
        "server-option-conflict",
        """AssertionError: speculative decoding does not support --enable-dp-attention when --attention-backend is flashinfer; it is not supported""",
    ),
    (
        "context-too-long",
        """ValueError: The input (12000 tokens) is longer than the model's context length (8192 tokens).""",
    ),
    (
        "deepgemm-import",
        """  File "/venv/sglang/srt/layers/deep_gemm_wrapper/entrypoint.py", line 60
AttributeError: 'ImportError' object has no attribute 'fp8_gemm_nt'""",
    ),
    (
        "mtp-weights-missing",
        """ValueError: MTP speculative decoding layer 61 weights missing from checkpoint. The checkpoint may have been quantized without including the MTP layers.""",
    ),
    (
        "stale-num-experts",
        """(Worker_TP0_EP0 pid=7) INFO [layer.py:400] [EP Rank 0/8] Expert parallelism is enabled. Expert placement strategy: linear. Local/global number of experts: 32/256. Experts local to global index map: 0->0
(Worker_TP0_EP0 pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB""",
    ),
    (
        "p2p-mapping-failed",
        """p2pBandwidthLatencyTest.cu:189 Cuda failure: 'mapping of buffer object failed'""",
    ),
    (
        "nested-docker-cgroup",
        """docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'
nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown""",
    ),
    (
        "glibc-too-old",
        """/opt/venv/bin/python: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.38' not found (required by /opt/venv/bin/python)""",
    ),
    (
        "allreduce-fusion-unsupported",
        """  File "/x/flashinfer/jit/comm.py", line 40, in gen_trtllm_comm_module
RuntimeError: No supported CUDA architectures found for major versions [9, 10].""",
    ),
    (
        "weight-name-unknown",
        """[2026-01-29 00:24:42 TP4] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/scheduler.py", line 3067, in run_scheduler_process
KeyError: 'model.layers.78.eh_proj.weight'""",
    ),
    (
        "gsp-state-left",
        """[  114.8] NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP
[  114.8] NVRM: GPU6 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)
[  114.8] NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM
[  114.9] NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x62:0x40:2168)
[  114.9] NVRM: GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 6""",
    ),
    (
        "rm-init-adapter-failed",
        """[ 2052.7] NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)
[ 2052.7] NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x65 VBIOS version 98.02.59.00.05""",
    ),
    (
        "xid-gpu-hang",
        """2026-11-29T22:14:03+0100 n1 kernel: NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7
2026-11-29T22:14:03+0100 n1 kernel: NVRM: Xid (PCI:0000:01:00): 8, pid=48694, name=python3, channel 0x00000008
2026-11-29T22:24:11+0100 n1 sglang[99]: [rank3]:[E1129 22:24:11.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1200, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600065 milliseconds before timing out.""",
    ),
    (
        "nvcc-arch-unknown",
        """[2026-11-18 03:27:45 DP1 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/r/lib/python3.12/site-packages/triton/backends/nvidia/compiler.py", line 292, in make_cubin
    subprocess.run(cmd, shell=True, check=True)
subprocess.CalledProcessError: Command '/opt/r/lib/python3.12/site-packages/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_120 /tmp/tmpb8.ptx -o /tmp/tmpb8.ptx.o 2> /tmp/tmp9o.log' returned non-zero exit status 255.
During handling of the above exception, another exception occurred:
triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error
`ptxas` stderr:
ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'""",
    ),
    (
        "nvcc-missing",
        """RuntimeError: Ninja build failed. Ninja output:
ninja: Entering directory `/root/.cache/flashinfer/0.6.14/120f/cached_ops'
[3/9] /usr/local/cuda/bin/nvcc -c fp4_gemm_cutlass_sm120.cu -o fp4.cuda.o
FAILED: fp4_gemm_cutlass_sm120/fp4.cuda.o
/opt/r/lib/python3.12/site-packages/flashinfer/data/cutlass/tools/util/include/cutlass/util/reference/device/tensor_fill.h:51:10: fatal error: curand_kernel.h: No such file or directory
   51 | #include <curand_kernel.h>
compilation terminated.
ninja: build stopped: subcommand failed.""",
    ),
    (
        "nvcc-missing",
        """[1/11] :/usr/local/cuda-13.0/bin/nvcc --generate-dependencies-with-compile -c batch_prefill.cu
FAILED: batch_prefill.cuda.o
/bin/sh: 1: :/usr/local/cuda-13.0/bin/nvcc: not found
ninja: build stopped: subcommand failed.
subprocess.CalledProcessError: Command '['ninja', '-v', '-C', '/root/.cache/flashinfer']' returned non-zero exit status 1.""",
    ),
    (
        "weight-name-unknown",
        """[2026-11-19 10:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/r/lib/python3.12/site-packages/sglang/srt/models/gemma3_causal.py", line 700, in load_weights
    param = params_dict[name]
            ~~~~~~~~~~~^^^^^^
KeyError: 'language_model.model.layers.0.self_attn.qkv_proj.k_scale'""",
    ),
    (
        "nccl-desync",
        """[rank0]:[E1019 01:04:03.356947152 ProcessGroupNCCL.cpp:1413] [PG 3 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=121""",
    ),
    (
        "container-memory-exhausted",
        """2026-11-29T03:00:00+0000 g systemd[1]: sglang.service: A process of this unit has been killed by the OOM killer.
2026-11-29T03:00:01+0000 g systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL
2026-11-29T03:00:01+0000 g systemd[1]: sglang.service: Failed with result 'oom-kill'.""",
    ),
    (
        "kv-pool-negative",
        """[2026-11-29 03:00:00 TP5] Scheduler hit an exception: Traceback (most recent call last):
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.8""",
    ),
    (
        "disk-failing",
        """[9012.2] nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:131072
[9042.2] nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 4 timeout, reset controller
[9050.0] I/O error, dev nvme0n1, sector 81920 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2""",
    ),
    (
        "xid-application",
        """[83.2] NVRM: Xid (PCI:0000:9b:00): 13, pid=1234, name=sglang::schedul, Graphics SM Warp Exception on (GPC 2, TPC 7, SM 0): CTA Not Present
[83.2] NVRM: Xid (PCI:0000:9b:00): 13, Graphics Exception: ESR 0x51bf30=0x10009 0x51bf34=0x24 0x51bf28=0x4c1eb72 0x51bf2c=0x174
[83.9] NVRM: Xid (PCI:0000:9b:00): 43, pid=1234, name=sglang::schedul, channel 0x00000012
[2026-11-30 01:58:54 TP6] Scheduler hit an exception: Traceback (most recent call last):
torch.AcceleratorError: CUDA error: unspecified launch failure""",
    ),
    (
        "kv-pool-leak",
        """[2026-11-29 03:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
ValueError: token_to_kv_pool_allocator memory leak detected! available_size=1200, protected_size=0, self.max_total_num_tokens=1300""",
    ),
    (
        "file-permission",
        """PermissionError: [Errno 13] Permission denied: '/models/hub/models--zai--GLM-5/.locks/x.lock'""",
    ),
    (
        "chat-template-refused",
        """[2026-11-29 03:00:00] Error in chat completion: jinja2.exceptions.TemplateError: After the optional system message, conversation roles must alternate user/assistant""",
    ),
    (
        "grammar-token-rejected",
        """[2026-11-29 03:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/sglang/srt/constrained/xgrammar_backend.py", line 90, in accept_token
AssertionError: Tokens not accepted: tokens [271, 9]""",
    ),
    (
        "apt-key-missing",
        """Err:5 https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64  InRelease
  Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key A4B469963BF863CC, which is needed to verify signature.
E: The repository 'https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64  InRelease' is not signed.""",
    ),
    (
        "apt-locked",
        """E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4411 (unattended-upgr)
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?""",
    ),
    (
        "p2p-test-failed",
        """[2026-11-30 10:00:00 TP0] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.""",
    ),
    (
        "pcie-fatal",
        """[912.1] pcieport 0000:c0:01.1: pciehp: Slot(12): Link Down
[912.1] pcieport 0000:c0:01.1: pciehp: Slot(12): Card not present
[912.4] NVRM: GPU at PCI:0000:c1:00: GPU-aaaa
[912.4] NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.""",
    ),
    (
        "hmm-kernel-fault",
        """[31.2] BUG: unable to handle page fault for address: ffffea0000000034
[31.2] RIP: 0010:uvm_hmm_va_space_reinitialize_locked+0x1d/0x90 [nvidia_uvm]""",
    ),
    (
        "tensor-parallel-indivisible",
        """[2026-11-30 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
AssertionError: 96 is not divisible by 7""",
    ),
    (
        "context-length-too-long",
        """[2026-11-30 10:00:00] Error: User-specified context_length (262144) is greater than the derived context_length (202752). This may lead to incorrect model outputs or CUDA errors. To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1""",
    ),
    (
        "unit-start-timeout",
        """systemd[1]: sglang.service: start operation timed out. Terminating.
systemd[1]: sglang.service: Failed with result 'timeout'.""",
    ),
    (
        "unit-cannot-start",
        """systemd[1]: sglang.service: Failed to locate executable /opt/sglang/current/bin/python: No such file or directory
systemd[1]: sglang.service: Failed at step EXEC spawning /opt/sglang/current/bin/python: No such file or directory
systemd[1]: sglang.service: Main process exited, code=exited, status=203/EXEC""",
    ),
    (
        "unit-cannot-start",
        """systemd[1]: sglang.service: Failed to determine user credentials: No such process
systemd[1]: sglang.service: Main process exited, code=exited, status=217/USER""",
    ),
    (
        "storage-pool-full",
        """lvcreate: Thin pool pve-data-tpool (252:4) transaction_id is 12, while expected 13.
TASK ERROR: unable to create CT 101 - lvcreate 'pve/vm-101-disk-0' error: Cannot create new thin volume, free space in thin pool pve/data reached threshold.""",
    ),
    (
        "container-memory-exhausted",
        """[9911.2] memory: usage 536870912kB, limit 536870912kB, failcnt 88
[9911.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ns,mems_allowed=0-1,oom_memcg=/lxc/101,task_memcg=/lxc/101/ns/system.slice/sglang.service,task=sglang::schedul,pid=8812,uid=100999
[9911.3] Memory cgroup out of memory: Killed process 8812 (sglang::schedul) total-vm:9kB""",
    ),
)


@pytest.mark.parametrize(("problem", "text"), REPORTS, ids=[f"{number}-{name}" for number, (name, _) in enumerate(REPORTS)])
def test_the_first_answer(problem: str, text: str) -> None:
    found = [item for item in match(text.split("\n")) if not item.problem.harmless]
    assert found
    assert found[0].id == problem
    assert not found[0].because_of
