"""Where the stand-in keeps its state, and where a real system would show it.

GPUNODE_LAB_ROOT moves the whole world below a folder, for tests; on a lab node it is unset.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("GPUNODE_LAB_ROOT", "/"))

ETC = ROOT / "etc/lab/nvidia"  # how the node is made, and its faults: survives a reboot
FABRIC = ROOT / "etc/lab/fabric.conf"  # what the stand-in libcuda reads, in guests too
DISK = ROOT / "var/lib/lab/nvidia"  # what firmware would remember (enrolled keys)
RUN = ROOT / "run/lab/nvidia"  # this boot
KMSG = ROOT / "run/lab/kmsg"
KERNEL_RELEASE = ROOT / "run/lab/kernel-release"
GUEST_FRAGMENTS = ROOT / "run/lab/guest.d"

PROC_DRIVER = RUN / "proc/driver"  # bound over /proc/driver, in guests too
PROC_DEVICES = RUN / "proc/devices"
PROC_MODULES = RUN / "proc/modules"
SYS_PCI_BUS = RUN / "sys/bus-pci"
SYS_PCI_DEVICES = RUN / "sys/devices-pci"
SYS_MODULE = RUN / "sys/module"
SYS_IOMMU = RUN / "sys/iommu_groups"
SYS_CLASS_IOMMU = RUN / "sys/class-iommu"
CONTROL = RUN / "control"  # pipes behind the files of sysfs to which one writes

# The channel between the "driver" and its tools. It lies below /proc/driver because that is what a guest is shown anyway.
PRIVATE = ".lab"


def channel() -> Path:
    """Folder with the driver's state, as seen from node and guest."""
    in_place = ROOT / "proc/driver" / PRIVATE
    return in_place if in_place.is_dir() else PROC_DRIVER / PRIVATE
