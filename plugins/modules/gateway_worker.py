#!/usr/bin/python
"""Ansible module: add a worker to an sglang-router, drain it, or take it away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_worker
short_description: Add, drain or remove a worker of an sglang-router
description:
  - Runs on the gateway and speaks to the router's own API there. The key of that API is read from a file: it never leaves the gateway.
  - A drained worker gets no new request, what it has begun is finished. The router removes it at once and lets open streams run; the module
    then asks the worker itself until nothing runs or waits there.
  - The state is recorded in a file that the router's unit reads at its start, since the router forgets its workers.
options:
  url:
    description: Address of the worker, C(http://HOST:PORT).
    type: str
    required: true
  state:
    description:
      - C(present) means added and found healthy by the router. C(drained) means removed, empty, and not added again at the router's start.
        C(absent) is the same and forgotten.
    type: str
    choices: [present, drained, absent]
    default: present
  wait:
    description:
      - Wait until the worker is healthy, or empty. Without it a removal ends at once, so that several gateways can be told together.
    type: bool
    default: true
  timeout_s:
    description: Seconds to wait.
    type: int
    default: 600
  gateway:
    description: Address of the router.
    type: str
    default: http://127.0.0.1:30000
  admin_key_file:
    description: File with the key of the router's control API.
    type: path
    default: /etc/sglang-router/admin_key
  api_key_file:
    description: File with the key of router and workers; absent or empty where they ask for none.
    type: path
    default: /etc/sglang-router/api_key
  record:
    description: File that keeps the workers for the router's next start.
    type: path
    default: /etc/sglang-router/workers.json
  on_timeout:
    description: What becomes of a worker that does not get empty in time, besides the failure. C(readmit) adds it again, C(leave) does not.
    type: str
    choices: [readmit, leave]
    default: readmit
  others:
    description: Healthy workers that the router must have besides this one before it may go; fewer is a failure, and nothing is changed.
    type: int
    default: 0
  keep_drained:
    description: With C(present), leave a worker alone that is recorded as drained.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Send no new request to this node, and wait until it is empty
  gateway_worker:
    url: http://192.0.2.111:30000
    state: drained
  delegate_to: gateway-01
"""

RETURN = r"""
was:
  description: What the worker was before, C(present), C(drained) or C(absent).
  type: str
  returned: always
waited_s:
  description: Seconds that passed until it was healthy or empty.
  type: float
  returned: when it was waited for
requests:
  description: Requests that the worker had when the module began to wait until it is empty; null where it did not answer.
  type: int
  returned: when it was drained
"""

import socket
import time
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import gateway

REQUEST_TIMEOUT_S = 10
LOOK_S = 0.5
LOAD_PATHS = ("/v1/loads", "/get_load", "/metrics")


class GatewayError(Exception):
    """Something that the person who runs this has to read."""


def ask(method: str, url: str, key: str, body: bytes | None = None) -> tuple[int, str]:
    """Status and text of an answer; GatewayError where there is none."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310 (the address comes from the inventory)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=REQUEST_TIMEOUT_S) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        raise GatewayError(f"{url} does not answer {socket.gethostname()}: {getattr(error, 'reason', error)}") from error


def read(path: str) -> str:
    """A file's text without its end of line; empty where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


class Gateway:
    """The router and the record of its workers."""

    def __init__(self, module: AnsibleModule) -> None:
        params = module.params
        self.module, self.base, self.url = module, params["gateway"].rstrip("/"), params["url"].rstrip("/")
        self.admin, self.key = read(params["admin_key_file"]), read(params["api_key_file"])
        self.until = time.monotonic() + params["timeout_s"]

    def call(self, method: str, path: str, body: dict[str, t.Any] | None = None) -> str:
        """The router's answer; GatewayError when it refuses."""
        data = None if body is None else self.module.jsonify(body).encode()
        code, text = ask(method, self.base + path, self.admin, data)
        if code in {401, 403}:
            key_file = self.module.params["admin_key_file"]
            raise GatewayError(
                f"{self.base} refuses the key in {key_file} ({code}): restart sglang-router.service, which reads it at its start"
            )
        if code >= 400 and not (code == 404 and path.startswith("/workers/")):
            raise GatewayError(f"{method} {self.base}{path} said {code}: {text[:300]}")
        return text

    def worker(self) -> dict[str, t.Any] | None:
        """What the router says of the worker, None where it does not know it."""
        return gateway.listed(self.call("GET", "/workers")).get(self.url)

    def add(self) -> None:
        """Add the worker and wait until the router found it healthy."""
        if self.worker() is None:
            # A request without a key of its own is sent on with this one; one that has a key is sent on with that.
            body = {"url": self.url} | ({"api_key": self.key} if self.key else {})
            place = self.module.from_json(self.call("POST", "/workers", body)).get("location", "")
        else:
            place = ""
        while self.module.params["wait"]:
            worker = self.worker()
            if worker is not None and worker.get("is_healthy"):
                return
            why = gateway.failed_job(self.call("GET", place)) if place and worker is None else ""
            if why or time.monotonic() > self.until:
                seen = "knows it, and finds it not healthy" if worker else "does not know it yet"
                raise GatewayError(
                    f"The gateway {self.base} did not take {self.url} in: {why or 'it ' + seen}. "
                    f"Ask the worker: curl {self.url}/health; and the gateway's journal: journalctl -u sglang-router"
                )
            time.sleep(LOOK_S)

    def remove(self) -> None:
        """Take the worker out: no new request goes there, streams that are open run on."""
        worker = self.worker()
        if worker is None:
            return
        self.call("DELETE", f"/workers/{worker['id']}")
        while self.worker() is not None:
            if time.monotonic() > self.until:
                raise GatewayError(f"The gateway {self.base} still has {self.url} although it accepted the removal")
            time.sleep(0.1)

    def check_others(self) -> None:
        """GatewayError where too few others would be left."""
        workers = gateway.listed(self.call("GET", "/workers"))
        others = sorted(url for url, worker in workers.items() if url != self.url and worker.get("is_healthy"))
        wanted = self.module.params["others"]
        if len(others) < wanted:
            raise GatewayError(
                f"Without {self.url} the gateway {self.base} would have {len(others)} healthy workers ({', '.join(others) or 'none'}), "
                f"{wanted} are wanted: nothing was changed. `curl {self.base}/workers` (key: /etc/sglang-router/admin_key) shows all"
            )

    def requests(self) -> int | None:
        """Requests at the worker; None where it is not there to have any. GatewayError where it answers and does not tell."""
        said = []
        for path in LOAD_PATHS:
            try:
                code, text = ask("GET", self.url + path, self.key)
            except GatewayError:
                if self.gone():
                    return None
                raise
            count = gateway.requests_at(path, text) if code == 200 else None
            if count is not None:
                return count
            said.append(f"{path} {code}")
        raise GatewayError(f"{self.url} does not tell how many requests it has ({', '.join(said)}): start sglang with --enable-metrics")

    def gone(self) -> bool:
        """Whether nothing listens at the worker's address: a refusal says so, a time-out does not."""
        try:
            ask("GET", self.url + "/health", "")
        except GatewayError as error:
            return isinstance(getattr(error.__cause__, "reason", error.__cause__), ConnectionRefusedError)
        return False

    def empty(self) -> tuple[int | None, float]:
        """Wait until nothing runs or waits at the worker: how many it had, and the seconds it took."""
        began, first, looks = time.monotonic(), self.requests(), 0
        now = first
        while now is not None:
            looks = looks + 1 if now == 0 else 0
            if looks >= gateway.EMPTY_LOOKS:
                break
            if time.monotonic() > self.until:
                raise TimeoutError(f"{self.url} still has {now} requests after {self.module.params['timeout_s']} s (it had {first})")
            time.sleep(LOOK_S)
            now = self.requests()
        return first, round(time.monotonic() - began, 1)


def bring(router: Gateway, module: AnsibleModule) -> dict[str, t.Any]:
    """Bring the worker into the state that is asked for."""
    state, path = module.params["state"], module.params["record"]
    before = gateway.record(read(path))
    known = router.worker()
    entry = before.get(router.url, {})
    was = "drained" if entry.get("drained") else "present" if known is not None or entry else "absent"
    if state == "present" and was == "drained" and module.params["keep_drained"]:
        return {"changed": False, "was": was}
    after = gateway.recorded(before, router.url, state)
    healthy = known is not None and bool(known.get("is_healthy"))
    changed = after != before or (state != "present") == (known is not None) or (state == "present" and not healthy)
    result: dict[str, t.Any] = {"changed": changed, "was": was}
    if state != "present" and known is not None:
        router.check_others()
    if module.check_mode:
        return result
    if after != before:
        write(module, path, after)
    began = time.monotonic()
    if state == "present":
        router.add()
        return result | {"waited_s": round(time.monotonic() - began, 1)}
    router.remove()
    if not module.params["wait"]:
        return result
    try:
        requests, waited = router.empty()
    except (TimeoutError, GatewayError) as error:
        if module.params["on_timeout"] == "leave":
            raise GatewayError(f"{error}. It gets no new requests from {router.base}.") from error
        write(module, path, before)
        module.params["wait"] = False
        router.add()
        raise GatewayError(f"{error}. It was added again to {router.base}: nothing is drained.") from error
    return result | {"requests": requests, "waited_s": waited}


def write(module: AnsibleModule, path: str, workers: dict[str, dict[str, t.Any]]) -> None:
    """Replace the record in one step."""
    part = Path(path + ".new")
    part.write_text(gateway.record_text(workers), encoding="utf-8")
    module.atomic_move(str(part), path)


def main() -> None:
    """Run the module."""
    folder = "/etc/sglang-router"
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "drained", "absent"], "default": "present"},
            "wait": {"type": "bool", "default": True},
            "timeout_s": {"type": "int", "default": 600},
            "gateway": {"type": "str", "default": "http://127.0.0.1:30000"},
            "admin_key_file": {"type": "path", "default": f"{folder}/admin_key", "no_log": False},
            "api_key_file": {"type": "path", "default": f"{folder}/api_key", "no_log": False},
            "record": {"type": "path", "default": f"{folder}/workers.json"},
            "on_timeout": {"type": "str", "choices": ["readmit", "leave"], "default": "readmit"},
            "others": {"type": "int", "default": 0},
            "keep_drained": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**bring(Gateway(module), module))
    except (GatewayError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
