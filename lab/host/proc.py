"""What /proc says of the kernel that booted: release, version and command line, and tunables that are this node's own.

A node shares the machine's kernel. The files dressed here are copies under /run/lab/proc, so that what a role writes there (vm.swappiness,
kernel.numa_balancing...) reads back and changes nothing on the machine.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from lab.boot import mounts

STATE = Path("/run/lab")
COPY = STATE / "proc"
# A second proc, without anything mounted over it, that LXC's nesting.conf provides.
PLAIN = Path("/dev/.lxc/proc")
# Files that answer anew for each reader or belong to the container's own namespaces: they stay the kernel's.
_LIVE = {"hostname", "domainname", "uuid", "ns_last_pid", "entropy_avail", "nr", "pty", "keys", "tainted", "usermodehelper"}
# A machine with two NUMA nodes starts with automatic balancing, whatever the machine below has.
_AT_BOOT = {"kernel/numa_balancing": "1\n", "vm/swappiness": "60\n"}
BUILDER = "build@proxmox"
COMPILER = "gcc (Debian 14.2.0-19) 14.2.0, GNU ld (GNU Binutils for Debian) 2.44"


def kernel_version(release: str) -> str:
    """Return what uname -v says on a Proxmox kernel."""
    return f"#1 SMP PREEMPT_DYNAMIC PMX {release.removesuffix('-pve')} (2026-08-22T09:40Z)"


def _copy_tree(source: Path, target: Path) -> None:
    target.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path in source.iterdir():
        place = target / path.name
        if path.name in _LIVE or path.is_symlink():
            place.symlink_to(PLAIN / path.relative_to("/proc"))
        elif path.is_dir():
            _copy_tree(path, place)
        else:
            text = b""
            # Some files can only be written.
            with contextlib.suppress(OSError):
                text = path.read_bytes()
            place.write_bytes(text)
            place.chmod(0o644)


def dress(release: str, cmdline: str) -> None:
    """Mount the dressed files over /proc; calling it again starts from the kernel's own values."""
    there = mounts.mounted()
    places = ["/proc/cmdline", "/proc/version", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"]
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    for place in places:
        if place in there:
            mounts.unmount(place)
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(mode=0o755, parents=True)
    (COPY / "cmdline").write_text(f"{cmdline}\n", encoding="utf-8")
    version = kernel_version(release)
    (COPY / "version").write_text(f"Linux version {release} ({BUILDER}) ({COMPILER}) {version}\n", encoding="utf-8")
    for name in ("kernel", "vm", "fs"):
        _copy_tree(Path("/proc/sys") / name, COPY / "sys" / name)
    for name, value in _AT_BOOT.items():
        (COPY / "sys" / name).write_text(value, encoding="ascii")
    kernel = COPY / "sys/kernel"
    (kernel / "osrelease").write_text(f"{release}\n", encoding="ascii")
    (kernel / "version").write_text(f"{version}\n", encoding="ascii")
    (kernel / "random/boot_id").write_text(boot_id, encoding="ascii")
    mounts.bind(COPY / "cmdline", "/proc/cmdline", read_only=True)
    mounts.bind(COPY / "version", "/proc/version", read_only=True)
    for name in ("kernel", "vm", "fs"):
        mounts.bind(COPY / "sys" / name, f"/proc/sys/{name}")


def guest_fragment() -> str:
    """Return LXC configuration that shows the same kernel inside a guest."""
    entries = [
        f"{COPY}/cmdline proc/cmdline none bind,ro",
        f"{COPY}/version proc/version none bind,ro",
        f"{COPY}/sys/kernel/osrelease proc/sys/kernel/osrelease none bind,ro",
        f"{COPY}/sys/kernel/version proc/sys/kernel/version none bind,ro",
        "/usr/lib/gpunode-lab usr/lib/gpunode-lab none rbind,ro,create=dir",
        "/usr/lib/gpunode-lab-apt usr/lib/gpunode-lab-apt none bind,ro,create=dir",
        "/etc/ld.so.preload etc/ld.so.preload none bind,ro,create=file",
    ]
    return "".join(f"lxc.mount.entry = {entry} 0 0\n" for entry in entries)
