"""Lines that frighten and mean nothing by themselves: known as harmless, shown with ``--all``."""

from __future__ import annotations

from ..model import CONTAINER, HOST, INFO, NETWORK, RUNTIME, SERVER, Problem, Sign


def _harmless(
    name: str,
    layer: str,
    title: str,
    cause: str,
    signs: tuple[str, ...],
    shows: tuple[str, ...],
    source: str,
    remedy: str = "Nothing to do.",
) -> Problem:
    return Problem(
        id=name,
        layer=layer,
        title=title,
        cause=cause,
        remedy=remedy,
        severity=INFO,
        signs=tuple(Sign(text) for text in signs),
        shows=shows,
        unlike=("[2026-11-30 10:00:00] The server is fired up and ready to roll!",),
        sources=(source,),
    )


_SGLANG = "https://github.com/sgl-project/sglang"
_VLLM = "https://github.com/vllm-project/vllm"
_KERNEL = "https://docs.kernel.org/admin-guide/index.html"

PROBLEMS = (
    _harmless(
        "harmless-ignored-import",
        SERVER,
        "Model files that were skipped",
        "sglang tries to import every model file; those of models that the installed transformers does not know are skipped.",
        (r"Ignore import error when loading \S+",),
        (
            "[2026-01-28 21:17:09 TP0] Ignore import error when loading sglang.srt.models.glmasr: cannot import name 'GlmAsrConfig' from 'transformers' (/x)",
        ),
        _SGLANG,
    ),
    _harmless(
        "harmless-moe-config",
        SERVER,
        "No tuning file for the MoE kernel",
        "The Triton MoE kernel has no tuned configuration for this card and shape and uses its default: slower, not broken. It does not matter for "
        "NVFP4 on flashinfer_cutlass.",
        (
            r"Config file not found at \S*E=\d+,N=\d+",
            r"Using default MoE kernel config\. Performance might be sub-optimal",
            r"Using MoE kernel config with down_moe=False",
        ),
        (
            "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /x/E=257,N=256,device_name=NVIDIA_H200.json",
        ),
        _SGLANG,
        "playbooks/tune.yml makes one where the Triton runner is used.",
    ),
    _harmless(
        "harmless-deepgemm-scale",
        SERVER,
        "DeepGEMM's scale format",
        "Printed for every checkpoint whose scales are not ue8m0; it matters only when DeepGEMM kernels really run.",
        (r"DeepGemm is enabled but the scale_fmt of checkpoint is not ue8m0",),
        ("DeepGemm is enabled but the scale_fmt of checkpoint is not ue8m0. This might cause accuracy degradation on Blackwell.",),
        "https://github.com/sgl-project/sglang/pull/19948",
    ),
    _harmless(
        "harmless-autotuner-oom",
        SERVER,
        "Autotuning skipped a tactic for lack of memory",
        "FlashInfer's autotuner tried a tactic whose workspace did not fit and took the default one.",
        (r"\[Autotuner\]: OOM detected, falling back to default tactic", r"\[Autotuner\]: (?:Skipping|Failed when profiling)"),
        ("WARNING - autotuner.py:1315 - flashinfer.jit: [Autotuner]: OOM detected, falling back to default tactic",),
        "https://github.com/flashinfer-ai/flashinfer",
    ),
    _harmless(
        "harmless-communicator-unavailable",
        SERVER,
        "A faster all-reduce is not available here",
        "Symmetric memory, multicast and custom all-reduce exist for NVLink machines; NCCL is used instead.",
        (
            r"SymmMemCommunicator: Device capability \S+ not supported",
            r"Custom allreduce is disabled because (?!your platform lacks GPU P2P)",
            r"Custom all ?reduce .{0,60}not supported on more than two PCIe-only GPUs",
            r"(?:mscclpp|quick[_ ]all[_ ]?reduce|symm_mem)\b.{0,60}\b(?:not (?:available|supported)|disabled|not installed)\b",
        ),
        (
            "WARNING 06-16 20:46:09 [symm_mem.py:66] SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available.",
            (
                "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this warning, specify "
                "disable_custom_all_reduce=True explicitly."
            ),
        ),
        _VLLM,
    ),
    _harmless(
        "harmless-kv-scales",
        SERVER,
        "FP8 KV cache without scales in the checkpoint",
        "The checkpoint carries no scaling factors for an FP8 KV cache; 1.0 is used, which most models bear.",
        (
            r"Using uncalibrated q_scale",
            r"Checkpoint does not provide a q scaling factor",
            r"Using KV cache scaling factor 1\.0",
            r"Using FP8 KV cache but no scaling factors provided",
        ),
        (
            "Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0. This may lead to less accurate results!",
        ),
        _SGLANG,
    ),
    _harmless(
        "harmless-speculation-notes",
        SERVER,
        "Notes about speculative decoding",
        "Sampling options that do not work with it, and a lower acceptance rate with one draft layer.",
        (r"min_p and logit_bias parameters (?:won'?t|will not) work with speculative decoding", r"may result in lower acceptance rate"),
        (
            "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer,which may result in lower acceptance rate",
        ),
        _VLLM,
    ),
    _harmless(
        "harmless-schedule-notes",
        SERVER,
        "Features that were switched off for each other",
        "The server switched off a feature that does not go with another one and went on.",
        (
            r"Pipeline parallelism is incompatible with overlap schedule",
            r"(?:Overlap scheduler|Mixed chunk\w*|Radix cache|Piecewise CUDA graph|Cuda graph) is disabled because",
        ),
        ("WARNING server_args.py:2003: Pipeline parallelism is incompatible with overlap schedule.",),
        _SGLANG,
    ),
    _harmless(
        "harmless-shutdown-notes",
        SERVER,
        "Notes at the end of a process",
        "Printed whenever a process ends without tearing everything down.",
        (
            r"destroy_process_group\(\) was not called before program exit",
            r"resource_tracker: (?:There appear to be|process died)",
            r"kill_process_tree called",
            r"nanobind: leaked \d+",
        ),
        ("Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",),
        "https://pytorch.org/docs/stable/distributed.html",
    ),
    _harmless(
        "harmless-rlimit",
        CONTAINER,
        "The limit of open files could not be raised",
        "The server tries to raise its limit and goes on with the one it has; it matters with `Too many open files` only.",
        (r"Fail to set RLIMIT_(?:NOFILE|STACK)",),
        ("[2026-11-30 14:03:58] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",),
        _SGLANG,
    ),
    _harmless(
        "harmless-deprecations",
        RUNTIME,
        "Deprecations",
        "A program uses an interface that a future release will drop.",
        (
            r"(?:FutureWarning|DeprecationWarning|PendingDeprecationWarning|SyntaxWarning|FastAPIDeprecationWarning):",
            r"is deprecated and will be removed",
            r"The given buffer is not writable, and PyTorch does not support non-writable tensors",
            r"`torch_dtype` is deprecated",
        ),
        (
            "FutureWarning: The cuda.cudart module is deprecated and will be removed in a future release, please switch to use the cuda.bindings.runtime module",
        ),
        "https://docs.python.org/3/library/warnings.html",
    ),
    _harmless(
        "harmless-optional-missing",
        RUNTIME,
        "Optional packages are not there",
        "An extension that speeds something else up is not installed or skipped.",
        (
            r"Skipping import of cpp extensions",
            r"torchao .{0,40}\b(?:not (?:installed|available)|skipp(?:ed|ing))",
            r"(?:triton_kernels|helion|tilelang|aiter|mooncake|deep_ep|nixl)\b (?:is )?not (?:installed|available|found)",
            r"Failed to import from vllm\._(?:C|moe_C|rocm_C) with",
        ),
        ("Skipping import of cpp extensions due to incompatible torch version 2.11.0 for torchao version 0.14.0",),
        "https://github.com/pytorch/ao",
    ),
    _harmless(
        "harmless-nccl-plugins",
        NETWORK,
        "NCCL finds no plugin and no InfiniBand",
        "On one node NCCL needs neither.",
        (
            r"NET/Plugin: (?:Could not find|No plugin found|Failed to find)",
            r"NET/Plugin .{0,60}\b(?:not found|no plugin found)",
            r"NET/IB ?: No device found",
            r"Could not find: libnccl-(?:net|tuner)\S*",
            r"Failed to open libibverbs\.so",
        ),
        ("NCCL INFO NET/IB : No device found.",),
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    _harmless(
        "harmless-network-card-xid",
        NETWORK,
        "The chip id of a network card",
        "Realtek's driver prints its chip's id as XID: no error of a GPU.",
        (r"\br8\d{3}\b.{0,80}\bXID [\da-f]+, IRQ \d+", r"RTL8\w+.{0,60}\bXID [\da-f]+"),
        ("r8169 0000:05:00.0 eth0: RTL8168h/8111h, bc:24:11:00:00:01, XID 541, IRQ 59",),
        _KERNEL,
    ),
    _harmless(
        "harmless-apparmor",
        HOST,
        "AppArmor denials of services that have nothing to do with GPUs",
        "Profiles of desktop and network services deny what those services do not need.",
        (
            r"apparmor=\"DENIED\" .{0,160}profile=\"/?(?:usr/s?bin/)?(?:ntpd|cupsd|cups-browsed|snap\S*|rsyslogd|chronyd|dhclient|named|man_filter|tcpdump)",
        ),
        (
            'audit: type=1400 audit(1753325024.836:58): apparmor="DENIED" operation="open" profile="/usr/sbin/ntpd" name="/snap/bin/" pid=1368',
        ),
        "https://apparmor.net/",
    ),
    _harmless(
        "harmless-taint",
        HOST,
        "The NVIDIA module taints the kernel",
        "Out-of-tree and unsigned modules set a mark; without Secure Boot it means nothing.",
        (
            r"module verification failed: signature and/or required key missing - tainting kernel",
            r"loading out-of-tree module taints kernel",
            r"module license '?NVIDIA'? taints kernel",
        ),
        ("nvidia: module verification failed: signature and/or required key missing - tainting kernel",),
        _KERNEL,
    ),
    _harmless(
        "harmless-pcie-bandwidth",
        HOST,
        "A device sits on a narrower link than it could use",
        "The kernel notes at boot that a slot or an idle link is slower than the card's best; the link's speed is judged under load "
        "(gpunode verify-p2p).",
        (r"Gb/s available PCIe bandwidth, limited by",),
        (
            "pci 0000:09:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:03.1 (capable of 504.112 Gb/s",
        ),
        _KERNEL,
    ),
    _harmless(
        "harmless-iommu-default",
        HOST,
        "The default IOMMU domain type",
        "Printed as Translated even with amd_iommu=off iommu=off; the truth is in /sys/kernel/iommu_groups/*/type.",
        (r"iommu: Default domain type: Translated",),
        ("iommu: Default domain type: Translated",),
        "https://github.com/local-inference-lab/rtx6kpro",
    ),
    _harmless(
        "harmless-firmware-tables",
        HOST,
        "Faults of the firmware's tables",
        "ACPI and PCI tables of most boards have errors that the kernel works around.",
        (
            r"ACPI (?:BIOS )?(?:Error|Warning) \(bug\):",
            r"\[Firmware Bug\]:",
            r"BAR 13.{0,60}\b(?:can'?t assign|failed to assign|no space)",
            r"vgaarb: VGA decodes changed",
        ),
        ("ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND",),
        _KERNEL,
    ),
    _harmless(
        "harmless-perf-notes",
        HOST,
        "Notes about sampling and clocks",
        "The kernel adapts the rate of its profiler or the clock source.",
        (
            r"perf: interrupt took too long",
            r"clocksource: .{0,80}\b(?:skewed|unstable|Marking clocksource)",
            r"kauditd_printk_skb: \d+ callbacks suppressed",
        ),
        ("perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",),
        _KERNEL,
    ),
    _harmless(
        "harmless-peermem",
        HOST,
        "nvidia-peermem skipped a context",
        "A process with RDMA registrations ended before they were released.",
        (r"nvidia[-_]peermem .{0,60}ERROR detected invalid context, skipping further processing",),
        ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",),
        "https://github.com/leptonai/gpud",
    ),
)
