"""Filters for variants of the server, over the core; and the edit of a host's variables that keeps every other byte of the file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

CORE = str(Path(__file__).resolve().parents[1] / "module_utils")
if CORE not in sys.path:
    sys.path.insert(0, CORE)

from ansible.errors import AnsibleFilterError

from gpunode import tuning


def _plain(value: Any) -> Any:
    """The value as plain YAML data: Ansible's tagged strings are told apart by it otherwise."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    return value


def _flow(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _block(key: str, value: Any, indent: int) -> list[str]:
    """A key and its value in block style, ready to stand at that column."""
    if isinstance(value, dict) and value:
        inner = [line for name, item in value.items() for line in _block(name, item, indent + 2)]
        return [f"{' ' * indent}{_flow(key)}:", *inner]
    return [f"{' ' * indent}{_flow(key)}: {_flow(value)}"]


def _children(node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    return {key.value: (key, value) for key, value in node.value}


def _end(lines: list[str], node: yaml.Node) -> int:
    """The line after a node's last one; marks of block nodes end behind the blank lines and comments that follow them."""
    last: int = node.end_mark.line + (1 if node.end_mark.column else 0)
    while last - 1 > node.start_mark.line and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1
    return last


def _merge(lines: list[str], node: yaml.MappingNode, values: dict[str, Any]) -> None:
    """Change a block mapping in its lines, from the last child to the first, so that marks of those before stay right."""
    there = _children(node)
    indent = node.value[0][0].start_mark.column
    new = [line for name, value in values.items() if name not in there for line in _block(name, value, indent)]
    place = _end(lines, node.value[-1][1])
    lines[place:place] = new
    for name, (key, value) in sorted(there.items(), key=lambda item: -item[1][0].start_mark.line):
        if name not in values:
            continue
        wanted = values[name]
        inner = value if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style else None
        if inner is not None and isinstance(wanted, dict) and set(_children(inner)) <= set(wanted):
            _merge(lines, inner, wanted)
        elif yaml.safe_load(_flow(wanted)) != _loaded(value):
            start = key.start_mark.line
            old = lines[start : _end(lines, value)]
            comment = ""
            if value.start_mark.line == value.end_mark.line == start:
                tail = old[0][value.end_mark.column :].strip()
                comment = f"  {tail}" if tail.startswith("#") else ""
            fresh = _block(name, wanted, key.start_mark.column)
            fresh[0] += comment
            lines[start : start + len(old)] = fresh


def _loaded(node: yaml.Node) -> Any:
    """A node's value; what only Ansible can read (a vault) is equal to nothing."""
    try:
        return yaml.safe_load(yaml.serialize(node))
    except yaml.YAMLError:
        return object()


def with_values(text: str, values: dict[str, Any]) -> str:
    """Return the YAML text of a host's variables with these values in it; comments, order and every other line stay as they are."""
    values = _plain(values)
    node = yaml.compose(text)
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        added = [line for name, value in values.items() for line in _block(name, value, 0)]
        head = text if not text or text.endswith("\n") else text + "\n"
        return (head or "---\n") + "\n".join(added) + "\n"
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        raise AnsibleFilterError("the file of the host's variables is no mapping with one variable a line; set the values by hand")
    lines = text.splitlines()
    _merge(lines, node, values)
    result = "\n".join(lines) + "\n"
    found = _children(yaml.compose(result))
    wrong = [name for name, value in values.items() if _loaded(found[name][1]) != value]
    lost = [
        name
        for name, (_, value) in _children(node).items()
        if name not in values and yaml.serialize(value) != yaml.serialize(found[name][1])
    ]
    if wrong or lost:
        raise AnsibleFilterError(f"{', '.join(wrong + lost)} could not be written without touching other lines; set the values by hand")
    return result


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Name to function."""
        return {
            "tune_problems": lambda variants, known: tuning.problems(_plain(variants), str(known)),
            "tune_key": lambda variant, context: tuning.key(_plain(variant), _plain(context)),
            "tune_settings": lambda variant, flags, environment: tuning.settings(_plain(variant), _plain(flags), _plain(environment)),
            "with_values": with_values,
        }
