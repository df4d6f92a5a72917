"""Faults of the host's own part, set inside a node."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from lab.host import esp, files, versions

if TYPE_CHECKING:
    from collections.abc import Callable


def kernel_dies(release: str = "") -> None:
    """Kernel RELEASE (default: the newest one) dies before user space; the node goes off, `up --boot-entry OTHER` is its console."""
    chosen = release or next(iter(versions.bootable(files.ROOT)))
    path = files.ROOT / files.DEADLY_KERNELS
    lines = set(path.read_text(encoding="utf-8").split()) if path.is_file() else set()
    path.write_text("".join(f"{line}\n" for line in sorted(lines | {chosen})), encoding="utf-8")


def esp_missing() -> None:
    """The last ESP of proxmox-boot-tool's list is gone, as after a disk was replaced (systemd-boot nodes)."""
    found = files.esps(files.ROOT)
    if not found:
        raise SystemExit("this node boots with GRUB: it has no ESPs")
    shutil.rmtree(found[-1])


def apt_locked(seconds: str = "60") -> None:
    """Somebody else's apt holds the package database's locks for SECONDS (default 60)."""
    script = (
        "import fcntl,time\nfiles=[open(p,'w') for p in ('/var/lib/dpkg/lock-frontend','/var/lib/dpkg/lock')]\n"
        f"[fcntl.lockf(f,fcntl.LOCK_EX) for f in files]\ntime.sleep({float(seconds)})\n"
    )
    subprocess.run(["systemd-run", "--quiet", "--collect", "--unit=lab-apt-locked", "python3", "-c", script], check=True)


def clear() -> None:
    """Let every kernel boot again, give missing ESPs back, release apt's locks."""
    (files.ROOT / files.DEADLY_KERNELS).unlink(missing_ok=True)
    subprocess.run(["systemctl", "stop", "lab-apt-locked.service"], check=False, capture_output=True)
    listed = esp.listed(files.ROOT) if (files.ROOT / files.ESP_LIST).is_file() else []
    for uuid in listed:
        if not (files.ROOT / files.ESPS / uuid).is_dir():
            esp.initialise(files.ROOT, uuid)
            esp.sync(files.ROOT)


FAULTS: dict[str, Callable[..., None]] = {"kernel-dies": kernel_dies, "esp-missing": esp_missing, "apt-locked": apt_locked}
