"""UPIDs: the names of tasks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

_UPID = re.compile(
    r"UPID:(?P<node>[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):(?P<pid>[0-9A-Fa-f]{8}):(?P<pstart>[0-9A-Fa-f]{8,9}):"
    r"(?P<starttime>[0-9A-Fa-f]{8}):(?P<type>[^:\s]+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)


@dataclasses.dataclass(frozen=True)
class Upid:
    """A task's name taken apart; `starttime` in seconds since the epoch, `pstart` the process's start in clock ticks since boot."""

    node: str
    pid: int
    pstart: int
    starttime: int
    type: str
    id: str
    user: str

    def __str__(self) -> str:
        return f"UPID:{self.node}:{self.pid:08X}:{self.pstart:08X}:{self.starttime:08X}:{self.type}:{self.id}:{self.user}:"

    @classmethod
    def parse(cls, text: str) -> Upid | None:
        """Read a UPID; None where it is none."""
        match = _UPID.fullmatch(text)
        if match is None:
            return None
        part = match.groupdict()
        return cls(
            part["node"], int(part["pid"], 16), int(part["pstart"], 16), int(part["starttime"], 16), part["type"], part["id"], part["user"]
        )

    @property
    def folder(self) -> str:
        """The last hex digit of the start time: tasks are spread over sixteen folders."""
        return f"{self.starttime:08X}"[-1]

    @property
    def running(self) -> bool:
        """Whether the very process that the UPID names still runs."""
        return process_start(self.pid) == self.pstart


def process_start(pid: int) -> int | None:
    """A process's start in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])
