"""/nodes/{node}/lxc: containers."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

from lab.proxmox import pctconf, propstr, storage
from lab.proxmox.api.registry import route
from lab.proxmox.ct import create as creation
from lab.proxmox.ct import lxcfile, mounts, pending, perms, power, state
from lab.proxmox.errors import MissingConfigError, ParamError, PveError
from lab.proxmox.formats import split_list
from lab.proxmox.locks import lock_config

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_BASE = "/nodes/{node}/lxc"
_ONE = "/nodes/{node}/lxc/{vmid}"
Values = dict[str, Any]


@route("GET", _BASE)
def listed(ctx: Context, values: Values) -> list[Values]:
    """Every container of the node that the user may see."""
    del values
    found = []
    for vmid, (node, kind) in sorted(ctx.world.guests().items()):
        if node != ctx.world.node or kind != "lxc" or not ctx.may(f"/vms/{vmid}", "VM.Audit"):
            continue
        try:
            found.append(state.status(ctx, vmid, ctx.load(vmid)))
        except MissingConfigError:  # destroyed meanwhile
            continue
    return found


@route("POST", _BASE)
def create(ctx: Context, values: Values) -> str:
    """Make a container."""
    return creation.create(ctx, values)


@route("DELETE", _ONE)
def destroy(ctx: Context, values: Values) -> str:
    """Destroy a container."""
    unreferenced = bool(values.get("destroy-unreferenced-disks"))
    return creation.destroy(
        ctx, values["vmid"], force=bool(values.get("force")), purge=bool(values.get("purge")), unreferenced=unreferenced
    )


@route("GET", _ONE)
def index(ctx: Context, values: Values) -> list[Values]:
    """What there is of a container."""
    ctx.load(values["vmid"])
    names = (
        "config",
        "pending",
        "status",
        "vncproxy",
        "termproxy",
        "vncwebsocket",
        "spiceproxy",
        "migrate",
        "clone",
        "rrd",
        "rrddata",
        "firewall",
        "snapshot",
        "resize",
        "interfaces",
    )
    return [{"subdir": name} for name in names]


@route("GET", f"{_ONE}/config")
def config(ctx: Context, values: Values) -> Values:
    """A container's configuration: with its pending changes unless `current` is set, or a snapshot's."""
    conf = ctx.load(values["vmid"])
    digest = conf["digest"]
    if values.get("snapshot"):
        if values.get("current"):
            words = "cannot use 'snapshot' parameter with 'current'"
            raise ParamError({"snapshot": words, "current": words})
        if values["snapshot"] not in conf["snapshots"]:
            raise PveError(f"snapshot '{values['snapshot']}' does not exist")
        return dict(conf["snapshots"][values["snapshot"]]) | {"digest": digest}
    shown = {name: value for name, value in conf.items() if name not in {"pending", "snapshots", "digest"}}
    if not values.get("current"):
        for name in pctconf.parse_delete(conf):
            shown.pop(name, None)
        shown |= {name: value for name, value in conf["pending"].items() if name != "delete"}
    return shown | {"digest": digest}


@route("GET", f"{_ONE}/pending")
def pending_changes(ctx: Context, values: Values) -> list[Values]:
    """Every option with what it will become."""
    return pending.listed(ctx.load(values["vmid"]))


@route("PUT", f"{_ONE}/config")
def set_config(ctx: Context, values: Values) -> None:
    """Change options of a container."""
    vmid = values.pop("vmid")
    values.pop("node")
    digest = values.pop("digest", None)
    if not values:
        raise PveError("no options specified")
    delete, revert = (split_list(str(values.pop(name, "") or "")) for name in ("delete", "revert"))
    for option in revert:
        if ctx.schema.container_option(option) is None:
            raise ParamError({"revert": f"unknown option '{option}'"})
        if option in values:
            raise ParamError({"revert": f"you can't use '-{option}' and '-revert {option}' at the same time"})
    for option in delete:
        if ctx.schema.container_option(option) is None:
            raise ParamError({"delete": f"unknown option '{option}'"})
        if option in values:
            raise ParamError({"delete": f"you can't use '-{option}' and -delete {option}' at the same time"})
        if option in revert:
            raise ParamError({"delete": f"you can't use '-delete {option}' and '-revert {option}' at the same time"})
    before = ctx.load(vmid)
    perms.check(ctx, vmid, None, before, values, delete + revert, unprivileged=bool(before.get("unprivileged")))
    with lock_config(ctx.world, vmid):
        conf = ctx.load(vmid)
        pctconf.check_lock(conf)
        if digest and digest != conf["digest"]:
            raise PveError("detected modified configuration - file changed by other user? Try again.")
        running = state.running(ctx.world, vmid)
        errors = pending.update(ctx, vmid, conf, running=running, values=values, delete=delete, revert=revert)
        pctconf.save(ctx.world, vmid, conf)
        if not running:
            lxcfile.write(ctx, vmid, ctx.load(vmid), starting=False)
    if errors:
        raise ParamError(errors)


@route("PUT", f"{_ONE}/resize")
def resize(ctx: Context, values: Values) -> str:
    """Grow a volume; the lab's volumes are directories, so it is their recorded size that grows."""
    vmid, key = values["vmid"], values["disk"]

    def work() -> None:
        with lock_config(ctx.world, vmid):
            conf = ctx.load(vmid)
            pctconf.check_lock(conf)
            if key not in conf:
                raise PveError(f"disk '{key}' does not exist")
            mount = mounts.parse(ctx, key, conf[key])
            old = propstr.size_bytes(str(mount.get("size", "0"))) or 0
            match = re.fullmatch(r"(\+?)(\d+(?:\.\d+)?[KMGT]?)", values["size"])
            if match is None:
                raise PveError("invalid size string")
            new = (propstr.size_bytes(match[2]) or 0) + (old if match[1] else 0)
            if new < old:
                raise PveError("unable to shrink disk size")
            if new == old:
                raise PveError("disk is already at specified size")
            mount["size"] = propstr.size_text(new)
            conf[key] = mounts.text(ctx, key, mount)
            pctconf.save(ctx.world, vmid, conf)

    return ctx.task("resize", vmid, work)


@route("GET", f"{_ONE}/status")
def status_index(ctx: Context, values: Values) -> list[Values]:
    """What can be asked or told of a container's state."""
    ctx.load(values["vmid"])
    return [{"subdir": name} for name in ("current", "start", "stop", "shutdown", "reboot", "migrate")]


@route("GET", f"{_ONE}/status/current")
def status(ctx: Context, values: Values) -> Values:
    """A container's state."""
    return state.status(ctx, values["vmid"], ctx.load(values["vmid"])) | {"ha": {"managed": 0}}


def _skiplock(ctx: Context, values: Values) -> bool:
    if values.get("skiplock") and not ctx.is_root:
        raise ParamError({"skiplock": "Only root may use this option."})
    return bool(values.get("skiplock"))


@route("POST", f"{_ONE}/status/start")
def start(ctx: Context, values: Values) -> str:
    """Start a container."""
    vmid, skiplock = values["vmid"], _skiplock(ctx, values)
    if state.running(ctx.world, vmid):
        raise PveError(f"CT {vmid} already running")

    def work() -> None:
        with lock_config(ctx.world, vmid):
            power.start(ctx, vmid, skiplock=skiplock)

    return ctx.task("vzstart", vmid, work)


def _running(ctx: Context, vmid: int, word: str = "CT") -> None:
    if not state.running(ctx.world, vmid):
        raise PveError(f"{word} {vmid} not running")


@route("POST", f"{_ONE}/status/stop")
def stop(ctx: Context, values: Values) -> str:
    """Stop a container at once."""
    vmid, skiplock = values["vmid"], _skiplock(ctx, values)
    _running(ctx, vmid)

    def work() -> None:
        with lock_config(ctx.world, vmid):
            conf = ctx.load(vmid)
            if not skiplock and conf.get("lock") != "mounted":
                pctconf.check_lock(conf)
            power.stop(ctx, vmid, kill=True)

    return ctx.task("vzstop", vmid, work)


@route("POST", f"{_ONE}/status/shutdown")
def shutdown(ctx: Context, values: Values) -> str:
    """Ask a container's init to halt."""
    vmid = values["vmid"]
    _running(ctx, vmid)

    def work() -> None:
        with lock_config(ctx.world, vmid):
            pctconf.check_lock(ctx.load(vmid))
            power.stop(ctx, vmid, kill=False, timeout=int(values.get("timeout", 60)), force=bool(values.get("forceStop")))

    return ctx.task("vzshutdown", vmid, work)


@route("POST", f"{_ONE}/status/reboot")
def reboot(ctx: Context, values: Values) -> str:
    """Shut a container down and start it again, with its pending changes."""
    vmid = values["vmid"]
    _running(ctx, vmid, "VM")

    def work() -> None:
        with lock_config(ctx.world, vmid):
            pctconf.check_lock(ctx.load(vmid))
            power.reboot(ctx, vmid, values.get("timeout"))

    return ctx.task("vzreboot", vmid, work)


@route("GET", f"{_ONE}/interfaces")
def interfaces(ctx: Context, values: Values) -> list[Values]:
    """The addresses inside a running container."""
    vmid = values["vmid"]
    _running(ctx, vmid)
    pid = state.init_pid(ctx.world, vmid)
    words = ["nsenter", "-t", str(pid), "-n", "ip", "-j", "addr"]
    import json

    found = []
    for link in json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout):
        entry: Values = {
            "name": link["ifname"],
            "hwaddr": link.get("address", ""),
            "hardware-address": link.get("address", ""),
            "ip-addresses": [],
        }
        for address in link.get("addr_info", []):
            text = f"{address['local']}/{address['prefixlen']}"
            entry.setdefault(address["family"], text)
            entry["ip-addresses"].append(
                {"ip-address": address["local"], "ip-address-type": address["family"], "prefix": address["prefixlen"]}
            )
        found.append(entry)
    return found


@route("POST", f"{_ONE}/template")
def template(ctx: Context, values: Values) -> str:
    """Turn a stopped container into a template."""
    vmid = values["vmid"]
    conf = ctx.load(vmid)
    if conf["snapshots"]:
        raise PveError("unable to create template, because CT contains snapshots")
    if conf.get("template"):
        raise PveError("you can't convert a template to a template")
    if state.running(ctx.world, vmid):
        raise PveError("you can't convert a CT to template if the CT is running")

    def work() -> None:
        with lock_config(ctx.world, vmid):
            current = ctx.load(vmid)
            pctconf.check_lock(current)
            pctconf.save(ctx.world, vmid, current | {"template": 1})

    return ctx.task("vztemplate", vmid, work)


@route("GET", f"{_ONE}/snapshot")
def snapshots(ctx: Context, values: Values) -> list[Values]:
    """The snapshots of a container, with what it is now as `current`."""
    conf = ctx.load(values["vmid"])
    found = []
    for name, one in conf["snapshots"].items():
        entry = {"name": name, "description": one.get("description", ""), "snaptime": one.get("snaptime", 0)}
        found.append(entry | ({"parent": one["parent"]} if one.get("parent") else {}))
    now = {
        "name": "current",
        "digest": conf["digest"],
        "running": int(state.running(ctx.world, values["vmid"])),
        "description": "You are here!",
    }
    return [*found, now | ({"parent": conf["parent"]} if conf.get("parent") else {})]


@route("POST", f"{_ONE}/snapshot")
def snapshot(ctx: Context, values: Values) -> str:
    """Note the configuration as a snapshot; directories cannot be snapshotted, as on a plain directory storage."""
    vmid, name = values["vmid"], values["snapname"]
    if name in {"current", "vzdump"}:
        raise PveError(f"unable to use snapshot name '{name}' (reserved name)")

    def work() -> None:
        conf = ctx.load(vmid)
        pctconf.check_lock(conf)
        if name in conf["snapshots"]:
            raise PveError(f"snapshot name '{name}' already used")
        for _key, mount in mounts.each(ctx, conf):
            if mount["type"] == "volume":
                kind = storage.get(ctx.world, storage.parse_volume_id(mount["volume"])[0])["type"]
                if kind in {"dir", "lvm"}:
                    raise PveError("snapshot feature is not available")
        kept = {key: value for key, value in conf.items() if key not in {"snapshots", "pending", "digest", "lock"}}
        kept |= {"snaptime": int(time.time()), **({"description": values["description"]} if values.get("description") else {})}
        conf["snapshots"][name] = kept
        conf["parent"] = name
        pctconf.save(ctx.world, vmid, conf)

    return ctx.task("vzsnapshot", vmid, work)


@route("GET", f"{_ONE}/feature")
def feature(ctx: Context, values: Values) -> Values:
    """Whether a feature is available: none is on the lab's directories."""
    ctx.load(values["vmid"])
    return {"hasFeature": 0}


@route("POST", f"{_ONE}/move_volume")
def move_volume(ctx: Context, values: Values) -> str:
    """Moving volumes is not part of the lab."""
    del ctx, values
    raise PveError("moving volumes is not part of the lab", 501)


def unlock(ctx: Context, vmid: int) -> None:
    """Remove whatever lock a configuration holds (`pct unlock`)."""
    with lock_config(ctx.world, vmid):
        conf = ctx.load(vmid)
        if not conf.get("lock"):
            raise PveError("no lock found trying to remove  lock")
        del conf["lock"]
        pctconf.save(ctx.world, vmid, conf)
