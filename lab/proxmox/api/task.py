"""/nodes/{node}/tasks: what has run and what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.proxmox import tasks
from lab.proxmox.api.registry import route
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.upid import Upid

_ONE = "/nodes/{node}/tasks/{upid}"


def _row(upid: Upid) -> dict[str, Any]:
    return {
        "upid": str(upid),
        "node": upid.node,
        "pid": upid.pid,
        "pstart": upid.pstart,
        "starttime": upid.starttime,
        "type": upid.type,
        "id": upid.id,
        "user": upid.user,
    }


@route("GET", "/nodes/{node}/tasks")
def listed(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Tasks, newest first: ended ones unless `source` says active or all."""
    running, ended = tasks.listed(ctx.world)
    source = values.get("source", "archive")
    rows: list[dict[str, Any]] = [_row(upid) | {"status": "RUNNING"} for upid in running] if source in {"active", "all"} else []
    if source in {"archive", "all"}:
        rows += [_row(upid) | {"endtime": end, "status": status} for upid, end, status in ended]
    audit = ctx.may(f"/nodes/{ctx.world.node}", "Sys.Audit")
    rows = [
        row
        for row in rows
        if (audit or row["user"] == ctx.user)
        and (not values.get("vmid") or row["id"] == str(values["vmid"]))
        and (not values.get("typefilter") or row["type"] == values["typefilter"])
        and (not values.get("userfilter") or values["userfilter"] in row["user"])
        and (not values.get("errors") or ("endtime" in row and tasks.is_error(row["status"])))
        and row["starttime"] >= int(values.get("since", 0))
        and row["starttime"] <= int(values.get("until", 2**40))
    ]
    start, limit = int(values.get("start", 0)), int(values.get("limit", 50))
    ctx.total = len(rows)
    chosen: list[dict[str, Any]] = rows[start : start + limit] if limit else rows[start:]
    return chosen


@route("GET", "/cluster/tasks")
def recent(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The cluster's recent tasks."""
    return listed(ctx, values | {"source": "all", "limit": 25})


def _mine(ctx: Context, upid: Upid) -> None:
    if upid.user != ctx.user:
        ctx.need(f"/nodes/{ctx.world.node}", "Sys.Audit")


@route("GET", _ONE)
def index(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """What there is of a task."""
    del ctx, values
    return [{"name": "log"}, {"name": "status"}]


@route("GET", f"{_ONE}/status")
def status(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """Whether a task runs, and how it ended."""
    upid = tasks.find(ctx.world, values["upid"])
    _mine(ctx, upid)
    row = _row(upid)
    if "!" in upid.user:
        row["user"], _, row["tokenid"] = upid.user.partition("!")
    if upid.running:
        return row | {"status": "running"}
    return row | {"status": "stopped", "exitstatus": tasks.read_status(ctx.world, upid)}


@route("GET", f"{_ONE}/log")
def log(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Lines of a task's log, fifty unless told otherwise."""
    upid = tasks.find(ctx.world, values["upid"])
    _mine(ctx, upid)
    if values.get("download"):
        raise PveError("downloading logs is not part of the lab", 501)
    lines, ctx.total = tasks.read_log(ctx.world, upid, int(values.get("start", 0)), int(values.get("limit", 50)))
    return lines


@route("DELETE", _ONE)
def stop(ctx: Context, values: dict[str, Any]) -> None:
    """Stop a running task."""
    upid = tasks.find(ctx.world, values["upid"])
    if upid.user != ctx.user:
        ctx.need(f"/nodes/{ctx.world.node}", "Sys.Modify")
    tasks.stop(upid)
