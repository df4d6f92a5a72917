#!/usr/bin/python
"""Ansible module: plan and record of an update of the kernel, or of the driver, that is a transaction."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_update
short_description: Plan and record of an update of the kernel or the driver
description:
  - Without O(step) and O(outcome) it plans; it reads the kernels, the offered packages and the record of an earlier run on this node, and
    says which steps are left. Nothing is changed.
  - With O(step), O(cause) or O(outcome) it writes the record, at once and durably, before the step that it names begins.
options:
  path:
    description: File of the record.
    type: path
    default: /var/lib/gpunode/kernel-update.json
  kind:
    description: What is updated.
    type: str
    choices: [kernel, driver]
    default: kernel
  release:
    description: Kernel release or driver version to update to. Empty takes the newest kernel that is offered or installed.
    type: str
    default: ""
  package:
    description:
      - Metapackage whose kernel is offered. Empty takes that of the running series, such as V(proxmox-kernel-7.0). Of a driver, the package
        that brings the source of its modules.
    type: str
    default: ""
  step:
    description: The step that begins now.
    type: str
  cause:
    description: Why the step in the record failed.
    type: str
  outcome:
    description: How the transaction ended.
    type: str
    choices: [kept, returned, refused]
  set:
    description: Further values for the record.
    type: dict
    default: {}
  host:
    description: Result of M(gpu_host_facts); compared with what the record holds, or kept in it together with O(step).
    type: dict
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Plan
  kernel_update:
  register: plan

- name: Say that the new kernel is booted now
  kernel_update:
    step: boot
"""

RETURN = r"""
record:
  description: The record; null where there is none.
  type: dict
  returned: always
plan:
  description:
    - What a run would do, as kind, kernel (the one to stay on), from, to, steps, resumed (an interrupted transaction goes on), cause (why
      it goes back), packages, metas, pins_before, own_packages (those that the transaction brought), console (what to choose at the boot
      menu to get the old kernel), problems (why it must not begin) and text (lines for a person).
  type: dict
  returned: when planning
back:
  description: The steps that lead back from the one that failed.
  type: list
  elements: str
  returned: with O(cause)
differences:
  description: What O(host) lost against the record.
  type: list
  elements: str
  returned: when O(host) is given without O(step)
"""

import json
import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import driver_update, kernel_host, kernel_update, update_plan


def load(path: Path) -> dict | None:
    """The record; None where there is none. A file that is no record is set aside, so that it blocks nobody."""
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        path.replace(path.with_suffix(".unreadable"))
        return None
    return record if record.get("schema") == kernel_update.SCHEMA else None


def save(path: Path, record: dict) -> None:
    """Write the record so that a power cut leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    with partial.open("w") as file:
        json.dump(record, file, indent=2, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/lib/gpunode/kernel-update.json"},
            "kind": {"type": "str", "choices": ["kernel", "driver"], "default": "kernel"},
            "release": {"type": "str", "default": ""},
            "package": {"type": "str", "default": ""},
            "step": {"type": "str"},
            "cause": {"type": "str"},
            "outcome": {"type": "str", "choices": list(kernel_update.FINAL)},
            "set": {"type": "dict", "default": {}},
            "host": {"type": "dict"},
        },
        supports_check_mode=True,
    )

    def run(command: list[str]) -> tuple[int, str, str]:
        try:
            rc, out, err = module.run_command(command, environ_update={"LC_ALL": "C"}, handle_exceptions=False)
        except OSError as error:
            return 127, "", str(error)
        return rc, out, err

    path = Path(module.params["path"])
    record = load(path)
    step, cause, outcome = module.params["step"], module.params["cause"], module.params["outcome"]
    if step is None and cause is None and outcome is None:
        if module.params["host"] is not None:
            if not record or "before" not in record:
                module.fail_json(msg=f"{path} holds nothing to compare with: the step baseline has not been done.")
            after = kernel_update.summary_of(module.params["host"])
            before = kernel_update.expected(record)
            module.exit_json(changed=False, record=record, differences=kernel_update.differences(before, after))
        plan = update_plan.of_kind(module.params["kind"], run, record, module.params["release"], module.params["package"])
        module.exit_json(changed=False, record=record, plan=plan)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if record is None or (step is not None and not kernel_update.is_open(record)):
        record = {"schema": kernel_update.SCHEMA, "began": now, "history": [], "boot_ids": {}}
    record |= module.params["set"]
    if step is not None:
        record["step"] = step
        record["boot_ids"].setdefault(step, kernel_host.text_of(kernel_host.BOOT_ID).strip())
        record["history"].append({"step": step, "at": now})
        if module.params["host"] is not None:
            record["before"] = kernel_update.summary_of(module.params["host"])
    if cause is not None and not record.get("cause"):
        record |= {"cause": cause, "failed_step": record.get("step", "")}
    if outcome is not None:
        record |= {"outcome": outcome, "ended": now}
    if not module.check_mode:
        save(path, record)
    way_back = driver_update.back_steps if record.get("kind") == "driver" else kernel_update.back_steps
    back = {"back": way_back(record.get("step", "baseline"))} if cause is not None else {}
    module.exit_json(changed=True, record=record, **back)


if __name__ == "__main__":
    main()
