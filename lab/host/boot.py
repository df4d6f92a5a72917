"""Boot of the host's part: the boot loader chooses a kernel, and /proc shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lab.host import esp, files, loader, proc, sysfs, versions

STATE = Path("/run/lab")


def facts() -> dict[str, str]:
    """Return /etc/lab/node.json."""
    return dict(json.loads(Path("/etc/lab/node.json").read_text(encoding="utf-8")))


def main() -> None:
    """Choose the kernel as the boot loader would, write /run/lab/kernel-release and dress /proc."""
    if (STATE / "kernel-release").exists():
        # Called again within one boot: the kernel that runs, runs.
        return
    node = facts()
    if node["boot_loader"] == "systemd-boot":
        esp.install_once(files.ROOT)
        esp.dress_firmware()
    try:
        entry = loader.choose()
    except loader.NotBootableError as error:
        # A machine would stop here for good; the lab says so and goes on, because a node that is off teaches nothing.
        print(f"NOT BOOTABLE: {error}; taking the newest kernel in /boot", file=sys.stderr)
        newest = next(iter(versions.bootable(files.ROOT)), os.uname().release)
        entry = loader.Entry((), newest, "BOOT_IMAGE=/boot/vmlinuz root=/dev/mapper/pve-root ro quiet")
        (STATE / "not-bootable").write_text(f"{error}\n", encoding="utf-8")
    deadly = files.ROOT / files.DEADLY_KERNELS
    if deadly.is_file() and entry.release in deadly.read_text(encoding="utf-8").split():
        print(f"kernel {entry.release} dies before user space (a fault of the lab)", file=sys.stderr)
        subprocess.run(["systemctl", "poweroff", "--force", "--force"], check=False)
        return
    proc.dress(entry.release, entry.cmdline)
    sysfs.dress()
    (STATE / "guest.d").mkdir(exist_ok=True)
    (STATE / "guest.d/10-kernel.conf").write_text(proc.guest_fragment(), encoding="utf-8")
    (STATE / "kernel-release").write_text(f"{entry.release}\n", encoding="utf-8")
    print(f"kernel {entry.release}, command line: {entry.cmdline}")
