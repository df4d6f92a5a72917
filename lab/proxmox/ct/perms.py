"""Who may set which option of a container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lab.proxmox import schema, storage
from lab.proxmox.ct import mounts
from lab.proxmox.errors import PermError, PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_BY_OPTION = {
    "VM.Config.CPU": {"cores", "cpulimit", "cpuunits"},
    "VM.Config.Memory": {"memory", "swap"},
    "VM.Config.Network": {"hostname", "nameserver", "searchdomain"},
}


def check(ctx: Context, vmid: int, pool: str | None, conf: Conf, values: Conf, deleted: list[str], *, unprivileged: bool) -> None:
    """PermError unless the user may set (or delete) these options of a container; root@pam may everything."""
    if ctx.is_root:
        return
    for option in [*values, *deleted]:
        if option in {"lock", "template"} and option in values and option == "lock":
            raise PermError("root@pam only" if not ctx.is_root else "")
        _one(ctx, vmid, pool, option, values.get(option), conf, unprivileged=unprivileged, removed=option in deleted)


def _one(ctx: Context, vmid: int, pool: str | None, option: str, value: object, conf: Conf, *, unprivileged: bool, removed: bool) -> None:
    if re.fullmatch(r"rootfs|mp\d+", option):
        _need(ctx, vmid, pool, "VM.Config.Disk")
        if removed:
            return
        mount = mounts.parse(ctx, option, str(value))
        if mount["type"] != "volume":
            raise PermError(f"mount point type {mount['type']} is only allowed for root@pam")
        name = storage.parse_volume_id(mount["volume"])[0]
        ctx.need(f"/storage/{name}", "Datastore.AllocateSpace")
    elif option.startswith("unused"):
        _need(ctx, vmid, pool, "VM.Config.Disk")
    elif re.fullmatch(r"dev\d+", option):
        raise PermError("configuring device passthrough is only allowed for root@pam")
    elif option == "features":
        _features(ctx, vmid, pool, str(value or ""), str(conf.get("features", "")), unprivileged=unprivileged)
    elif option == "hookscript":
        raise PermError("changing the hookscript is only allowed for root@pam")
    elif re.fullmatch(r"net\d+", option):
        _need(ctx, vmid, pool, "VM.Config.Network")
        bridge = re.search(r"(?:^|,)bridge=([^,]+)", str(value or ""))
        if bridge:
            ctx.need(f"/sdn/zones/localnetwork/{bridge[1]}", "SDN.Use")
    else:
        privilege = next((name for name, options in _BY_OPTION.items() if option in options), "VM.Config.Options")
        _need(ctx, vmid, pool, privilege)


def _features(ctx: Context, vmid: int, pool: str | None, new: str, old: str, *, unprivileged: bool) -> None:
    if not unprivileged:
        raise PermError("changing feature flags for privileged container is only allowed for root@pam")
    form = ctx.schema.format_of("features")
    try:
        before, after = schema.parse(form, old), schema.parse(form, new)
    except PveError:
        before, after = {}, {"unreadable": 1}
    if any(str(before.get(name, 0)) != str(after.get(name, 0)) for name in {*before, *after} - {"nesting"}):
        raise PermError("changing feature flags (except nesting) is only allowed for root@pam")
    _need(ctx, vmid, pool, "VM.Allocate")


def _need(ctx: Context, vmid: int, pool: str | None, privilege: str) -> None:
    if pool and ctx.may(f"/pool/{pool}", privilege):
        return
    ctx.need(f"/vms/{vmid}", privilege)
