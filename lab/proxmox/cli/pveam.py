"""pveam: container templates from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.proxmox import storage
from lab.proxmox.api import registry
from lab.proxmox.cli import options, tool
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_TEXT = {"type": "string"}


def main(ctx: Context, arguments: list[str]) -> int:
    """Run one pveam command."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "update":
        print("update successful")
        return 0
    if command == "available":
        options.read(rest, {"section": _TEXT})
        for row in registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/aplinfo", {}):
            print(f"{row['section']:<15} {row['template']}")
        return 0
    if command == "list":
        name = options.read(rest, {"storage": _TEXT}, ("storage",))["storage"]
        rows = storage.content(ctx.world, storage.get(ctx.world, name, ctx.world.node), "vztmpl")
        if rows:
            print(f"{'NAME':<60} {'SIZE':<6}")
        for row in rows:
            print(f"{row['volid']:<60} {row['size'] / 2**20:<4.2f}MB")
        return 0
    if command == "download":
        values = options.read(rest, {"storage": _TEXT, "template": _TEXT}, ("storage", "template"))
        return tool.task_exit(ctx, registry.call(ctx, "POST", f"/nodes/{ctx.world.node}/aplinfo", values))
    if command == "remove":
        volume = options.read(rest, {"template_path": _TEXT}, ("template_path",))["template_path"]
        path = storage.activated(ctx.world, volume)
        path.unlink()
        return 0
    raise PveError(f"ERROR: unknown command 'pveam {command}'\nUSAGE: pveam available|download|list|remove|update")


if __name__ == "__main__":
    tool.run(main)
