"""Variables of an inventory against what the roles know: names that no role has, values of another type."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

SECRET = re.compile(r"(key|password|secret|token)$")
"""Names whose values are not shown."""
ELSEWHERE = {
    "gpu_container_address": "address of the container, of the sample inventory and of playbooks",
    "llm_gateway_worker": "URL of a node's server for gateways",
    "monitoring_target": "address at which Prometheus reads a host",
    "monitoring_remove_samples": "consent of playbooks/teardown.yml",
    "node_verify_remove_results": "consent of playbooks/teardown.yml",
}
"""Names with a role's prefix that playbooks and inventories use and no role has among its variables."""
BOOLEANS = frozenset({"y", "yes", "on", "1", "true", "t", "n", "no", "off", "0", "false", "f"})
"""Ansible's spellings, in small letters."""
LIKE = 0.8
"""Likeness from which a name is offered as the one that was meant."""

Spec = Mapping[str, Mapping[str, Any]]


def _fits(value: Any, kind: str) -> bool:
    if kind == "int":
        if isinstance(value, bool):
            return False
        try:
            return float(value) == int(float(value))
        except (TypeError, ValueError, OverflowError):
            return False
    if kind == "float":
        try:
            float(value)
        except (TypeError, ValueError):
            return False
        return not isinstance(value, bool)
    if kind == "bool":
        return isinstance(value, bool) or str(value).lower() in BOOLEANS
    if kind == "dict":
        return isinstance(value, Mapping) or (isinstance(value, str) and _is_object(value))
    if kind == "list":
        return isinstance(value, (list, tuple, str, int, float))
    return not isinstance(value, (Mapping, list, tuple)) if kind in ("str", "path") else True


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return "=" in text


def names_to_check(names: list[str], specs: Mapping[str, Spec]) -> list[str]:
    """Of an inventory's names those that carry a role's prefix, sorted."""
    prefixes = tuple(f"{role}_" for role in specs)
    return sorted(name for name in names if name.startswith(prefixes))


def problems(variables: Mapping[str, Any], specs: Mapping[str, Spec]) -> list[str]:
    """One sentence for each variable that no role has or whose value a role cannot take.

    ``variables``: name to value, already filled in; a value of None is taken for unset. ``specs``: role to the options of its argument
    specification. A value is shown only where its name is not that of a secret.
    """
    known = {name: option for options in specs.values() for name, option in options.items()}
    found = []
    for name in names_to_check(list(variables), specs):
        if name in ELSEWHERE:
            continue
        option = known.get(name)
        if option is None:
            near = difflib.get_close_matches(name, [*known, *ELSEWHERE], n=1, cutoff=LIKE)
            hint = f"Did you mean {near[0]}?" if near else "Its README lists them; variables of your own need another prefix."
            role = max((role for role in specs if name.startswith(f"{role}_")), key=len)
            found.append(f"{name} is no variable of the role {role}. {hint}")
            continue
        value, kind, choices = variables[name], str(option.get("type", "str")), option.get("choices")
        if value is None:
            continue
        shown = "its value" if SECRET.search(name) else json.dumps(value, default=str)
        if not _fits(value, kind):
            found.append(f"{name} must be of type {kind}; {shown} is not.")
        elif choices and not isinstance(value, (list, Mapping)) and str(value) not in [str(choice) for choice in choices]:
            found.append(f"{name} must be one of {', '.join(str(choice) for choice in choices)}; {shown} is not.")
    return found
