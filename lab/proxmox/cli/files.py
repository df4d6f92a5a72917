"""pct push, pull, mount, unmount and df."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox import pctconf, propstr
from lab.proxmox.ct import hotplug, lxcfile, mounts, state
from lab.proxmox.errors import PveError
from lab.proxmox.locks import lock_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.proxmox.context import Context


def _owner(kind: str, word: str | None) -> int:
    if word is None:
        return -1
    try:
        return int(word) if word.isdigit() else pwd.getpwnam(word).pw_uid if kind == "uid" else grp.getgrnam(word).gr_gid
    except KeyError:
        raise PveError(f"failed to get {kind} for: {word}") from None


def _create(path: str, values: dict[str, Any], shift: int = 0) -> int:
    """Open a file for writing with the owner and mode that were asked for."""
    mode = int(values["perms"], 0 if values["perms"].startswith("0x") else 8) if values.get("perms") else None
    ids = [_owner("uid", values.get("user")), _owner("gid", values.get("group"))]
    fresh = not os.path.lexists(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise PveError(f"failed to create file: {path}: {error.strerror}") from None
    if mode is not None:
        os.fchmod(descriptor, mode)
    hotplug.files_as(0)
    if fresh or ids != [-1, -1]:
        os.fchown(descriptor, *(shift + number if number >= 0 else (shift if fresh else -1) for number in ids))
    return descriptor


def _copy_task(ctx: Context, vmid: int, kind: str, work: Callable[[int], None]) -> str:
    with lock_config(ctx.world, vmid):
        conf = ctx.load(vmid)
        if not state.running(ctx.world, vmid):
            raise PveError(f"can only {kind} files {'from' if kind == 'pull' else 'to'} a running VM")
        del conf
        pid = state.init_pid(ctx.world, vmid)
        return ctx.task(f"{kind}_file", vmid, lambda: work(pid))


def push(ctx: Context, values: dict[str, Any]) -> str:
    """Copy a file of the node into a running container."""
    shift = mounts.shift(ctx.load(values["vmid"]))

    def work(pid: int) -> None:
        try:
            source = os.open(values["file"], os.O_RDONLY)
        except OSError as error:
            raise PveError(f"failed to open {values['file']} for reading: {error.strerror}") from None

        def inside() -> None:
            hotplug.files_as(shift)
            _pour(source, _create(values["destination"], values, shift))

        hotplug.in_mount_namespace(pid, inside)

    return _copy_task(ctx, values["vmid"], "push", work)


def pull(ctx: Context, values: dict[str, Any]) -> str:
    """Copy a file out of a running container."""

    def work(pid: int) -> None:
        target = _create(values["destination"], values)

        def inside() -> None:
            try:
                source = os.open(values["path"], os.O_RDONLY)
            except OSError as error:
                raise PveError(f"failed to open {values['path']}: {error.strerror}") from None
            _pour(source, target)

        hotplug.in_mount_namespace(pid, inside)

    return _copy_task(ctx, values["vmid"], "pull", work)


def _pour(source: int, target: int) -> None:
    while os.sendfile(target, source, None, 2**24):
        pass


def mount(ctx: Context, vmid: int) -> None:
    """Mount a container's files at /var/lib/lxc/ID/rootfs, under a lock."""
    with lock_config(ctx.world, vmid):
        conf = ctx.load(vmid)
        pctconf.check_lock(conf)
        place = Path(state.lxc_path(ctx.world)) / str(vmid) / "rootfs"
        for _key, one in mounts.each(ctx, conf):
            target = place / one["mp"].lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", str(lxcfile.source_of(ctx, one)), str(target)], check=True)
        pctconf.save(ctx.world, vmid, conf | {"lock": "mounted"})
    print(f"mounted CT {vmid} in '/var/lib/lxc/{vmid}/rootfs'")


def unmount(ctx: Context, vmid: int) -> None:
    """Undo `mount`."""
    with lock_config(ctx.world, vmid):
        conf = ctx.load(vmid)
        if conf.get("lock") != "mounted":
            raise PveError("no lock found trying to remove 'mounted'  lock")
        subprocess.run(["umount", "-R", str(Path(state.lxc_path(ctx.world)) / str(vmid) / "rootfs")], check=False)
        conf.pop("lock")
        pctconf.save(ctx.world, vmid, conf)


def space(ctx: Context, vmid: int) -> None:
    """Print the space of a container's mount points."""
    rows = [["MP", "Volume", "Size", "Used", "Avail", "Use%", "Path"]]
    for key, one in mounts.each(ctx, ctx.load(vmid)):
        total, used, free = shutil.disk_usage(lxcfile.source_of(ctx, one))
        size = propstr.size_bytes(str(one.get("size", ""))) or total
        rows.append([key, one["volume"], _short(size), _short(used), _short(free), f"{used / total:.1f}", one["mp"]])
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        print(
            " ".join(
                cell.ljust(width) if number < 2 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=False))
            ),
            row[6],
        )


def _short(size: float) -> str:
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size:.1f}{unit}" if unit else str(int(size))
        size /= 1024
    return f"{size:.1f}T"
