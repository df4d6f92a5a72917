"""Reads kernels, pins and boot loader of a Proxmox VE host, through a function that runs commands; decides nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import kernels
from .parsers.dkms import parse_dkms
from .parsers.text import NotUnderstoodError

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[list[str]], "tuple[int, str, str]"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ESP_LIST = Path("/etc/kernel/proxmox-boot-uuids")
PIN = Path("/etc/kernel/proxmox-boot-pin")
NEXT_BOOT_PIN = Path("/etc/kernel/next-boot-pin")
GRUB_CONFIG = Path("/boot/grub/grub.cfg")
GRUB_ENVIRONMENT = Path("/boot/grub/grubenv")
MODULES = ("nvidia", "nvidia_uvm")


def text_of(path: Path) -> str:
    """The text of a file; empty when it does not exist or is not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def installed(boot: Path = Path("/boot")) -> list[str]:
    """Releases of the kernel images in /boot, oldest first."""
    return sorted((path.name[len("vmlinuz-") :] for path in boot.glob("vmlinuz-*") if path.stat().st_size), key=kernels.release_key)


def secure_boot(run: Run) -> bool | None:
    """Whether Secure Boot is on; None when mokutil cannot tell."""
    _, out, _ = run(["mokutil", "--sb-state"])
    return True if "SecureBoot enabled" in out else False if "SecureBoot disabled" in out else None


def read_dkms(run: Run) -> dict[str, dict[str, str]]:
    """Kernel release to module to version, of what DKMS has installed; empty where there is no DKMS."""
    rc, out, _ = run(["dkms", "status"])
    try:
        entries = parse_dkms(out) if rc == 0 else []
    except NotUnderstoodError:
        entries = []
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry.kernel and entry.state == "installed":
            found.setdefault(entry.kernel, {})[entry.module] = entry.version
    return found


def read_kernel(run: Run, release: str, dkms: dict[str, dict[str, str]]) -> dict[str, Any]:
    """One kernel as plain data: release, image, initrd, headers (booleans), dkms {module: version}, modules {name: modinfo or None}."""
    initrd = Path(f"/boot/initrd.img-{release}")
    build = Path(f"/lib/modules/{release}/build")
    modules: dict[str, Any] = {}
    for name in MODULES:
        rc, out, _ = run(["modinfo", "-k", release, name])
        modules[name] = kernels.parse_modinfo(out) if rc == 0 else None
    return {
        "release": release,
        "image": Path(f"/boot/vmlinuz-{release}").exists(),
        "initrd": initrd.exists() and initrd.stat().st_size > 0,
        "headers": (build / "Makefile").exists(),
        "dkms": dkms.get(release, {}),
        "modules": modules,
    }


def read_boot(run: Run) -> dict[str, Any]:
    """What the boot loader does next: {loader, next (release, empty when unknown), console {release: entry}, unread [reasons]}.

    With proxmox-boot-tool every ESP is mounted read-only and read; where they disagree, or one cannot be read, ``next`` is empty and
    ``unread`` says why.
    """
    if not ESP_LIST.exists():
        config = text_of(GRUB_CONFIG)
        unread = [] if config else [f"{GRUB_CONFIG} cannot be read"]
        boots = kernels.grub_boots(config, text_of(GRUB_ENVIRONMENT)) if config else ""
        return {"loader": "grub", "next": boots, "console": kernels.grub_titles(config), "unread": unread}
    loader, results, console, unread = "systemd-boot", {}, {}, []
    for uuid in ESP_LIST.read_text().split():
        try:
            loader, release, titles = _read_esp(run, uuid)
        except OSError as error:
            unread.append(f"ESP {uuid}: {error}")
            continue
        results[uuid] = release
        console.update(titles)
    if len(set(results.values())) > 1:
        unread.append("the ESPs disagree: " + ", ".join(f"{uuid} starts {release or 'nothing'}" for uuid, release in results.items()))
    boots = "" if unread else next(iter(results.values()), "")
    return {"loader": loader, "next": boots, "console": console, "unread": unread}


def _read_esp(run: Run, uuid: str) -> tuple[str, str, dict[str, str]]:
    device = f"/dev/disk/by-uuid/{uuid}"
    with tempfile.TemporaryDirectory(prefix="gpunode-esp-") as name:
        rc, out, err = run(["mount", "-t", "vfat", "-o", "ro", device, name])
        if rc != 0:
            raise OSError(f"`mount {device}` failed: {(err or out).strip()}")
        try:
            esp = Path(name)
            if (grub := text_of(esp / "grub/grub.cfg")) and not (esp / "loader/loader.conf").exists():
                return "grub", kernels.grub_boots(grub, text_of(esp / "grub/grubenv")), kernels.grub_titles(grub)
            texts = {path.name: text_of(path) for path in (esp / "loader/entries").glob("*.conf")}
            titles = {}
            for file, text in texts.items():
                if entry := kernels.loader_entry(file, text):
                    titles[entry.release] = entry.title if entry.release in entry.title else f"{entry.title} ({entry.release})"
            return "systemd-boot", kernels.systemd_boots(text_of(esp / "loader/loader.conf"), texts), titles
        finally:
            run(["umount", name])


def read(run: Run) -> dict[str, Any]:
    """Everything at once: {running, boot_id, kernels {release: …}, pins, boot, secure_boot}."""
    dkms = read_dkms(run)
    return {
        "running": run(["uname", "-r"])[1].strip(),
        "boot_id": text_of(BOOT_ID).strip(),
        "kernels": {release: read_kernel(run, release, dkms) for release in installed()},
        "pins": kernels.parse_pins(text_of(PIN), text_of(NEXT_BOOT_PIN)),
        "boot": read_boot(run),
        "secure_boot": secure_boot(run),
    }
