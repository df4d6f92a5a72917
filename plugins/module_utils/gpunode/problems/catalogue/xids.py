"""Xids, the driver's error reports, grouped by what there is to do about them."""

from __future__ import annotations

from ..model import CERTAIN, GENERIC, HOST, INFO, LIKELY, SERVER, WARNING, Problem, Sign

_CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
_GPU_TROUBLE = ("cuda-error", "collective", "gpu-memory", "gpu-gone", "xid-recovery-action", "xid-channel-cleanup", "server-hang")


def xid(*codes: int) -> str:
    """The line of the driver for any of these codes, in its forms with and without ``PCI:`` and a function number."""
    numbers = "|".join(str(code) for code in codes)
    bus = r"(?P<gpu>[\da-fA-F]+:[\da-fA-F:.]+)"
    return rf"\bXid \((?:PCI:)?{bus}\): (?P<xid>{numbers})\b|\bXid(?: error| code)?[:=]? (?P<code>{numbers})\b(?!, IRQ)"


_KNOWN = "|".join(
    str(code)
    for code in (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 44, 45, 46, 48, 54, 60, 62, 63, 64, 66, 67, 68, 69, 70, 71, 74, 75, 76, 77, 79, 80, 85),
        *(92, 94, 95, 109, 110, 119, 120, 126, 127, 136, 137, 140, 141, 143, 144, 145, 146, 147, 148, 149, 150, 154, 155, 156, 157, 158),
        *(167, 169, 171, 172),
    )
)

PROBLEMS = (
    Problem(
        id="xid-fallen-off-bus",
        layer=HOST,
        title="A GPU has fallen off the bus (Xid 79)",
        cause="The GPU does not answer on PCIe any more: power (cable, supply, power peaks), riser or slot, link, heat, or the card itself.",
        remedy="Power-cycle the host (a reboot is often not enough), reseat the card and its power cable, look for PCIe errors before the Xid "
        "(`journalctl -k | grep -E 'AER|pcieport|Xid'`) and at the link (`lspci -vvv -s GPU`); set pve_host_cmdline to carry pcie_aspm=off "
        "pcie_port_pm=off. When it follows the card into another slot, replace the card.",
        consequence="The GPU is gone until the next boot; every process that used it fails, and a tensor-parallel server stops.",
        signs=(
            Sign(xid(79)),
            Sign(r"GPU has fallen off the bus"),
            Sign(r"installed in this system has fallen off the bus and is not responding"),
            Sign(r"\bGPU is lost\b"),
            Sign(r"\bGPU(?: at)? [\da-fA-F:.]+:? (?:is )?(?:lost|not accessible)\b"),
            Sign(r"NV_ERR_GPU_IS_LOST|NVML_ERROR_GPU_IS_LOST"),
        ),
        shows=(
            "[ 8123.4411] NVRM: Xid (PCI:0000:c1:00): 79, pid=4411, name=sglang::schedul, GPU has fallen off the bus.",
            "Nov 30 03:12:44 node kernel: NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.",
            (
                "NVRM: The NVIDIA GPU 0000:61:00.0\nNVRM: (PCI ID: 10de:2bb5) installed in this system has\n"
                "NVRM: fallen off the bus and is not responding to commands."
            ),
            "Unable to determine the device handle for GPU0000:81:00.0: GPU is lost.  Reboot the system to recover this GPU",
        ),
        unlike=("r8169 0000:05:00.0 eth0: RTL8125B, aa:bb:cc:dd:ee:ff, XID 790, IRQ 79",),
        sources=(_CATALOG, "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1151"),
        confidence=CERTAIN,
        tags=("gpu-gone",),
        explains=(*_GPU_TROUBLE, "xid-application", "cuda-unknown-error", "gpu-does-not-answer", "rm-init-adapter-failed"),
    ),
    Problem(
        id="xid-gsp-firmware",
        layer=HOST,
        title="The GSP firmware of a GPU does not answer (Xid 119, 120)",
        cause="The processor on the GPU that runs the driver's firmware hangs or has failed; requests to it time out.",
        remedy="Reset the GPU (`nvidia-smi --gpu-reset -i N`, nothing using it) or reboot the host. When it repeats, update the driver "
        "(nvidia_driver_version); on GPUs that run without it switch the GSP firmware off with NVreg_EnableGpuFirmware=0 (not on Blackwell).",
        consequence="nvidia-smi and every CUDA call on that GPU block for seconds or for ever.",
        signs=(
            Sign(xid(119, 120)),
            Sign(r"Timeout after \d+s of waiting for RPC response from GPU\d+ GSP"),
            Sign(r"GSP task exception|GSP-RM .{0,40}\b(?:crash(?:ed)?|halt(?:ed)?|timeout|timed out)|\bGSP heartbeat timeout"),
        ),
        shows=(
            (
                "NVRM: Xid (PCI:0000:9b:00): 119, pid=881, name=nvidia-smi, Timeout after 45s of waiting for RPC response from GPU0 GSP! "
                "Expected function 76 (GSP_RM_CONTROL) (0x20803032 0x598)."
            ),
            "[91.2] NVRM: Xid (PCI:0000:01:00): 120, pid='<unknown>', name=<unknown>, GSP task exception: illegal write (cause:0x7)",
        ),
        unlike=("NVRM: GPU4 RPC history (CPU -> GSP):",),
        sources=(_CATALOG, "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1080"),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-application", "hung-task", "soft-lockup"),
    ),
    Problem(
        id="xid-gpu-hang",
        layer=HOST,
        title="A GPU has stopped processing (Xid 8, 46, 62, 109, 158)",
        cause="A channel did not switch or finish in time: the GPU, its firmware or its driver hangs. On Blackwell cards under sustained "
        "inference this is a known fault of the driver's firmware; heat or unstable power look the same.",
        remedy="Reset the GPU or reboot, update the driver (nvidia_driver_version), check temperature and power limit "
        "(nvidia_driver_power_limit_w), then see whether it stays on one card.",
        consequence="The GPU stays at 100 % utilisation without progress; the server hangs or dies.",
        signs=(
            Sign(xid(8, 46, 62, 109, 158, 167, 169)),
            Sign(r"RC watchdog: GPU is probably locked"),
            Sign(r"errorString CTX SWITCH TIMEOUT"),
        ),
        shows=(
            "NVRM: Xid (PCI:0000:01:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
            (
                "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7\n"
                "NVRM: Xid (PCI:0000:01:00): 8, pid=48694, name=python3, channel 0x00000008"
            ),
        ),
        unlike=("NVRM: Xid (PCI:0000:01:00): 80, pid=1, Corrupted data",),
        sources=(_CATALOG, "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1159"),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-application"),
    ),
    Problem(
        id="xid-memory-uncorrectable",
        layer=HOST,
        title="Uncorrectable GPU memory error (Xid 48, 95, 140, 171, 172)",
        cause="ECC found errors in the GPU's memory that it could not correct or contain.",
        remedy="Stop what uses the GPU and reset it (`nvidia-smi --gpu-reset -i N`) or reboot; read `nvidia-smi -q -d ECC,ROW_REMAPPER`. "
        "With errors in SRAM over the threshold, failed remaps (Xid 64) or repeats, replace the card.",
        consequence="Every process on the GPU has lost data and is ended.",
        signs=(
            Sign(xid(48, 95, 140, 171, 172)),
            Sign(r"DBE \(double bit error\)|double bit ECC error|uncorrectable ECC error encountered"),
            Sign(r"\b(?:SRAM|DRAM) Uncorrectable\s*: [1-9]\d*"),
            Sign(r"has uncorrectable memory errors"),
        ),
        shows=(
            "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error: GPC 1, TPC 2",
            "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
            "NVRM: Xid (PCI:0000:b3:00): 95, pid=7062, name=python, Uncontained: FBHUB. RST: Yes, D-RST: No",
        ),
        unlike=("Volatile Uncorr. ECC |", "ECC Errors : Volatile : DRAM Uncorrectable : 0"),
        sources=(_CATALOG, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-application", "xid-memory-contained", "xid-row-remap"),
    ),
    Problem(
        id="xid-memory-contained",
        layer=HOST,
        title="Contained GPU memory error (Xid 94)",
        cause="ECC found an uncorrectable error and confined it to one process, which was ended; the others go on.",
        remedy="Restart the process (`systemctl restart` of the server), reset the GPU when convenient, watch "
        "`nvidia-smi -q -d ECC,ROW_REMAPPER` for repeats.",
        consequence="The server on that GPU dies once.",
        signs=(Sign(xid(94)),),
        shows=("NVRM: Xid (PCI:0000:4f:00): 94, pid=12310, name=python3, Contained: SM (0x1). RST: No, D-RST: No",),
        unlike=("NVRM: Xid (PCI:0000:4f:00): 940, pid=12310",),
        sources=(_CATALOG, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-row-remap", "xid-application"),
    ),
    Problem(
        id="xid-row-remap",
        layer=HOST,
        title="A row of GPU memory is to be remapped (Xid 63)",
        cause="After ECC errors a memory row was marked for remapping (older GPUs: a page for retirement); it takes effect with the next reset.",
        remedy="Reset the GPU at the next chance (`nvidia-smi --gpu-reset -i N`, or reboot) and watch the counts in "
        "`nvidia-smi -q -d ROW_REMAPPER`; several in a short time announce a failing card.",
        signs=(
            Sign(xid(63, 156)),
            Sign(r"Row Remapper: New row .{0,40}remapp(?:ed|ing)"),
            Sign(r"\bPending\s*: Yes", near=(r"Remapped Rows",), within=6),
            Sign(r"row remappings? (?:are|is) pending"),
            Sign(r"Remapping Pending\s*: Yes|Pending Page Blacklist\s*: Yes"),
        ),
        shows=(
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
            "        Remapping Pending                 : Yes",
        ),
        unlike=("        Remapping Pending                 : No",),
        sources=(_CATALOG, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"),
        confidence=CERTAIN,
    ),
    Problem(
        id="xid-row-remap-failed",
        layer=HOST,
        title="Remapping GPU memory has failed (Xid 64)",
        cause="The GPU could not remap a faulty memory row: no spare rows are left or the write failed.",
        remedy="Take the GPU out of service (drop it from gpu_container_gpus), reset it, run NVIDIA's field diagnostics, replace the card.",
        signs=(
            Sign(xid(64, 157)),
            Sign(r"Remapping Failure Occurred\s*: Yes"),
            Sign(r"row remapping failed|Row Remapper: .{0,40}fail(?:ed|ure)?"),
        ),
        shows=("NVRM: Xid (PCI:0000:10:00): 64, pid='<unknown>', name=<unknown>, Row remapping failed",),
        unlike=("        Remapping Failure Occurred        : No",),
        sources=(_CATALOG,),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-row-remap", "xid-memory-uncorrectable"),
        refines=("xid-row-remap",),
    ),
    Problem(
        id="xid-ecc-rate",
        layer=HOST,
        title="Many corrected memory errors (Xid 92)",
        cause="Single-bit errors in the GPU's memory come at a high rate: corrected, but the memory is wearing.",
        remedy="Watch `nvidia-smi -q -d ECC`; plan the card's replacement when the rate stays.",
        severity=WARNING,
        signs=(Sign(xid(92)),),
        shows=("NVRM: Xid (PCI:0000:10:00): 92, pid=1896, High single-bit ECC error rate",),
        unlike=("NVRM: Xid (PCI:0000:92:00): 13, pid=1",),
        sources=(_CATALOG,),
        confidence=CERTAIN,
    ),
    Problem(
        id="xid-nvlink",
        layer=HOST,
        title="NVLink error (Xid 74, 136, 144 to 150, 155)",
        cause="A link between GPUs or to a switch failed fatally or could not be trained: seating, baseboard, a GPU, or the peer at the other end.",
        remedy="Drain the load, reset the GPU or reboot the node as the recovery action (Xid 154) says; `nvidia-smi nvlink -s` and `-e` name the "
        "link. Repeats: reseat or replace.",
        consequence="Collectives hang or fail until the link is trained again.",
        signs=(Sign(xid(74, 136, 144, 145, 146, 147, 148, 149, 150, 155)),),
        shows=(
            "[171167.6] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)",
            "NVRM: Xid (PCI:0000:b7:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)",
        ),
        unlike=("nvidia-nvlink: Nvlink Core is being initialized, major device number 510",),
        sources=(_CATALOG, "https://github.com/leptonai/gpud"),
        confidence=CERTAIN,
        tags=("nvlink",),
        explains=(*_GPU_TROUBLE, "nccl-peer-failure"),
    ),
    Problem(
        id="nvswitch-sxid",
        layer=HOST,
        title="An NVSwitch reports an error (SXid)",
        cause="A switch or one of its links had an error; a fatal one stops the fabric of that switch.",
        remedy="For a fatal SXid stop the load and reset all GPUs and switches together or reboot; read /var/log/fabricmanager.log. "
        "Non-fatal ones matter when they repeat on one link.",
        signs=(
            Sign(r"\bSXid \(PCI:[\da-fA-F:.]+\): (?P<sxid>\d+), (?:Fatal|Non-fatal)"),
            Sign(r"detected NVSwitch (?:non-fatal|fatal) error (?P<sxid>\d+)"),
        ),
        shows=("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",),
        unlike=("nvidia-nvswitch3: open (major=510)",),
        sources=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "xid-nvlink"),
    ),
    Problem(
        id="xid-class-error",
        layer=SERVER,
        title="A compute kernel submitted an invalid operation (Xid 69)",
        cause="A GPU engine was handed an operation that its class does not know: a software fault of a compute kernel or of its compilation, "
        "not of memory or bus.",
        remedy="Keep the card. Change the attention or MoE backend (sglang_server_flags) or the release, switch CUDA graphs or autotuning off to "
        "narrow it down, and run once with CUDA_LAUNCH_BLOCKING=1 to name the kernel.",
        consequence="`unspecified launch failure`; the server ends.",
        signs=(Sign(xid(69)),),
        shows=(
            (
                "NVRM: Xid (PCI:0000:21:00): 69, pid=771, name=python3, Class Error: channel 0x9, Class 0000cec0, Offset 0x184, Data ffffffff\n"
                "torch.AcceleratorError: CUDA error: unspecified launch failure"
            ),
        ),
        unlike=("NVRM: Xid (PCI:0000:69:00): 45, pid=1, name=python3, Ch 00000008",),
        sources=(
            _CATALOG,
            "https://github.com/nick-oconnor/sm120-enablement/blob/main/notes/incident-longcontext-xid69.md",
        ),
        confidence=CERTAIN,
        explains=("cuda-error", "collective", "xid-channel-cleanup", "xid-application", "server-hang"),
        refines=("cuda-launch-failure",),
    ),
    Problem(
        id="xid-application",
        layer=SERVER,
        title="A compute kernel went out of bounds (Xid 13, 31, 43)",
        cause="A kernel of the application accessed memory that is not its own or executed an illegal instruction; the driver stopped its "
        "channel (43). The GPU is healthy.",
        remedy="Look at the server, not at the hardware: its journal at that time names the kernel; restart it, and check that its kernels fit the "
        "GPU and its versions each other. Only if the same card faults with different programs, suspect hardware.",
        consequence="The process gets a CUDA error (illegal memory access, launch failure) and ends.",
        signs=(
            Sign(xid(11, 13, 25, 31, 32, 39, 40, 41, 43, 44, 60, 66, 67, 68, 70, 71, 75, 76, 77, 80, 85, 126, 127, 137, 141)),
            Sign(r"Graphics SM (?:Warp|Global) Exception on"),
        ),
        shows=(
            (
                "NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 9, TPC 5, SM 0): "
                "Out Of Range Address"
            ),
            (
                "NVRM: Xid (PCI:0000:41:00): 31, pid=20113, name=sglang::schedul, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC3 "
                "GPCCLIENT_T1_4 faulted @ 0x7f2b_0c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
            ),
            "NVRM: Xid (PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008",
        ),
        unlike=("NVRM: Xid (PCI:0000:13:00): 63, pid=1, Row Remapper: New row marked for remapping",),
        sources=(_CATALOG, "https://github.com/leptonai/gpud"),
        confidence=LIKELY,
        tags=("xid-application",),
        explains=("cuda-error", "collective", "xid-channel-cleanup", "server-hang"),
    ),
    Problem(
        id="xid-recovery-action",
        layer=HOST,
        title="The driver asks for a recovery action (Xid 154)",
        cause="Another error of this GPU (the Xid before it, or one of the bus) needs a reset or a reboot to recover from.",
        remedy="Do what the line says, for the GPU that it names: drain and reset (`nvidia-smi --gpu-reset -i N`), or reboot the node. "
        "Then look for the error before it.",
        signs=(Sign(xid(154)), Sign(r"GPU recovery action(?: changed|:)")),
        shows=(
            "NVRM: Xid (PCI:0019:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "NVRM: Xid (PCI:0000:09:00): 154, GPU recovery action: Node Reboot Required",
        ),
        unlike=("    GPU Recovery Action               : None",),
        sources=(_CATALOG,),
        confidence=GENERIC,
        explains=("cuda-error", "collective", "gpu-gone"),
    ),
    Problem(
        id="xid-power",
        layer=HOST,
        title="Auxiliary power is missing (Xid 54)",
        cause="A GPU starts without its power cable, or the cable does not report itself.",
        remedy="Switch off, check the power cable of the GPU that the line names, and the supply.",
        signs=(
            Sign(xid(54)),
            Sign(r"GPU does not have the necessary power cables connected"),
            Sign(r"power cable.{0,40}\b(?:not|is)? ?(?:connected|attached).{0,40}GPU|GPU.{0,60}power cables? (?:is |are )?not connected"),
        ),
        shows=("NVRM: GPU 0000:c1:00.0: GPU does not have the necessary power cables connected.",),
        unlike=("Power Limit : 600.00 W",),
        sources=(_CATALOG,),
        confidence=CERTAIN,
        explains=("rm-init-adapter-failed", "gpu-gone"),
    ),
    Problem(
        id="xid-gpu-init",
        layer=HOST,
        title="A GPU could not be initialised (Xid 110, 143)",
        cause="The GPU failed its start or a security check after a reset or a power-up.",
        remedy="Undo recent hardware changes, cold-start the host; when it stays with the card, replace it.",
        signs=(Sign(xid(110, 143)),),
        shows=("NVRM: Xid (PCI:0000:c1:00): 143, GPU Initialization Failed",),
        unlike=("NVRM: Xid (PCI:0000:c1:00): 14, pid=3",),
        sources=(_CATALOG,),
        confidence=CERTAIN,
        explains=(*_GPU_TROUBLE, "rm-init-adapter-failed"),
    ),
    Problem(
        id="xid-channel-cleanup",
        layer=SERVER,
        title="The driver cleaned up after a process that ended (Xid 45)",
        cause="A process that used the GPU was stopped or died; the driver removed what it had running.",
        remedy="Nothing by itself: look at what ended the process (an Xid before it, the server's journal, the kernel's OOM killer).",
        severity=INFO,
        signs=(Sign(xid(45)),),
        shows=("NVRM: Xid (PCI:0000:01:00): 45, pid=4711, name=python3, Ch 00000010",),
        unlike=("NVRM: Xid (PCI:0000:45:00): 79, pid=1, GPU has fallen off the bus.",),
        sources=(_CATALOG,),
        confidence=CERTAIN,
    ),
    Problem(
        id="xid-other",
        layer=HOST,
        title="An Xid without an entry of its own",
        cause="The driver reports an error whose code is not in this catalogue.",
        remedy="Look the code up in NVIDIA's Xid catalogue and follow its resolution bucket.",
        signs=(Sign(rf"\bXid \((?:PCI:)?(?P<gpu>[\da-fA-F]+:[\da-fA-F:.]+)\): (?!(?:{_KNOWN})\b)(?P<xid>\d+)\b"),),
        shows=("NVRM: Xid (PCI:0000:01:00): 121, pid=1, C2C Link corrected error threshold exceeded",),
        unlike=("r8169 0000:05:00.0 eth0: RTL8168h/8111h, bc:24:11:00:00:01, XID 541, IRQ 59",),
        sources=(_CATALOG,),
        confidence=GENERIC,
        tags=("xid-any",),
    ),
)
