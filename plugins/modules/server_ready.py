#!/usr/bin/python
"""Ansible module: wait until a server of a systemd unit answers, and say why when it does not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server_ready
short_description: Wait until the server of a unit answers
description:
  - Asks an address until it answers with status 200. Gives up early when the unit failed, or was started again by systemd more often than
    O(max_restarts), since waiting does not cure a server that ends by itself.
  - A failure shows the unit's state and the end of its journal.
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
  journal_lines:
    description: Lines of the journal shown on failure.
    type: int
    default: 40
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
"""

import time
import typing as t
import urllib.error
import urllib.request

from ansible.module_utils.basic import AnsibleModule

REQUEST_TIMEOUT_S = 30
"""A health check that generates a token may take as long as sglang's own limit of 20 s."""

JOURNAL_LINES = 2000
"""Enough for a start of eight ranks; known problems are looked for in it."""
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


def give_up(module: AnsibleModule, why: str, state: dict[str, str], last: str) -> t.NoReturn:
    """Fail with the unit's state and the end of its journal."""
    unit = module.params["unit"]
    # Of the last start alone: what an earlier server wrote would be taken for this one's.
    invocation = state.get("InvocationID")
    chosen = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else [f"--unit={unit}"]
    _, journal, _ = module.run_command(["journalctl", *chosen, f"--lines={JOURNAL_LINES}", "--no-pager", "--output=cat"])
    shown = "\n".join(line[:LINE_LENGTH] for line in journal.strip().splitlines()[-module.params["journal_lines"] :])
    module.fail_json(
        msg=f"{unit} {why}. {module.params['url']} said: {last}. The unit is {state.get('ActiveState')} ({state.get('SubState')}, result "
        f"{state.get('Result')}, started again {state.get('NRestarts')} times). The end of `journalctl -u {unit}`:\n{shown}",
        journal=journal,
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "timeout_s": {"type": "int", "default": 1800},
            "delay_s": {"type": "float", "default": 5},
            "max_restarts": {"type": "int", "default": 1},
            "journal_lines": {"type": "int", "default": 40},
        },
        supports_check_mode=True,
    )
    params = module.params
    began = time.monotonic()
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
            give_up(module, "has ended", state, last)
        if restarts - restarts_before > params["max_restarts"]:
            give_up(module, "ends by itself each time it is started", state, last)
        if waited > params["timeout_s"]:
            give_up(module, f"did not become ready within {params['timeout_s']} s", state, last)
        time.sleep(params["delay_s"])


if __name__ == "__main__":
    main()
