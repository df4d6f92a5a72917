#!/usr/bin/python
"""Ansible module: one variable of the environment that a unit's running process was started with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unit_environment
short_description: Read a variable of a running unit's environment
description:
  - Reads C(/proc/PID/environ) of the unit's main process: what it was started with, whatever the unit file says now.
options:
  unit:
    description: Name of the systemd unit.
    type: str
    required: true
  name:
    description: Name of the variable.
    type: str
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Read the running server's fingerprint
  unit_environment:
    unit: sglang.service
    name: GPUNODE_LAUNCH
"""

RETURN = r"""
running:
  description: Whether the unit has a main process.
  type: bool
  returned: always
value:
  description: The variable's value, empty where the process has none.
  type: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"unit": {"type": "str", "required": True}, "name": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    _, out, _ = module.run_command(["systemctl", "show", "--value", "--property=MainPID", module.params["unit"]])
    pid = int(out.strip() or 0)
    if pid <= 0:
        module.exit_json(changed=False, running=False, value="")
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # the process ended meanwhile
        module.exit_json(changed=False, running=False, value="")
    prefix = module.params["name"].encode() + b"="
    value = next((entry[len(prefix) :] for entry in environment if entry.startswith(prefix)), b"")
    module.exit_json(changed=False, running=True, value=value.decode(errors="replace"))


if __name__ == "__main__":
    main()
