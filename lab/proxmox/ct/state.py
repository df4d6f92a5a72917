"""Whether a container runs, and what can be measured of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox import propstr
from lab.proxmox.ct import mounts
from lab.proxmox.errors import PveError
from lab.proxmox.upid import process_start

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf
    from lab.proxmox.world import World


def lxc_path(world: World) -> str:
    """Where LXC keeps its containers."""
    return str(world.path("/var/lib/lxc"))


def running(world: World, vmid: int) -> bool:
    """Whether LXC's monitor of a container answers: its command socket exists."""
    socket = f"@{lxc_path(world)}/{vmid}/command"
    try:
        return socket in {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()}
    except OSError:
        return False


def init_pid(world: World, vmid: int) -> int:
    """The host's pid of a container's init; PveError when there is none."""
    done = subprocess.run(["lxc-info", "-P", lxc_path(world), "-n", str(vmid), "-p", "-H"], capture_output=True, text=True, check=False)
    if not done.stdout.strip().isdigit():
        raise PveError(f"unable to get PID for CT {vmid} (not running?)")
    return int(done.stdout)


def _cgroup(vmid: int, pid: int, controller: str, *names: str) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        mine = re.match(rf".*/lxc\.payload\.{vmid}", path)  # its init lives in a group of its own below
        if controller in controllers.split(",") or number == "0":
            folder = Path("/sys/fs/cgroup") / (controller if controllers else "") / (mine[0] if mine else path).lstrip("/")
            for name in names:
                try:
                    return int((folder / name).read_text())
                except (OSError, ValueError):
                    continue
    return None


def status(ctx: Context, vmid: int, conf: Conf) -> dict[str, Any]:
    """A container's line in lists: state, limits, and what it uses (bytes, seconds)."""
    rootfs = next((mount for key, mount in mounts.each(ctx, conf) if key == "rootfs"), {})
    size = propstr.size_bytes(str(rootfs.get("size", "0"))) or 0
    entry: dict[str, Any] = {
        "vmid": vmid,
        "status": "stopped",
        "type": "lxc",
        "name": conf.get("hostname", f"CT{vmid}"),
        "cpus": conf.get("cores") or conf.get("cpulimit") or os.cpu_count(),
        "maxmem": int(conf.get("memory", 512)) * 2**20,
        "maxswap": int(conf.get("swap", 512)) * 2**20,
        "maxdisk": size,
        "mem": 0,
        "swap": 0,
        "disk": 0,
        "cpu": 0,
        "uptime": 0,
        "netin": 0,
        "netout": 0,
        "diskread": 0,
        "diskwrite": 0,
    }
    for name in ("tags", "lock", "template"):
        if conf.get(name):
            entry[name] = conf[name]
    if not running(ctx.world, vmid):
        return entry
    entry["status"] = "running"
    try:
        pid = init_pid(ctx.world, vmid)
    except PveError:
        return entry
    started = process_start(pid)
    if started is not None:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        entry["uptime"] = int(max(uptime, boot) - started / os.sysconf("SC_CLK_TCK"))
    entry["pid"] = pid
    entry["mem"] = _cgroup(vmid, pid, "memory", "memory.current", "memory.usage_in_bytes") or 0
    return entry
