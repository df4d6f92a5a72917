"""Healthy machines say frightening things: no problem is made of them."""

from __future__ import annotations

import pytest

from gpunode.problems import match
from gpunode.problems.catalogue import CATALOGUE
from gpunode.sglang.flags_data import FLAGS

HEALTHY = {
    "packages are installed and a module is built": """
2026-11-30 10:00:01 (51.2 MB/s) - 'error_log.tar' saved [1/1]
Setting up nvidia-kernel-open-dkms (595.71.05-1) ...
Building initial module nvidia/595.71.05 for 7.0.14-14-pve
Signing module /var/lib/dkms/nvidia/595.71.05/build/nvidia.ko
Running depmod... done.
Processing triggers for initramfs-tools (0.148.3) ...
W: Possible missing firmware /lib/firmware/amdgpu/isp_4_1_1.bin for module amdgpu
""",
    "nvidia-smi -q of an idle GPU": """
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
        Pending                           : No
        Remapping Failure Occurred        : No
    ECC Errors
            SRAM Uncorrectable Parity     : 0
""",
    "a Proxmox node's day": """
INFO: starting new backup job: vzdump 101 --mode snapshot
INFO: Backup finished at 2026-11-30 03:00:01
pvedaemon[1200]: <root@pam> successful auth for user 'root@pam'
pveproxy[1300]: worker 1301 finished
pvestatd[1100]: status update time (5.112 seconds)
pmxcfs[900]: [status] notice: received log
kernel: vmbr0: port 2(veth101i0) entered disabled state
kernel: audit: type=1400 audit(1:2): apparmor="ALLOWED" operation="open" class="file" profile="/usr/bin/man" name="/x"
""",
    "warnings of a start": """
/opt/r/lib/python3.12/site-packages/torch/utils/cpp_extension.py:2425: UserWarning: TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation.
[2026-11-30 10:00:00] WARNING server_args.py:1400: Attention backend not specified. Use flashinfer backend by default.
[2026-11-30 10:00:00] WARNING: Overlap scheduler is disabled because of speculative decoding.
`torch_dtype` is deprecated! Use `dtype` instead!
The tokenizer you are loading from '/models/x' with an incorrect regex pattern
""",
    "what people write to the model": """
[2026-11-30 10:00:00] Receive: obj=GenerateReqInput(rid='a1', text='My script says torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. What is wrong?', sampling_params={})
[2026-11-30 10:00:03] Finish: obj=GenerateReqInput(rid='a1'), out={'text': 'NCCL watchdog timeout means ... Xid 79, GPU has fallen off the bus ... address already in use', 'meta_info': {}}
""",
    "a server is stopped": """
2026-11-29T03:00:00+0000 g systemd[1]: Stopping sglang.service - sglang server...
2026-11-29T03:00:01+0000 g sglang[1]: [2026-11-29 03:00:01] SIGTERM received. Draining requests
2026-11-29T03:00:03+0000 g systemd[1]: sglang.service: Deactivated successfully.
2026-11-29T03:00:03+0000 g systemd[1]: Stopped sglang.service - sglang server.
2026-11-29T03:00:03+0000 g systemd[1]: sglang.service: Consumed 3h 2min 1.1s CPU time, 412.2G memory peak, 0B memory swap peak.
""",
    "errors of clients": """
[2026-11-30 10:00:00] INFO:     10.0.0.9:51222 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request
[2026-11-30 10:00:00] INFO:     10.0.0.9:51223 - "GET /health_generate HTTP/1.1" 503 Service Unavailable
[2026-11-30 10:00:01 TP0] Abort request rid=abc, client disconnected
""",
    "what people write to the model, as JSON and from vLLM": """
{"timestamp": "2026-11-30T10:00:00", "event": "request.received", "rid": "a1", "obj": {"text": "Xid 79, GPU has fallen off the bus: what now?"}}
INFO 11-30 10:00:00 [logger.py:43] Received request chatcmpl-1: prompt: 'torch.OutOfMemoryError: CUDA out of memory', params: SamplingParams()
""",
    "NCCL starts": """
node:11326:11326 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.9<0>
node:11326:11326 [0] NCCL INFO cudaDriverVersion 13020
node:11326:11326 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
node:11344:11344 [1] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
node:1:1 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading
node:1:1 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so)
node:11344:11344 [1] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.
node:11344:11344 [1] NCCL INFO Failed to open libibverbs.so[.1]
node:11344:11344 [1] NCCL INFO NET/IB : No device found.
node:11344:11344 [1] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.9<0>
node:11344:11344 [1] NCCL INFO Using network Socket
node:11344:11344 [1] NCCL INFO ncclCommInitRank comm 0xf07d5f0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId c1000 commId 0x1 - Init START
node:11344:11344 [1] NCCL INFO Setting affinity for GPU 1 to ffff,00000000
node:11344:11344 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
node:11344:11344 [1] NCCL INFO Connected all rings
node:11344:11344 [1] NCCL INFO ncclCommInitRank comm 0xf07d5f0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId c1000 commId 0x1 - Init COMPLETE
""",
    "the kernel of a GPU host": """
[    0.000000] Linux version 7.0.14-14-pve (build@proxmox) (gcc (Debian 14.2.0-19) 14.2.0) #1 SMP PREEMPT_DYNAMIC PMX 7.0.14-14
[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-7.0.14-14-pve root=/dev/mapper/pve-root ro quiet iommu=pt pcie_aspm=off
[    0.012101] [Firmware Bug]: TSC ADJUST: CPU0: -3412 force to 0
[    0.313370] iommu: Default domain type: Passthrough (set via kernel command line)
[    0.401001] pcieport 0000:40:01.1: PME: Signaling with IRQ 40
[    0.401101] pcieport 0000:40:01.1: AER: enabled with IRQ 40
[    0.512210] pci 0000:00:1c.0: BAR 13 [io  size 0x1000]: can't assign; no space
[    0.512211] pci 0000:00:1c.0: BAR 13 [io  size 0x1000]: failed to assign
[    0.600001] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.GPP0], AE_NOT_FOUND (20250404/psargs-332)
[    1.100000] EDAC MC0: Giving out device to module amd64_edac controller F19h_M10h: DEV 0000:00:18.3 (INTERRUPT)
[    1.200000] mce: [Hardware Error]: Machine check events logged
[    1.300000] ACPI: watchdog: Skipping WDAT on this system because it uses RTC SRAM
[    2.000000] nouveau: module is blacklisted
[    8.110000] nvidia-nvlink: Nvlink Core is being initialized, major device number 510
[    8.120000] nvidia 0000:01:00.0: enabling device (0000 -> 0002)
[    8.130000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build
[    8.140000] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    8.200000] nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.
[    8.300000] nvidia-uvm: Loaded the UVM driver, major device number 508.
[    8.400000] [drm] [nvidia-drm] [GPU ID 0x00000100] Unloading driver
[   21.100000] vmbr0: port 2(veth200i0) entered forwarding state
[   22.000000] audit: type=1400 audit(1.2:3): apparmor="STATUS" operation="profile_load" profile="/usr/bin/lxc-start" name="lxc-200_</var/lib/lxc>"
[ 9000.000000] perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79500
[ 9100.000000] clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:
[ 9200.000000] NVRM: Xid (PCI:0000:01:00): 45, pid=4711, name=python3, Ch 00000010
""",
    "DKMS builds": """
Loading new nvidia/595.71.05 DKMS files...
Building for 7.0.14-14-pve
Building initial module nvidia/595.71.05 for 7.0.14-14-pve
Sign command: /lib/modules/7.0.14-14-pve/build/scripts/sign-file
Signing key: /var/lib/dkms/mok.key
Building module(s)............ done.
Signing module /var/lib/dkms/nvidia/595.71.05/build/nvidia.ko
warning: the compiler differs from the one used to build the kernel
  The kernel was built by: gcc (Debian 14.2.0-19) 14.2.0
  You are using:           gcc (Debian 14.2.0-19+b1) 14.2.0
depmod....
nvidia/595.71.05, 7.0.14-14-pve, x86_64: installed
update-initramfs: Generating /boot/initrd.img-7.0.14-14-pve
Running hook script 'zz-proxmox-boot'..
No /etc/kernel/proxmox-boot-uuids found, skipping ESP sync.
Processing triggers for libc-bin (2.41-12) ...
""",
    "a container starts": """
INFO     lsm - ../src/lxc/lsm/lsm.c:lsm_init_static:38 - Initialized LSM security driver AppArmor
INFO     conf - ../src/lxc/conf.c:run_script_argv:338 - Executing script "/usr/share/lxc/hooks/lxc-pve-prestart-hook" for container "200"
DEBUG    conf - ../src/lxc/conf.c:idmaptool_on_path_and_privileged:3549 - The binary "/usr/bin/newuidmap" does have the setuid bit set
INFO     cgfsng - ../src/lxc/cgroups/cgfsng.c:unpriv_systemd_create_scope:1508 - Running privileged, not using a systemd unit
WARN     cgfsng - ../src/lxc/cgroups/cgfsng.c:fchowmodat:1252 - No such file or directory - Failed to fchownat(43, memory.oom.group, 65536, 0)
NOTICE   start - ../src/lxc/start.c:post_start:2206 - Started "/sbin/init" with pid "71231"
TASK OK
""",
    "sglang starts and stops": """
[2026-11-30 14:03:56] Attention backend not specified. Use flashinfer backend by default.
[2026-11-30 14:03:58] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit
[2026-11-30 14:04:10 TP0] Init torch distributed begin.
[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7
[2026-11-30 14:04:12 TP0] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.
[2026-11-30 14:04:16 TP0] Ignore import error when loading sglang.srt.models.inkling: No module named 'helion'
[2026-11-30 14:04:17 TP0] Load weight begin. avail mem=94.30 GB
Loading safetensors checkpoint shards: 100% Completed | 78/78 [00:36<00:00,  2.12it/s]
[2026-11-30 14:05:00 TP0] Load weight end. type=GlmMoeDsaForCausalLM, dtype=torch.bfloat16, avail mem=36.12 GB, mem usage=57.06 GB.
[2026-11-30 14:05:01 TP0] Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0. This may lead to less accurate results!
[2026-11-30 14:05:02 TP0] KV Cache is allocated. #tokens: 314304, KV size: 29.32 GB
[2026-11-30 14:05:02 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=6.31 GB
Capturing batches (bs=1 avail_mem=5.74 GB): 100%|##########| 8/8 [00:03<00:00,  2.58it/s]
[2026-11-30 14:06:00 TP0] max_total_num_tokens=314304, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=64, context_len=202752
[2026-11-30 14:06:01] INFO:     Application startup complete.
[2026-11-30 14:06:01] INFO:     127.0.0.1:52812 - "GET /health HTTP/1.1" 503 Service Unavailable
[2026-11-30 14:06:03] The server is fired up and ready to roll!
[2026-11-30 14:06:09] INFO:     192.0.2.7:41184 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request
[2026-11-30 14:06:09] INFO:     192.0.2.7:41184 - "GET /ready HTTP/1.1" 404 Not Found
[2026-11-30 14:07:00 TP0] Decode batch, #running-req: 1, #token: 1055, token usage: 0.00, cuda graph: True, gen throughput (token/s): 48.05
Nov 30 15:00:00 glm systemd[1]: Stopping sglang.service - sglang...
[2026-11-30 15:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...
[2026-11-30 15:00:01] Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].
Nov 30 15:00:03 glm systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL
Nov 30 15:00:03 glm systemd[1]: sglang.service: Failed with result 'signal'.
Nov 30 15:00:03 glm systemd[1]: Stopped sglang.service - sglang.
""",
    "vLLM compiles for minutes": """
(EngineCore pid=1) INFO 11-30 10:00:00 [parallel_state.py:1615] world_size=2 rank=0 local_rank=0 backend=nccl
(EngineCore pid=1) INFO 11-30 10:01:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens
(EngineCore pid=1) INFO 11-30 10:02:00 [backends.py:200] torch.compile takes 97.20 s in total
(APIServer pid=2) INFO 11-30 10:02:09 Application startup complete.
(APIServer pid=2) WARNING 11-30 10:02:10 [sampling.py:1] Default sampling parameters have been overridden by the model's Hugging Face generation config
Warning: You are sending unauthenticated requests to the HF Hub. Please set a HF_TOKEN to enable higher rate limits and faster downloads.
""",
    "packages are installed": """
Resolved 214 packages in 1.22s
Prepared 3 packages in 8.71s
Installed 214 packages in 611ms
 + flashinfer-python==0.7.2
 + nvidia-cudnn-cu13==9.19.1.2
 + torch==2.14.1
WARNING: The candidate selected for download or install is a yanked version
WARNING: Running pip as the 'root' user can result in broken permissions and conflicting behaviour with the system package manager
Requirement already satisfied: numpy in /srv/venv/lib/python3.12/site-packages (2.3.1)
Building wheel for flash-attn (pyproject.toml): finished with status 'done'
[12/72] c++ -MMD -MF flash_fwd.o error_handling.o -DTORCH_EXTENSION_NAME
Get:1 http://archive.example.org/debian trixie/main amd64 liberror-perl all 0.17030-1 [26.9 kB]
Setting up libnvidia-ml1:amd64 (595.71.05-1) ...
Fetching 90 files: 100%|##########| 90/90 [12:01<00:00,  8.01s/it]
""",
    "nvidia-smi of a healthy card": """
    Product Name                          : NVIDIA RTX PRO 6000 Blackwell Server Edition
    Addressing Mode                       : None
    MIG Mode
        Current                           : Disabled
    GPU Recovery Action                   : None
    Clocks Event Reasons
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : 0
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : No
        Remapping Failure Occurred        : No
""",
    "verify-p2p and nccl-tests": """
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 37.6
Device=0 CAN Access Peer Device=1
Test passed
""",
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY.keys())
def test_nothing_is_found(text: str) -> None:
    assert [(found.id, found.evidence[0].text) for found in match(text.split("\n")) if not found.problem.harmless] == []


def test_secrets_are_not_quoted() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. {said} Tried to allocate 2.50 GiB"
    for said in ("api_key='sk-abc'", 'ServerArgs(admin_api_key="sk-abc")', "HF_TOKEN=sk-abc", "Authorization: Bearer sk-abc"):
        (found,) = match([line.format(said=said)])
        assert "sk-abc" not in found.evidence[0].text
        assert "***" in found.evidence[0].text
    assert "api_key=None" in match([line.format(said="api_key=None")])[0].evidence[0].text


ARGUMENTS = "[2026-11-30 10:00:00] server_args=ServerArgs({})".format(
    ", ".join(
        f"{name.removeprefix('--').replace('-', '_')}={'False' if 'switch' in spans[-1][2] else 'None'}"
        for name, spans in sorted(FLAGS.items())
    )
)
"""The line in which sglang writes all its settings: hundreds of names, most of them of things that are off."""


@pytest.mark.parametrize("problem", CATALOGUE, ids=lambda problem: problem.id)
def test_names_of_settings_are_no_evidence(problem):
    for shown in problem.shows:
        assert found(f"{ARGUMENTS}\n{shown}") == found(shown)


def found(text):
    return [one.problem.id for one in match(text.splitlines())]
