"""Changes of a configuration: noted as pending, then applied as far as the container's state allows."""

from __future__ import annotations

import random
import re
import sys
from typing import TYPE_CHECKING, Any

from lab.proxmox import pctconf, propstr, schema, storage
from lab.proxmox.ct import devices, mounts
from lab.proxmox.errors import PveError
from lab.proxmox.formats import split_list

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_LIVE = {"description", "onboot", "startup", "protection", "hostname", "hookscript", "cores", "tags", "lock"}  # no hot plugging needed
_MAC_PREFIX = "BC:24:11"  # Proxmox's own range


def update(ctx: Context, vmid: int, conf: Conf, *, running: bool, values: Conf, delete: list[str], revert: list[str]) -> dict[str, str]:
    """Change a configuration in place: every change becomes pending, then what can be applied now is.

    Returns what could not be applied: option -> text. Raises PveError for a value that is refused; nothing is changed then.
    """
    waiting = pctconf.parse_delete(conf)
    for option in revert:
        conf["pending"].pop(option, None)
        waiting.pop(option, None)
    changed: set[str] = set()
    for option in delete:
        if option not in conf and option not in conf["pending"]:
            print(f"cannot delete '{option}' - not set in current configuration!", file=sys.stderr)
            continue
        changed.add(option)
        _check_delete(vmid, conf, option)
        conf["pending"].pop(option, None)
        waiting[option] = False
    for option in sorted(values):
        changed.add(option)
        conf["pending"][option] = _checked(ctx, vmid, conf, option, values[option])
        waiting.pop(option, None)
    pctconf.write_delete(conf, waiting)
    pctconf.cleanup_pending(conf)
    errors: dict[str, str] = {}
    if running:
        apply_running(ctx, vmid, conf, changed, errors)
    else:
        apply_stopped(ctx, vmid, conf, changed, errors)
    return errors


def _check_delete(vmid: int, conf: Conf, option: str) -> None:
    if option in {"memory", "rootfs", "ostype"}:
        raise PveError(f"unable to delete required option '{option}'")
    if re.fullmatch(r"(unused|mp)\d+", option):
        pctconf.check_protection(conf, f"can't remove CT {vmid} drive '{option}'")
    if option == "unprivileged":
        raise PveError(f"unable to delete read-only option: '{option}'")


def _checked(ctx: Context, vmid: int, conf: Conf, option: str, value: Any) -> Any:
    if option == "rootfs" or re.fullmatch(r"mp\d+", option):
        pctconf.check_protection(conf, f"can't update CT {vmid} drive '{option}'")
        mount = mounts.parse(ctx, option, value)
        if mount["type"] == "volume":
            name = storage.parse_volume_id(mount["volume"])[0]
            if "rootdir" not in storage.get(ctx.world, name)["content"]:
                raise PveError(f"storage '{name}' does not allow content type 'rootdir' (Container)")
    elif option == "hookscript":
        from lab.proxmox.ct.power import check_hookscript

        check_hookscript(ctx, value)
    elif option in {"nameserver", "searchdomain"}:
        return " ".join(split_list(value))
    elif option == "unprivileged":
        raise PveError(f"unable to modify read-only option: '{option}'")
    elif option == "tags":
        return ";".join(sorted({tag.lower() for tag in split_list(value)}))
    elif re.fullmatch(r"net\d+", option):
        net = schema.parse(ctx.schema.format_of("net0"), value)
        bridge = ctx.world.path(f"/sys/class/net/{net.get('bridge')}/mtu")
        if net.get("mtu") and net.get("bridge"):
            if not bridge.exists():
                raise PveError(f"bridge '{net['bridge']}' does not exist")
            limit = int(bridge.read_text())
            if int(net["mtu"]) > limit:
                raise PveError(f"{option}: MTU size '{net['mtu']}' is bigger than bridge MTU '{limit}'")
    elif re.fullmatch(r"dev\d+", option):
        devices.look_up(ctx, devices.parse(ctx, value)["path"])
    return value


def complete_net(ctx: Context, value: str) -> str:
    """An interface as Proxmox writes it: keys sorted, a type, and a MAC address when it has none."""
    net = schema.parse(ctx.schema.format_of("net0"), value)
    net["type"] = "veth"
    net.setdefault("hwaddr", ":".join([_MAC_PREFIX, *(f"{random.randrange(256):02X}" for _ in range(3))]))
    return propstr.join(ctx.schema.format_of("net0"), net)


def apply_running(ctx: Context, vmid: int, conf: Conf, chosen: set[str], errors: dict[str, str]) -> None:
    """Apply what can be changed in a running container; the rest stays pending. `errors` gets what failed."""
    from lab.proxmox.ct import hotplug

    for option in sorted(chosen & _LIVE & set(conf["pending"])):
        conf[option] = conf["pending"].pop(option)
    waiting = pctconf.parse_delete(conf)
    for option in sorted(set(waiting) & chosen):
        try:
            if re.fullmatch(r"unused\d+", option):
                _drop_unused(ctx, vmid, conf, option)
            elif re.fullmatch(r"net\d+", option):
                hotplug.unplug(vmid, option[3:])
            elif option not in _LIVE | {"swap", "cpulimit", "cpuunits"}:
                continue
        except PveError as error:
            errors[option] = f"unable to hotplug {option}: {error.text}"
            continue
        conf.pop(option, None)
        del waiting[option]
    pctconf.write_delete(conf, waiting)
    for option in sorted((chosen & set(conf["pending"])) - {"delete"}):
        value = conf["pending"][option]
        try:
            if option in {"memory", "swap"}:
                sizes = {name: int(conf["pending"].get(name, conf.get(name, 512))) for name in ("memory", "swap")}
                hotplug.memory(ctx, vmid, sizes["memory"], sizes["swap"])
            elif re.fullmatch(r"net\d+", option):
                value = complete_net(ctx, value)
                form = ctx.schema.format_of("net0")
                old = schema.parse(form, str(conf[option])) if option in conf else None
                hotplug.network(ctx, vmid, option[3:], schema.parse(form, value), old)
            elif re.fullmatch(r"mp\d+", option) and option not in conf:
                value = _mountpoint(ctx, vmid, conf, option)
                hotplug.mount(ctx, vmid, conf, mounts.parse(ctx, option, value))
            elif re.fullmatch(r"dev\d+", option) and option not in conf:
                hotplug.device(ctx, vmid, conf, value)
            elif option not in {"cpulimit", "cpuunits"}:
                continue
        except (PveError, OSError) as error:
            errors[option] = f"unable to hotplug {option}: {error}"
            continue
        conf[option] = value
        del conf["pending"][option]


def apply_stopped(ctx: Context, vmid: int, conf: Conf, chosen: set[str] | None, errors: dict[str, str]) -> None:
    """Apply pending changes of a container that does not run (`chosen` None: all of them)."""
    waiting = pctconf.parse_delete(conf)
    for option in [option for option in waiting if chosen is None or option in chosen]:
        try:
            if re.fullmatch(r"mp\d+", option) and option in conf:
                mount = mounts.parse(ctx, option, conf[option])
                rest = {key: value for key, value in conf.items() if key != option}
                if mount["type"] == "volume" and not mounts.in_use(ctx, rest, mount["volume"], snapshots=False):
                    mounts.add_unused(conf, mount["volume"])
            elif re.fullmatch(r"unused\d+", option):
                _drop_unused(ctx, vmid, conf, option)
        except PveError as error:
            _apply_error(errors, option, error)
            continue
        conf.pop(option, None)
        del waiting[option]
    pctconf.write_delete(conf, waiting)
    pctconf.cleanup_pending(conf)
    for option in sorted(set(conf["pending"]) - {"delete"}):
        if chosen is not None and option not in chosen:
            continue
        try:
            value = conf["pending"][option]
            if re.fullmatch(r"mp\d+", option) or option == "rootfs":
                value = _mountpoint(ctx, vmid, conf, option)
            elif re.fullmatch(r"net\d+", option):
                value = complete_net(ctx, value)
        except PveError as error:
            _apply_error(errors, option, error)
            continue
        conf[option] = value
        del conf["pending"][option]


def _apply_error(errors: dict[str, str], option: str, error: PveError) -> None:
    errors[option] = f"unable to apply pending change {option} : {error.text}"
    print(errors[option], file=sys.stderr)


def _drop_unused(ctx: Context, vmid: int, conf: Conf, option: str) -> None:
    volume = str(conf[option])
    if not mounts.in_use(ctx, conf, volume):
        mounts.delete_volume(ctx, vmid, volume)


def _mountpoint(ctx: Context, vmid: int, conf: Conf, option: str) -> str:
    made: Conf = {"unprivileged": conf.get("unprivileged"), "lxc": conf.get("lxc", [])}
    old = conf.get(option)
    mounts.create_disks(ctx, vmid, {option: conf["pending"][option]}, made)
    if old is not None:
        before = mounts.parse(ctx, option, old)
        after = mounts.parse(ctx, option, made[option])
        if before["type"] == "volume" and before["volume"] != after["volume"]:
            mounts.add_unused(conf, before["volume"])
    return str(made[option])


def listed(conf: Conf) -> list[dict[str, Any]]:
    """Every option with its current value, its pending one and whether it waits for deletion, as the API lists them."""
    waiting = pctconf.parse_delete(conf)
    rows: list[dict[str, Any]] = []
    for name in sorted(set(conf) - {"digest", "pending", "snapshots", "lxc", "snapname"}):
        row: dict[str, Any] = {"key": name, "value": conf[name]}
        if name in conf["pending"]:
            row["pending"] = conf["pending"][name]
        if name in waiting:
            row["delete"] = 2 if waiting[name] else 1
        rows.append(row)
    rows += [{"key": name, "pending": conf["pending"][name]} for name in sorted(set(conf["pending"]) - set(conf) - {"delete"})]
    return rows
