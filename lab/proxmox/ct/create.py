"""Making and destroying containers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox import pctconf, storage, tasks
from lab.proxmox.ct import guest, lxcfile, mounts, pending, perms, power, state
from lab.proxmox.errors import ParamError, PermError, PveError
from lab.proxmox.locks import lock_config

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_OUTSIDE = (
    "ignore-unpack-errors",
    "force",
    "restore",
    "password",
    "ssh-public-keys",
    "pool",
    "storage",
    "ostemplate",
    "start",
    "unique",
    "bwlimit",
    "ha-managed",
)
_DEFAULT_GIB = 4


def check_unused(ctx: Context, vmid: int) -> None:
    """PveError when the number belongs to any guest of the cluster."""
    found = ctx.world.guests().get(vmid)
    if found:
        raise PveError(f"{'CT' if found[1] == 'lxc' else 'VM'} {vmid} already exists on node '{found[0]}'")


def create(ctx: Context, values: dict[str, Any]) -> str:
    """Make a container from a template; everything that can be refused is refused before the task starts. Returns the UPID."""
    vmid = int(values.pop("vmid"))
    values.pop("node", None)
    option = {name: values.pop(name, None) for name in _OUTSIDE}
    unprivileged = values.pop("unprivileged", None)
    unprivileged = 1 if unprivileged is None else int(unprivileged)
    if option["restore"]:
        raise PveError("restoring backups is not part of the lab", 501)
    check_unused(ctx, vmid)
    pool = option["pool"]
    if not (ctx.may(f"/vms/{vmid}", "VM.Allocate") or (pool and ctx.may(f"/pool/{pool}", "VM.Allocate"))):
        raise PermError
    if not unprivileged:
        ctx.need("/", "Sys.Modify")
    perms.check(ctx, vmid, pool, {}, values, [], unprivileged=bool(unprivileged))
    default = option["storage"] or "local"
    archive = _archive(ctx, str(option["ostemplate"]))
    disks, plain = _disks(ctx, values, default)
    conf: Conf = {"pending": {}, "snapshots": {}}
    errors = pending.update(ctx, vmid, conf, running=False, values=plain, delete=[], revert=[])
    if errors:
        raise ParamError(errors)
    conf["unprivileged"] = unprivileged
    with lock_config(ctx.world, vmid):
        try:
            check_unused(ctx, vmid)
        except PveError as error:
            raise PveError(f"unable to create CT {vmid} - {error.text}") from None
        pctconf.save(ctx.world, vmid, {"lock": "create"})

    def work() -> None:
        _make(ctx, vmid, conf, disks, archive, option)

    return ctx.task("vzcreate", vmid, work)


def _archive(ctx: Context, volume: str) -> Path:
    if volume == "-":
        raise PveError("pipe can only be used with restore tasks" if ctx.cli else "pipe requires cli environment")
    if re.match(r"[a-zA-Z][a-zA-Z0-9\-_.]*:", volume):
        name, rest = storage.parse_volume_id(volume)
        if storage.volume_type(rest) not in {"vztmpl", "backup"}:
            raise PveError(f"unable to use volume {volume} - content type needs to be 'vztmpl'")
        ctx.need(f"/storage/{name}", "Datastore.AllocateSpace", "Datastore.Audit", any_of=True)
    elif not ctx.is_root:
        raise PveError("Only root can pass arbitrary filesystem paths.")
    return storage.activated(ctx.world, volume)


def _disks(ctx: Context, values: Conf, default: str) -> tuple[Conf, Conf]:
    disks: Conf = {}
    plain: Conf = {}
    for name, value in values.items():
        if name == "rootfs" or re.fullmatch(r"mp\d+", name):
            disks[name] = f"{default}:{value}" if re.fullmatch(r"\d+(\.\d+)?", str(value)) else value
        elif re.fullmatch(r"unused\d+", name):
            print(f"ignoring '{name}', cannot create/restore with unused volume", file=sys.stderr)
        else:
            plain[name] = value
    if disks and "rootfs" not in disks:
        raise PveError("mount points configured, but 'rootfs' not set - aborting")
    wanted = []
    for _key, mount in mounts.each(ctx, disks):
        if mount["type"] == "volume":
            wanted.append(storage.parse_volume_id(mount["volume"])[0])
        elif not ctx.is_root:
            raise PveError("Only root can pass arbitrary filesystem paths.")
    for name in wanted or [default]:
        found = storage.get(ctx.world, name, ctx.world.node)
        if "rootdir" not in found["content"]:
            raise ParamError({"storage": f"storage '{name}' does not support container directories"})
        ctx.need(f"/storage/{name}", "Datastore.AllocateSpace")
    return disks or {"rootfs": f"{default}:{_DEFAULT_GIB}"}, plain


def _make(ctx: Context, vmid: int, conf: Conf, disks: Conf, archive: Path, option: dict[str, Any]) -> None:
    made: list[str] = []
    try:
        made = mounts.create_disks(ctx, vmid, disks, conf)
        pctconf.save(ctx.world, vmid, conf | {"lock": "create"})
        rootfs = next(mount for key, mount in mounts.each(ctx, conf) if key == "rootfs")
        root = lxcfile.source_of(ctx, rootfs)
        _unpack(vmid, archive, root, mounts.shift(conf), ignore=bool(option["ignore-unpack-errors"]))
        conf.setdefault("ostype", guest.detect(root))
        conf.setdefault("arch", "amd64")
        print(f"Detected container architecture: {conf['arch']}", flush=True)
        conf.setdefault("hostname", f"CT{vmid}")
        conf.setdefault("memory", 512)
        conf.setdefault("swap", 512)
        pctconf.save(ctx.world, vmid, conf | {"lock": "create"})
        guest.prepare(ctx, conf, root)
        guest.first_time(conf, root, option["password"], option["ssh-public-keys"])
        if conf["ostype"] in {"debian", "ubuntu"} and "nesting=1" not in str(conf.get("features", "")):
            tasks.warn("Systemd 257 detected. You may need to enable nesting.")
        with lock_config(ctx.world, vmid):
            pctconf.save(ctx.world, vmid, conf)
    except BaseException as error:
        for volume in made:
            storage.free(ctx.world, volume)
        pctconf.remove(ctx.world.lxc_config(vmid))
        if isinstance(error, PveError):
            raise PveError(f"unable to create CT {vmid} - {error.text}") from None
        raise
    if option["start"]:
        with lock_config(ctx.world, vmid):
            power.start(ctx, vmid)


def _unpack(vmid: int, archive: Path, root: Path, shift: int, *, ignore: bool) -> None:
    print(f"extracting archive '{archive}'", flush=True)
    how = {".zst": ["--zstd"], ".gz": ["-z"], ".xz": ["-J"], ".bz2": ["-j"]}.get(archive.suffix, [])
    command = [
        "tar",
        "xpf",
        "-",
        *how,
        "--totals",
        "--one-file-system",
        "-p",
        "--sparse",
        "--numeric-owner",
        "--acls",
        "--xattrs",
        "--xattrs-include=user.*",
        "--xattrs-include=security.capability",
        "--warning=no-file-ignored",
        "--warning=no-xattr-write",
        "-C",
        str(root),
        "--skip-old-files",
        "--anchored",
        "--exclude",
        "./dev/*",
    ]
    shown = " ".join(shlex.quote(word) for word in command).replace(str(root), f"/var/lib/lxc/{vmid}/rootfs")
    if shift:
        command = ["lxc-usernsexec", "-m", f"u:0:{shift}:65536", "-m", f"g:0:{shift}:65536", "--", *command]
    with archive.open("rb") as stream:
        done = subprocess.run(command, stdin=stream, check=False)
    if done.returncode and not ignore:
        raise PveError(f"command '{shown}' failed: exit code {done.returncode}")
    (root / "dev").mkdir(exist_ok=True)
    os.chown(root / "dev", shift, shift)


def destroy(ctx: Context, vmid: int, *, force: bool, purge: bool, unreferenced: bool) -> str:
    """Destroy a container with its volumes; returns the UPID."""
    conf = ctx.load(vmid)
    pctconf.check_protection(conf, f"can't remove CT {vmid}")
    busy = f"unable to destroy CT {vmid} - container is running"
    if state.running(ctx.world, vmid) and not force:
        raise PveError(busy)

    def work() -> None:
        with lock_config(ctx.world, vmid):
            current = ctx.load(vmid)
            pctconf.check_lock(current)
            if state.running(ctx.world, vmid):
                if not force:
                    raise PveError(busy)
                power.stop(ctx, vmid, kill=True)
            _erase(ctx, vmid, current, unreferenced=unreferenced)
            ctx.access.forget_guest(vmid, purge=purge)
            pctconf.remove(ctx.world.lxc_config(vmid))

    return ctx.task("vzdestroy", vmid, work)


def _erase(ctx: Context, vmid: int, conf: Conf, *, unreferenced: bool) -> None:
    volumes = {
        mount["volume"] for one in (conf, conf["pending"], *conf["snapshots"].values()) for _, mount in mounts.each(ctx, one, unused=True)
    }
    for volume in sorted(volume for volume in volumes if mounts.kind(volume) == "volume" and not storage.NEW_VOLUME.fullmatch(volume)):
        try:
            mounts.delete_volume(ctx, vmid, volume)
        except PveError as error:
            print(f"failed to remove volume '{volume}': {error.text}", flush=True)
    if unreferenced:
        for one in storage.config(ctx.world).values():
            for entry in storage.content(ctx.world, one, vmid=vmid):
                storage.free(ctx.world, entry["volid"])
    shutil.rmtree(Path(state.lxc_path(ctx.world)) / str(vmid), ignore_errors=True)
