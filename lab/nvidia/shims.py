"""Commands of Debian that the node's stand-in kernel has to answer itself: kmod's tools, dmesg, mokutil, and module loading at boot."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PYTHON = "PYTHONPATH=/usr/lib/gpunode-lab PYTHONPYCACHEPREFIX=/run/lab/pycache /usr/bin/python3 -m"
_KMOD = f'#!/bin/sh\nexec env {_PYTHON} lab.nvidia.modules "${{0##*/}}" "$@"\n'
SHIMS = {
    "/usr/sbin/modprobe": _KMOD,
    "/usr/sbin/insmod": _KMOD,
    "/usr/sbin/rmmod": _KMOD,
    "/usr/sbin/lsmod": _KMOD,
    "/usr/bin/lsmod": _KMOD,
    # The real dmesg reads the node's own kernel log; what follows new messages has nothing to follow.
    "/usr/bin/dmesg": '#!/bin/sh\nexec /usr/bin/dmesg.lab-real -F /run/lab/kmsg "$@"\n',
    "/usr/bin/mokutil": f'#!/bin/sh\nexec env {_PYTHON} lab.nvidia.secure_boot "$@"\n',
}
# systemd's own loader calls into the kernel; ours goes through modprobe. The drop-in clears a condition on a capability nodes lack.
_LOADER = Path("/etc/systemd/system/systemd-modules-load.service.d/lab.conf")
_LOADER_TEXT = f"""[Unit]
ConditionCapability=
After=lab-boot.service

[Service]
ExecStart=
ExecStart=/usr/bin/env {_PYTHON} lab.nvidia.modules_load
"""


def divert(path: str) -> None:
    """Move Debian's own file aside for good, also for packages that come later."""
    subprocess.run(
        ["dpkg-divert", "--local", "--rename", "--divert", path + ".lab-real", "--add", path], check=True, capture_output=True, text=True
    )


def install() -> None:
    """Put the shims in place; quick when they are there."""
    for path, text in SHIMS.items():
        place = Path(path)
        if place.is_file() and not place.is_symlink() and place.read_text(errors="replace") == text:
            continue
        divert(path)
        place.unlink(missing_ok=True)
        place.write_text(text)
        place.chmod(0o755)
    if not _LOADER.exists() or _LOADER.read_text() != _LOADER_TEXT:
        _LOADER.parent.mkdir(parents=True, exist_ok=True)
        _LOADER.write_text(_LOADER_TEXT)
        # systemd read its units before this boot's lab-boot ran.
        subprocess.run(["systemctl", "daemon-reload"], check=False, capture_output=True, timeout=30)
