"""How reads are spared: several sockets at a wake-up, several tokens at an ACK. Both are bounded, and off where they could be seen."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from gpunode_tools.smoke.stream import Slot

PAUSE_S: Final = 200e-6
"""The longest pause before sockets are read again, for what arrives meanwhile: a fifth of what a highest percentile may be off by."""
PAUSE_SHARE: Final = 0.02
"""Its highest share of the shortest time between tokens seen. A token is late by half of it in the mean, and so is the one before: the
median between tokens stays, the time to the first one grows by less than a hundredth."""
PAUSE_LEAST_S: Final = 20e-6
"""Below, a sleep costs more than the wake-ups that it spares."""
WORTH: Final = 0.5
"""Tokens to be expected in a pause, in the mean, for it to pay: streams come in bunches, so half a token is often none or several."""
GAPS: Final = 101
"""Times between tokens that tell what is usual now."""
ACK_GAP_S: Final = 0.020
"""ACKs are spared where tokens follow each other in less: Linux delays an ACK by 40 ms at least, and two tokens should share one."""
TRIAL_SLOTS: Final = 8
TRIAL_GAPS: Final = 5
"""Connections, and tokens of each, that a trial needs."""
TRIAL_HELD: Final = 0.25
"""A server without TCP_NODELAY waits for the ACK of its last segment before it sends the next small one (Nagle): each connection whose
ACKs are spared then shows several events at once at least one time. More such events than for a quarter of them is no chance."""
SLACK: Final = Path("/proc/self/timerslack_ns")
QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)


def exact_sleeps() -> None:
    """Let the kernel end this process's sleeps on time; by default it may be 50 microseconds late, half a pause."""
    with contextlib.suppress(OSError):
        SLACK.write_text("1000", encoding="ascii")


class Reading:
    """One level's economy. Slots call `begin` at the first read of a turn of the loop, where `due` says so; the level tunes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.due = False
        self.pause_s = self.longest_s = 0.0
        self.shortest_gap_s = 0.0
        self.spare_acks = False
        self.together = [0, 0]
        """Events that came in one read with the one before, in connections with even and with odd numbers."""
        self._tried_at = -1
        exact_sleeps()

    def begin(self) -> None:
        """Pause once before the sockets are looked at again."""
        self.due = False
        self.loop.call_soon(self._pause)

    def _pause(self) -> None:
        time.sleep(self.pause_s)
        self.due = self.pause_s > 0

    def tune(self, rate: float, gaps: Sequence[float]) -> None:
        """Set the pause for so many tokens a second; ``gaps`` are times between tokens in seconds, the last of them count."""
        if len(gaps) < GAPS:
            return
        gap = sorted(gaps[-GAPS:])[GAPS // 2]
        self.shortest_gap_s = min(self.shortest_gap_s or gap, gap)
        pause = min(PAUSE_S, PAUSE_SHARE * self.shortest_gap_s)
        if pause < PAUSE_LEAST_S or rate * pause < WORTH:
            pause = 0.0
        if pause and not self.pause_s:
            self.due = True
        elif not pause:
            self.due = False
        self.pause_s = pause
        self.longest_s = max(self.longest_s, pause)

    # ---- ACKs ----
    def try_acks(self, slots: Sequence[Slot], gaps: int) -> None:
        """During the warm-up, whose times do not count: spare the ACKs of every second connection; ``gaps`` were seen so far."""
        if QUICK_ACK is None or self._tried_at >= 0 or len(slots) < TRIAL_SLOTS or not 0 < self.shortest_gap_s < ACK_GAP_S:
            return
        self._tried_at = gaps
        self.together = [0, 0]
        for slot in slots[1::2]:
            self.spare(slot)

    def conclude(self, slots: Sequence[Slot], gaps: int) -> None:
        """At the end of the warm-up: spare the ACKs of all, unless that held tokens back where it was tried and not where it was not."""
        if self._tried_at < 0 or gaps - self._tried_at < TRIAL_GAPS * len(slots):
            return
        usual, spared = self.together
        if spared - usual > TRIAL_HELD * (len(slots) // 2):
            return
        self.spare_acks = True
        for slot in slots:
            if slot.first:
                self.spare(slot)

    @staticmethod
    def spare(slot: Slot) -> None:
        """Acknowledge this stream's tokens some at a time, as RFC 1122 asks; the kernel forgets it in a connection that falls silent."""
        if QUICK_ACK is not None and slot.transport is not None:
            with contextlib.suppress(OSError, TypeError):
                slot.socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 0)
