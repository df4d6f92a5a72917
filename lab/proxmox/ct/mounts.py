"""Root file systems and mount points: parsed, allocated, dropped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lab.proxmox import propstr, schema, storage
from lab.proxmox.errors import ParamError, PveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

Mount = dict[str, Any]
SHIFT = 100000  # the first id of root's range in /etc/subuid, as on every Proxmox VE


def shift(conf: Conf) -> int:
    """The host id of the container's root: its own idmap's first, the default range when unprivileged, else 0."""
    for key, value in conf.get("lxc", []):
        match = re.fullmatch(r"u\s+0\s+(\d+)\s+\d+", value) if key == "lxc.idmap" else None
        if match:
            return int(match[1])
    return SHIFT if conf.get("unprivileged") else 0


def kind(volume: str) -> str:
    """What a mount point mounts: a volume, a directory of the host (bind) or a block device."""
    if volume.startswith("/dev/"):
        return "device"
    return "bind" if volume.startswith("/") else "volume"


def parse(ctx: Context, key: str, text: str) -> Mount:
    """A rootfs, mp or unused value with its `type`; PveError with the parser's words when it is none."""
    try:
        found = schema.parse(ctx.schema.format_of(key), str(text))
    except ParamError as error:
        raise PveError("format error\n" + "".join(f"{name}: {words}\n" for name, words in error.errors.items()).rstrip("\n")) from None
    found["type"] = kind(found.get("volume", ""))
    if key == "rootfs":
        found["mp"] = "/"
    return found


def text(ctx: Context, key: str, mount: Mount) -> str:
    """A mount point as the configuration holds it."""
    return propstr.join(ctx.schema.format_of(key), mount, skip=("type", "mp") if key == "rootfs" else ("type",))


def each(ctx: Context, conf: Conf, *, unused: bool = False) -> Iterator[tuple[str, Mount]]:
    """The mount points of a configuration, rootfs first, then by number; what cannot be parsed is left out."""
    names = [name for name in conf if re.fullmatch(r"rootfs|mp\d+" + (r"|unused\d+" if unused else ""), name)]
    names.sort(key=lambda name: (name != "rootfs", name.startswith("unused"), int(re.sub(r"\D", "", name) or 0)))
    for name in names:
        try:
            mount = parse(ctx, name, conf[name])
        except PveError:
            continue
        yield name, mount


def create_disks(ctx: Context, vmid: int, wanted: Conf, conf: Conf) -> list[str]:
    """Allocate every `STORAGE:GiB` of `wanted`, write the mount points into `conf`, return the new volumes.

    On an error the volumes made so far are destroyed again.
    """
    made: list[str] = []
    try:
        for key, mount in each(ctx, wanted):
            match = storage.NEW_VOLUME.fullmatch(mount["volume"])
            if mount["type"] == "volume" and match:
                name, gib = match[1], float(match[2])
                mount["volume"], mount["size"] = storage.allocate(ctx.world, name, vmid, gib, shift(conf))
                made.append(mount["volume"])
            elif mount["type"] == "volume":
                if not storage.path(ctx.world, mount["volume"]).exists():
                    raise PveError(f"volume '{mount['volume']}' does not exist")
                mount["size"] = (
                    propstr.size_text(storage.recorded_size(ctx.world, vmid, mount["volume"])) if "size" not in mount else mount["size"]
                )
            conf[key] = text(ctx, key, mount)
    except BaseException:
        for volume in made:
            storage.free(ctx.world, volume)
        raise
    return made


def in_use(ctx: Context, conf: Conf, volume: str, *, snapshots: bool = True) -> bool:
    """Whether a configuration (or one of its snapshots) mounts a volume."""
    confs = [conf, *(conf.get("snapshots", {}).values() if snapshots else ())]
    return any(mount["volume"] == volume for one in confs for _, mount in each(ctx, one))


def add_unused(conf: Conf, volume: str) -> None:
    """Remember a volume that nothing mounts any more as unusedN."""
    if volume in [value for key, value in conf.items() if key.startswith("unused")]:
        return
    number = next(number for number in range(256) if f"unused{number}" not in conf)
    conf[f"unused{number}"] = volume


def delete_volume(ctx: Context, vmid: int, volume: str) -> None:
    """Destroy a volume that belongs to this container; another guest's is left alone."""
    if kind(volume) != "volume":
        return
    held = storage.owner(storage.parse_volume_id(volume)[1])
    if held == vmid:
        storage.free(ctx.world, volume)
