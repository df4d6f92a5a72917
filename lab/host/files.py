"""Where a Proxmox host keeps what decides its next boot."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")
ESP_LIST = "etc/kernel/proxmox-boot-uuids"
CMDLINE = "etc/kernel/cmdline"
MANUAL_KERNELS = "etc/kernel/proxmox-boot-manual-kernels"
PIN = "etc/kernel/proxmox-boot-pin"
NEXT_BOOT_PIN = "etc/kernel/next-boot-pin"
GRUB_CONFIG = "boot/grub/grub.cfg"
GRUB_ENVIRONMENT = "boot/grub/grubenv"
GRUB_PIN = "etc/default/grub.d/proxmox-kernel-pin.cfg"
APT_KEEP = "etc/apt/apt.conf.d/76pveconf"
# The stand-ins for the ESPs' file systems: folders that outlive a reboot.
ESPS = "var/lib/lab/esp"
# One-time choice at the console's boot menu, made with `python -m lab up NODE --boot-entry VERSION`.
MENU_CHOICE = "var/lib/lab/boot-menu-choice"
# Kernels that die before user space (a fault), one a line.
DEADLY_KERNELS = "var/lib/lab/deadly-kernels"


def esps(root: Path) -> list[Path]:
    """Return the ESPs that proxmox-boot-tool keeps in step, in its list's order; those that do not exist are left out."""
    path = root / ESP_LIST
    names = path.read_text(encoding="utf-8").split() if path.is_file() else []
    return [root / ESPS / name for name in names if (root / ESPS / name).is_dir()]
