"""Callback: how long each task and play took, shown at the end of a run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: task_times
type: aggregate
short_description: Show how long the run and its slowest tasks took
description:
  - After the recap, prints the wall time of the run, of each play, and of the slowest tasks.
options:
  task_times_limit:
    description: How many tasks are listed; 0 lists none.
    type: int
    default: 10
    env:
      - name: GPUNODE_TASK_TIMES
author: gpunode
"""

import time
import typing as t

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Collects start times; a task ends where the next one starts."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._start = time.monotonic()
        self._open: tuple[str, float] | None = None
        self._tasks: list[tuple[float, str]] = []
        self._plays: list[tuple[str, float]] = []

    def _close(self) -> None:
        if self._open is not None:
            name, began = self._open
            self._tasks.append((time.monotonic() - began, name))
            self._open = None

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._close()
        self._plays.append((play.get_name(), time.monotonic()))

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        del is_conditional
        self._close()
        self._open = (task.get_name(), time.monotonic())

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        del stats
        self._close()
        now = time.monotonic()
        limit = self.get_option("task_times_limit")
        if not limit:
            return
        ends = [began for _, began in self._plays[1:]] + [now]
        self._display.display(f"\nTime: {now - self._start:.1f} s")
        for (name, began), end in zip(self._plays, ends, strict=True):
            if end - began >= 0.5:
                self._display.display(f"  {end - began:7.1f} s  play  {name}")
        for seconds, name in sorted(self._tasks, reverse=True)[:limit]:
            if seconds >= 0.5:
                self._display.display(f"  {seconds:7.1f} s  task  {name}")
