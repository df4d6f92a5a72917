"""pvesh: the API from the shell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lab.proxmox.api import registry
from lab.proxmox.cli import options, table, tool
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_OWN: dict[str, dict[str, Any]] = {
    "output-format": {"type": "string", "enum": ["text", "json", "json-pretty", "yaml"]},
    "human-readable": {"type": "boolean"},
    "noborder": {"type": "boolean"},
    "noheader": {"type": "boolean"},
    "quiet": {"type": "boolean"},
    "noproxy": {"type": "boolean"},
    "nooutput": {"type": "boolean"},
}
_USAGE = """\
USAGE: pvesh <COMMAND> [ARGS] [OPTIONS]
       pvesh create <api_path> [OPTIONS] [FORMAT_OPTIONS]
       pvesh delete <api_path> [OPTIONS] [FORMAT_OPTIONS]
       pvesh get <api_path> [OPTIONS] [FORMAT_OPTIONS]
       pvesh ls <api_path> [OPTIONS] [FORMAT_OPTIONS]
       pvesh set <api_path> [OPTIONS] [FORMAT_OPTIONS]
       pvesh help [<extra-args>] [OPTIONS]
       pvesh usage <api_path> [OPTIONS]"""


def main(ctx: Context, arguments: list[str]) -> int:
    """Run one pvesh command."""
    arguments = (
        sorted(arguments, key=lambda word: word not in {*registry.VERBS, "ls", "usage", "help"}) if _options_first(arguments) else arguments
    )
    if not arguments or arguments[0] in {"help", "-h", "--help"}:
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 255
    command, rest = arguments[0], arguments[1:]
    if command not in {*registry.VERBS, "ls", "usage"}:
        raise PveError(f"ERROR: unknown command 'pvesh {command}'\n{_USAGE}")
    if not rest:
        raise PveError(f"not enough arguments\npvesh {command} <api_path> [OPTIONS] [FORMAT_OPTIONS]", 400)
    if rest[0].startswith("-"):  # the path may follow options
        rest.sort(key=lambda word: not word.startswith("/"))
    path = "/" + rest[0].strip("/")
    if command == "ls":
        return _list(ctx, path)
    if command == "usage":
        return _usage(ctx, path, rest[1:])
    verb = registry.VERBS[command]
    found = ctx.schema.find(path)
    rule = ctx.schema.call(found[0], verb) if found else None
    if rule is None:
        raise PveError(f"No '{command}' handler defined for '{path}'")
    properties = (rule.get("parameters") or {}).get("properties") or {}
    values = options.read(rest[1:], {**properties, **_OWN})
    own = {name: values.pop(name) for name in list(values) if name in _OWN and name not in properties}
    try:
        result = registry.call(ctx, verb, path, values)
    except PveError as error:
        if error.status == 400:
            sys.stderr.write(error.for_terminal() + f"pvesh {command} <api_path> [OPTIONS] [FORMAT_OPTIONS]\n")
            return 255
        raise
    if not own.get("nooutput") and own.get("quiet") != "1":
        table.show(result, own.get("output-format", "text"), rule.get("returns", {}).get("type"))
    return 0


def _options_first(arguments: list[str]) -> bool:
    return bool(arguments) and arguments[0].lstrip("-") in {"nooutput", "quiet", "noproxy"}


def _list(ctx: Context, path: str) -> int:
    depth = path.rstrip("/").count("/") + 1
    names: dict[str, str] = {}
    found = ctx.schema.find(path) if path != "/" else ("", {})
    if found is None:
        raise PveError(f"Resource '{path}' does not exist")
    for template in ctx.schema.endpoints:
        if template.startswith(found[0] + "/") and template.count("/") == depth:
            verbs = ctx.schema.endpoints[template]
            letters = "D" + "".join(
                letter if verb in verbs else "-" for letter, verb in (("r", "GET"), ("w", "PUT"), ("c", "POST"), ("d", "DELETE"))
            )
            names[template.rpartition("/")[2]] = letters
    for name in sorted(names):
        if name.startswith("{"):
            rows = registry.call(ctx, "GET", path, {})
            for row in rows:
                print(f"{names[name]}        {row.get(name.strip('{}')) or row.get('vmid') or row.get('node') or row.get('storage')}")
        else:
            print(f"{names[name]}        {name}")
    return 0


def _usage(ctx: Context, path: str, rest: list[str]) -> int:
    found = ctx.schema.find(path)
    if found is None:
        raise PveError(f"No handler defined for '{path}'")
    for command, verb in registry.VERBS.items():
        rule = ctx.schema.call(found[0], verb)
        if rule is None or ("--command" in rest and command not in rest):
            continue
        print(f"USAGE: pvesh {command} {path} [OPTIONS]")
        for name, one in sorted(((rule.get("parameters") or {}).get("properties") or {}).items()):
            if f"{{{name}}}" not in found[0]:
                print(f"\n  -{name:<10} <{one.get('type', 'string')}>{'' if one.get('optional') else '   (required)'}")
        print()
    return 0


if __name__ == "__main__":
    tool.run(main)
