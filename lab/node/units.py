"""Units and shims that the lab itself puts into a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CODE = "/usr/lib/gpunode-lab"
# The code lies on a read-only mount; compiled modules go where every boot starts afresh.
_PYTHON = f"PYTHONPATH={CODE} PYTHONPYCACHEPREFIX=/run/lab/pycache"
BOOT_UNIT = f"""\
[Unit]
Description=Lab: hardware and kernel of this node
DefaultDependencies=no
After=systemd-remount-fs.service systemd-journald.socket
Before=sysinit.target systemd-modules-load.service systemd-sysctl.service systemd-udevd.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
Environment={_PYTHON}
ExecStart=/usr/bin/python3 -m lab.boot
TimeoutStartSec=60

[Install]
WantedBy=sysinit.target
"""


def shim(module: str) -> str:
    """Return the text of an executable that runs a module of the lab."""
    return f'#!/bin/sh\nexec env {_PYTHON} /usr/bin/python3 -m {module} "$@"\n'


def write_shim(path: Path, module: str) -> None:
    """Make ``path`` an executable that runs ``python3 -m module``; untouched when it is that already."""
    text = shim(module)
    if path.is_file() and not path.is_symlink() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.lab")
    part.write_text(text, encoding="utf-8")
    part.chmod(0o755)
    part.replace(path)


# A guest that does not stop would hold a reboot for systemd's usual 90 s.
STOP_TIMEOUT = "[Manager]\nDefaultTimeoutStopSec=20s\n"


def install(tree: Path) -> None:
    """Put the boot unit into a node's tree and enable it."""
    (tree / "etc/systemd/system.conf.d").mkdir(parents=True, exist_ok=True)
    (tree / "etc/systemd/system.conf.d/lab.conf").write_text(STOP_TIMEOUT, encoding="utf-8")
    folder = tree / "etc/systemd/system"
    (folder / "sysinit.target.wants").mkdir(parents=True, exist_ok=True)
    (folder / "lab-boot.service").write_text(BOOT_UNIT, encoding="utf-8")
    link = folder / "sysinit.target.wants/lab-boot.service"
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/systemd/system/lab-boot.service")
