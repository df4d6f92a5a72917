"""Property strings: `default,key=value,key=value` against a format of the API schema."""

from __future__ import annotations

from typing import Any

from lab.proxmox.errors import PveError

Format = dict[str, dict[str, Any]]
TRUE = {"1", "on", "yes", "true"}
FALSE = {"0", "off", "no", "false"}


def boolean(text: str) -> str | None:
    """Read a spelling of a boolean: "1", "0", or None where it is none."""
    lowered = text.lower()
    return "1" if lowered in TRUE else "0" if lowered in FALSE else None


def default_key(form: Format) -> str | None:
    """The key that may stand without its name."""
    return next((key for key, rule in form.items() if rule.get("default_key")), None)


def split(form: Format, text: str) -> dict[str, str]:
    """Split a property string into its keys; the values stay text, booleans become 1 or 0.

    Raises PveError with the API's own words for a key that is unknown, doubled or missing.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if equals and key and value:
            key, rule = _resolve(form, key)
            if key in found:
                raise PveError(f"duplicate key in comma-separated list property: {key}")
            if rule is None:
                raise PveError(f"invalid key in comma-separated list property: {key}")
            if rule.get("type") == "boolean":
                value = boolean(value) or value
            found[key] = value
        elif not equals:
            name = default_key(form)
            if name is None:
                raise PveError("value without key, but schema does not define a default key")
            if name in found:
                raise PveError(f"duplicate key in comma-separated list property: {name}")
            found[name] = part
        else:
            raise PveError("missing key in comma-separated list property")
    return found


def _resolve(form: Format, key: str) -> tuple[str, dict[str, Any] | None]:
    rule = form.get(key)
    while rule is not None and "alias" in rule:
        key = rule["alias"]
        rule = form.get(key)
    return key, rule


def join(form: Format, values: dict[str, Any], skip: tuple[str, ...] = ()) -> str:
    """Write a property string as Proxmox does: the default key first and bare, required keys, then the others, each sorted."""
    first = default_key(form)
    names = [name for name in sorted(values) if name not in skip and values[name] is not None]
    names.sort(key=lambda name: (name != first, bool(form.get(name, {}).get("optional"))))
    return ",".join(_word(form.get(name, {}), name, values[name], bare=name == first) for name in names)


def _word(rule: dict[str, Any], name: str, value: Any, *, bare: bool) -> str:
    if rule.get("type") == "boolean":
        value = "1" if str(value) == "1" else "0"
    if rule.get("format") == "disk-size" and isinstance(value, int):
        value = size_text(value)
    return str(value) if bare else f"{name}={value}"


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def size_bytes(text: str) -> int | None:
    """Read `8G` as bytes; None where it is no size."""
    number, unit = (text, "") if text[-1:].isdigit() else (text[:-1], text[-1:])
    if unit not in _UNITS:
        return None
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        return None


def size_text(size: int) -> str:
    """Write bytes with the largest unit that loses nothing."""
    for unit in ("T", "G", "M", "K"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
