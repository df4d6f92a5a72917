"""The interface of the backends: one call of the API, tasks followed to their end, errors that say what to do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..pve.errors import LOG_KINDS, OTHER, RESTARTING, WAIT, classify
from ..pve.tasks import Upid, find_upid, succeeded, warnings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_LINES: Final = 5000
"""Lines of a task's log that are read: a creation from a template writes one line a file at most."""

TAIL_LINES: Final = 15
"""Lines of a failed task's log that are shown: what led to the error fits a screen."""

POLL_S: Final = (0.2, 0.5, 1.0, 2.0)
"""Pauses between two looks at a task: a stop takes less than a second, a creation minutes. Proxmox has no event to await."""


class ApiError(Exception):
    """A request that Proxmox VE refused or could not answer.

    ``kind`` is one of ``gpunode.pve.errors``; ``errors`` are the texts by parameter of a 400; ``remedy`` is what to run next.
    """

    def __init__(self, text: str, *, status: int | None = None, errors: Mapping[str, str] | None = None, kind: str | None = None) -> None:
        super().__init__(text)
        self.text = text.strip()
        self.status = status
        self.errors = dict(errors or {})
        found, self.remedy = classify(self.text, status, self.errors)
        self.kind = kind or found

    def explain(self, vmid: int | None = None, node: str = "") -> str:
        """One text for a person: what was said, by parameter, and what to run next."""
        said = self.text
        if self.errors:
            said += " " + "; ".join(f"{key}: {value.strip()}" for key, value in sorted(self.errors.items()))
        remedy = self.remedy.replace("{vmid}", str(vmid or "VMID")).replace("{node}", node or "NODE")
        return f"{said}. {remedy[0].upper()}{remedy[1:]}." if remedy else said


class TaskError(ApiError):
    """A task that ended with an error, with the tail of its log."""

    def __init__(self, result: TaskResult) -> None:
        super().__init__(result.exitstatus)
        self.result = result
        if self.kind == OTHER:
            # Proxmox says that tar failed; why tar failed stands in the log alone.
            kind, remedy = classify("\n".join(result.log[-TAIL_LINES:]))
            if kind in LOG_KINDS:
                self.kind, self.remedy = kind, remedy


class DeadlineError(ApiError):
    """Something did not happen in time; nothing was cancelled."""

    def __init__(self, text: str) -> None:
        super().__init__(text, kind=OTHER)
        self.remedy = ""


@dataclass
class TaskResult:
    """How a task ended: its identifier, exit status, log and the warnings in it."""

    upid: str = ""
    exitstatus: str = ""
    log: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked; warnings are success."""
        return succeeded(self.exitstatus)

    @property
    def warnings(self) -> list[str]:
        """Warnings from the log of a task that ended with some."""
        return (warnings_of(self.log) or [self.exitstatus]) if self.exitstatus.startswith("WARNINGS:") else []

    def as_dict(self) -> dict[str, Any]:
        """Plain data; of the log the tail."""
        return {"upid": self.upid, "exitstatus": self.exitstatus, "log": self.log[-TAIL_LINES:]}


class Deadline:
    """A moment after which waiting ends; ``clock`` and ``sleep`` are given by tests."""

    def __init__(self, seconds: float, clock: Any = time.monotonic, sleep: Any = time.sleep) -> None:
        self.seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return float(max(0.0, self._end - self._clock()))

    def pause(self, number: int) -> bool:
        """Wait a step (longer ones later); False when the time is over."""
        if self.left <= 0:
            return False
        self._sleep(min(POLL_S[min(number, len(POLL_S) - 1)], self.left))
        return True


class Api(Protocol):
    """A way to Proxmox VE's API."""

    name: str
    """``local``, ``https`` or ``ssh_paramiko``."""
    user: str
    """Who asks, as Proxmox names it: ``root@pam`` or ``root@pam!token``."""

    def call(self, method: str, path: str, params: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Any:
        """Ask and return the answer's data; raises ``ApiError``. Booleans are 0 or 1."""

    def start(self, method: str, path: str, params: Mapping[str, str] | None, deadline: Deadline) -> str:
        """Start a task and return its UPID; over pvesh it has then ended already. Raises ``ApiError``."""


def follow(api: Api, node: str, upid: str, deadline: Deadline) -> TaskResult:
    """Wait for a task's end. Proxmox's daemons may restart meanwhile: their silence is waited out until the deadline.

    Raises ``TaskError`` when it failed and ``DeadlineError`` when it still runs.
    """
    task = find_upid(upid)
    where = task.node if task else node
    base = f"/nodes/{where}/tasks/{upid}"
    number = 0
    while True:
        status: Mapping[str, Any] = {}
        try:
            status = api.call("GET", f"{base}/status") or {}
        except ApiError as error:
            if error.kind != RESTARTING:
                raise
        if status.get("status") == "stopped":
            break
        if not deadline.pause(number):
            raise DeadlineError(
                f"task {upid} still runs after {deadline.seconds:.0f} s; it was left alone."
                f" Look at it with `pvesh get {base}/status` and `pvesh get {base}/log`"
            )
        number += 1
    result = TaskResult(upid, str(status.get("exitstatus", "unexpected status")), _log(api, base))
    if not result.ok:
        raise TaskError(result)
    return result


def _log(api: Api, base: str) -> list[str]:
    try:
        lines = api.call("GET", f"{base}/log", {"start": "0", "limit": str(LOG_LINES)}) or []
    except ApiError as error:
        return [f"(the log could not be read: {error.text})"]
    return [str(line.get("t", "")) for line in lines]


def running_task(api: Api, node: str, vmid: int) -> Upid | None:
    """The active task of a guest, None without one."""
    tasks = api.call("GET", f"/nodes/{node}/tasks", {"source": "active", "vmid": str(vmid)}) or []
    for task in tasks:
        if not task.get("endtime"):
            return find_upid(str(task.get("upid", "")))
    return None


def patiently(call: Any, deadline: Deadline, *, also: frozenset[str] = frozenset()) -> Any:
    """Do ``call`` again while it fails for a reason that goes away by itself (a lock, a daemon's restart), until the deadline."""
    number = 0
    while True:
        try:
            return call()
        except ApiError as error:
            if error.kind not in WAIT | also or not deadline.pause(number):
                raise
        number += 1
