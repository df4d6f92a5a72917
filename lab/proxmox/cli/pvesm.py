"""pvesm: storages from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.proxmox import storage
from lab.proxmox.cli import options, tool
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_TEXT = {"type": "string", "optional": 1}


def main(ctx: Context, arguments: list[str]) -> int:
    """Run one pvesm command."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "status":
        wanted = options.read(rest, {"storage": _TEXT, "content": _TEXT, "enabled": {"type": "boolean"}})
        print(f"{'Name':<13} {'Type':>8} {'Status':>10} {'Total (KiB)':>15} {'Used (KiB)':>15} {'Available (KiB)':>15} {'%':>8}")
        for name, one in storage.config(ctx.world).items():
            if wanted.get("storage", name) != name or (wanted.get("content") and wanted["content"] not in one["content"]):
                continue
            row = storage.status(ctx.world, one)
            state = "active" if row["active"] else "disabled"
            sizes = " ".join(f"{row[key] // 1024:>15}" for key in ("total", "used", "avail"))
            print(f"{name:<13} {row['type']:>8} {state:>10} {sizes} {100 * row['used_fraction']:>7.2f}%")
        return 0
    if command == "list":
        values = options.read(rest, {"storage": _TEXT, "content": _TEXT, "vmid": _TEXT}, ("storage",))
        one = storage.get(ctx.world, values["storage"], ctx.world.node)
        vmid = int(values["vmid"]) if values.get("vmid") else None
        rows = storage.content(ctx.world, one, values.get("content"), vmid)
        width = max([len(row["volid"]) for row in rows] + [5])
        print(f"{'Volid':<{width}} {'Format':<7} {'Type':<10} {'Size':>14} {'VMID'}")
        for row in rows:
            print(f"{row['volid']:<{width}} {row['format']:<7} {row['content']:<10} {row['size']:>14} {row.get('vmid', '')}")
        return 0
    if command == "path":
        print(storage.path(ctx.world, options.read(rest, {"volume": _TEXT}, ("volume",))["volume"]))
        return 0
    if command == "free":
        volume = options.read(rest, {"volume": _TEXT}, ("volume",))["volume"]
        storage.activated(ctx.world, volume)
        storage.free(ctx.world, volume)
        print(f"Removed volume '{volume}'")
        return 0
    raise PveError(f"ERROR: unknown command 'pvesm {command}'\nUSAGE: pvesm free|list|path|status")


if __name__ == "__main__":
    tool.run(main)
