"""pct: containers from the shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox.api import registry
from lab.proxmox.cli import options, table, tool
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context

_ONE = "/nodes/{node}/lxc/{vmid}"
_VMID = {"type": "integer", "format": "pve-vmid", "minimum": 100, "maximum": 999999999}
# Command -> verb, path, words without a dash; each of these starts a task and leaves with its end.
_TASKS = {
    "create": ("POST", "/nodes/{node}/lxc", ("vmid", "ostemplate")),
    "destroy": ("DELETE", _ONE, ("vmid",)),
    "start": ("POST", f"{_ONE}/status/start", ("vmid",)),
    "stop": ("POST", f"{_ONE}/status/stop", ("vmid",)),
    "shutdown": ("POST", f"{_ONE}/status/shutdown", ("vmid",)),
    "reboot": ("POST", f"{_ONE}/status/reboot", ("vmid",)),
    "resize": ("PUT", f"{_ONE}/resize", ("vmid", "disk", "size")),
    "template": ("POST", f"{_ONE}/template", ("vmid",)),
    "snapshot": ("POST", f"{_ONE}/snapshot", ("vmid", "snapname")),
    "move-volume": ("POST", f"{_ONE}/move_volume", ("vmid", "volume", "storage")),
}
_USAGE = """\
USAGE: pct <COMMAND> [ARGS] [OPTIONS]
       pct config <vmid> [OPTIONS]
       pct cpusets
       pct create <vmid> <ostemplate> [OPTIONS]
       pct destroy <vmid> [OPTIONS]
       pct df <vmid>
       pct enter <vmid> [OPTIONS]
       pct exec <vmid> [<extra-args>] [OPTIONS]
       pct list
       pct listsnapshot <vmid>
       pct mount <vmid>
       pct pending <vmid>
       pct pull <vmid> <path> <destination> [OPTIONS]
       pct push <vmid> <file> <destination> [OPTIONS]
       pct reboot <vmid> [OPTIONS]
       pct resize <vmid> <disk> <size> [OPTIONS]
       pct set <vmid> [OPTIONS]
       pct shutdown <vmid> [OPTIONS]
       pct snapshot <vmid> <snapname> [OPTIONS]
       pct start <vmid> [OPTIONS]
       pct status <vmid> [OPTIONS]
       pct stop <vmid> [OPTIONS]
       pct template <vmid>
       pct unlock <vmid>
       pct unmount <vmid>"""


def main(ctx: Context, arguments: list[str]) -> int:
    """Run one pct command."""
    if not arguments or arguments[0] in {"help", "-h", "--help"}:
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 255
    command, rest = arguments[0], arguments[1:]
    own = globals().get(f"_{command.replace('-', '_')}_command")
    if command in _TASKS:
        verb, path, fixed = _TASKS[command]
        return tool.task_exit(ctx, _api(ctx, command, verb, path, rest, fixed))
    if own is None:
        raise PveError(f"ERROR: unknown command 'pct {command}'\n{_USAGE}")
    return int(own(ctx, rest) or 0)


def _values(ctx: Context, command: str, verb: str, path: str, rest: list[str], fixed: tuple[str, ...]) -> dict[str, Any]:
    properties = dict(ctx.schema.endpoints[path][verb]["parameters"]["properties"])
    properties.pop("node", None)
    usage = f"pct {command} {' '.join(f'<{word}>' for word in fixed)} [OPTIONS]"
    if command == "create":
        properties["password"] = properties["password"] | {"type": "boolean_or_text"}
    try:
        values = options.read(rest, properties, fixed)
    except PveError as error:
        raise PveError(error.for_terminal().rstrip("\n") + f"\n{usage}") from None
    if values.get("password") == "" and command == "create":
        values["password"] = sys.stdin.readline().rstrip("\n")
    keys = values.get("ssh-public-keys")
    if keys:
        try:
            with open(keys) as stream:  # noqa: PTH123 - the path is the person's
                values["ssh-public-keys"] = stream.read()
        except OSError as error:
            raise PveError(f"can't open '{keys}' - {error.strerror}") from None
    return values


def _api(ctx: Context, command: str, verb: str, path: str, rest: list[str], fixed: tuple[str, ...]) -> Any:
    values = _values(ctx, command, verb, path, rest, fixed)
    vmid = str(values.get("vmid", ""))
    if "{vmid}" in path and not vmid.isdigit():
        vmid = "0"
    url = path.replace("{node}", ctx.world.node).replace("{vmid}", vmid)
    try:
        return registry.call(ctx, verb, url, {name: value for name, value in values.items() if f"{{{name}}}" not in path})
    except PveError as error:
        if error.status == 400:
            raise PveError(
                error.for_terminal().rstrip("\n") + f"\npct {command} {' '.join(f'<{word}>' for word in fixed)} [OPTIONS]"
            ) from None
        raise


def _number(rest: list[str], properties: dict[str, Any] | None = None, fixed: tuple[str, ...] = ("vmid",)) -> dict[str, Any]:
    from lab.proxmox.schema import validate

    rules = {"vmid": _VMID, **{name: {"type": "string", "optional": 1} for name in fixed if name != "vmid"}, **(properties or {})}
    return validate({"properties": rules, "additionalProperties": 0}, options.read(rest, rules, fixed))


def _list_command(ctx: Context, rest: list[str]) -> None:
    options.read(rest, {})
    rows = registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/lxc", {})
    if rows:
        print(f"{'VMID':<10} {'Status':<10} {'Lock':<12} {'Name':<20}")
    for row in rows:
        print(f"{row['vmid']:<10} {row['status']:<10} {row.get('lock', ''):<12} {row['name']:<20}")


def _status_command(ctx: Context, rest: list[str]) -> None:
    values = _number(rest, {"verbose": {"type": "boolean", "optional": 1}})
    row = registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/lxc/{values['vmid']}/status/current", {})
    if values.get("verbose"):
        for name in sorted(row):
            print(f"{name}: {row[name]}")
    else:
        print(f"status: {row['status']}")


def _config_command(ctx: Context, rest: list[str]) -> None:
    values = _values(ctx, "config", "GET", f"{_ONE}/config", rest, ("vmid",))
    vmid = values.pop("vmid")
    conf = registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/lxc/{vmid}/config", values)
    from urllib.parse import quote

    for name in sorted(conf):
        if name in {"digest", "lxc", "snapshots", "pending"}:
            continue
        value = quote(str(conf[name]), safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~") if name == "description" else conf[name]
        print(f"{name}: {value}")
    for key, value in conf.get("lxc", []):
        print(f"{key}: {value}")


def _pending_command(ctx: Context, rest: list[str]) -> None:
    values = _number(rest)
    for row in registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/lxc/{values['vmid']}/pending", {}):
        name = row["key"]
        if "delete" in row:
            print(f"del {name}: {row['value']}")
        elif "pending" in row:
            if "value" in row:
                print(f"cur {name}: {row['value']}")
            print(f"new {name}: {row['pending']}")
        else:
            print(f"cur {name}: {row['value']}")


def _set_command(ctx: Context, rest: list[str]) -> None:
    _api(ctx, "set", "PUT", f"{_ONE}/config", rest, ("vmid",))


def _listsnapshot_command(ctx: Context, rest: list[str]) -> None:
    values = _number(rest)
    for row in registry.call(ctx, "GET", f"/nodes/{ctx.world.node}/lxc/{values['vmid']}/snapshot", {}):
        print(f"`-> {row['name']:<27} {row.get('description', '')}")


def _unlock_command(ctx: Context, rest: list[str]) -> None:
    from lab.proxmox.api import lxc

    lxc.unlock(ctx, _number(rest)["vmid"])


def _cpusets_command(ctx: Context, rest: list[str]) -> None:
    options.read(rest, {})
    del ctx
    table.show([], "text")


def _df_command(ctx: Context, rest: list[str]) -> None:
    from lab.proxmox.cli import files

    files.space(ctx, _number(rest)["vmid"])


def _exec_command(ctx: Context, rest: list[str]) -> None:
    head, command = _split(rest)
    values = _number(head, {"keep-env": {"type": "boolean", "optional": 1}})
    _attach(ctx, values, command, missing="missing command")


def _enter_command(ctx: Context, rest: list[str]) -> None:
    values = _number(rest, {"keep-env": {"type": "boolean", "optional": 1}})
    _attach(ctx, values, [], missing="")


def _split(rest: list[str]) -> tuple[list[str], list[str]]:
    if "--" in rest:
        place = rest.index("--")
        return rest[:place], rest[place + 1 :]
    head: list[str] = []
    words = list(rest)
    while words:
        word = words.pop(0)
        head.append(word)
        if word == "--keep-env" and words and words[0] in {"0", "1"}:
            head.append(words.pop(0))
        if not word.startswith("-"):
            if words and words[0].startswith("--keep-env"):
                continue
            break
    while words and words[0].startswith("--keep-env"):
        head.append(words.pop(0))
        if words and words[0] in {"0", "1"}:
            head.append(words.pop(0))
    return head, words


def _attach(ctx: Context, values: dict[str, Any], command: list[str], missing: str) -> None:
    from lab.proxmox.ct import state

    vmid = values["vmid"]
    ctx.load(vmid)
    if missing and not command:
        raise PveError(missing)
    if not state.running(ctx.world, vmid):
        raise PveError(f"container '{vmid}' not running!")
    sys.stdout.flush()
    how = ["--keep-env"] if values.get("keep-env", 1) else ["--clear-env"]
    started = ctx.world.path(f"/run/pve/lxc/{vmid}.conf")
    words = ["lxc-attach", "-P", state.lxc_path(ctx.world), "-n", str(vmid), *(["-f", str(started)] if started.exists() else []), *how]
    # The environment that this process was given: the interpreter has put its own LC_CTYPE into os.environ.
    given = dict(part.partition("=")[::2] for part in Path("/proc/self/environ").read_text(errors="surrogateescape").split("\0") if part)
    os.execvpe("lxc-attach", [*words, "--", *command] if command else words, given)


_COPY = {name: {"type": "string", "optional": 1} for name in ("user", "group", "perms")}


def _push_command(ctx: Context, rest: list[str]) -> int:
    from lab.proxmox.cli import files

    return tool.task_exit(ctx, files.push(ctx, _number(rest, _COPY, ("vmid", "file", "destination"))))


def _pull_command(ctx: Context, rest: list[str]) -> int:
    from lab.proxmox.cli import files

    return tool.task_exit(ctx, files.pull(ctx, _number(rest, _COPY, ("vmid", "path", "destination"))))


def _mount_command(ctx: Context, rest: list[str]) -> None:
    from lab.proxmox.cli import files

    files.mount(ctx, _number(rest)["vmid"])


def _unmount_command(ctx: Context, rest: list[str]) -> None:
    from lab.proxmox.cli import files

    files.unmount(ctx, _number(rest)["vmid"])


if __name__ == "__main__":
    tool.run(main)
