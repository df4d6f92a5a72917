"""`--config FILE.yaml`: its keys become arguments in front of those on the command line, as sglang merges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def _scalar(text: str) -> Any:
    text = text.strip()
    if text[:1] in {'"', "'"} and text[-1:] == text[:1] and len(text) > 1:
        return json.loads(text) if text[0] == '"' else text[1:-1].replace("''", "'")
    if text[:1] in {"{", "["}:
        try:
            return json.loads(text)
        except ValueError:
            return [_scalar(item) for item in text.strip("[]").split(",") if item.strip()]
    text = text.split(" #", 1)[0].strip()
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.lower() in {"", "null", "~"}:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def load(path: Path) -> dict[str, Any]:
    """A flat YAML mapping: scalars, quoted strings, flow lists and block lists of scalars (the standard library has no YAML)."""
    if path.suffix.lower() not in {".yaml", ".yml"}:
        raise ValueError(f"Config file must be YAML format, got: {path.suffix}")
    if not path.exists():
        raise ValueError(f"Config file not found: {path}")
    found: dict[str, Any] = {}
    key = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped == "---":
            continue
        if stripped.startswith("- "):
            if not isinstance(found.get(key), list):
                found[key] = []
            found[key].append(_scalar(stripped[2:]))
            continue
        name, colon, value = stripped.partition(":")
        if not colon or line[:1].isspace():
            raise ValueError("Config file must contain a dictionary at root level")
        key = name.strip().strip("\"'")
        found[key] = _scalar(value)
    return found


def merge(arguments: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """The arguments with those of the file in front: the command line wins."""
    if "--config" not in arguments:
        return arguments
    index = arguments.index("--config")
    if arguments.count("--config") > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    if index == len(arguments) - 1:
        raise ValueError("No config file specified after --config flag!")
    switches = {
        name[2:].replace("-", "_")
        for action in parser._actions
        if action.nargs == 0
        for name in action.option_strings
        if name.startswith("--")
    }
    merged: list[str] = []
    for key, value in load(Path(arguments[index + 1])).items():
        if isinstance(value, bool):
            if key.replace("-", "_") not in switches:
                merged += [f"--{key}", str(value).lower()]
            elif value:
                merged.append(f"--{key}")
        elif isinstance(value, list):
            merged += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            merged += [f"--{key}", json.dumps(value)]
        else:
            merged += [f"--{key}", str(value)]
    return merged + arguments[:index] + arguments[index + 2 :]
