"""Filter over a host's variables: what no role knows and what no role can take."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

import yaml
from ansible.errors import AnsibleError
from jinja2 import Undefined, UndefinedError

from gpunode import inventory_check

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES = Path(__file__).resolve().parents[2] / "roles"


@cache
def _specs() -> dict[str, dict[str, Any]]:
    specs = {}
    for file in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        described = yaml.safe_load(file.read_text(encoding="utf-8"))
        specs[file.parent.parent.name] = described["argument_specs"]["main"].get("options") or {}
    return specs


def _filled(value: Any) -> Any:
    """The value with its parts, which Ansible fills in only where they are looked at; UndefinedError for what cannot be worked out here."""
    if isinstance(value, Undefined):
        raise UndefinedError
    if isinstance(value, Mapping):
        return {key: _filled(part) for key, part in value.items()}
    return [_filled(part) for part in value] if isinstance(value, (list, tuple)) else value


def inventory_problems(variables: Mapping[str, Any]) -> list[str]:
    """Sentences about ``hostvars[HOST]``: names with a role's prefix that no role has, and values that a role cannot take.

    A value that depends on what is only known later is not judged here; the role judges it.
    """
    given = {}
    for name in inventory_check.names_to_check(list(variables), _specs()):
        try:
            given[name] = _filled(variables[name])
        except (AnsibleError, UndefinedError, KeyError):
            given[name] = None
    return inventory_check.problems(given, _specs())


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Names in templates."""
        return {"inventory_problems": inventory_problems}
