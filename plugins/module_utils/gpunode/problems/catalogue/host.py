"""The NVIDIA driver on the host: building, loading, versions, device nodes, initialisation of CUDA."""

from __future__ import annotations

from ..model import ANYTHING, CERTAIN, CONTAINER, HOST, LIKELY, WARNING, Problem, Sign

_SMI_FAILED = r"NVIDIA-SMI has failed because it couldn'?t communicate with the NVIDIA driver"
_NO_NODE = r"Device /dev/nvidia[\w/-]* does not exist"

PROBLEMS = (
    Problem(
        id="dkms-not-built",
        layer=HOST,
        title="The driver's module does not exist for the running kernel",
        cause="A kernel came without its headers, so DKMS did not build the NVIDIA module for it: the running kernel has none.",
        remedy="apt install proxmox-default-headers proxmox-headers-$(uname -r) && dkms autoinstall -k $(uname -r) && modprobe nvidia nvidia_uvm, "
        "then start the container again. playbooks/kernel_update.yml does this before it boots a kernel.",
        consequence="No /dev/nvidia*: containers with dev[n] do not start, others start without GPUs.",
        signs=(
            Sign(r"modprobe: (?:FATAL|ERROR): Module nvidia[\w-]* not found in directory /lib/modules/(?P<kernel>\S+)"),
            Sign(r"could not insert '?nvidia[\w-]*'?: (?:Unknown symbol in module|Exec format error|Invalid module format)"),
            Sign(_NO_NODE, near=(_SMI_FAILED,)),
            Sign(
                _SMI_FAILED,
                near=(
                    r"\bnvidia[\w-]*/[\d.]+, (?P<built>\d\S*?)(?:, \w+)?: (?:installed|built|added)",
                    r"(?<![\w/., ])(?P<running>\d+\.\d+\.\d+[\w.+-]*-(?:pve|generic|amd64))\b$",
                ),
                differ=("built", "running"),
            ),
            Sign(r"nvidia: version magic '.{0,80}' should be|nvidia[\w-]*: disagrees about version of symbol"),
        ),
        shows=(
            "modprobe: FATAL: Module nvidia not found in directory /lib/modules/7.0.14-14-pve",
            (
                "Device /dev/nvidia0 does not exist\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                "latest NVIDIA driver is installed and running.\nnvidia/595.84, 7.0.2-6-pve: installed\n7.0.14-12-pve"
            ),
        ),
        unlike=("nvidia/595.84, 7.0.2-6-pve, x86_64: installed\n7.0.2-6-pve",),
        sources=("https://github.com/wvthoog/nvidia_vgpu_proxmox_7/issues/1", "https://pve.proxmox.com/wiki/Package_Repositories"),
        confidence=LIKELY,
        explains=(ANYTHING,),
        refines=("driver-not-loaded", "device-node-missing"),
    ),
    Problem(
        id="dkms-headers-missing",
        layer=HOST,
        title="Kernel headers are missing",
        cause="DKMS or the installer cannot build the module: the headers of this kernel are not installed.",
        remedy="apt install proxmox-headers-$(uname -r) and, so that it follows every kernel, proxmox-default-headers (pve_host installs both); "
        "then dkms autoinstall. linux-headers-amd64 is the wrong package on Proxmox.",
        signs=(
            Sign(r"Your kernel headers for kernel (?P<kernel>\S+) cannot be found"),
            Sign(r"kernel headers for (?:this|target) kernel .{0,60}\b(?:do not seem to be|not) installed"),
            Sign(r"Unable to find the kernel source tree for the currently running kernel"),
            Sign(r"Unable to locate package (?:linux|pve|proxmox)-headers-(?P<kernel>\S+)"),
            Sign(r"/lib/modules/\S+/build: No such file or directory"),
            Sign(r"Module build for kernel (?P<kernel>\S+) was skipped since the kernel headers"),
        ),
        shows=(
            (
                "Error! Your kernel headers for kernel 6.17.13-2-pve cannot be found at /lib/modules/6.17.13-2-pve/build or "
                "/lib/modules/6.17.13-2-pve/source."
            ),
            (
                "ERROR: Unable to find the kernel source tree for the currently running kernel. Please make sure you have installed the kernel source "
                "files for your kernel"
            ),
            "Module build for kernel 6.14.11-4-pve was skipped since the\nkernel headers for this kernel do not seem to be installed.",
        ),
        unlike=("Setting up proxmox-headers-7.0.14-14-pve (7.0.14-14) ...",),
        sources=("https://github.com/awesometic/realtek-r8125-dkms/issues/13",),
        confidence=CERTAIN,
        explains=(ANYTHING,),
    ),
    Problem(
        id="dkms-build-failed",
        layer=HOST,
        title="The driver's module does not compile for this kernel",
        cause="The driver release is older than the kernel supports: an interface of the kernel changed.",
        remedy="Set nvidia_driver_version to a release that builds on this kernel (6.17: at least 580.142; 7.0: 580.142, 595 or 610), or stay on an "
        "older kernel with its headers (proxmox-boot-tool kernel pin). The first error stands in /var/lib/dkms/nvidia/*/build/make.log.",
        consequence="After the next boot into that kernel there is no driver; apt leaves the package half-configured.",
        signs=(
            Sign(r"Bad return status for module build on kernel:? (?P<kernel>\S+)"),
            Sign(r"Error! Build of nvidia\S* failed|ERROR \(dkms apport\): .{0,40}nvidia"),
            Sign(r"dkms (?:build|install) -m nvidia\S* -v \S+ .{0,60}\b(?:failed|returned)|Failed to run `?\S*dkms build -m nvidia"),
            Sign(
                r"error: (?:implicit declaration of function|too (?:few|many) arguments to function|incompatible type for argument|"
                r"conflicting types for|unknown type name|.{0,60} has no member named)",
                near=(r"\bnvidia(?:[-_]\w+)?/|/dkms/nvidia|\bnv[-_]\w+\.[ch]:",),
                within=30,
            ),
            Sign(r"An error occurred while performing the step: \"?Building kernel modules"),
        ),
        shows=(
            (
                "Building module(s)...(bad exit status: 2)\nError! Bad return status for module build on kernel: 6.17.9-1-pve (x86_64)\n"
                "Consult /var/lib/dkms/nvidia-current/550.163.01/build/make.log for more information."
            ),
            "nvidia/os-pci.c:318:12: error: too few arguments to function 'pci_resize_resource'\nmake[3]: *** [nvidia/os-pci.o] Error 1",
        ),
        unlike=(
            "Building module:\nCleaning build area...\nnvidia.ko:\nRunning module version sanity check.",
            "Building module(s)... done.",
        ),
        sources=(
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1143",
            "https://github.com/wvthoog/nvidia_vgpu_proxmox_7/issues/1",
        ),
        confidence=CERTAIN,
        explains=(ANYTHING,),
    ),
    Problem(
        id="dkms-compiler-mismatch",
        layer=HOST,
        title="Kernel and module are built by different compilers",
        cause="The compiler at hand is not the one that the running kernel was built with, and the build refuses.",
        remedy="Install the compiler of the kernel (it is named in /proc/version) or set IGNORE_CC_MISMATCH=1 for the build.",
        signs=(
            Sign(r"cc-version-check failed|cc version check failed"),
            Sign(
                r"compiler \S+ .{0,60}\b(?:does not|doesn'?t) (?:exactly )?match the compiler used to (?:build|compile) the (?:target )?kernel"
            ),
            Sign(
                r"(?:gcc(?:-\d+)?|cc1|cc): (?:error: )?unrecognized command[- ]line option", near=(r"dkms|nvidia|Makefile|linux-headers",)
            ),
        ),
        shows=(
            "The kernel was built by gcc 12, the current compiler: cc-version-check failed:\nThe compiler used to compile the kernel differs",
        ),
        unlike=("warning: the compiler differs from the one used to build the kernel",),
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules",),
        confidence=LIKELY,
        explains=("dkms-build-failed",),
        refines=("dkms-build-failed",),
    ),
    Problem(
        id="secure-boot-key",
        layer=HOST,
        title="Secure Boot rejects the module",
        cause="Secure Boot is on and the key that DKMS signs with is not enrolled.",
        remedy="mokutil --import /var/lib/dkms/mok.pub, reboot, enrol the key at the console (MOKManager); or switch Secure Boot off in the firmware.",
        consequence="The driver does not load: no GPUs.",
        signs=(
            Sign(r"Key was rejected by service"),
            Sign(r"Required key not available", near=(r"nvidia|modprobe|insmod|module",), within=5),
            Sign(r"Loading of (?:unsigned )?module.{0,40}\b(?:is )?rejected"),
            Sign(r"Lockdown: \S+: unsigned module loading is restricted"),
            Sign(r"nvidia[\w-]*: module verification failed.{0,80}\b(?:rejected|refused)"),
        ),
        shows=(
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
            "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
            "Nov 30 09:11:02 node kernel: Loading of unsigned module is rejected",
        ),
        unlike=("nvidia: module verification failed: signature and/or required key missing - tainting kernel",),
        sources=(
            "https://pve.proxmox.com/pve-docs/chapter-sysadmin.html",
            "https://github.com/awesometic/realtek-r8126-dkms/issues/3",
        ),
        confidence=CERTAIN,
        explains=(ANYTHING,),
    ),
    Problem(
        id="nouveau-loaded",
        layer=HOST,
        title="Another driver holds the GPU",
        cause="nouveau (or nova, or vfio-pci) took the GPU before NVIDIA's driver could.",
        remedy="Blacklist it (nvidia_driver writes /etc/modprobe.d; for vfio-pci remove the card's ids from its options), update-initramfs -u -k all, "
        "reboot; `lspci -nnk -d 10de:` shows who holds the card.",
        signs=(
            Sign(r"NVIDIA probe routine was not called for (?P<count>\d+) device"),
            Sign(r"Nouveau kernel driver is currently in use by your system"),
            Sign(r"another driver .{0,60}may be (?:already )?(?:bound|controlling|driving)|NVRM: .{0,80}driver such as: (?:NVRM: )?rivafb"),
            Sign(r"Kernel driver in use: (?P<driver>nouveau|nova_core)"),
            Sign(r"GPU [\da-f:.]+ is already bound to (?P<driver>nouveau|nova_core)"),
            Sign(
                r"nouveau [\da-f:.]+: (?:gr|fifo|bus|DRM): .{0,60}\b(?:fail(?:ed|ure)?|error|timeout)",
            ),
        ),
        shows=(
            "NVRM: The NVIDIA probe routine was not called for 3 device(s).",
            "NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
            "ERROR: The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with the NVIDIA driver",
        ),
        unlike=("nouveau 0000:04:00.0: NVIDIA GB205 (1b5000a1)", "Kernel modules: nvidiafb, nouveau, nvidia"),
        sources=("https://github.com/mattshma/bigdata/issues/133",),
        confidence=LIKELY,
        explains=(ANYTHING,),
    ),
    Problem(
        id="driver-open-required",
        layer=HOST,
        title="This GPU needs the open kernel modules",
        cause="The proprietary flavour of the module is installed; Blackwell is driven by the open one only.",
        remedy="Install nvidia-kernel-open-dkms of the same version instead of nvidia-kernel-dkms (nvidia_driver does) and reload or reboot.",
        signs=(
            Sign(r"requires use of the NVIDIA open kernel modules"),
            Sign(r"installed in this system requires .{0,40}open kernel modules?"),
        ),
        shows=(
            "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2bb5)\nNVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        ),
        unlike=("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05",),
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html",),
        confidence=CERTAIN,
        explains=(ANYTHING,),
    ),
    Problem(
        id="driver-gpu-unsupported",
        layer=HOST,
        title="The installed driver does not support this GPU",
        cause="The driver release is too old for the GPU, or too new for an old one, or the open modules meet a GPU without a GSP.",
        remedy="Choose a release that lists the GPU (Blackwell: 570 or newer, open modules) in nvidia_driver_version.",
        signs=(
            Sign(r"is not supported by (?:the NVIDIA \S+ driver release|open nvidia\.ko)"),
            Sign(r"NVRM: .{0,120}installed in this system is not supported|supported through the NVIDIA \S+ Legacy drivers"),
            Sign(r"(?:NVIDIA|nvidia).{0,80}No NVIDIA (?:graphics adapter|GPU|devices?) (?:probed|were found|found)"),
            Sign(r"No devices were found", near=(r"nvidia-smi|NVRM|NVIDIA",), within=20),
        ),
        shows=(
            (
                "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\nNVRM: installed in this system is not supported by the\n"
                "NVRM: NVIDIA 550.163.01 driver release."
            ),
        ),
        unlike=("SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available.",),
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules",),
        confidence=LIKELY,
        explains=(ANYTHING,),
    ),
    Problem(
        id="driver-not-loaded",
        layer=HOST,
        title="The NVIDIA driver is not loaded",
        cause="nvidia-smi reaches no driver: the module is not built for the running kernel, was rejected, or another driver holds the cards.",
        remedy="uname -r; dkms status; modprobe nvidia; journalctl -k -b | grep -iE 'nvidia|NVRM|nouveau' - the first error there is the cause.",
        consequence="No GPU is usable, on the host or in any container.",
        signs=(
            Sign(_SMI_FAILED),
            Sign(r"Failed to initialize NVML: Driver Not Loaded"),
            Sign(r"nvml error: driver not loaded"),
            Sign(r"Found no NVIDIA driver on your system"),
            Sign(r"CUDA_ERROR_STUB_LIBRARY|CUDA driver is a stub library"),
        ),
        shows=(
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed "
                "and running."
            ),
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        ),
        unlike=("NVIDIA-SMI 595.71.05   Driver Version: 595.71.05   CUDA Version: 13.2",),
        sources=("https://github.com/NVIDIA/nvidia-docker/issues/365",),
        confidence=LIKELY,
        tags=("gpu-gone",),
        explains=("cuda-no-device", "device-node-missing", "cuda-unknown-error", "persistenced-failed"),
    ),
    Problem(
        id="driver-half-installed",
        layer=HOST,
        title="A driver package is half installed",
        cause="apt or dpkg stopped while it configured the driver, usually because the module did not build for one of the installed kernels.",
        remedy="Repair what failed first (headers, driver version, unused kernels: apt remove them), then dpkg --configure -a && apt -f install.",
        signs=(
            Sign(r"dpkg: error processing package (?P<package>\S*(?:nvidia|cuda|libcuda)\S*)"),
            Sign(r"E: Sub-process /usr/bin/dpkg returned an error code", near=(r"nvidia",)),
            Sign(r"The following packages have unmet dependencies", near=(r"\bnvidia-|\blibcuda|\blibnvidia",), within=15),
        ),
        shows=(
            (
                "dpkg: error processing package nvidia-kernel-open-dkms (--configure):\n installed nvidia-kernel-open-dkms package post-installation "
                "script subprocess returned error exit status 10"
            ),
        ),
        unlike=("Setting up nvidia-kernel-open-dkms (595.71.05-1) ...",),
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1143",),
        confidence=LIKELY,
    ),
    Problem(
        id="driver-userspace-newer",
        layer=HOST,
        title="The host's module and its driver libraries differ",
        cause="The driver was updated but the old kernel module is still the loaded one: not rebuilt by DKMS, an old one in the initramfs, or "
        "simply not reloaded.",
        remedy="dkms status; dkms autoinstall; update-initramfs -u -k all; reboot (or stop everything that uses the GPUs and reload the modules). "
        "nvidia_driver keeps one version for host and container.",
        signs=(
            Sign(
                r"API mismatch: the client '(?P<client>(?!python|sglang|vllm|pt_main|ray)[^']*)' \(pid \d+\) has the version (?P<library>[\d.]+\d)"
                r"(?:.{0,60}version (?P<module>[\d.]+\d))?",
            ),
            Sign(r"API mismatch: the client has the version", near=(r"initramfs|dkms|apt|dpkg|persistenced|Xorg",), within=30),
        ),
        shows=(
            (
                "[    9.424670] NVRM: API mismatch: the client 'nvidia-persiste' (pid 1005)\n               NVRM: has the version 595.84, but this "
                "kernel module has\n               NVRM: the version 595.80.  Please make sure that this\n               NVRM: kernel module and all "
                "NVIDIA driver components\n               NVRM: have the same version."
            ),
        ),
        unlike=("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.84",),
        sources=("https://github.com/Frogging-Family/nvidia-all/issues/394",),
        confidence=CERTAIN,
        explains=(ANYTHING,),
        refines=("driver-container-mismatch", "driver-library-mismatch"),
    ),
    Problem(
        id="driver-container-mismatch",
        layer=CONTAINER,
        title="Driver libraries and kernel module have different versions",
        cause="The driver libraries of the program (usually those in the container) are not of the version of the host's kernel module.",
        remedy="Install exactly the host's version in the container (cuda_userspace does; by hand: NVIDIA-Linux-x86_64-VERSION.run "
        "--no-kernel-modules). The host's version: cat /proc/driver/nvidia/version. If the host was just updated, reload its modules or reboot.",
        consequence="nvidia-smi and CUDA fail in that container.",
        signs=(
            Sign(
                r"API mismatch: the client(?: '(?P<client>[^']*)' \(pid \d+\))? has the version (?P<library>[\d.]+\d)"
                r"(?:, but this kernel module has the version (?P<module>[\d.]+\d))?"
            ),
            Sign(r"API mismatch: .{0,20}version"),
        ),
        shows=(
            (
                "[ 8957.099615] NVRM: API mismatch: the client has the version 570.148.08, but\n[ 8957.099615] NVRM: this kernel module has the version "
                "570.148.06.  Please\n[ 8957.099615] NVRM: make sure that this kernel module and all NVIDIA driver\n[ 8957.099615] NVRM: components "
                "have the same version."
            ),
        ),
        unlike=("NVRM: version 570.148.06",),
        sources=("https://github.com/nvidiavgpuarchive/index/issues/1",),
        confidence=CERTAIN,
        explains=("driver-library-mismatch", "cuda-unknown-error", "cuda-no-device"),
        refines=("driver-library-mismatch",),
    ),
    Problem(
        id="driver-library-mismatch",
        layer=CONTAINER,
        title="NVML: driver and library have different versions",
        cause="The NVIDIA libraries here and the loaded kernel module are of different versions: an update without a reload on the host, or another "
        "version in the container than on the host.",
        remedy="cat /proc/driver/nvidia/version says the module's version. In a container install that version (cuda_userspace); on the host reload "
        "the modules or reboot after an update.",
        signs=(
            Sign(r"Driver/library version mismatch"),
            Sign(r"NVML library version: (?P<library>[\d.]+)"),
            Sign(r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|system has unsupported display driver / cuda driver combination"),
        ),
        shows=("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142",),
        unlike=("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142",),
        sources=("https://github.com/GoogleCloudPlatform/compute-gpu-installation/pull/18",),
        confidence=CERTAIN,
        explains=("cuda-unknown-error", "cuda-no-device"),
    ),
    Problem(
        id="hmm-init-failed",
        layer=HOST,
        title="CUDA initialisation fails in HMM",
        cause="Heterogeneous memory management of nvidia_uvm finds no free physical range (a kernel with address randomisation): CUDA cannot "
        "initialise, nvidia-smi looks fine, and it varies from boot to boot.",
        remedy="Set nvidia_driver_uvm_disable_hmm: true (options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d), stop what uses the GPUs, "
        "modprobe -r nvidia_uvm && modprobe nvidia_uvm && nvidia-modprobe -c 0 -u, or reboot; "
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm must read Y.",
        consequence="cuInit returns 3 (or 999): no GPU for any program, on the host and in the container.",
        signs=(
            Sign(r"request_free_mem_region\(\) err -?\d+"),
            Sign(r"devmem_alloc_pagemap.{0,60}err"),
            Sign(r"nvidia-uvm-hmm.{0,60}\b(?:fail(?:ed)?|err(?:or)?)"),
        ),
        shows=(
            "[  812.11] nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] request_free_mem_region() err -34",
            "nvidia-uvm: uvm_devmem.c:411 devmem_alloc_pagemap[pid:1811] request_free_mem_region() err -34",
        ),
        unlike=("nvidia-uvm: Loaded the UVM driver, major device number 506.",),
        sources=(
            "https://docs.nvidia.com/cuda/archive/13.2.1/cuda-features-archive/index.html",
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/947",
        ),
        confidence=CERTAIN,
        explains=("cuda-not-initialized", "cuda-unknown-error", "cuda-no-device"),
    ),
    Problem(
        id="hmm-kernel-fault",
        layer=HOST,
        title="nvidia_uvm hangs or crashes in HMM",
        cause="The driver's heterogeneous memory management spins in its fault handler when the card is oversubscribed, or crashes when a process ends.",
        remedy="Reboot; prevent it with nvidia_driver_uvm_disable_hmm: true, and do not allocate more than the card has.",
        consequence="Soft lockups and RCU stalls; the host may have to be switched off.",
        signs=(
            Sign(r"(?:soft lockup|hard LOCKUP).{0,60}\[UVM GPU"),
            Sign(r"blocked for more than \d+ seconds", near=(r"\bUVM GPU|uvm_\w+\+0x",), within=40),
            Sign(r"\buvm_hmm_\w+\+0x[\da-f]+"),
            Sign(r"(?:self-detected stall|detected stalls on CPUs)", near=(r"\bUVM GPU|\buvm_\w+\+0x",), within=60),
            Sign(r"RIP: 0010:uvm_\w+"),
        ),
        shows=(
            "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [UVM GPU1 BH:2718]",
            "BUG: kernel NULL pointer dereference, address: 0000000000000048\nRIP: 0010:uvm_hmm_unregister_gpu+0x5c/0x1a0 [nvidia_uvm]",
        ),
        unlike=("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:112]",),
        sources=(
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1223",
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1082",
        ),
        confidence=LIKELY,
        explains=("soft-lockup", "rcu-stall", "hung-task", "kernel-oops", "cuda-error", "collective"),
        refines=("soft-lockup", "rcu-stall", "hung-task", "kernel-oops"),
    ),
    Problem(
        id="hmm-enabled",
        layer=HOST,
        title="HMM is on",
        cause="nvidia_uvm was loaded without uvm_disable_hmm=1: peer-to-peer transfers between these cards can lock up, and CUDA may fail to start.",
        remedy="Set nvidia_driver_uvm_disable_hmm: true and reload nvidia_uvm or reboot; the option file alone changes nothing.",
        severity=WARNING,
        signs=(
            Sign(r"^N$", source="/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
            Sign(r"Addressing Mode\s*: HMM\b"),
        ),
        shows=("    Addressing Mode                       : HMM",),
        unlike=("    Addressing Mode                       : None",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/hardware/pcie-bandwidth.md",),
        confidence=LIKELY,
        explains=("p2p-hang", "collective", "cuda-not-initialized"),
    ),
    Problem(
        id="cuda-not-initialized",
        layer=HOST,
        title="cuInit fails with 3: initialization error",
        cause="The driver cannot initialise CUDA although nvidia-smi works. On these hosts it is HMM in nvidia_uvm; otherwise /dev/nvidia-uvm is "
        "missing, or CUDA was touched before a fork.",
        remedy="journalctl -k | grep nvidia-uvm; cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm: when it reads N, set "
        "nvidia_driver_uvm_disable_hmm: true and reload nvidia_uvm. Then check ls -l /dev/nvidia-uvm where the program runs.",
        signs=(
            Sign(r"CUDA_ERROR_NOT_INITIALIZED"),
            Sign(r"\bcuInit\b(?:\(0?\))?(?: failed| returned| error|:)?[^\n]{0,30}\b(?:3|initialization error)\b(?![\d.])"),
            Sign(r"CUDA driver initialization failed, you might not have a CUDA gpu"),
            Sign(r"(?:CUDA error|cudaGetDeviceCount|cudaErrorInitializationError|Error 3)[^\n]{0,60}initialization error"),
        ),
        shows=(
            "cuInit failed: 3 CUDA_ERROR_NOT_INITIALIZED",
            "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
            "torch.AcceleratorError: CUDA error: initialization error",
        ),
        unlike=("cuInit: 0", "nvidia-container-cli: initialization error: nvml error: driver not loaded"),
        sources=(
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/947",
            "https://github.com/ollama/ollama/issues/11593",
        ),
        confidence=LIKELY,
        tags=("cuda-init",),
    ),
    Problem(
        id="cuda-fabric-manager",
        layer=HOST,
        title="CUDA error 802: the fabric manager is not up",
        cause="On a machine with NVSwitches the fabric manager is not installed, not running, or of another version than the driver.",
        remedy="apt install nvidia-fabricmanager of exactly the driver's version; systemctl enable --now nvidia-fabricmanager; "
        "journalctl -u nvidia-fabricmanager.",
        signs=(
            Sign(r"Error 802|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"),
            Sign(r"system not yet initialized"),
            Sign(r"fabric manager .{0,80}\b(?:version|interface).{0,60}\b(?:don'?t|doesn'?t|do not|does not|not) match"),
            Sign(r"failed to initialize all the NVSwitch|NV_WARN_NOTHING_TO_DO.{0,40}NVSwitch"),
            Sign(r"nvidia-fabricmanager\.service: (?:Failed with result|Main process exited, code=exited, status=1)"),
        ),
        shows=(
            (
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might "
                "have already set an error? Error 802: system not yet initialized"
            ),
            (
                "fabric manager NVIDIA GPU driver interface version 580.105.08 don't match with driver version 580.126.09. Please update with matching "
                "NVIDIA driver package."
            ),
        ),
        unlike=("nv-fabricmanager: Successfully configured all the available NVSwitches to route GPU NVLink traffic.",),
        sources=(
            "https://github.com/pytorch/pytorch/issues/35710",
            "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        ),
        confidence=CERTAIN,
        tags=("cuda-init",),
        explains=("cuda-no-device", "cuda-error"),
    ),
    Problem(
        id="gpu-does-not-answer",
        layer=HOST,
        title="One GPU does not answer",
        cause="One GPU of the host does not respond to the driver; until it is gone or reset, CUDA does not initialise for any.",
        remedy="journalctl -k | grep -E 'Xid|NVRM|AER' for that bus id; reset the GPU or reboot the host; take the card out (or drop it from "
        "gpu_container_gpus) until it answers.",
        consequence="cuInit returns 999 for every process that can see the card.",
        signs=(
            Sign(
                r"Unable to determine the device handle for GPU ?\d*:? ?(?P<gpu>[\da-fA-F:.]+)?:? .{0,60}\b(?:Unknown Error|Not Found|No such)"
            ),
            Sign(r"\bGPU (?P<gpu>[\da-fA-F]{4,8}:[\da-fA-F:.]+):? .{0,30}Unknown Error"),
        ),
        shows=(
            "Unable to determine the device handle for GPU2: 0000:1F:00.0: Unknown Error",
            "Unable to determine the device handle for GPU 0000:C1:00.0: Unknown Error",
        ),
        unlike=("Failed to initialize NVML: Unknown Error",),
        sources=("https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",),
        confidence=LIKELY,
        tags=("gpu-gone",),
        explains=("cuda-unknown-error", "cuda-not-initialized", "cuda-no-device"),
        refines=("cuda-unknown-error",),
    ),
    Problem(
        id="cuda-unknown-error",
        layer=HOST,
        title="cuInit fails with 999: unknown error",
        cause="CUDA cannot be initialised on this host, whatever the container holds: device nodes missing or not allowed, "
        "a stale major of nvidia-uvm, a half-reloaded driver, or versions that differ.",
        remedy="Repair the host: nvidia-modprobe -c 0 -u; compare ls -l /dev/nvidia* with /proc/devices; reload nvidia_uvm or reboot; host and "
        "container must have one driver version. A package in the container does not help.",
        signs=(
            Sign(r"\bcuInit\b[^\n]{0,30}\b999\b"),
            Sign(r"CUDA_ERROR_UNKNOWN\b"),
            Sign(r"CUDA unknown error - this may be due to an incorrectly set up environment"),
            Sign(r"(?:CUDA error|cudaErrorUnknown|Error 999)[^\n]{0,30}unknown error"),
        ),
        shows=(
            "cuInit: 999",
            (
                "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
                "CUDA_VISIBLE_DEVICES after program start."
            ),
        ),
        unlike=("cuInit: 0", "unknown error code 9990"),
        sources=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",),
        confidence=LIKELY,
        tags=("cuda-init",),
        explains=("cuda-no-device",),
    ),
    Problem(
        id="device-node-missing",
        layer=HOST,
        title="The GPU's device node did not exist when the container started",
        cause="NVIDIA's nodes are made lazily, on the first use of the driver: at boot the container was started before anyone had made them "
        "(or the driver is not loaded).",
        remedy="Make them in a unit ordered before pve-guests.service and pve-ha-lrm.service: nvidia-modprobe -c 0 -u (nvidia_driver installs it). "
        "Now: nvidia-smi && nvidia-modprobe -c 0 -u && pct start VMID.",
        consequence="pct refuses to start the container; HA gives up on it.",
        signs=(
            Sign(_NO_NODE),
            Sign(r"Error accessing device /dev/nvidia"),
            Sign(r"(?:open|mount|stat|access|mknod).{0,60}/dev/nvidia[\w-]*.{0,30}No such file or directory"),
        ),
        shows=(
            "unable to start service ct:502: Device /dev/nvidia0 does not exist\nunable to start service ct:502: Device /dev/nvidia-uvm does not exist",
            "TASK ERROR: Device /dev/nvidia-uvm does not exist",
        ),
        unlike=("dev0: /dev/nvidia0,mode=0666",),
        sources=("https://github.com/games-on-whales/wolf/pull/361", "https://github.com/jammsen/proxmox-setup-scripts/issues/7"),
        confidence=LIKELY,
        explains=("container-start-failed", "cuda-no-device"),
        refines=("container-start-failed",),
    ),
    Problem(
        id="gsp-state-left",
        layer=HOST,
        title="A GPU kept the state of a firmware that has died (WPR2 already up)",
        cause="The GPU's firmware (GSP) was not shut down: it crashed, or the driver was unloaded or a virtual machine ended without a reset. The memory "
        "that it protects stays locked, so that a new start is refused.",
        remedy="Switch the host off and on again: a reboot keeps the card powered. Where it must stay up, stop what uses the GPU, unload the driver and "
        "reset the slot (echo 1 > /sys/bus/pci/devices/GPU/reset); then look in the log of the boot before for the Xid 119 or 120 that began it.",
        signs=(Sign(r"unexpected WPR2 already up"), Sign(r"the GPU is likely in a bad state and may need to be reset")),
        shows=(
            (
                "[  115.08] NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\n"
                "[  115.08] NVRM: GPU 0000:a1:00.0: RmInitAdapter failed! (0x62:0x40:2168)"
            ),
        ),
        unlike=("NVRM: GPU0 kgspBootstrap: booted GSP firmware 595.71.05",),
        sources=(
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1230",
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1104",
        ),
        confidence=CERTAIN,
        tags=("gpu-gone",),
        explains=("gpu-does-not-answer", "cuda-unknown-error", "cuda-no-device", "persistenced-failed"),
        refines=("rm-init-adapter-failed",),
    ),
    Problem(
        id="rm-init-adapter-failed",
        layer=HOST,
        title="The driver could not initialise a GPU",
        cause="RmInitAdapter failed: GSP firmware missing or of another version, too little BAR space, missing power, or a card that was not reset.",
        remedy="Read the NVRM lines before it; cold-start the host; check that the firmware package has the driver's version "
        "(ls /lib/firmware/nvidia), Above 4G decoding and resizable BAR in the firmware setup.",
        signs=(
            Sign(r"RmInitAdapter failed!?"),
            Sign(r"rm_init_adapter failed, device minor number"),
            Sign(r"failed to wait for GFW[_ ]boot"),
            Sign(r"failed to load firmware .{0,60}gsp_|Direct firmware load for nvidia/\S+gsp\S* failed"),
        ),
        shows=(
            "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:1884)\nNVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        ),
        unlike=("[drm] Initialized nvidia-drm 0.0.0 for 0000:01:00.0 on minor 0",),
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/797",),
        confidence=LIKELY,
        tags=("gpu-gone",),
        explains=("gpu-does-not-answer", "cuda-unknown-error", "cuda-no-device", "persistenced-failed"),
    ),
    Problem(
        id="module-in-use",
        layer=HOST,
        title="An NVIDIA module cannot be unloaded: it is in use",
        cause="A container, nvidia-persistenced, DCGM or an exporter still has the devices open.",
        remedy="Stop the containers that use GPUs, nvidia-persistenced and DCGM (fuser -v /dev/nvidia* names the rest), then unload again; or reboot.",
        signs=(
            Sign(r"Module (?P<module>nvidia\w*) is in use"),
            Sign(r"An NVIDIA kernel module '?nvidia\S* appears to (?:already )?be loaded"),
        ),
        shows=("modprobe: FATAL: Module nvidia_uvm is in use.",),
        unlike=("nvidia_uvm           2076672  4",),
        sources=("https://github.com/canonical/lxd/issues/5415",),
        confidence=CERTAIN,
        severity=WARNING,
    ),
    Problem(
        id="persistenced-failed",
        layer=HOST,
        title="nvidia-persistenced does not run",
        cause="The persistence daemon found no usable driver or devices.",
        remedy="systemctl status nvidia-persistenced; usually the driver is not loaded: modprobe nvidia and read journalctl -k.",
        signs=(
            Sign(r"nvidia-persistenced failed to initialize"),
            Sign(r"Failed to query NVIDIA devices"),
            Sign(r"nvidia-persistenced\.service: Failed with result"),
        ),
        shows=("nvidia-persistenced[812]: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist",),
        unlike=("nvidia-persistenced[812]: Started (812)",),
        sources=("https://download.nvidia.com/XFree86/Linux-x86_64/435.17/README/nvidia-persistenced.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="gpu-exclusive",
        layer=HOST,
        title="All GPUs are busy or unavailable",
        cause="Another process holds the GPU in exclusive mode, or MIG is on without an instance.",
        remedy="nvidia-smi -q -d COMPUTE; on the host nvidia-smi -c DEFAULT; nvidia-smi -q | grep -A2 'MIG Mode'; stop the other process.",
        signs=(
            Sign(r"all CUDA-capable devices are busy or unavailable"),
            Sign(r"CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable"),
        ),
        shows=(
            "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\nall CUDA-capable devices are busy or unavailable",
        ),
        unlike=("Compute Mode : Default",),
        sources=("https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="pve-enterprise-repository",
        layer=HOST,
        title="apt is refused by Proxmox's enterprise repository",
        cause="The enterprise repository is enabled without a subscription.",
        remedy="Disable it and use pve-no-subscription (pve_host_no_subscription: true does: Enabled: no in pve-enterprise.sources and ceph.sources), then apt update.",
        signs=(
            Sign(r"enterprise\.proxmox\.com\S* .{0,80}401 Unauthorized"),
            Sign(r"The repository '?https?://enterprise\.proxmox\.com.{0,80}is not signed"),
            Sign(r"401 Unauthorized", near=(r"enterprise\.proxmox\.com",), within=5),
        ),
        shows=(
            "Err:4 https://enterprise.proxmox.com/debian/pve trixie InRelease\n  401  Unauthorized [IP: 192.0.2.7 443]",
            "E: The repository 'https://enterprise.proxmox.com/debian/pve trixie InRelease' is not signed.",
        ),
        unlike=("Hit:4 http://download.proxmox.com/debian/pve trixie InRelease",),
        sources=("https://pve.proxmox.com/wiki/Package_Repositories",),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-proxy-loop",
        layer=HOST,
        title="pvesh: proxy loop",
        cause="The node name in the API path is not exactly this host's name (another case, a full domain name).",
        remedy="Use the exact name: pvesh get /nodes lists it, hostname -s must equal it.",
        signs=(Sign(r"proxy loop detected"),),
        shows=("proxy handler failed: proxy loop detected - aborting",),
        unlike=("proxy: connection to 192.0.2.8:8006 established",),
        sources=("https://github.com/MrBloodrune/claude-skills",),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-no-quorum",
        layer=HOST,
        title="The Proxmox cluster has no quorum",
        cause="Too few nodes of the cluster are reachable: /etc/pve is read-only.",
        remedy="pvecm status; bring the other nodes or the network back; for a single survivor that must work: pvecm expected 1.",
        consequence="No container can be created, changed or started.",
        signs=(
            Sign(r"cluster not ready - no quorum"),
            Sign(r"/etc/pve/\S+.{0,40}\b(?:Permission denied|Read-only)", near=(r"quorum|pmxcfs|corosync",)),
        ),
        shows=("TASK ERROR: cluster not ready - no quorum?",),
        unlike=("[quorum] Members[3]: 1 2 3",),
        sources=("https://pve.proxmox.com/pve-docs/chapter-pvecm.html",),
        confidence=CERTAIN,
        explains=("container-start-failed",),
    ),
    Problem(
        id="gpu-power-or-heat",
        layer=HOST,
        title="A GPU is slowed down by its hardware",
        cause="The card throttles itself: heat, or the power brake of the supply or slot.",
        remedy="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; check air flow and cables; lower nvidia_driver_power_limit_w.",
        severity=WARNING,
        signs=(
            Sign(r"HW (?:Thermal|Power Brake) Slowdown\s*: Active\b"),
            Sign(r"Insufficient power on (?:PCIe )?slot|Detected insufficient power on the PCIe slot"),
            Sign(r"GPU .{0,40}\b(?:temperature|thermal).{0,40}\b(?:shutdown|critical|exceeded)"),
        ),
        shows=("        HW Thermal Slowdown               : Active",),
        unlike=("        HW Thermal Slowdown               : Not Active",),
        sources=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="apt-key-missing",
        layer=HOST,
        title="apt does not trust a repository's key",
        cause="The key that signed the repository is not in the file that its sources entry names, or it has been replaced or has expired.",
        remedy="Let the roles write key and entry anew (nvidia_driver_repository_key, cuda_userspace_repository_key, pve_host_repository_key), remove older "
        "entries for the same address (grep -r ADDRESS /etc/apt), then apt update.",
        signs=(
            Sign(r"Missing key [0-9A-F]{16,40}, which is needed to verify signature"),
            Sign(r"\bNO_PUBKEY [0-9A-F]{8,40}"),
            Sign(r"\bEXPKEYSIG [0-9A-F]{8,40}"),
            Sign(r"Conflicting values set for option Signed-By"),
            Sign(r"The repository '?https?://(?!enterprise\.proxmox)\S+ .{0,80}is not signed"),
        ),
        shows=(
            "  Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key A4B469963BF863CC, which is needed to verify signature.",
            "W: GPG error: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  InRelease: NO_PUBKEY A4B469963BF863CC",
        ),
        unlike=("Get:5 https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64  InRelease [1581 B]",),
        sources=("https://wiki.debian.org/SecureApt",),
        confidence=CERTAIN,
    ),
    Problem(
        id="apt-locked",
        layer=HOST,
        title="Another program holds apt's lock",
        cause="unattended-upgrades, a shell or an interrupted run is installing; the roles wait for it, but not for ever.",
        remedy="ps of the process that the line names tells what it does: let it end and run again. Where it died in the middle: dpkg --configure -a.",
        signs=(
            Sign(r"Could not get lock /var/lib/(?:dpkg|apt)/\S+ .{0,20}held by process (?P<process>\d+)"),
            Sign(r"Unable to acquire the dpkg frontend lock"),
            Sign(r"dpkg was interrupted, you must manually run"),
        ),
        shows=("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4411 (unattended-upgr)",),
        unlike=("Waiting for cache lock: done",),
        sources=("https://manpages.debian.org/trixie/apt/apt-get.8.en.html",),
        confidence=CERTAIN,
    ),
)
