"""Variables of a host from an Ansible inventory: by ansible-inventory where it is installed, else from its YAML files."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpunode_tools.collect.errors import InventoryError, UnreachableError

DEFAULT_INVENTORIES: Final = ("inventory/hosts.yml", "inventory/hosts.yaml")
_DEADLINE_S: Final = 60.0
_OF_SSH: Final = frozenset(
    {
        *("ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user", "ansible_ssh_user", "ansible_become"),
        *("ansible_ssh_private_key_file", "ansible_private_key_file"),
        *("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"),
    }
)
"""What a connection is made from; others may be secrets, or templates that only a play can fill in."""


@dataclass(frozen=True)
class Known:
    """What an inventory says of a host. ``path`` is empty where no inventory is there, ``found`` false where it does not name the host."""

    path: str
    found: bool
    variables: dict[str, Any]

    def told(self, name: str) -> str:
        """Where the host's address is from, and how to name another inventory."""
        if not self.path:
            where = f"no inventory was read, {' and '.join(DEFAULT_INVENTORIES)} are not here"
            return f"{where}: -i INVENTORY for one that knows {name}"
        if not self.found:
            return f"inventory {self.path} was read and has no host {name}: -i INVENTORY for another one"
        return f"{name} is in inventory {self.path}: -i INVENTORY for another one"


def host_variables(name: str, inventory: str | None) -> dict[str, Any]:
    """Return the variables of ``name`` as `known` finds them."""
    return known(name, inventory).variables


def known(name: str, inventory: str | None) -> Known:
    """Return the variables of ``name``; empty when no inventory is there, so that ssh's own configuration decides.

    Raises UnreachableError when an inventory was named and does not know the host or cannot be read.
    """
    path = inventory or next((place for place in DEFAULT_INVENTORIES if Path(place).exists()), None)
    if path is None:
        return Known("", found=False, variables={})
    try:
        os.stat(path)  # noqa: PTH116 - Path.exists hides why
    except FileNotFoundError:
        raise InventoryError(f"inventory {path} does not exist") from None
    except OSError as error:
        raise InventoryError(f"inventory {path} cannot be read: {error.strerror}") from None
    tool = Path(sys.executable).with_name("ansible-inventory")
    found = _by_ansible(str(tool), path, name) if tool.exists() else _by_files(Path(path), name)
    if found is None and inventory is not None:
        raise InventoryError(f"inventory {path} has no host {name}")
    return Known(path, found=found is not None, variables=found or {})


def _by_ansible(tool: str, path: str, name: str) -> dict[str, Any] | None:
    done = subprocess.run([tool, "-i", path, "--host", name], capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    if done.returncode != 0:
        if "Could not match" in done.stderr or "no hosts matched" in done.stderr.lower():
            return None
        said = done.stderr.strip().splitlines()
        raise InventoryError(f"ansible-inventory -i {path}: {said[-1] if said else done.returncode}")
    data = json.loads(done.stdout)
    if not isinstance(data, dict):
        return None
    used = {key: value for key, value in data.items() if key in _OF_SSH}
    return _templated(tool, path, name, used) if any("{{" in str(value) or "{%" in str(value) for value in used.values()) else data


def _templated(tool: str, path: str, name: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Let Ansible fill templates in: ansible-inventory prints them as they are written. The debug module connects to nothing."""
    wanted = ", ".join(f"{key}={key}" for key, value in variables.items() if isinstance(value, str | int | bool) and key.isidentifier())
    message = f"msg=@{{{{ dict({wanted}) | to_json | b64encode }}}}@"
    argv = [tool.replace("ansible-inventory", "ansible"), "-i", path, name, "-m", "ansible.builtin.debug", "-a", message]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    found = re.search(r"@([A-Za-z0-9+/=\s]+)@", done.stdout)
    if done.returncode != 0 or not found:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = next((line for line in said if "ERROR" in line), said[-1] if said else str(done.returncode))
        raise UnreachableError(f"the address of {name} in {path} could not be filled in: {why}")
    filled: dict[str, Any] = json.loads(base64.b64decode(found[1]))
    return filled


def _by_files(path: Path, name: str) -> dict[str, Any] | None:
    """Read hosts.yml with the host_vars and group_vars beside it: enough for addresses, users and keys.

    Raises UnreachableError for a template in what ssh needs: only Ansible can fill it in.
    """
    hosts = path / "hosts.yml" if path.is_dir() else path
    tree = _yaml(hosts, _text(hosts)) or {}
    folder = path if path.is_dir() else path.parent
    chain: list[tuple[str, dict[str, Any]]] = []

    def walk(group: str, body: Any, above: list[tuple[str, dict[str, Any]]]) -> bool:
        body = body or {}
        here = [*above, (group, body.get("vars") or {})]
        if name in (body.get("hosts") or {}):
            chain.extend(here)
            chain.append(("", (body["hosts"] or {}).get(name) or {}))
            return True
        return any(walk(child, inner, here) for child, inner in (body.get("children") or {}).items())

    if not any(walk(group, body, []) for group, body in tree.items()):
        return None
    variables: dict[str, Any] = {}
    for group, inline in chain:
        variables.update(inline)
        variables.update(_files(folder / "group_vars", group) if group else _files(folder / "host_vars", name))
    for key, value in variables.items():
        if key in _OF_SSH and ("{{" in str(value) or "{%" in str(value)):
            raise UnreachableError(
                f"{key} of {name} in {path} is a template ({value}), and Ansible is not installed beside this program to fill it in: "
                f"run it from the project's .venv, or write the value into {folder / 'host_vars' / name}.yml"
            )
    return variables


def _files(folder: Path, name: str) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    places = [folder / f"{name}.yml", *sorted((folder / name).glob("*.yml"))]
    for place in places:
        text = _text(place) if place.is_file() else ""
        if text and not text.startswith("$ANSIBLE_VAULT"):
            data = _yaml(place, text)
            variables.update(data if isinstance(data, dict) else {})
    return variables


def _text(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise InventoryError(f"{place} cannot be read: {why}") from None


def _yaml(place: Path, text: str) -> Any:
    """YAML as Ansible writes it; what is encrypted in it stays unread."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Knows Ansible's tags."""

    for tag in ("!vault", "!unsafe"):
        Loader.add_constructor(tag, lambda _loader, node: node.value if node.tag == "!unsafe" else None)
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader that knows two more tags
    except yaml.YAMLError as error:
        raise InventoryError(f"{place} is no YAML that can be read: {error}") from None
