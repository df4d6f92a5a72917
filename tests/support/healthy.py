"""A healthy node as a snapshot, made by hand; whoever uses it spoils what the test is about."""

from __future__ import annotations

from typing import Any

BUSES = [f"{number:02x}" for number in (0x01, 0x21, 0x41, 0x61, 0x81, 0xA1, 0xC1, 0xE1, 0x05, 0x25, 0x45, 0x65, 0x85, 0xA5, 0xC5, 0xE5)]
VERSION = "NVRM version: NVIDIA UNIX {flavour}  {version}  Release Build  (root@node)  \nGCC version:  gcc 14\n"
OPEN = "Open Kernel Module for x86_64"
SMI_GPU = """\
GPU 0000{bdf}
    Product Name                          : {name}
    Product Architecture                  : {architecture}
    Persistence Mode                      : Enabled
    Addressing Mode                       : None
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-00000000-0000-4000-8000-{index:012d}
    Minor Number                          : {index}
    VBIOS Version                         : 98.02.81.00.01
    GPU Virtualization Mode
        Virtualization Mode               : None
    GSP Firmware Version                  : 595.58.03
    PCI
        Bus Id                            : 0000{bdf}
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 1
                Device Max                : 5
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 16x
        Replays Since Reset               : 0
    Performance State                     : P8
    FB Memory Usage
        Total                             : 97887 MiB
        Used                              : 0 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
    Utilization
        GPU                               : 0 %
    Processes                             : None
"""


def addresses(count: int) -> list[str]:
    return [f"0000:{bus}:00.0" for bus in BUSES[:count]]


def run(stdout: str, rc: int | None = 0, stderr: str = "") -> dict[str, Any]:
    return {"rc": rc, "stdout": stdout, "stderr": stderr}


def path(one: int, other: int, count: int) -> str:
    if one == other:
        return "X"
    half = (count + 1) // 2
    return "NODE" if (one < half) == (other < half) else "SYS"


def topo_text(count: int, cell: Any = path) -> str:
    labels = [f"GPU{number}" for number in range(count)]
    lines = ["\t\x1b[4m" + "\t".join([*labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for one in range(count):
        cells = [cell(one, other, count) for other in range(count)]
        node = 0 if one < (count + 1) // 2 else 1
        lines.append(
            "\t".join(
                [f"GPU{one}", *(" X " if value == "X" else value for value in cells), f"{node * 64}-{node * 64 + 63}", str(node), "", "N/A"]
            )
        )
    legend = ["", "Legend:", "", "  X    = Self", "  SYS  = Connection", "  NV#  = Connection traversing a bonded set of # NVLinks"]
    return "\n".join([*lines, *legend]) + "\n"


def status_text(count: int, cell: str = "OK") -> str:
    labels = [f"GPU{number}" for number in range(count)]
    lines = [" \t\x1b[4m" + "\t".join(labels) + "\t\x1b[0m"]
    lines += [f" GPU{one}\t" + "\t".join("X" if one == other else cell for other in range(count)) + "\t" for one in range(count)]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  OK   = Status Ok", "  U    = Unknown"]) + "\n"


def smi_text(count: int, name: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition", architecture: str = "Blackwell") -> str:
    head = f"\n==============NVSMI LOG==============\n\nDriver Version  : 595.58.03\nCUDA Version    : 13.2\n\nAttached GPUs   : {count}\n"
    return head + "\n".join(
        SMI_GPU.format(bdf=bdf, name=name, architecture=architecture, index=index) for index, bdf in enumerate(addresses(count))
    )


def lspci_text(count: int, control: str = "SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-") -> str:
    blocks = []
    for bdf in addresses(count):
        bus = bdf[5:7]
        root = f"{int(bus, 16) - 1:02x}"
        blocks.append(
            f"{root}:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Root Port (prog-if 00 [Normal decode])\n"
            f"\tBus: primary={root}, secondary={bus}, subordinate={bus}, sec-latency=0\n"
            "\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n"
            "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 2.5GT/s, Width x16\n"
            f"\tCapabilities: [2a0 v1] Access Control Services\n\t\tACSCtl:\t{control}\n\tKernel driver in use: pcieport\n\n"
        )
        blocks.append(
            f"{bus}:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)\n"
            "\tRegion 2: Memory at 76000000000 (64-bit, prefetchable) [size=128G]\n"
            "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n"
            "\tKernel driver in use: nvidia\n\n"
        )
    return "".join(blocks)


def make_pairs(count: int) -> list[dict[str, Any]]:
    pairs = []
    for one in range(count):
        for other in range(count):
            if one != other:
                near = path(one, other, count) == "NODE"
                pairs.append(
                    {
                        "src": one,
                        "dst": other,
                        "can_access": True,
                        "copy_gbps": 53.0 if near else 40.0,
                        "read_latency_us": 0.75 if near else 1.3,
                        "data_ok": True,
                        "status": "ok",
                    }
                )
    return pairs


def make_node(count: int = 8) -> dict[str, Any]:
    """A healthy node: NODE within, SYS across, IOMMU off, HMM off, ACS redirection off, all pairs measured."""
    files: dict[str, str | None] = {
        "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-7.0.14-14-pve root=/dev/mapper/pve-root ro quiet amd_iommu=off iommu=off\n",
        "/proc/devices": "Character devices:\n195 nvidia\n238 nvidia-uvm\n\nBlock devices:\n  7 loop\n",
        "/proc/driver/nvidia/version": VERSION.format(flavour=OPEN, version="595.58.03"),
        "/proc/driver/nvidia/params": 'EnableResizableBar: 1\nRegistryDwords: "ForceP2P=0x11;RMForceP2PType=1"\n',
        "/sys/module/nvidia/version": "595.58.03\n",
        "/sys/module/nvidia_uvm/version": "595.58.03\n",
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "Y\n",
        "/sys/class/dmi/id/bios_version": "1.7a\n",
        "/etc/modprobe.d/gpunode.conf": "options nvidia_uvm uvm_disable_hmm=1\n"
        'options nvidia NVreg_EnableResizableBar=1 NVreg_RegistryDwords="ForceP2P=0x11;RMForceP2PType=1"\n',
        "/lib/modules/7.0.14-14-pve/build/include/config/kernel.release": "7.0.14-14-pve\n",
    }
    links: dict[str, str | None] = {"/lib/modules/7.0.14-14-pve/build": "/usr/src/linux-headers-7.0.14-14-pve"}
    nodes: dict[str, Any] = {}
    for index, bdf in enumerate(addresses(count)):
        base = f"/sys/bus/pci/devices/{bdf}"
        root = f"0000:{int(bdf[5:7], 16) - 1:02x}:01.1"
        files.update({f"{base}/vendor": "0x10de\n", f"{base}/class": "0x030200\n", f"{base}/numa_node": f"{index * 2 // count}\n"})
        for place in (base, f"/sys/bus/pci/devices/{root}"):
            files.update({f"{place}/current_link_width": "16\n", f"{place}/max_link_width": "16\n"})
            files.update({f"{place}/current_link_speed": "2.5 GT/s PCIe\n", f"{place}/max_link_speed": "32.0 GT/s PCIe\n"})
            files.update({f"{place}/aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0\n", f"{place}/aer_dev_fatal": "TOTAL_ERR_FATAL 0\n"})
        links.update(
            {
                base: f"../../../devices/pci{root[:7]}/{root}/{bdf}",
                f"{base}/driver": "../../../bus/pci/drivers/nvidia",
                f"{base}/iommu_group": None,
            }
        )
        nodes[f"/dev/nvidia{index}"] = {"major": 195, "minor": index, "mode": "0666", "uid": 0, "gid": 0}
    nodes["/dev/nvidiactl"] = {"major": 195, "minor": 255, "mode": "0666", "uid": 0, "gid": 0}
    nodes["/dev/nvidia-uvm"] = {"major": 238, "minor": 0, "mode": "0666", "uid": 0, "gid": 0}
    commands = {
        "nvidia-smi topo -m": run(topo_text(count)),
        "nvidia-smi topo -p2p r": run(status_text(count)),
        "nvidia-smi topo -p2p w": run(status_text(count)),
        "nvidia-smi -q": run(smi_text(count)),
        "lspci -vvv": run(lspci_text(count)),
        "dkms status": run("nvidia/595.58.03, 7.0.14-14-pve, x86_64: installed\n"),
        "dmesg": run("[    0.000000] Linux version 7.0.14-14-pve\n[    2.5] iommu: Default domain type: Translated\n"),
        "uname -r": run("7.0.14-14-pve\n"),
    }
    return {
        "schema": "gpunode.snapshot/1",
        "host": "node1",
        "collected_at": "2026-11-30T12:00:00Z",
        "commands": commands,
        "files": files,
        "links": links,
        "nodes": nodes,
        "measured": make_pairs(count),
        "measurement": {"mode": "quick"},
    }
