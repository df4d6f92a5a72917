"""Which function answers which call, and the way of a request: path, schema, permission, function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lab.proxmox.context import Context
from lab.proxmox.errors import ParamError, PermError, PveError
from lab.proxmox.schema import validate

Handler = Callable[[Context, dict[str, Any]], Any]
_handlers: dict[tuple[str, str], Handler] = {}
# One module a subject; only the one that a path needs is loaded, which keeps pvesh quick.
_MODULES = (
    ("/nodes/{node}/lxc", "lxc"),
    ("/nodes/{node}/qemu", "guests"),
    ("/nodes/{node}/tasks", "task"),
    ("/nodes/{node}/storage", "storage"),
    ("/nodes/{node}/aplinfo", "storage"),
    ("/storage", "storage"),
    ("/access", "access"),
    ("/pools", "access"),
    ("/cluster/tasks", "task"),
    ("/cluster", "guests"),
    ("/nodes/{node}/startall", "guests"),
    ("/nodes/{node}/stopall", "guests"),
    ("/", "node"),
)
VERBS = {"get": "GET", "set": "PUT", "create": "POST", "delete": "DELETE"}


def route(verb: str, template: str) -> Callable[[Handler], Handler]:
    """Register a function for a verb of a path template."""

    def register(handler: Handler) -> Handler:
        _handlers[verb, template] = handler
        return handler

    return register


def handler_of(verb: str, template: str) -> Handler | None:
    """The function that answers, loaded on demand."""
    name = next(module for prefix, module in _MODULES if template.startswith(prefix))
    importlib.import_module(f"lab.proxmox.api.{name}")
    return _handlers.get((verb, template))


def call(ctx: Context, verb: str, path: str, values: dict[str, Any]) -> Any:
    """Answer one request.

    Raises PveError: 501 for what the API or the lab lacks, 400 for parameters, 403 for permissions, 500 for the rest.
    """
    found = ctx.schema.find(path)
    rule = ctx.schema.call(found[0], verb) if found else None
    if found is None or rule is None:
        raise PveError(f"Method '{verb} {path}' not implemented", 501)
    template, variables = found
    if variables.get("node") == "localhost":
        variables["node"] = ctx.world.node
    if variables.get("node") not in {None, ctx.world.node}:
        name = variables["node"]
        raise PveError(f"hostname lookup '{name}' failed - failed to get address info for: {name}: Name or service not known")
    handler = handler_of(verb, template)
    if handler is None:
        raise PveError(f"Method '{verb} {path}' not implemented in the lab's Proxmox VE", 501)
    clash = [name for name in values if name in variables and str(values[name]) != variables[name]]
    if clash:
        raise ParamError(dict.fromkeys(clash, "duplicate parameter (already defined in URI) with conflicting values!"))
    checked = validate(rule.get("parameters") or {"additionalProperties": 0}, values | variables)
    permit(ctx, rule.get("permissions"), checked)
    return handler(ctx, checked)


def permit(ctx: Context, permissions: dict[str, Any] | None, values: dict[str, Any]) -> None:
    """Apply the schema's permission rule of a call; without one only root@pam may."""
    if ctx.is_root:
        return
    if not permissions:
        raise PermError("user != root@pam")
    if permissions.get("user") in {"all", "world"}:
        return
    if "check" not in permissions or not _check(ctx, permissions["check"], values):
        raise PermError(_words(permissions.get("check"), values))


def _fill(path: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", str(value))
    return path


def _words(rule: Any, values: dict[str, Any]) -> str:
    if isinstance(rule, list) and rule and rule[0] == "perm":
        return f"{_fill(rule[1], values)}, {'|'.join(rule[2])}"
    return ""


def _check(ctx: Context, rule: list[Any], values: dict[str, Any]) -> bool:
    kind = rule[0]
    if kind in {"and", "or"}:
        return (all if kind == "and" else any)(_check(ctx, inner, values) for inner in rule[1:])
    if kind == "perm":
        extra = dict(zip(rule[3::2], rule[4::2], strict=False))
        if "require_param" in extra and values.get(extra["require_param"]) is None:
            return True
        return ctx.may(_fill(rule[1], values), *rule[2], any_of=bool(extra.get("any")))
    if kind == "perm-modify":
        return ctx.may(_fill(rule[1], values), "Permissions.Modify")
    if kind == "userid-param":
        if rule[1] == "self":
            return bool(values.get("userid") == ctx.user.partition("!")[0])
        return ctx.may(f"/access/realm/{str(values.get('userid', '')).rpartition('@')[2]}", rule[1])
    if kind == "userid-group":
        return ctx.may("/access/groups", *rule[1])
    return False
