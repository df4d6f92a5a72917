"""/storage, /nodes/{node}/storage and the list of templates."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING, Any

from lab.proxmox import storage
from lab.proxmox.api.registry import route
from lab.proxmox.errors import ParamError, PveError
from lab.proxmox.formats import split_list

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_NODE = "/nodes/{node}/storage"
_ONE = "/nodes/{node}/storage/{storage}"
_SEES = ("Datastore.Audit", "Datastore.AllocateSpace")


@route("GET", "/storage")
def configured(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The storages of storage.cfg."""
    return [
        _plain(one)
        for name, one in storage.config(ctx.world).items()
        if (not values.get("type") or one["type"] == values["type"]) and ctx.may(f"/storage/{name}", *_SEES, any_of=True)
    ]


def _plain(one: storage.Storage) -> dict[str, Any]:
    return {key: ",".join(value) if key == "content" else value for key, value in one.items() if not key.startswith("lab-")}


@route("GET", "/storage/{storage}")
def one_configured(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """One storage of storage.cfg."""
    found = storage.config(ctx.world).get(values["storage"])
    if found is None:
        raise PveError(f"storage '{values['storage']}' does not exist")
    return _plain(found)


@route("GET", _NODE)
def listed(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The node's storages with their space."""
    found = []
    wanted = set(split_list(str(values.get("content", "")))) if values.get("content") else None
    for name, one in storage.config(ctx.world).items():
        if values.get("storage") not in {None, name} or (wanted and not wanted & set(one["content"])):
            continue
        if values.get("enabled") and one.get("disable") == "1":
            continue
        if ctx.may(f"/storage/{name}", *_SEES, any_of=True):
            found.append(storage.status(ctx.world, one))
    return found


@route("GET", f"{_ONE}/status")
def status(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """One storage's space."""
    entry = storage.status(ctx.world, storage.get(ctx.world, values["storage"], ctx.world.node))
    return {key: value for key, value in entry.items() if key not in {"storage", "used_fraction"}}


@route("GET", f"{_ONE}/content")
def content(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The volumes of a storage."""
    one = storage.get(ctx.world, values["storage"], ctx.world.node)
    return storage.content(ctx.world, one, values.get("content"), values.get("vmid"))


@route("GET", f"{_ONE}/content/{{volume}}")
def volume(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """One volume."""
    name = _volume(values)
    path = storage.activated(ctx.world, name)
    held = storage.owner(name)
    size = storage.recorded_size(ctx.world, held, name) if held else path.stat().st_size
    return {"path": str(path), "size": size, "used": size, "format": "raw" if held else "tzst"}


@route("DELETE", f"{_ONE}/content/{{volume}}")
def delete(ctx: Context, values: dict[str, Any]) -> str | None:
    """Delete a volume."""
    name = _volume(values)
    ctx.need(f"/storage/{values['storage']}", "Datastore.AllocateTemplate", "Datastore.AllocateSpace", any_of=True)

    def work() -> None:
        path = storage.activated(ctx.world, name)
        if path.is_dir():
            storage.free(ctx.world, name)
        else:
            path.unlink()

    return ctx.task("imgdel", f"{storage.owner(name) or ''}@{values['storage']}", work)


def _volume(values: dict[str, Any]) -> str:
    name = str(values["volume"])
    return name if name.startswith(f"{values['storage']}:") else f"{values['storage']}:{name}"


@route("GET", "/nodes/{node}/aplinfo")
def appliances(ctx: Context, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The templates that could be downloaded: those that the lab placed in /var/lib/lab/templates or has in a storage."""
    del values
    names = {
        file.name for folder in ("/var/lib/lab/templates", "/var/lib/vz/template/cache") for file in ctx.world.path(folder).glob("*.tar.*")
    }
    found = []
    for name in sorted(names):
        parts = name.split("_")
        found.append(
            {
                "template": name,
                "package": parts[0],
                "version": parts[1] if len(parts) > 1 else "1",
                "os": "-".join(name.split("-")[:2]),
                "section": "system",
                "type": "lxc",
                "architecture": "amd64",
                "headline": f"LXC default image for {parts[0]}",
                "source": "https://releases.example.org/",
                "infopage": "https://pve.proxmox.com/wiki/Linux_Container",
                "location": name,
                "maintainer": "lab",
                "description": "a root file system made by the lab",
            }
        )
    return found


@route("POST", "/nodes/{node}/aplinfo")
def download(ctx: Context, values: dict[str, Any]) -> str:
    """Place a template into a storage, from where the lab keeps it."""
    one = storage.get(ctx.world, values["storage"], ctx.world.node)
    name = values["template"]
    kept = ctx.world.path(f"/var/lib/lab/templates/{name}")
    target = storage.path(ctx.world, f"{one['storage']}:vztmpl/{name}")
    if name not in {entry["template"] for entry in appliances(ctx, {})}:
        raise ParamError({"template": "no such template"})
    if "vztmpl" not in one["content"]:
        raise PveError(f"storage '{one['storage']}' does not support templates")

    def work() -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        print(f"downloading {name} to {target}", flush=True)
        if not target.exists():
            shutil.copyfile(kept, target)
        with contextlib.suppress(OSError):
            print(f"download of '{name}' to '{target}' finished", file=sys.stdout, flush=True)

    return ctx.task("download", "", work)
