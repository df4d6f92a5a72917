"""Tasks of Proxmox VE: their identifiers and how they ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UPID: Final = re.compile(
    r"UPID:(?P<node>[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):(?P<pid>[0-9A-Fa-f]{8}):(?P<pstart>[0-9A-Fa-f]{8,9}):"
    r"(?P<start>[0-9A-Fa-f]{8}):(?P<type>[^:\s]+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)


@dataclass(frozen=True)
class Upid:
    """A task's identifier, taken apart; ``started`` in seconds of the epoch."""

    text: str
    node: str
    type: str
    id: str
    user: str
    started: int


def find_upid(text: str) -> Upid | None:
    """The last task identifier in a text, None without one. API tokens (``root@pam!name``) are users too."""
    found = None
    for match in _UPID.finditer(text):
        found = match
    if found is None:
        return None
    return Upid(found[0], found["node"], found["type"], found["id"], found["user"], int(found["start"], 16))


def succeeded(exitstatus: str) -> bool:
    """``OK`` and ``WARNINGS: n`` are success; everything else is the text of an error."""
    return exitstatus == "OK" or exitstatus.startswith("WARNINGS:")


def warnings_of(log: list[str]) -> list[str]:
    """The warnings in a task's log, each once, in order."""
    found = [line.strip() for line in log if re.match(r"\s*(?:WARN(?:ING)?|W)\s*:", line)]
    return list(dict.fromkeys(found))
