"""Workers of an sglang-router: what it says of them, what of them is recorded, and whether one of them is empty."""

from __future__ import annotations

import json
import re
from typing import Any, Final

EMPTY_LOOKS: Final = 3
"""Looks in a row that must find a worker empty: a request that the router had placed before the removal may still be on its way."""

_GAUGES: Final = re.compile(r"^sglang:num_(?:running|queue)_reqs(?:\{[^}]*\})? +([0-9.eE+]+)$", re.MULTILINE)


def requests_at(path: str, text: str) -> int | None:
    """Requests that a worker runs or queues, from its ``/v1/loads``, ``/get_load`` or ``/metrics``; None where the text does not tell.

    ``/v1/loads`` of newer releases counts both kinds by name; ``/get_load`` of older ones gives ``num_reqs``, which includes what waits.
    """
    if path == "/metrics":
        found = _GAUGES.findall(text)
        return int(sum(float(value) for value in found)) if found else None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    entries = data.get("loads") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not entries:
        return None
    total = 0
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        if "num_running_reqs" in entry:
            total += int(entry["num_running_reqs"]) + int(entry.get("num_waiting_reqs", 0))
        elif "num_reqs" in entry:
            total += int(entry["num_reqs"])
        else:
            return None
    return total


def listed(text: str) -> dict[str, dict[str, Any]]:
    """Workers that the router's ``GET /workers`` names, by address."""
    return {str(worker["url"]).rstrip("/"): worker for worker in json.loads(text)["workers"]}


def failed_job(text: str) -> str:
    """Why the router could not add a worker, from ``GET /workers/ID``; empty while it tries or where it succeeded."""
    try:
        job = json.loads(text).get("job_status") or {}
    except (ValueError, AttributeError):
        return ""
    return str(job.get("message") or job.get("status")) if job.get("status") == "failed" else ""


def record(text: str) -> dict[str, dict[str, Any]]:
    """The recorded workers by address: ``{"drained": bool}`` each. An empty text is an empty record; ValueError when it is no record."""
    if not text.strip():
        return {}
    data = json.loads(text)
    if not isinstance(data, dict) or not all(isinstance(entry, dict) for entry in data.values()):
        raise ValueError("a record of workers is a mapping of addresses to mappings")
    return data


def recorded(workers: dict[str, dict[str, Any]], url: str, state: str) -> dict[str, dict[str, Any]]:
    """The record after a worker got a state: ``present`` and ``drained`` are kept for the router's next start, ``absent`` goes."""
    rest = {address: dict(entry) for address, entry in workers.items() if address != url}
    if state != "absent":
        rest[url] = {"drained": state == "drained"}
    return dict(sorted(rest.items()))


def record_text(workers: dict[str, dict[str, Any]]) -> str:
    """A record as it is written."""
    return json.dumps(workers, indent=2, sort_keys=True) + "\n"
