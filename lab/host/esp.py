"""EFI system partitions: folders that stand in for their file systems, kept in step as proxmox-boot-tool's kernel hook does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab.boot import mounts
from lab.host import files, kernels, versions

UUIDS = ("5A1B-C2D3", "5A1B-C2D4")
TITLE = "Proxmox Virtual Environment"
DEFAULT_CMDLINE = "root=ZFS=rpool/ROOT/pve-1 boot=zfs"
BY_UUID = Path("/dev/disk/by-uuid")
FIRMWARE = Path("/sys/firmware")
_UUID = re.compile(r"[0-9a-fA-F]{4}-[0-9a-fA-F]{4}")


def warn(text: str) -> None:
    """Print on stderr, where the real hook reports its steps."""
    print(text, file=sys.stderr, flush=True)


def listed(root: Path) -> list[str]:
    """Return the UUIDs that /etc/kernel/proxmox-boot-uuids names and that look like a FAT file system's; warns about the others."""
    path = root / files.ESP_LIST
    found = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for name in found:
        if not _UUID.search(name):
            warn(f"WARN: {name} read from /{files.ESP_LIST} does not look like a VFAT-UUID - skipping")
    return [name for name in found if _UUID.search(name)]


def sync(root: Path, installing: str = "") -> int:
    """Copy the kept kernels to every ESP, write their entries, set the default, drop the others; returns the exit status."""
    if not (root / files.ESP_LIST).is_file():
        warn(f"No /{files.ESP_LIST} found, skipping ESP sync.")
        return 0
    cmdline_file = root / files.CMDLINE
    if cmdline_file.is_file():
        cmdline = versions.first_line(cmdline_file)
        if "root=" not in cmdline:
            warn(f"No root= parameter in /{files.CMDLINE} found!")
            return 1
    else:
        warn(f"No /{files.CMDLINE} found - falling back to /proc/cmdline")
        cmdline = re.sub(r"\binitrd=\S*\s*", "", Path("/proc/cmdline").read_text(encoding="utf-8")).strip()
    wanted = kernels.boot_list(root, installing)
    for uuid in listed(root):
        esp = root / files.ESPS / uuid
        device = BY_UUID / uuid
        if not esp.is_dir():
            warn(f"WARN: {device} does not exist - clean '/{files.ESP_LIST}'! - skipping")
            continue
        if not (esp / "loader/loader.conf").is_file():
            warn(f"{device} contains no loader.conf - skipping")
            continue
        warn(f"Copying and configuring kernels on {device}")
        _copy_kernels(root, esp, wanted, cmdline)
        pin = versions.first_line(root / files.NEXT_BOOT_PIN) or versions.first_line(root / files.PIN)
        _set_default(esp / "loader/loader.conf", f"proxmox-{pin}.conf" if pin else "proxmox-*")
        _drop_others(esp, wanted)
    return 0


def _copy_kernels(root: Path, esp: Path, wanted: list[str], cmdline: str) -> None:
    for release in wanted:
        image, initrd = root / f"boot/vmlinuz-{release}", root / f"boot/initrd.img-{release}"
        if not image.is_file():
            warn(f"No linux-image /boot/{image.name} found - skipping")
            continue
        if not initrd.is_file():
            warn(f"No initrd-image /boot/{initrd.name} found - skipping")
            continue
        warn(f"\tCopying kernel and creating boot-entry for {release}")
        folder = esp / "EFI/proxmox" / release
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(image, folder)
        shutil.copy2(initrd, folder)
        lines = {
            "title": TITLE,
            "version": release,
            "options": cmdline,
            "linux": f"/EFI/proxmox/{release}/{image.name}",
            "initrd": f"/EFI/proxmox/{release}/{initrd.name}",
        }
        entry = esp / f"loader/entries/proxmox-{release}.conf"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text("".join(f"{name:<8} {value}\n" for name, value in lines.items()), encoding="utf-8")


def _set_default(config: Path, name: str) -> None:
    lines = [line for line in config.read_text(encoding="utf-8").splitlines() if not line.startswith("default ")]
    config.write_text("".join(f"{line}\n" for line in [*lines, f"default {name}"]), encoding="utf-8")


def _drop_others(esp: Path, wanted: list[str]) -> None:
    for folder in sorted((esp / "EFI/proxmox").iterdir()):
        if not folder.is_dir():
            warn(f"\t{folder} is not a directory - skipping")
        elif folder.name not in wanted:
            warn(f"\tRemoving old version {folder.name}")
            shutil.rmtree(folder)
            (esp / f"loader/entries/proxmox-{folder.name}.conf").unlink(missing_ok=True)


def initialise(root: Path, uuid: str) -> None:
    """Make an ESP as ``proxmox-boot-tool init`` leaves it and put it on the list."""
    esp = root / files.ESPS / uuid
    (esp / "EFI/proxmox").mkdir(parents=True, exist_ok=True)
    (esp / "EFI/systemd").mkdir(parents=True, exist_ok=True)
    (esp / "EFI/systemd/systemd-bootx64.efi").write_text("stand-in\n", encoding="utf-8")
    (esp / "loader/entries").mkdir(parents=True, exist_ok=True)
    config = esp / "loader/loader.conf"
    if not config.exists():
        config.write_text("timeout 3\ndefault proxmox-*\n", encoding="utf-8")
    path = root / files.ESP_LIST
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = set(path.read_text(encoding="utf-8").split()) if path.is_file() else set()
    path.write_text("".join(f"{line}\n" for line in sorted(lines | {uuid})), encoding="utf-8")


def install_once(root: Path) -> None:
    """On a node's first boot: two ESPs and a command line, as the installer leaves them on a ZFS mirror with systemd-boot."""
    if (root / files.ESPS).is_dir():
        return
    cmdline = root / files.CMDLINE
    if not cmdline.exists():
        cmdline.parent.mkdir(parents=True, exist_ok=True)
        cmdline.write_text(f"{DEFAULT_CMDLINE}\n", encoding="utf-8")
    for uuid in UUIDS:
        initialise(root, uuid)
    sync(root)


def dress_firmware() -> None:
    """Make /sys/firmware/efi and the ESPs' names in /dev: this machine was started by UEFI."""
    if not (FIRMWARE / "efi").is_dir():
        mounts.mount("tmpfs", FIRMWARE, "tmpfs", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC, "mode=755")
        (FIRMWARE / "efi/efivars").mkdir(parents=True)
        (FIRMWARE / "efi/fw_platform_size").write_text("64\n", encoding="ascii")
    BY_UUID.mkdir(parents=True, exist_ok=True)
    for esp in (files.ROOT / files.ESPS).iterdir():
        link = BY_UUID / esp.name
        if not link.is_symlink():
            link.symlink_to(esp)


def hook(arguments: list[str]) -> int:
    """Run as /etc/kernel/{postinst,postrm}.d/zz-proxmox-boot: only on configure and remove, or by hand."""
    words = os.environ.get("DEB_MAINT_PARAMS", "").replace("'", "").split()
    removing = "/postrm.d/" in os.environ.get("LAB_HOOK", "")
    if words and words[0] != ("remove" if removing else "configure"):
        return 0
    if "LAB_HOOK_UNSHARED" not in os.environ:
        print(f"Re-executing '{os.environ.get('LAB_HOOK', 'zz-proxmox-boot')}' in new private mount namespace..", flush=True)
    return sync(files.ROOT, "" if removing or not arguments else arguments[0])


def auto_removal(arguments: list[str]) -> int:
    """Run as /etc/kernel/postinst.d/proxmox-auto-removal."""
    names = kernels.kept(files.ROOT, arguments[0] if arguments else "")
    path = files.ROOT / files.APT_KEEP
    part = path.with_name(f"{path.name}.dpkg-new")
    part.write_text(kernels.apt_rules(names, "/etc/kernel/postinst.d/proxmox-auto-removal"), encoding="utf-8")
    part.chmod(0o444)
    part.replace(path)
    return 0


def update_grub() -> None:
    """Run update-grub, its output going where ours goes."""
    sys.stdout.flush()
    subprocess.run(["update-grub"], check=True)


if __name__ == "__main__":
    sys.exit(hook(sys.argv[2:]) if sys.argv[1] == "zz-proxmox-boot" else auto_removal(sys.argv[2:]))
