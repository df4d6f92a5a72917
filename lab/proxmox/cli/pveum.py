"""pveum: users, tokens and permissions from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.proxmox.api import registry
from lab.proxmox.cli import options, table, tool
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context

# Words of the command -> verb, path, words without a dash.
_COMMANDS = {
    ("user", "add"): ("POST", "/access/users", ("userid",)),
    ("user", "delete"): ("DELETE", "/access/users/{userid}", ("userid",)),
    ("user", "list"): ("GET", "/access/users", ()),
    ("user", "modify"): ("PUT", "/access/users/{userid}", ("userid",)),
    ("user", "permissions"): ("GET", "/access/permissions", ()),
    ("user", "token", "add"): ("POST", "/access/users/{userid}/token/{tokenid}", ("userid", "tokenid")),
    ("user", "token", "list"): ("GET", "/access/users/{userid}/token", ("userid",)),
    ("user", "token", "modify"): ("PUT", "/access/users/{userid}/token/{tokenid}", ("userid", "tokenid")),
    ("user", "token", "remove"): ("DELETE", "/access/users/{userid}/token/{tokenid}", ("userid", "tokenid")),
    ("user", "tfa", "delete"): ("DELETE", "/access/tfa/{userid}/{id}", ("userid", "id")),
    ("acl", "modify"): ("PUT", "/access/acl", ("path",)),
    ("acl", "delete"): ("PUT", "/access/acl", ("path",)),
    ("acl", "list"): ("GET", "/access/acl", ()),
    ("role", "add"): ("POST", "/access/roles", ("roleid",)),
    ("role", "delete"): ("DELETE", "/access/roles/{roleid}", ("roleid",)),
    ("role", "list"): ("GET", "/access/roles", ()),
    ("pool", "add"): ("POST", "/pools", ("poolid",)),
    ("pool", "list"): ("GET", "/pools", ()),
    ("pool", "modify"): ("PUT", "/pools", ("poolid",)),
    ("passwd",): ("PUT", "/access/password", ("userid",)),
}


def main(ctx: Context, arguments: list[str]) -> int:
    """Run one pveum command."""
    words = next((words for words in sorted(_COMMANDS, key=len, reverse=True) if tuple(arguments[: len(words)]) == words), None)
    if words is None:
        shown = "\n".join(f"       pveum {' '.join(words)}" for words in _COMMANDS)
        raise PveError(f"ERROR: unknown command 'pveum {' '.join(arguments[:2])}'\nUSAGE: pveum <COMMAND> [ARGS] [OPTIONS]\n{shown}")
    verb, path, fixed = _COMMANDS[words]
    rule = ctx.schema.endpoints[path][verb]
    properties = rule["parameters"].get("properties") or {}
    own = {"output-format": {"type": "string"}}
    values = options.read(arguments[len(words) :], {**properties, **own}, fixed)
    form = values.pop("output-format", "text")
    if words == ("passwd",):
        values["password"] = input("Enter new password: ")
    if words == ("acl", "delete"):
        values["delete"] = "1"
    url = path
    for name in fixed:
        url = url.replace(f"{{{name}}}", str(values[name]))
    result = registry.call(ctx, verb, url, {name: value for name, value in values.items() if f"{{{name}}}" not in path})
    table.show(result, form, rule.get("returns", {}).get("type"))
    return 0


if __name__ == "__main__":
    tool.run(main)
