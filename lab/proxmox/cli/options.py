"""Command line options as Proxmox's tools read them: one or two dashes, values apart or after an equals sign."""

from __future__ import annotations

from typing import Any

from lab.proxmox import propstr
from lab.proxmox.errors import ParamError, PveError
from lab.proxmox.schema import Rule, rule_of


def read(arguments: list[str], properties: dict[str, Rule], fixed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Split arguments into values by option name; words without a dash fill `fixed` in order.

    Booleans may stand alone and are spelled freely; repeated options of a list type are joined. Raises ParamError or PveError.
    """
    values: dict[str, Any] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        if word == "--":
            words += rest
            break
        value: Any
        name, equals, value = word.lstrip("-").partition("=")
        rule = rule_of(properties, name)
        if rule is None:
            raise PveError(f"Unknown option: {name}\n400 unable to parse option")
        boolean = rule.get("type") == "boolean"
        if not equals:
            if (boolean and (not rest or (rest[0].startswith("-") and len(rest[0]) > 1))) or (
                boolean and propstr.boolean(rest[0]) is None and len(words) < len(fixed)
            ):
                value = "1"
            elif not rest:
                raise PveError(f"Option {name} requires an argument\n400 unable to parse option")
            else:
                value = rest.pop(0)
        if boolean:
            value = propstr.boolean(value) or value
        if name in values and (rule.get("type") == "array" or str(rule.get("format", "")).endswith("-list")):
            value = f"{values[name]},{value}" if rule.get("type") != "array" else [*values[name], value]
        elif rule.get("type") == "array":
            value = [value]
        values[name] = value
    if len(words) < len(fixed):
        raise PveError("not enough arguments", 400)
    if len(words) > len(fixed):
        raise PveError("too many arguments", 400)
    for name, value in zip(fixed, words, strict=True):
        if name in values:
            raise ParamError({name: "duplicate value"})
        values[name] = value
    return values
