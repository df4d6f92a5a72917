#!/usr/bin/python
"""Ansible module: many small things of a machine read at once - files, paths, commands that only tell."""

from __future__ import annotations

DOCUMENTATION = r"""
module: look_at
short_description: Read files, paths and the answers of commands in one go
description:
  - A task costs a third of a second on a node whatever it does, most of it for its start. What is read without a decision in between is
    read by one task.
  - Nothing that is missing is an error here. It is told as missing, and the task that needs it says so.
  - Changes nothing, so that it also runs in check mode; O(commands) must be such that change nothing.
options:
  files:
    description: Files whose text is returned; null where one cannot be read.
    type: list
    elements: path
    default: []
  paths:
    description: Paths that are looked at without reading them.
    type: list
    elements: path
    default: []
  globs:
    description: Patterns for paths; V(*) stands for anything but a slash.
    type: list
    elements: str
    default: []
  commands:
    description: Name to command line, as a list of words; run one after the other with C(LC_ALL=C).
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Look at the release
  look_at:
    files: [/etc/hostname]
    paths: [/opt/sglang/current]
    commands:
      uv: [/opt/sglang/uv/bin/uv, --version]
  register: seen
"""

RETURN = r"""
files:
  description: Path to text, without blanks and line ends at its end; null where the file cannot be read.
  type: dict
  returned: always
paths:
  description: Path to what is there, with exists, isdir and target, where a link leads in the end (else empty). A link to nothing does not
    exist and has a target.
  type: dict
  returned: always
globs:
  description: Pattern to the paths that match it, sorted.
  type: dict
  returned: always
commands:
  description: Name to rc, stdout and stderr without blanks at their ends, and lines of stdout; rc is 127 where there is no such command.
  type: dict
  returned: always
"""

import glob
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

NO_COMMAND = 127
"""What a shell ends with where there is no such command."""


def text_of(path: str) -> str | None:
    """Text of a file; None where it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").rstrip()
    except OSError:
        return None


def about(path: str) -> dict[str, Any]:
    """What is at a path."""
    place = Path(path)
    return {"exists": place.exists(), "isdir": place.is_dir(), "target": os.path.realpath(path) if place.is_symlink() else ""}


def matching(pattern: str) -> list[str]:
    """Paths that match an absolute pattern, sorted."""
    return sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern that is a whole path


def answer(module: AnsibleModule, command: list[Any]) -> dict[str, Any]:
    """What a command says."""
    words = [str(word) for word in command]
    try:
        rc, out, err = module.run_command(words, handle_exceptions=False, expand_user_and_vars=False, environ_update={"LC_ALL": "C"})
    except OSError as error:
        rc, out, err = NO_COMMAND, "", f"{words[0]}: {error.strerror}"
    return {"rc": rc, "stdout": out.rstrip(), "stderr": err.rstrip(), "lines": out.rstrip().splitlines()}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "path", "default": []},
            "paths": {"type": "list", "elements": "path", "default": []},
            "globs": {"type": "list", "elements": "str", "default": []},
            "commands": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    wrong = [name for name, command in wanted["commands"].items() if not isinstance(command, list) or not command]
    if wrong:
        module.fail_json(msg=f"commands are lists of words; these are not: {', '.join(wrong)}")
    module.exit_json(
        changed=False,
        files={path: text_of(path) for path in wanted["files"]},
        paths={path: about(path) for path in wanted["paths"]},
        globs={pattern: matching(pattern) for pattern in wanted["globs"]},
        commands={name: answer(module, command) for name, command in wanted["commands"].items()},
    )


if __name__ == "__main__":
    main()
