"""What is asked of a container's life, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..pve.plan import diff_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..pve.plan import Current, Desired
    from .base import TaskResult


class LifeError(Exception):
    """What was asked cannot be done; the text says what was found and what to run next. ``result`` is the failed task's, if any."""

    def __init__(self, text: str, result: TaskResult | None = None) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True)
class Timeouts:
    """Seconds: for a lock or a restarting daemon, for a task, for a container's orderly shutdown."""

    lock: float = 60
    task: float = 1800
    shutdown: float = 60


@dataclass(frozen=True)
class Request:
    """What is wanted. ``create`` holds the parameters that only a creation has, ``ostemplate`` among them."""

    state: str
    hostname: str
    desired: Desired
    vmid: int | None = None
    node: str = ""
    create: Mapping[str, str] = field(default_factory=dict)
    adopt: bool = False
    recreate_interrupted: bool = False
    force_stop: bool = True
    purge_references: bool = False
    timeouts: Timeouts = Timeouts()
    check: bool = False
    device_hint: str = ""


@dataclass
class Outcome:
    """What was found and done."""

    changed: bool = False
    vmid: int | None = None
    node: str = ""
    status: str = "absent"
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    restart_reasons: list[str] = field(default_factory=list)
    tasks: list[TaskResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The module's result."""
        last = self.tasks[-1].as_dict() if self.tasks else None
        return {
            "changed": self.changed,
            "vmid": self.vmid,
            "node": self.node,
            "status": self.status,
            "pending": self.pending,
            "restart_required": bool(self.restart_reasons),
            "restart_reasons": self.restart_reasons,
            "task": last,
            "tasks": [task.as_dict() for task in self.tasks],
            "diff": {
                "before_header": f"container {self.vmid} on {self.node}",
                "after_header": f"container {self.vmid} on {self.node}",
                "before": diff_text(self.before),
                "after": diff_text(self.after),
            },
        }


def view(current: Current) -> dict[str, Any]:
    """What a diff shows of a container: its options as they will be, and its raw lines."""
    view: dict[str, Any] = dict(current.effective)
    for key, value in current.raw:
        view.setdefault(key, []).append(value)
    return view


def raw_after(desired: Desired) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for line in desired.raw:
        if line.present:
            view.setdefault(line.key, []).append(line.value)
    return view


def device_hint(unit: str) -> str:
    """What makes NVIDIA's device nodes, now and at boot."""
    return (
        f"Unit {unit} makes NVIDIA's at boot, before the guests start: `systemctl status {unit}`;"
        f" `systemctl restart {unit}` makes those of all GPUs now"
    )
