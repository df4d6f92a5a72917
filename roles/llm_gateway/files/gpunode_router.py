#!/usr/bin/env python3
"""Start sglang-router with its keys from files, and give it the workers back that it forgot when it stopped.

    gpunode_router.py run FLAGS...         the router; keys come from $CREDENTIALS_DIRECTORY/{api_key,admin_key}
    gpunode_router.py check FLAGS...       only parse the flags, as the router does
    gpunode_router.py restore URL          add the workers of $CREDENTIALS_DIRECTORY/workers to the router at URL, the drained ones not

Keys in a command line could be read by every user of the machine. Runs in the router's own virtual environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

LISTEN_S = 60
"""The router listens a few seconds after its start."""


def credential(name: str) -> str:
    """A credential of the unit; empty where it has none."""
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / name
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def with_keys(flags: list[str]) -> list[str]:
    """The flags with the keys that there are."""
    api_key, admin_key = credential("api_key"), credential("admin_key")
    return [
        *flags,
        *(["--api-key", api_key] if api_key else []),
        *(["--control-plane-api-keys", f"gpunode:gpunode:admin:{admin_key}"] if admin_key else []),
    ]


def call(method: str, url: str, body: object = None) -> tuple[int, bytes]:
    """Status and body of the router's answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {credential('admin_key')}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 (the unit names its own router)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def restore(url: str) -> int:
    """Add the recorded workers; 1 when the router does not listen or refuses one."""
    workers = json.loads(credential("workers") or "{}")
    until = time.monotonic() + LISTEN_S
    while True:
        try:
            call("GET", f"{url}/health")
            break
        except OSError as error:
            if time.monotonic() > until:
                print(f"{url} does not answer after {LISTEN_S} s: {error}", file=sys.stderr)
                return 1
            time.sleep(0.2)
    api_key, bad = credential("api_key"), 0
    for worker, entry in workers.items():
        if entry.get("drained"):
            print(f"{worker} is recorded as drained and stays out")
            continue
        status, answer = call("POST", f"{url}/workers", {"url": worker} | ({"api_key": api_key} if api_key else {}))
        print(f"{worker}: {status} {answer.decode(errors='replace')}" if status >= 300 else f"{worker}: added")
        bad += status >= 300
    return 1 if bad else 0


def main(arguments: list[str]) -> int:
    """Do what the first word says."""
    if arguments[:1] == ["restore"] and len(arguments) == 2:
        return restore(arguments[1].rstrip("/"))
    if arguments[:1] not in (["run"], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    from sglang_router.launch_router import launch_router, parse_router_args

    parsed = parse_router_args(with_keys(arguments[1:]) if arguments[0] == "run" else arguments[1:])
    if arguments[0] == "run":
        launch_router(parsed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
