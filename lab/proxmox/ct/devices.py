"""dev[n]: nodes of the container's own, made from what the host's path is at each start."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from lab.proxmox import schema
from lab.proxmox.ct import mounts
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

Device = dict[str, Any]


def parse(ctx: Context, text: str) -> Device:
    """A dev[n] value; PveError when it names no path."""
    found = schema.parse(ctx.schema.format_of("dev0"), text)
    if "path" not in found:
        raise PveError("Path has to be defined")
    return found


def each(ctx: Context, conf: Conf) -> list[tuple[str, Device]]:
    """The devices of a configuration, by number."""
    names = sorted((name for name in conf if re.fullmatch(r"dev\d+", name)), key=lambda name: int(name[3:]))
    return [(name, parse(ctx, str(conf[name]))) for name in names]


def look_up(ctx: Context, path: str) -> tuple[int, int]:
    """Type bits and device number of the host's node now; PveError when it is missing or no device."""
    try:
        found = ctx.world.path(path).stat()
    except FileNotFoundError:
        raise PveError(f"Device {path} does not exist") from None
    except OSError:
        raise PveError(f"Error accessing device {path}") from None
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        raise PveError(f"{path} is not a device")
    return stat.S_IFMT(found.st_mode), found.st_rdev


def make(ctx: Context, conf: Conf, folder: Path, device: Device) -> Path:
    """Make the container's own node below `folder`, mode 0660 and root of the container unless told otherwise."""
    form, number = look_up(ctx, device["path"])
    node: Path = folder / device["path"].lstrip("/")
    node.parent.mkdir(parents=True, exist_ok=True)
    node.unlink(missing_ok=True)
    mode = int(str(device.get("mode", "0660")), 8)
    os.mknod(node, form | mode, number)
    node.chmod(mode)  # mknod obeys the umask
    base = mounts.shift(conf)
    os.chown(node, base + int(device.get("uid", 0)), base + int(device.get("gid", 0)))
    return node


def rule(ctx: Context, device: Device) -> str:
    """The device's line for the devices cgroup."""
    form, number = look_up(ctx, device["path"])
    letters = "r" if device.get("deny-write") else "rw"
    return f"{'c' if form == stat.S_IFCHR else 'b'} {os.major(number)}:{os.minor(number)} {letters}"
