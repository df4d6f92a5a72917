"""The client watches itself: CPU share, and how late it comes to its own reads."""

from __future__ import annotations

import asyncio
import time
from typing import Final

PERIOD_S: Final = 0.02
"""Between two looks at the loop's lateness: often enough to see a single long turn, seldom enough to cost nothing."""


class Watch:
    """A timer whose lateness is the time that bytes wait in the kernel before this loop reads them."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self._due = 0.0
        self._cpu = self._wall = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to watch; what was seen before is forgotten."""
        self.late_ms = []
        self._cpu, self._wall = time.process_time(), time.monotonic()
        if self._handle is None:
            self._again()

    def _again(self) -> None:
        self._due = time.monotonic() + PERIOD_S
        self._handle = self._loop.call_later(PERIOD_S, self._look)

    def _look(self) -> None:
        # libuv's timers have a resolution of one millisecond: what is below is no lateness.
        self.late_ms.append(max(0.0, (time.monotonic() - self._due) * 1000 - 1.0))
        self._again()

    def stop(self) -> tuple[float, list[float]]:
        """Return (share of one core used since `start`, lateness in ms at each look)."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        wall = time.monotonic() - self._wall
        return (time.process_time() - self._cpu) / wall if wall > 0 else 0.0, self.late_ms
