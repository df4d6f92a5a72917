#!/usr/bin/python
"""Ansible module: several systemd units enabled, started or stopped, in one go; systemd reads its files again where they changed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unit_states
short_description: Enable, start or stop several systemd units
description:
  - Asks systemd for all of them at once. Unit files are read again where systemd itself says that one changed since it read it, which is
    true also after a run that was interrupted between the two; reading them again costs a busy host a second.
options:
  units:
    description: What there shall be, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name with its suffix.
        type: str
        required: true
      only:
        description: A unit for which it is false is left alone.
        type: bool
        default: true
      enabled:
        description: Whether it starts at boot; left alone where not given.
        type: bool
      state:
        description: What it does now; left alone where not given.
        type: str
        choices: [started, stopped, restarted]
attributes:
  check_mode:
    support: full
    details: A unit whose file would only be written in a real run counts as one that would be changed.
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Run them now and at every boot
  unit_states:
    units:
      - {name: one.service, enabled: true, state: started}
      - {name: two.timer, enabled: true, state: started}
"""

RETURN = r"""
did:
  description: What was done, or would be in check mode, as words such as V(enable one.service).
  type: list
  elements: str
  returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import units

UNIT: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "only": {"type": "bool", "default": True},
    "enabled": {"type": "bool"},
    "state": {"type": "str", "choices": ["started", "stopped", "restarted"]},
}


def ask(module: AnsibleModule, names: list[str]) -> dict[str, units.Unit]:
    """What systemd says of these units."""
    command = ["systemctl", "show", f"--property={','.join(units.PROPERTIES)}", *names]
    rc, out, err = module.run_command(command)
    found = units.parse(out, names)
    if rc != 0 or found is None:
        module.fail_json(msg=f"`{' '.join(command)}` ended with {rc}: {(err or out).strip()}")
    return found


def enabled(module: AnsibleModule, name: str) -> bool:
    """Whether the files on the disk say so: what systemd has read may be older."""
    return bool(module.run_command(["systemctl", "is-enabled", name])[0] == 0)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"units": {"type": "list", "elements": "dict", "required": True, "options": UNIT}}, supports_check_mode=True
    )
    wanted = [unit for unit in module.params["units"] if unit["only"]]
    if not wanted:
        module.exit_json(changed=False, did=[])
    names = [unit["name"] for unit in wanted]
    found = ask(module, names)
    if not module.check_mode and any(unit.stale for unit in found.values()):
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
        found = ask(module, names)
    did = []
    for unit in wanted:
        name = unit["name"]
        if found[name].missing and not module.check_mode:
            module.fail_json(msg=f"systemd knows no unit {name} (`systemctl cat {name}`).", did=did, changed=bool(did))
        for step in units.steps(found[name], None if unit["enabled"] is None else enabled(module, name), unit["enabled"], unit["state"]):
            if not module.check_mode:
                rc, out, err = module.run_command(["systemctl", step, name])
                if rc != 0:
                    said = (err or out).strip()
                    module.fail_json(
                        msg=f"`systemctl {step} {name}` ended with {rc}: {said}. `journalctl --unit={name} --lines=50` says why.",
                        did=did,
                        changed=bool(did),
                    )
            did.append(f"{step} {name}")
    module.exit_json(changed=bool(did), did=did)


if __name__ == "__main__":
    main()
