"""/cluster, /nodes/{node}/qemu and the start and stop of all guests."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from lab.proxmox import storage, tasks
from lab.proxmox.api.registry import route
from lab.proxmox.ct import power, state
from lab.proxmox.errors import MissingConfigError, ParamError, PveError
from lab.proxmox.formats import split_list
from lab.proxmox.locks import lock_config
from lab.proxmox.upid import Upid

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_FIRST, _LAST = 100, 999999999
_STOP_TIMEOUT_S = 15  # a lab node's own services get 20 s at a shutdown


@route("GET", "/cluster")
def cluster_index(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """What there is of the cluster."""
    del ctx, values
    return [{"name": name} for name in ("nextid", "resources", "tasks", "status", "options")]


@route("GET", "/cluster/nextid")
def next_id(ctx: Context, values: dict[str, Any]) -> str:
    """The first free number; nothing is reserved."""
    taken = ctx.world.guests()
    if values.get("vmid"):
        if values["vmid"] in taken:
            raise ParamError({"vmid": f"VM {values['vmid']} already exists"})
        return str(values["vmid"])
    number = next((number for number in range(_FIRST, _FIRST + len(taken) + 1) if number not in taken), None)
    if number is None:
        raise PveError(f"unable to get any free VMID in range [{_FIRST}, {_LAST}]")
    return str(number)


def qemu_config(ctx: Context, vmid: int) -> dict[str, Any]:
    """The live section of a virtual machine's configuration file."""
    try:
        text = ctx.world.qemu_config(vmid).read_text()
    except FileNotFoundError:
        raise MissingConfigError(f"nodes/{ctx.world.node}/qemu-server/{vmid}.conf") from None
    found: dict[str, Any] = {}
    for line in text.split("\n"):
        if line.startswith("["):
            break
        match = re.fullmatch(r"([a-z][a-z_\-]*\d*):\s*(.+?)\s*", line)
        if match:
            found[match[1]] = (
                int(match[2])
                if match[2].isdigit() and match[1] in {"memory", "cores", "sockets", "onboot", "numa", "balloon"}
                else match[2]
            )
    return found


@route("GET", "/nodes/{node}/qemu")
def machines(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's virtual machines; the lab has their files only, so all are stopped."""
    del values
    found = []
    for vmid, (node, kind) in sorted(ctx.world.guests().items()):
        if node == ctx.world.node and kind == "qemu" and ctx.may(f"/vms/{vmid}", "VM.Audit"):
            found.append(_machine(ctx, vmid))
    return found


def _machine(ctx: Context, vmid: int) -> dict[str, Any]:
    conf = qemu_config(ctx, vmid)
    cores = int(conf.get("cores", 1)) * int(conf.get("sockets", 1))
    return {
        "vmid": vmid,
        "name": conf.get("name", f"VM {vmid}"),
        "status": "stopped",
        "cpus": cores,
        "maxmem": int(conf.get("memory", 512)) * 2**20,
        "maxdisk": 0,
        "mem": 0,
        "cpu": 0,
        "disk": 0,
        "uptime": 0,
        "netin": 0,
        "netout": 0,
        "diskread": 0,
        "diskwrite": 0,
    }


@route("GET", "/nodes/{node}/qemu/{vmid}/config")
def machine_config(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """A virtual machine's configuration."""
    conf = qemu_config(ctx, values["vmid"])
    import hashlib

    return conf | {"digest": hashlib.sha1(ctx.world.qemu_config(values["vmid"]).read_bytes()).hexdigest()}


@route("PUT", "/nodes/{node}/qemu/{vmid}/config")
def set_machine_config(ctx: Context, values: dict[str, Any]) -> None:
    """Delete options of a virtual machine (such as hostpci0); setting others is not part of the lab."""
    conf = qemu_config(ctx, values["vmid"])
    delete = split_list(str(values.get("delete", "")))
    if not delete:
        raise PveError("virtual machines are files only in the lab: options can be deleted, not set", 501)
    from lab.proxmox.world import write_file

    live, bracket, rest = ctx.world.qemu_config(values["vmid"]).read_text().partition("\n[")
    notes = [line for line in live.splitlines() if line.startswith("#")]
    lines = [*notes, *(f"{name}: {conf[name]}" for name in sorted(conf) if name not in delete)]
    write_file(ctx.world.qemu_config(values["vmid"]), "".join(f"{line}\n" for line in lines) + bracket + rest)


@route("GET", "/nodes/{node}/qemu/{vmid}/status/current")
def machine_status(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """A virtual machine's state: stopped."""
    return _machine(ctx, values["vmid"]) | {"ha": {"managed": 0}, "qmpstatus": "stopped"}


@route("GET", "/cluster/resources")
def resources(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Nodes, guests and storages."""
    kind, node = values.get("type"), ctx.world.node
    found: list[dict[str, Any]] = []
    if kind in {None, "node"}:
        from lab.proxmox.api.node import status as node_status

        now = node_status(ctx, {})
        found.append(
            {
                "id": f"node/{node}",
                "type": "node",
                "node": node,
                "status": "online",
                "maxcpu": now["cpuinfo"]["cpus"],
                "cpu": now["cpu"],
                "maxmem": now["memory"]["total"],
                "mem": now["memory"]["used"],
                "maxdisk": now["rootfs"]["total"],
                "disk": now["rootfs"]["used"],
                "uptime": now["uptime"],
                "level": "",
            }
        )
    if kind in {None, "vm"}:
        from lab.proxmox.api import lxc

        for row in lxc.listed(ctx, {}):
            row["maxcpu"] = row.pop("cpus")
            found.append(row | {"id": f"lxc/{row['vmid']}", "type": "lxc", "node": node, "template": int(row.get("template", 0))})
        for row in machines(ctx, {}):
            row["maxcpu"] = row.pop("cpus")
            found.append(row | {"id": f"qemu/{row['vmid']}", "type": "qemu", "node": node, "template": 0})
    if kind in {None, "storage"}:
        for one in storage.config(ctx.world).values():
            space = storage.status(ctx.world, one)
            found.append(
                {
                    "id": f"storage/{node}/{one['storage']}",
                    "type": "storage",
                    "node": node,
                    "storage": one["storage"],
                    "status": "available",
                    "plugintype": one["type"],
                    "content": space["content"],
                    "maxdisk": space["total"],
                    "disk": space["used"],
                    "shared": space["shared"],
                }
            )
    return found


@route("GET", "/cluster/status")
def cluster_status(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The only node."""
    del values
    address = (ctx.world.lab("node", {}) or {}).get("address", "")
    return [
        {
            "id": f"node/{ctx.world.node}",
            "type": "node",
            "name": ctx.world.node,
            "nodeid": 0,
            "local": 1,
            "online": 1,
            "ip": address,
            "level": "",
        }
    ]


def _order(ctx: Context, vmid: int) -> tuple[int, int, int, int]:
    text = str(ctx.load(vmid).get("startup", ""))
    part = dict((word if "=" in word else f"order={word}").split("=", 1) for word in text.split(",") if word)
    return int(part.get("order", 2**31)), vmid, int(part.get("up", 0)), int(part.get("down", 0) or _STOP_TIMEOUT_S)


def _containers(ctx: Context, text: str | None) -> list[int]:
    chosen = {int(word) for word in split_list(text or "")}
    mine = [vmid for vmid, (node, kind) in ctx.world.guests().items() if node == ctx.world.node and kind == "lxc"]
    return [vmid for vmid in mine if not chosen or vmid in chosen]


@route("POST", "/nodes/{node}/startall")
def start_all(ctx: Context, values: dict[str, Any]) -> str:
    """Start the containers that start at boot, in their order; one that fails does not stop the others."""
    from lab.proxmox.ct.boot import clear_stale

    clear_stale(ctx)

    def work() -> None:
        for _order_number, vmid, up, _down in sorted(_order(ctx, vmid) for vmid in _containers(ctx, values.get("vms"))):
            conf = ctx.load(vmid)
            if not (values.get("force") or conf.get("onboot")) or conf.get("template") or state.running(ctx.world, vmid):
                continue
            print(f"Starting CT {vmid}", flush=True)
            status = _await(ctx, "vzstart", vmid, lambda vmid=vmid: _start(ctx, vmid))
            if tasks.is_error(status):
                print(f"Starting CT {vmid} failed: {status}", flush=True)
            elif up:
                time.sleep(up)

    return ctx.task("startall", "", work)


def _start(ctx: Context, vmid: int) -> None:
    with lock_config(ctx.world, vmid):
        power.start(ctx, vmid)


def _await(ctx: Context, kind: str, vmid: int, work: Any) -> str:
    text = tasks.start(ctx.world, kind, str(vmid), ctx.user, work, foreground=False)
    upid = Upid.parse(text)
    if upid is None:
        raise PveError(f"strange task name '{text}'")
    os.waitpid(upid.pid, 0)
    return tasks.read_status(ctx.world, upid)


@route("POST", "/nodes/{node}/stopall")
def stop_all(ctx: Context, values: dict[str, Any]) -> str:
    """Shut all running containers down, in the reverse of their order; kill those that do not go."""

    def work() -> None:
        for _number, vmid, _up, down in sorted((_order(ctx, vmid) for vmid in _containers(ctx, values.get("vms"))), reverse=True):
            if not state.running(ctx.world, vmid):
                continue
            print(f"Stopping CT {vmid} (timeout = {down} seconds)", flush=True)
            timeout = int(values.get("timeout", down))
            status = _await(
                ctx, "vzshutdown", vmid, lambda vmid=vmid, timeout=timeout: power.stop(ctx, vmid, kill=False, timeout=timeout, force=True)
            )
            if tasks.is_error(status):
                print(f"Stopping CT {vmid} failed: {status}", flush=True)

    return ctx.task("stopall", "", work)
