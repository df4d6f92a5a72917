#!/usr/bin/python
"""Ansible module: several small files, folders and links of a machine as described, in one go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_files
short_description: Write several small files, folders and links
description:
  - What C(copy) with C(content), C(template) and C(file) do, for a list. Each of those costs a third of a second for each file even where
    nothing is to be done, and C(copy) and C(template) twice that.
  - Each file is replaced as a whole, so that nobody reads half of one.
options:
  files:
    description: What there shall be, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      dest:
        description: The path.
        type: path
        required: true
      only:
        description: An entry for which it is false is left alone.
        type: bool
        default: true
      state:
        description: V(absent) takes away a file or a link, never a folder.
        type: str
        choices: [file, directory, link, absent]
        default: file
      content:
        description: The file's text. Not shown where the task has C(no_log).
        type: str
      src:
        description: A file of the same machine whose content is taken instead, or what the link names.
        type: path
      mode:
        description: Permissions of a file or folder, by default 0644 and 0755.
        type: str
      owner:
        description: Owner of a file or folder.
        type: str
        default: root
      group:
        description: Group of a file or folder.
        type: str
        default: root
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Write the unit and its configuration
  node_files:
    files:
      - dest: /etc/systemd/system/example.service
        content: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"
      - {dest: /etc/example, state: directory}
      - {dest: /etc/example/old.conf, state: absent}
"""

RETURN = r"""
written:
  description: Paths that were changed, or would be in check mode.
  type: list
  elements: str
  returned: always
"""

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

FILE: dict[str, Any] = {
    "dest": {"type": "path", "required": True},
    "only": {"type": "bool", "default": True},
    "state": {"type": "str", "choices": ["file", "directory", "link", "absent"], "default": "file"},
    "content": {"type": "str"},
    "src": {"type": "path"},
    "mode": {"type": "str"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
MODES = {"file": "0644", "directory": "0755"}


class RefusedError(Exception):
    """Why an entry cannot be brought about."""


def text(data: bytes | None) -> str:
    """What a diff shows; what is no text is not shown."""
    if data is None:
        return ""
    try:
        shown = data.decode()
    except UnicodeDecodeError:
        shown = "\0"
    return f"{len(data)} bytes that are no text, sha256 {sha256(data).hexdigest()}\n" if "\0" in shown else shown


def read(path: Path) -> bytes | None:
    """Content of a file; None where there is none. What a link names is not its content: the link is replaced."""
    if path.is_symlink():
        return None
    if path.is_dir():
        raise RefusedError(f"{path} is a folder, and a file is wanted there. Move it away.")
    return path.read_bytes() if path.exists() else None


def replace(module: AnsibleModule, path: Path, data: bytes) -> None:
    """Write beside it and rename."""
    if not path.parent.is_dir():
        raise RefusedError(f"{path} cannot be written: there is no folder {path.parent}.")
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    if path.is_symlink():
        path.unlink()
    module.atomic_move(name, str(path))


def put_file(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, dict[str, str] | None]:
    """A file with this content; whether that changed it, and the difference."""
    path = Path(entry["dest"])
    if (entry["content"] is None) == (entry["src"] is None):
        raise RefusedError(f"{path}: give either content or src.")
    if entry["src"] is not None and not Path(entry["src"]).is_file():
        if module.check_mode:
            return True, None
        raise RefusedError(f"{path} shall be a copy of {entry['src']}, and there is no such file on this machine.")
    after = entry["content"].encode() if entry["src"] is None else Path(entry["src"]).read_bytes()
    before = read(path)
    if before == after:
        return False, None
    if not module.check_mode:
        replace(module, path, after)
    return True, {"before_header": str(path), "after_header": str(path), "before": text(before), "after": text(after)}


def put_folder(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, dict[str, str] | None]:
    """A folder, with those that it lies in."""
    path = Path(entry["dest"])
    if path.is_dir():
        return False, None
    if path.exists() or path.is_symlink():
        raise RefusedError(f"{path} is no folder, and one is wanted there. Move it away.")
    if not module.check_mode:
        path.mkdir(parents=True)
    return True, state_diff(path, "absent", "directory")


def put_link(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, dict[str, str] | None]:
    """A link that names src."""
    path, target = Path(entry["dest"]), entry["src"]
    if not target:
        raise RefusedError(f"{path}: a link needs src.")
    before = str(path.readlink()) if path.is_symlink() else ""
    if before == target:
        return False, None
    if not before and path.exists():
        raise RefusedError(f"{path} is no link, and one to {target} is wanted there. Move it away.")
    if not module.check_mode:
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.symlink_to(target)
        beside.replace(path)
    return True, state_diff(path, before or "absent", target)


def take_away(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, dict[str, str] | None]:
    """No file and no link."""
    path = Path(entry["dest"])
    if not path.exists() and not path.is_symlink():
        return False, None
    if path.is_dir() and not path.is_symlink():
        raise RefusedError(f"{path} is a folder; it is not taken away from here.")
    if not module.check_mode:
        path.unlink()
    return True, state_diff(path, "file", "absent")


def state_diff(path: Path, before: str, after: str) -> dict[str, str]:
    """A difference that is no text."""
    return {"before_header": str(path), "after_header": str(path), "before": f"{before}\n", "after": f"{after}\n"}


def attributes(side: dict[str, Any]) -> str:
    """Owner, group and permissions of one side of a difference."""
    return "\n".join(f"{key}: {value}" for key, value in sorted(side.items()) if key != "path")


MAKERS = {"file": put_file, "directory": put_folder, "link": put_link, "absent": take_away}


def bring_about(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, dict[str, str] | None]:
    """One entry, with its owner and permissions."""
    changed, diff = MAKERS[entry["state"]](module, entry)
    if entry["state"] in MODES and (Path(entry["dest"]).exists() or not module.check_mode):
        wanted = {"path": entry["dest"], "mode": entry["mode"] or MODES[entry["state"]], "owner": entry["owner"], "group": entry["group"]}
        sides: dict[str, Any] = {}
        if module.set_fs_attributes_if_different(module.load_file_common_arguments(wanted), changed, diff=sides):
            changed = True
            diff = diff or state_diff(Path(entry["dest"]), *(attributes(sides.get(side, {})) for side in ("before", "after")))
    return changed, diff


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"files": {"type": "list", "elements": "dict", "required": True, "options": FILE}}, supports_check_mode=True
    )
    written, diffs = [], []
    for entry in (entry for entry in module.params["files"] if entry["only"]):
        try:
            changed, diff = bring_about(module, entry)
        except (RefusedError, OSError) as error:
            module.fail_json(msg=str(error), written=written, changed=bool(written))
        if changed:
            written.append(entry["dest"])
        if diff is not None:
            diffs.append(diff)
    module.exit_json(changed=bool(written), written=written, diff=diffs)


if __name__ == "__main__":
    main()
