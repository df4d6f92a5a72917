"""The host below the driver: PCIe, IOMMU, memory, the kernel itself, disks."""

from __future__ import annotations

from ..model import ANYTHING, CERTAIN, CONTAINER, GENERIC, HOST, LIKELY, WARNING, Problem, Sign

_GPU_TROUBLE = ("cuda-error", "collective", "gpu-gone", "xid-recovery-action", "xid-application", "xid-any", "p2p-hang")

PROBLEMS = (
    Problem(
        id="iommu-page-fault",
        layer=HOST,
        title="The IOMMU refuses DMA of a GPU",
        cause="The IOMMU translates device addresses and faults on traffic between GPUs.",
        remedy="Set pve_host_iommu: pt (iommu=pt) or off on the kernel command line and reboot; on AMD also amd_iommu=off where no VM needs "
        "passthrough. Read back with gpunode verify-p2p.",
        consequence="Transfers between GPUs hang or arrive as zeros, without an error in CUDA.",
        signs=(
            Sign(r"\bIO_PAGE_FAULT\b"),
            Sign(r"DMAR: \[?DMA (?:Read|Write).{0,80}\b(?:fault|Request device)"),
            Sign(r"DMAR: DRHD: handling fault status reg"),
            Sign(r"AMD-Vi: (?:Event logged \[)?(?:ILLEGAL_DEV_TABLE_ENTRY|INVALID_DEVICE_REQUEST|Completion-Wait loop timed out)"),
        ),
        shows=(
            (
                "nvidia 0000:09:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0xf8000000 flags=0x0030]\n"
                "NVRM: Xid (PCI:0000:09:00): 154, GPU recovery action: Node Reboot Required"
            ),
            "DMAR: [DMA Write NO_PASID] Request device [17:00.0] fault addr 0x38fffe0000 [fault reason 0x05] PTE Write access is not set",
        ),
        unlike=("AMD-Vi: Interrupt remapping enabled", "iommu: Default domain type: Translated"),
        sources=(
            "https://github.com/tinygrad/open-gpu-kernel-modules/issues/18",
            "https://github.com/pytorch/pytorch/issues/84803",
            "https://github.com/noonghunna/club-3090/blob/master/docs/HARDWARE.md",
        ),
        confidence=CERTAIN,
        explains=_GPU_TROUBLE,
    ),
    Problem(
        id="acs-redirect",
        layer=HOST,
        title="ACS redirects traffic between GPUs",
        cause="Access control services on root or switch ports send peer traffic up through the IOMMU instead of directly to the other GPU.",
        remedy="Clear it on every bridge at each boot (pve_host_acs_redirect_off: true, or setpci -s BRIDGE ECAP_ACS+6.w=0000), or switch ACS off in "
        "the firmware; remove pcie_acs_override from the kernel command line.",
        consequence="The first collective hangs, or transfers between GPUs below one switch run at half speed.",
        signs=(
            Sign(r"ACSCtl: [^\n]{0,40}ReqRedir\+"),
            Sign(r"ACSCtl: [^\n]{0,60}CmpltRedir\+"),
        ),
        shows=("\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-",),
        unlike=(
            "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-",
            "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+",
        ),
        sources=(
            "https://github.com/NVIDIA/nccl/issues/2079",
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        ),
        confidence=LIKELY,
        explains=("p2p-hang", "collective"),
    ),
    Problem(
        id="acs-override",
        layer=HOST,
        title="ACS is faked by the kernel (pcie_acs_override)",
        cause="pcie_acs_override splits IOMMU groups for passing devices to virtual machines; between GPUs of one host it does the opposite of what is "
        "wanted.",
        remedy="Unless a VM of this host needs it: name pcie_acs_override in pve_host_cmdline_absent and reboot.",
        severity=WARNING,
        signs=(Sign(r"PCIe ACS overrides enabled"),),
        shows=("Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA",),
        unlike=("Command line: BOOT_IMAGE=/boot/vmlinuz-7.0.14-14-pve iommu=pt",),
        sources=("https://github.com/proxmox/pve-kernel",),
        confidence=CERTAIN,
        explains=("p2p-hang",),
    ),
    Problem(
        id="nccl-p2p-disabled",
        layer=HOST,
        title="NCCL finds peer-to-peer switched off between GPUs",
        cause="The driver reports that two GPUs that are near each other may not reach one another: a card or driver without P2P, another IOMMU group, or a "
        "registry key.",
        remedy="nvidia-smi topo -p2p r and w; gpunode verify-p2p names the reason. Cards without it (GeForce): nothing to do, NCCL goes through host memory.",
        severity=WARNING,
        signs=(Sign(r"P2P is disabled between connected GPUs (?P<one>\d+) and (?P<other>\d+)"),),
        shows=(
            "node:71:317 [1] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
        ),
        unlike=("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",),
        sources=("https://github.com/NVIDIA/nccl",),
        confidence=CERTAIN,
    ),
    Problem(
        id="p2p-test-failed",
        layer=HOST,
        title="The server finds no working peer-to-peer access",
        cause="Its own test at start failed, or a result of an earlier state of the node is cached: the driver, the IOMMU or ACS keep GPUs apart.",
        remedy="gpunode verify-p2p says for each pair whether it works and why not. Where it works, remove the cached result "
        "(gpu_p2p_access_cache_for_*.json below the server's ~/.cache) and restart the server.",
        severity=WARNING,
        signs=(
            Sign(r"platform lacks GPU P2P capability or P2P test failed"),
            Sign(r"GPU P2P (?:capability|access)[^\n]{0,40}\b(?:test|check) failed"),
        ),
        shows=(
            (
                "Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify "
                "disable_custom_all_reduce=True explicitly."
            ),
        ),
        unlike=("Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",),
        sources=(
            "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/distributed/device_communicators/custom_all_reduce.py",
        ),
        confidence=LIKELY,
        tags=("p2p",),
    ),
    Problem(
        id="p2p-mapping-failed",
        layer=HOST,
        title="Peer memory could not be mapped",
        cause="Mapping another GPU's memory needs a BAR1 as large as the memory (resizable BAR) and no IOMMU translation.",
        remedy="Enable Above 4G decoding and resizable BAR in the firmware setup; pve_host_iommu: off or pt; gpunode verify-p2p shows BAR1 and IOMMU.",
        signs=(
            Sign(r"mapping of buffer object failed"),
            Sign(r"CUDA_ERROR_MAP_FAILED|cudaErrorMapBufferObjectFailed"),
            Sign(
                r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported|CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
            ),
            Sign(r"NVRM: .{0,80}\b(?:failed to map|unable to map).{0,40}\b(?:peer|BAR)"),
        ),
        shows=(
            "Cuda failure p2pBandwidthLatencyTest.cu:189: 'mapping of buffer object failed'",
            "torch.AcceleratorError: CUDA error: peer access is not supported between these two devices",
        ),
        unlike=("Device=0 CAN Access Peer Device=1",),
        sources=("https://github.com/tinygrad/open-gpu-kernel-modules/issues/16",),
        confidence=LIKELY,
        tags=("p2p",),
    ),
    Problem(
        id="p2p-wrong-data",
        layer=HOST,
        title="Data between GPUs arrives wrong",
        cause="Peer access is granted but what is written does not arrive: IOMMU translation, ACS or the driver's choice of path.",
        remedy="pve_host_iommu: off, clear ACS, nvidia_driver_uvm_disable_hmm: true, then gpunode verify-p2p --measure full; until it is clean run "
        "with NCCL_P2P_DISABLE=1.",
        consequence="Wrong tokens or NaN without any error message.",
        signs=(
            Sign(r"Verification error @ element \d+: val = "),
            Sign(r"Out of bounds values : [1-9]\d* FAILED"),
            Sign(r"P2P.{0,60}\b(?:data mismatch|verification failed|corrupted)\b"),
        ),
        shows=("Verification error @ element 0: val = nan, ref = 0.000000",),
        unlike=("# Out of bounds values : 0 OK",),
        sources=(
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1257",
            "https://github.com/tinygrad/open-gpu-kernel-modules/issues/30",
        ),
        confidence=LIKELY,
        tags=("p2p",),
        explains=("nan-logits",),
    ),
    Problem(
        id="nccl-first-collective-hangs",
        layer=HOST,
        title="The first collective between the GPUs never ends",
        cause="Peer-to-peer traffic does not get through: IOMMU translation and PCIe ACS send it through the IOMMU (or HMM locks it up), although "
        "NCCL initialised.",
        remedy="gpunode verify-p2p. Then pve_host_iommu: off or pt, ACS off (pve_host_acs_redirect_off), nvidia_driver_uvm_disable_hmm: true; NCCL_P2P_LEVEL must "
        "fit the topology. As a slow way out: NCCL_P2P_DISABLE=1.",
        consequence="GPUs at 100 % and about 140 W, the server never becomes ready.",
        signs=(
            Sign(r"No available shared memory broadcast block found in \d+ seconds?", times=2),
            Sign(
                r"No available shared memory broadcast block found",
                near=(r"Init COMPLETE|vLLM is using nccl|ncclCommInitRank|collective.{0,30}tim(?:ed|e) ?out",),
            ),
        ),
        shows=(
            (
                "NCCL INFO comm 0x55d rank 1 nranks 2 cudaDev 1 nvmlDev 1 - Init COMPLETE\n"
                "INFO 11-30 10:00:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when "
                "some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
            ),
        ),
        unlike=("NCCL INFO comm 0x55d rank 1 nranks 2 cudaDev 1 nvmlDev 1 - Init COMPLETE",),
        sources=("https://github.com/vllm-project/vllm/issues/33041", "https://github.com/NVIDIA/nccl/issues/1999"),
        confidence=LIKELY,
        tags=("p2p-hang", "collective"),
    ),
    Problem(
        id="pcie-fatal",
        layer=HOST,
        title="Uncorrected PCIe error",
        cause="A link to a GPU or a switch failed: it went down unexpectedly (power management of the port), or signal, slot, riser or card are bad.",
        remedy="Set pcie_aspm=off pcie_port_pm=off on the kernel command line (pve_host_cmdline), reseat card and riser, lower the link's generation "
        "in the firmware setup to try; lspci -vvv shows which device reports it.",
        consequence="The GPU falls off the bus or the host locks up.",
        signs=(
            Sign(r"PCIe Bus Error: severity=(?:Uncorrected|Uncorrectable)"),
            Sign(r"AER: (?:Uncorrected|Uncorrectable) \((?:Fatal|Non-Fatal)\)|AER: .{0,40}severity=Uncorrect(?:ed|able)"),
            Sign(r"aer_uncor_status: 0x0*[1-9a-f]"),
            Sign(r"Surprise (?:Link )?Down(?: Error)?|\bSDES\b.{0,30}\(First\)"),
            Sign(r"pcieport [\da-f:.]+: DPC: (?:containment event|unmasked uncorrectable)"),
            Sign(r"pcieport [\da-f:.]+: .{0,20}\b(?:Link Down|link lost|Slot\(.{1,10}\): Link Down)"),
        ),
        shows=(
            "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
            "{1}[Hardware Error]:  aer_uncor_status: 0x00000020, aer_uncor_mask: 0x00000000",
            "pcieport 0000:00:03.1: AER: Uncorrected (Fatal) error message received from 0000:09:00.0",
        ),
        unlike=(
            "pcieport 0000:40:01.1: AER: enabled with IRQ 40",
            "pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        ),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/hardware/pcie-bandwidth.md",),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-fallen-off-bus", "xid-gpu-hang", "pcie-corrected"),
    ),
    Problem(
        id="pcie-corrected",
        layer=HOST,
        title="Corrected PCIe errors",
        cause="A link repeats transfers: signal quality of slot, riser or cable.",
        remedy="Count them under load (sysfs aer_dev_correctable); reseat the card, try another riser, lower the generation. A few an hour are no harm.",
        severity=WARNING,
        signs=(
            Sign(r"PCIe Bus Error: severity=(?:Corrected|Correctable)", times=3),
            Sign(r"AER: (?:Multiple )?Correct(?:ed|able) error (?:message )?received", times=3),
            Sign(r"BadTLP|BadDLLP", near=(r"AER|PCIe Bus Error",), within=5, times=3),
        ),
        shows=("pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)\n" * 4,),
        unlike=("pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",),
        sources=("https://docs.kernel.org/PCI/pcieaer-howto.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="pcie-bar-space",
        layer=HOST,
        title="No address space for a GPU's memory",
        cause="The firmware gives the PCIe bridges too small a window: Above 4G decoding or resizable BAR are off, or there are too many cards for it.",
        remedy="Enable Above 4G decoding, resizable BAR and a large MMIO range in the firmware setup; pci=realloc on the kernel command line helps "
        "on some boards.",
        signs=(
            Sign(r"BAR [0-5]\b.{0,60}\b(?:no space for|failed to assign|can'?t assign; no space)"),
            Sign(r"BAR\d is 0M @ 0x0|This PCI I/O region assigned to your NVIDIA device is invalid"),
        ),
        shows=(
            "pci 0000:41:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space",
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:41:00.0)",
        ),
        unlike=(
            "pci 0000:41:00.0: BAR 1 [mem 0x38000000000-0x39fffffffff 64bit pref]: assigned",
            "pci 0000:00:1c.0: BAR 13 [io  size 0x1000]: can't assign; no space",
            "pci 0000:00:1c.0: BAR 13: no space for [io  size 0x1000]",
        ),
        sources=("https://github.com/voipmonitor/rtx6kpro",),
        confidence=LIKELY,
        explains=("rm-init-adapter-failed", "p2p-mapping-failed", "gpu-gone"),
    ),
    Problem(
        id="machine-check",
        layer=HOST,
        title="The processor or memory reports a hardware error",
        cause="A machine check or an uncorrectable memory error of the host.",
        remedy="ras-mc-ctl --errors (rasdaemon) names the module; replace the DIMM or CPU; update the firmware.",
        signs=(
            Sign(r"mce: \[Hardware Error\]: CPU \d+: Machine Check"),
            Sign(r"EDAC \S+: [1-9]\d* UE\b"),
            Sign(r"Memory failure: 0x[\da-f]+: .{0,60}\b(?:Killing|recovery action)"),
            Sign(r"\[Hardware Error\]: (?:Uncorrected|.{0,20}event severity: (?:fatal|recoverable))"),
        ),
        shows=(
            "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: bea0000000000108",
            "EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#1_DIMM#0",
        ),
        unlike=(
            "EDAC MC: Ver: 3.0.0",
            "EDAC MC0: 0 UE, 0 CE",
            "EDAC amd64: F19h_M10h detected (node 0).",
            "mce: CPU supports 32 MCE banks",
        ),
        sources=("https://docs.kernel.org/admin-guide/ras.html",),
        confidence=CERTAIN,
        explains=("kernel-oops", "host-memory-exhausted"),
    ),
    Problem(
        id="container-memory-exhausted",
        layer=CONTAINER,
        title="The kernel killed a process at the container's memory limit",
        cause="The container's memory limit (or the host's memory) was exhausted and the kernel killed a process.",
        remedy="Raise gpu_container_memory_mib (loading needs about the checkpoint's size in page cache and pinned buffers), or lower the load's use of "
        "host memory: fewer loader threads in sglang_server_flags (model-loader-extra-config), no hierarchical cache.",
        consequence="The server or one of its workers dies by SIGKILL (-9), often while it loads weights.",
        signs=(
            Sign(r"oom-kill:constraint=CONSTRAINT_MEMCG"),
            Sign(r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+)"),
            Sign(r"A process of this unit has been killed by the OOM killer"),
            Sign(r"Failed with result '?oom-kill'?"),
            Sign(r"\bOOMKilled\b"),
        ),
        shows=(
            (
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ns,mems_allowed=0-1,oom_memcg=/lxc/200,task_memcg=/lxc/200/ns/system.slice/"
                "sglang.service,task=sglang::schedul,pid=86398,uid=0"
            ),
            "sglang.service: A process of this unit has been killed by the OOM killer.",
        ),
        unlike=("[Autotuner]: OOM detected, falling back to default tactic",),
        sources=("https://docs.kernel.org/admin-guide/cgroup-v2.html", "https://github.com/leptonai/gpud"),
        confidence=CERTAIN,
        tags=("killed",),
        explains=("server-killed", "collective"),
        refines=("host-memory-exhausted", "server-killed"),
    ),
    Problem(
        id="host-memory-exhausted",
        layer=HOST,
        title="The host ran out of memory",
        cause="The kernel's OOM killer ended a process because the host's memory was exhausted (ZFS's cache counts: zfs_arc_max).",
        remedy="free -h; limit the ZFS cache (pve_host_zfs_arc_max_gib) and the containers' memory so that they fit together; add swap only for the host's own services.",
        signs=(
            Sign(r"(?<!cgroup\s)Out of memory: Kill(?:ed)? process (?P<pid>\d+)"),
            Sign(r"oom-kill:constraint=CONSTRAINT_NONE"),
            Sign(r"systemd-oomd\S*: Killed \S+ due to memory"),
            Sign(r"Killed \S+\.(?:service|scope|slice) due to memory (?:used|pressure)"),
            Sign(r"\binvoked oom-killer: ", not_near=(r"CONSTRAINT_MEMCG|Memory cgroup out of memory",), within=150),
            Sign(r"page allocation failure: order:\d+"),
        ),
        shows=(
            "Out of memory: Killed process 71102 (sglang::schedul) total-vm:981216332kB, anon-rss:412331100kB, file-rss:0kB",
            "systemd-oomd[700]: Killed /system.slice/sglang.service due to memory used (991G) / total (1007G) and swap used being more than 90.00%",
        ),
        unlike=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\nMemory cgroup out of memory: Killed process 21639 (python3)",
        ),
        sources=("https://docs.kernel.org/mm/oom.html",),
        confidence=LIKELY,
        tags=("killed",),
        explains=("server-killed", "collective"),
        refines=("server-killed",),
    ),
    Problem(
        id="soft-lockup",
        layer=HOST,
        title="A processor of the host is stuck",
        cause="Code in the kernel does not give a processor back: a driver (nvidia, zfs), firmware, or an overloaded host.",
        remedy="The stack behind the line names the module; with uvm_ functions set nvidia_driver_uvm_disable_hmm: true, with nvidia update the "
        "driver, with zfs or txg look at the disks. Reboot.",
        signs=(
            Sign(r"BUG: soft lockup - CPU#\d+ stuck for \d+s"),
            Sign(r"(?:NMI )?watchdog: (?:BUG: )?.{0,20}hard LOCKUP"),
        ),
        shows=("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:112]",),
        unlike=("NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",),
        sources=("https://docs.kernel.org/admin-guide/lockup-watchdogs.html",),
        confidence=GENERIC,
        explains=("rcu-stall", "hung-task", "collective"),
    ),
    Problem(
        id="rcu-stall",
        layer=HOST,
        title="The kernel waits for a processor (RCU stall)",
        cause="A processor did not pass a quiet state in time: see the stack behind the line.",
        remedy="Read the stack that follows; reboot; update kernel and driver.",
        signs=(Sign(r"rcu: INFO: .{0,60}\b(?:self-detected stall|detected (?:expedited )?stalls)"),),
        shows=("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks: { 4-...D } 5254 jiffies s: 421 root: 0x10/.",),
        unlike=("rcu: Hierarchical RCU implementation.",),
        sources=("https://docs.kernel.org/RCU/stallwarn.html",),
        confidence=GENERIC,
        explains=("hung-task", "collective"),
    ),
    Problem(
        id="hung-task",
        layer=HOST,
        title="A task waits in the kernel for minutes",
        cause="A process sits in an uninterruptible wait: storage that does not answer, or a driver call that does not return.",
        remedy="The stack behind the line names where: nvidia/uvm (GPU), zfs/txg/nfs/jbd2 (disks). Only a reboot ends such a task.",
        signs=(Sign(r"INFO: task (?P<task>\S+?):\d+ blocked for more than \d+ seconds"),),
        shows=("INFO: task txg_sync:1812 blocked for more than 122 seconds.",),
        unlike=("hung_task_timeout_secs = 120",),
        sources=("https://docs.kernel.org/admin-guide/sysctl/kernel.html",),
        confidence=GENERIC,
    ),
    Problem(
        id="kernel-oops",
        layer=HOST,
        title="The kernel crashed in itself",
        cause="A fault in kernel code: the module at the top of the stack (in square brackets) is where.",
        remedy="Reboot; update the module that the stack names, or go back to the kernel that worked (proxmox-boot-tool kernel pin).",
        signs=(
            Sign(r"BUG: kernel NULL pointer dereference"),
            Sign(r"BUG: unable to handle (?:page fault|kernel)"),
            Sign(r"general protection fault, .{0,60}\[#\d+\]"),
            Sign(r"kernel BUG at \S+:\d+"),
            Sign(r"Kernel panic - not syncing"),
        ),
        shows=("BUG: unable to handle page fault for address: ffffb1f2c0a01000", "Kernel panic - not syncing: Fatal exception"),
        unlike=("Kernel panic on oops: no",),
        sources=("https://docs.kernel.org/admin-guide/bug-hunting.html",),
        confidence=GENERIC,
        explains=("hung-task", "rcu-stall", "soft-lockup", "collective"),
    ),
    Problem(
        id="library-segfault",
        layer=HOST,
        title="A process crashed in NVIDIA's libraries",
        cause="A segmentation fault inside libnccl or libcuda: versions that do not fit, a fabric or peer that broke, or a GPU that went away.",
        remedy="Look for an Xid or fabric manager error at the same time; then check that NCCL, CUDA and driver versions fit (pip list | grep nccl).",
        signs=(Sign(r"segfault at .{0,120} in (?P<library>lib(?:nccl|cuda|nvidia)\S*)\["),),
        shows=(
            (
                "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
                "libnccl.so.2[7f7c7ac00000+d3d3000]"
            ),
        ),
        unlike=("cron[812]: segfault at 0 ip 0000 sp 0000 error 4 in libc.so.6[7f00+1000]",),
        sources=("https://github.com/leptonai/gpud",),
        confidence=LIKELY,
    ),
    Problem(
        id="disk-failing",
        layer=HOST,
        title="A disk or its file system fails",
        cause="The kernel reports errors of a disk or remounted a file system read-only.",
        remedy="smartctl -a and nvme smart-log of the device; zpool status; restore from a good disk before anything else.",
        signs=(
            Sign(r"EXT4-fs error \(device (?P<device>\S+)\)"),
            Sign(r"Remounting filesystem read-only"),
            Sign(r"(?:blk_update_request: )?(?:critical medium|I/O) error, dev (?P<device>(?:nvme|sd|vd)\w+)"),
            Sign(r"\bnvme(?: nvme)?\d+: (?:I/O|controller).{0,60}\b(?:timeout|is down|resetting)\b"),
            Sign(r"Pool '\S+' has encountered an uncorrectable I/O failure and has been suspended"),
        ),
        shows=(
            "blk_update_request: I/O error, dev nvme0n1, sector 41943040 op 0x0:(READ) flags 0x80700",
            "EXT4-fs error (device dm-1): ext4_find_entry:1683: inode #2: comm systemd: reading directory lblock 0",
        ),
        unlike=("EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode.", "nvme nvme0: 8/0/0 default/read/poll queues"),
        sources=("https://docs.kernel.org/filesystems/ext4/index.html",),
        confidence=CERTAIN,
        explains=("hung-task",),
    ),
    Problem(
        id="boot-partition-full",
        layer=HOST,
        title="The boot partition is full",
        cause="/boot or the EFI partition has no room for another kernel and its initramfs.",
        remedy="apt autoremove --purge old kernels, proxmox-boot-tool kernel list && proxmox-boot-tool refresh, then update-initramfs -u -k all.",
        consequence="The new kernel's boot entry is missing or broken.",
        signs=(
            Sign(
                r"No space left on device",
                near=(r"update-initramfs|mkinitramfs|proxmox-boot|/boot/|initrd\.img|vmlinuz|/efi\b",),
                within=10,
            ),
        ),
        shows=(
            "update-initramfs: Generating /boot/initrd.img-7.0.14-14-pve\nzstd: error 70 : Write error : cannot write block : No space left on device",
        ),
        unlike=("OSError: [Errno 28] No space left on device: '/srv/models/hub/tmp'",),
        sources=("https://pve.proxmox.com/wiki/Host_Bootloader",),
        confidence=CERTAIN,
        explains=(ANYTHING,),
        refines=("disk-full",),
    ),
)
