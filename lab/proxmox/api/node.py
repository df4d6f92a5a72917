"""/version and /nodes: the node itself."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox import world
from lab.proxmox.api.registry import route

if TYPE_CHECKING:
    from lab.proxmox.context import Context


@route("GET", "/version")
@route("GET", "/nodes/{node}/version")
def version(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """The version of Proxmox VE."""
    del ctx, values
    return {"release": world.RELEASE, "repoid": world.REPO_ID, "version": world.VERSION}


@route("GET", "/nodes")
def nodes(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The cluster's nodes: this one."""
    now = status(ctx, values)
    return [
        {
            "node": ctx.world.node,
            "id": f"node/{ctx.world.node}",
            "type": "node",
            "status": "online",
            "level": "",
            "cpu": now["cpu"],
            "maxcpu": now["cpuinfo"]["cpus"],
            "mem": now["memory"]["used"],
            "maxmem": now["memory"]["total"],
            "disk": now["rootfs"]["used"],
            "maxdisk": now["rootfs"]["total"],
            "uptime": now["uptime"],
        }
    ]


@route("GET", "/nodes/{node}")
def index(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """What there is of a node."""
    del ctx, values
    return [
        {"name": name} for name in ("lxc", "qemu", "tasks", "storage", "status", "version", "aplinfo", "time", "dns", "hardware", "network")
    ]


def _meminfo(root: Path) -> dict[str, int]:
    lines = (root / "proc/meminfo").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


@route("GET", "/nodes/{node}/status")
def status(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """What the node is and how it does, from /proc and /sys as this node shows them."""
    del ctx, values
    memory = _meminfo(Path("/"))
    cpu = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    model = next((line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name")), "")
    space = os.statvfs("/")
    total, avail = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    machine = os.uname()
    count = os.cpu_count() or 1
    used = memory["MemTotal"] - memory.get("MemAvailable", memory["MemFree"])
    return {
        "uptime": int(float(Path("/proc/uptime").read_text().split()[0])),
        "cpu": min(1.0, os.getloadavg()[0] / count),
        "wait": 0,
        "idle": 0,
        "loadavg": [f"{load:.2f}" for load in os.getloadavg()],
        "kversion": f"Linux {machine.release} {machine.version}",
        "current-kernel": {"sysname": "Linux", "release": machine.release, "version": machine.version, "machine": machine.machine},
        "pveversion": f"pve-manager/{world.VERSION}/{world.REPO_ID}",
        "boot-info": {"mode": "efi" if Path("/sys/firmware/efi").exists() else "legacy-bios"},
        "cpuinfo": {"cpus": count, "cores": count, "sockets": 1, "model": model, "mhz": "0", "hvm": "1", "user_hz": 100, "flags": ""},
        "memory": {"total": memory["MemTotal"], "free": memory["MemFree"], "available": memory.get("MemAvailable", 0), "used": used},
        "swap": {"total": memory["SwapTotal"], "free": memory["SwapFree"], "used": memory["SwapTotal"] - memory["SwapFree"]},
        "rootfs": {"total": total, "avail": avail, "free": avail, "used": total - avail},
        "ksm": {"shared": 0},
    }


@route("GET", "/nodes/{node}/time")
def now(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """The node's clock."""
    del ctx, values
    return {"time": int(time.time()), "localtime": int(time.time()) - time.timezone, "timezone": "UTC"}


@route("GET", "/nodes/{node}/dns")
def resolver(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """The node's resolver."""
    del values
    found: dict[str, Any] = {}
    number = 0
    for line in ctx.world.path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if words[:1] == ["nameserver"]:
            number += 1
            found[f"dns{number}"] = words[1]
        elif words[:1] in (["search"], ["domain"]):
            found["search"] = words[1]
    return found


@route("GET", "/nodes/{node}/network")
def network(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's interfaces."""
    del ctx
    found = []
    for link in sorted(Path("/sys/class/net").iterdir()):
        kind = "bridge" if (link / "bridge").is_dir() else "eth"
        if link.name == "lo" or link.name.startswith("veth") or (values.get("type") and kind not in str(values["type"])):
            continue
        found.append(
            {"iface": link.name, "type": kind, "active": 1, "autostart": 1, "method": "manual", "method6": "manual", "families": ["inet"]}
        )
    return found


@route("GET", "/nodes/{node}/hardware")
def hardware(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """What hardware can be listed."""
    del ctx, values
    return [{"type": "pci"}, {"type": "usb"}]


@route("GET", "/nodes/{node}/hardware/pci")
def pci(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The PCI devices under /sys/bus/pci, without the classes that Proxmox leaves out by default (memory, bridges, processors)."""
    left_out = {"05", "06", "0b"} if "pci-class-blacklist" not in values else set(str(values["pci-class-blacklist"]).split(";")) - {""}
    found = []
    for device in sorted(ctx.world.path("/sys/bus/pci/devices").glob("*")):
        part = {
            name: (device / name).read_text().strip()
            for name in ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
            if (device / name).exists()
        }
        if part.get("class", "0x00")[2:4] in left_out:
            continue
        group = (device / "iommu_group").resolve().name if (device / "iommu_group").exists() else "-1"
        entry = {"id": device.name, "class": part.get("class", ""), "vendor": part.get("vendor", ""), "device": part.get("device", "")}
        entry["iommugroup"] = int(group) if group.lstrip("-").isdigit() else -1  # type: ignore[assignment]
        if part.get("vendor") == "0x10de":
            entry["vendor_name"] = "NVIDIA Corporation"
        found.append(entry)
    return found
