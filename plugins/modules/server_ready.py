#!/usr/bin/python
"""Ansible module: wait until a server of a systemd unit answers, and say why when it does not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_ready
short_description: Wait until the server of a unit answers
description:
  - Asks an address until it answers with status 200. Gives up early when the unit failed, or was started again by systemd more often than
    O(max_restarts), since waiting does not cure a server that ends by itself.
  - A failure names the known problem that the journal of the unit's last start shows, with its remedy, and then the unit's state and the
    end of that journal.
options:
  unit:
    description: Name of the systemd unit.
    type: str
    required: true
  url:
    description: Address that answers 200 when the server is ready.
    type: str
    required: true
  timeout_s:
    description: Seconds to wait in all.
    type: int
    default: 1800
  delay_s:
    description: Seconds between two looks.
    type: float
    default: 5
  max_restarts:
    description: Starts by systemd after which waiting ends.
    type: int
    default: 1
  members:
    description: Health addresses of the nodes that make up this server, by name; on failure those that do not answer are named.
    type: dict
    default: {}
  journal_lines:
    description: Lines of the journal shown on failure; known problems are looked for in many more.
    type: int
    default: 40
  versions:
    description: Versions of what runs (C(sglang), C(driver), C(transformers)), where they are known; known problems of others are left out.
    type: dict
    default: {}
  gpu_arch:
    description: Architecture of the GPUs such as C(sm120), where it is known.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Wait until the server has generated a token
  server_ready:
    unit: sglang.service
    url: http://127.0.0.1:30000/health_generate
"""

RETURN = r"""
waited_s:
  description: Seconds that passed until the server answered.
  type: float
  returned: success
journal:
  description: The journal of the unit's last start.
  type: str
  returned: failure
problems:
  description: Known problems in it as C(gpunode diagnose --output json) gives them, root causes before what follows from them.
  type: list
  elements: dict
  returned: failure
"""

import time
import typing as t
import urllib.error
import urllib.request

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import problems

REQUEST_TIMEOUT_S = 30
"""A health check that generates a token may take as long as sglang's own limit of 20 s."""

JOURNAL_LINES = 2000
"""A start of eight ranks with its tracebacks; the cause stands far above the end."""
LINE_LENGTH = 300
"""sglang prints all its arguments as one line of 20,000 characters."""


def answer(url: str) -> str:
    """Status code of the address as text, or what kept it from answering."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=REQUEST_TIMEOUT_S) as response:
            return str(response.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def unit_state(module: AnsibleModule, unit: str) -> dict[str, str]:
    """ActiveState, SubState, Result, NRestarts and InvocationID of the unit."""
    command = ["systemctl", "show", "--property=ActiveState,SubState,Result,NRestarts,InvocationID", unit]
    _, out, _ = module.run_command(command, environ_update={"LC_ALL": "C"})
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def read_journal(module: AnsibleModule, chosen: list[str]) -> tuple[list[str], str]:
    """Lines of the journal, and why there are none where there are none."""
    command = ["journalctl", *chosen, f"--lines={JOURNAL_LINES}", "--no-pager", "--quiet", "--output=cat"]
    code, out, error = module.run_command(command, environ_update={"LC_ALL": "C"}, errors="replace")
    lines = out.strip().splitlines()
    if lines:
        return lines, ""
    return [], f"`{' '.join(command)}` " + (f"ended with {code}: {error.strip()}" if code else "has no entries")


def known(module: AnsibleModule, lines: list[str]) -> list[dict[str, t.Any]]:
    """Known problems in these lines, as plain data."""
    versions = {name: str(version) for name, version in module.params["versions"].items() if version}
    found = problems.match(lines, problems.Context(versions, module.params["gpu_arch"]), source="journal")
    return [match.to_dict() for match in found if not match.problem.harmless]


def last_start(module: AnsibleModule, state: dict[str, str], since: float) -> tuple[list[str], list[dict[str, t.Any]], str]:
    """The journal of the unit's last start, its known problems, and why it could not be read.

    What earlier servers wrote would be taken for this one's and is left out. Where systemd starts the server again and again, the last
    start may have said nothing yet: then everything since the waiting began is read.
    """
    unit = module.params["unit"]
    invocation = state.get("InvocationID")
    if invocation:
        # systemd's own words on a unit (killed, out of memory) carry the other field.
        lines, _ = read_journal(module, [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"])
        found = known(module, lines)
        if found or (lines and state.get("NRestarts") in {"0", None}):
            return lines, found, ""
        lines, why = read_journal(module, [f"--unit={unit}", f"--since=@{int(since)}"])
    else:
        lines, why = read_journal(module, [f"--unit={unit}"])
    return lines, known(module, lines), why


def lost(members: dict[str, str]) -> list[str]:
    """Which nodes of a server do not answer, as one sentence; nothing where all do or the server is one node."""
    said = {name: answer(url) for name, url in members.items()}
    silent = [f"{name} ({members[name]}: {text})" for name, text in said.items() if text != "200"]
    return [f"Of the {len(members)} nodes of this server these do not answer: {', '.join(silent)}."] if silent else []


def give_up(module: AnsibleModule, why: str, state: dict[str, str], last: str, since: float) -> t.NoReturn:
    """Fail with the known cause, the unit's state and the end of its journal."""
    unit = module.params["unit"]
    lines, found, unread = last_start(module, state, since)
    advice = problems.advice(found)
    shown = "\n".join(line[:LINE_LENGTH] for line in lines[-module.params["journal_lines"] :])
    message = [f"{unit} {why}.", advice] if advice else [f"{unit} {why}; its journal shows no problem that is known."]
    if unread and not lines:
        message = [f"{unit} {why}. Its journal could not be read, so that the cause is not known: {unread}"]
    message.append(
        f"{module.params['url']} said: {last}. The unit is {state.get('ActiveState')} ({state.get('SubState')}, result "
        f"{state.get('Result')}, started again {state.get('NRestarts')} times)."
    )
    message += lost(module.params["members"])
    if shown:
        message.append(f"The end of `journalctl -u {unit}`:\n{shown}")
    module.fail_json(msg="\n".join(message), journal="\n".join(lines), problems=found)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "timeout_s": {"type": "int", "default": 1800},
            "delay_s": {"type": "float", "default": 5},
            "max_restarts": {"type": "int", "default": 1},
            "members": {"type": "dict", "default": {}},
            "journal_lines": {"type": "int", "default": 40},
            "versions": {"type": "dict", "default": {}},
            "gpu_arch": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    began, since = time.monotonic(), time.time()
    restarts_before: int | None = None
    while True:
        last = answer(params["url"])
        waited = time.monotonic() - began
        if last == "200":
            module.exit_json(changed=False, waited_s=round(waited, 1))
        state = unit_state(module, params["unit"])
        restarts = int(state.get("NRestarts") or 0)
        restarts_before = restarts if restarts_before is None else restarts_before
        if state.get("ActiveState") in {"failed", "inactive"}:
            give_up(module, "has ended", state, last, since)
        if restarts - restarts_before > params["max_restarts"]:
            give_up(module, "ends by itself each time it is started", state, last, since)
        if waited > params["timeout_s"]:
            give_up(module, f"did not become ready within {params['timeout_s']} s", state, last, since)
        time.sleep(params["delay_s"])


if __name__ == "__main__":
    main()
