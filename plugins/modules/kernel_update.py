#!/usr/bin/python
"""Ansible module: plan and record of a kernel update that is a transaction."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_update
short_description: Plan and record of a kernel update
description:
  - Without O(step) and O(outcome) it plans; it reads the kernels, the offered packages and the record of an earlier run on this node, and
    says which steps are left. Nothing is changed.
  - With O(step), O(cause) or O(outcome) it writes the record, at once and durably, before the step that it names begins.
options:
  path:
    description: File of the record.
    type: path
    default: /var/lib/gpunode/kernel-update.json
  release:
    description: Kernel to update to. Empty takes the newest that is offered or installed.
    type: str
    default: ""
  package:
    description: Metapackage whose kernel is offered. Empty takes that of the running series, such as V(proxmox-kernel-7.0).
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
    - What a run would do, as from, to, steps, resumed (an interrupted transaction goes on), cause (why it goes back), packages, metas,
      pins_before, own_packages (those that the transaction brought), console (what to choose at the boot menu to get the old kernel),
      problems (why it must not begin) and text (lines for a person).
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
from ansible.module_utils.gpunode import kernel_host, kernel_update, kernels


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


def make_plan(module: AnsibleModule, run: object, record: dict | None) -> dict:
    """Read the host and say what a run would do."""
    host = kernel_host.read(run)
    running, boot_id, installed = host["running"], host["boot_id"], list(host["kernels"])
    resumed = kernel_update.is_open(record)
    meta = module.params["package"] or f"proxmox-kernel-{kernels.series(running)}"
    offered = kernels.parse_depends(run(["apt-cache", "show", "--no-all-versions", meta])[1])
    source = record["from"] if resumed else running
    target = record["to"] if resumed else kernel_update.choose_target(module.params["release"], offered, installed, running)
    cause = kernel_update.failure_of(record, running, boot_id) if resumed else ""
    plan = {
        "from": source,
        "to": target,
        "steps": kernel_update.steps(record, running, boot_id) if target else [],
        "resumed": resumed,
        "cause": cause,
        "running": running,
        "pins_before": record["pins_before"] if resumed else kernel_update.pins_before(record, host["pins"]),
        "console": host["boot"]["console"].get(source, ""),
        "loader": host["boot"]["loader"],
        "problems": [],
    }
    packages, problems = choose_packages(run, target, target in installed) if target and not cause else ([], [])
    plan["packages"] = packages
    plan["own_packages"] = record["own_packages"] if resumed and "own_packages" in record else missing(run, packages)
    headers = meta.replace("kernel", "headers", 1)
    plan["metas"] = [meta, headers] if target and offered == target else []
    plan["settled_pins"] = kernel_update.settled_pins(record, installed_after(record, installed)) if resumed else None
    plan["kept_pin"] = kernel_update.kept_pin(plan["pins_before"], target, sorted({*installed, target})) if target else ""
    if not resumed:
        plan["problems"] = problems
        if host["boot"]["unread"]:
            plan["problems"] += [f"what the boot loader does cannot be read: {reason}" for reason in host["boot"]["unread"]]
    plan["text"] = describe(plan)
    return plan


def installed_after(record: dict, installed: list[str]) -> list[str]:
    """The kernels that are left when the packages that the transaction brought are gone."""
    taken = any(package.startswith(f"proxmox-kernel-{record['to']}") for package in record.get("own_packages", []))
    return [release for release in installed if not (taken and release == record["to"])]


def missing(run: object, packages: list[str]) -> list[str]:
    """Those packages that dpkg has not installed."""
    return [name for name in packages if run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", name])[1][:2] != "ii"]


def choose_packages(run: object, target: str, is_installed: bool) -> tuple[list[str], list[str]]:
    """The packages of a kernel and its headers, and why there are none."""
    signed, plain, headers = f"proxmox-kernel-{target}-signed", f"proxmox-kernel-{target}", f"proxmox-headers-{target}"
    known = {name: kernels.parse_candidate(run(["apt-cache", "policy", name])[1]) for name in (signed, plain, headers)}
    problems = []
    if not known[headers]:
        problems.append(
            f"apt offers no {headers}: DKMS could build no driver for {target}. Wait until the headers are published, or add the "
            "repository that has them (`apt-cache policy proxmox-headers-*`)"
        )
    if not known[signed] and not known[plain] and not is_installed:
        problems.append(f"apt offers neither {signed} nor {plain}: `apt-cache search proxmox-kernel` lists what there is")
    kernel = signed if known[signed] else plain
    return [name for name in (kernel, headers) if known[name]], problems


def describe(plan: dict) -> list[str]:
    """The plan for a person."""
    if not plan["to"]:
        return [f"Nothing to do: {plan['from']} runs, and no newer kernel is offered or installed."]
    lines = [f"Kernel {plan['from']} -> {plan['to']} ({plan['loader']})."]
    if plan["resumed"]:
        lines.append(f"An interrupted update goes on with: {', '.join(plan['steps']) or 'nothing'}.")
    else:
        lines.append(f"Steps: {', '.join(plan['steps'])}.")
    if plan["cause"]:
        lines.append(f"It failed, and goes back: {plan['cause']}.")
    if plan["own_packages"]:
        lines.append(f"Packages: {', '.join(plan['own_packages'])}.")
    pin = plan["pins_before"]["pin"]
    after = f"{plan['kept_pin']} pinned" if plan["kept_pin"] else "no pin, the newest kernel boots"
    lines.append(f"Pins now: {pin or 'none'}; while the update runs: {plan['from']}; when it was kept: {after}.")
    lines.append(
        f"Should the node not come up: {plan['to']} is pinned for one boot, but only a boot that reaches user space clears that. "
        f'At the console choose "{plan["console"] or plan["from"]}" in the boot menu, then run this playbook again.'
    )
    lines += [f"It must not begin: {problem}." for problem in plan["problems"]]
    return lines


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/lib/gpunode/kernel-update.json"},
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
            module.exit_json(changed=False, record=record, differences=kernel_update.differences(record["before"], after))
        module.exit_json(changed=False, record=record, plan=make_plan(module, run, record))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if record is None or (step is not None and not kernel_update.is_open(record)):
        record = {"schema": kernel_update.SCHEMA, "began": now, "history": [], "boot_ids": {}}
    record |= module.params["set"]
    if step is not None:
        record["step"] = step
        record["boot_ids"].setdefault(step, kernel_host.text_of(Path("/proc/sys/kernel/random/boot_id")).strip())
        record["history"].append({"step": step, "at": now})
        if module.params["host"] is not None:
            record["before"] = kernel_update.summary_of(module.params["host"])
    if cause is not None and not record.get("cause"):
        record |= {"cause": cause, "failed_step": record.get("step", "")}
    if outcome is not None:
        record |= {"outcome": outcome, "ended": now}
    if not module.check_mode:
        save(path, record)
    back = {"back": kernel_update.back_steps(record.get("step", "baseline"))} if cause is not None else {}
    module.exit_json(changed=True, record=record, **back)


if __name__ == "__main__":
    main()
