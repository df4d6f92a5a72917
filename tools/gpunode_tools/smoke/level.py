"""One level of the load in one process: slots at a fixed concurrency, warm-up handed over without draining, deadlines."""

from __future__ import annotations

import array
import asyncio
import gc
import ssl
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.smoke.dialects import PATHS, READERS, Prompts, Shape
from gpunode_tools.smoke.reading import Reading
from gpunode_tools.smoke.stream import Slot
from gpunode_tools.smoke.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_S: Final = 0.1
"""Between two looks for requests that overran a deadline."""
CONNECT_S: Final = 10.0
CONNECT_AT_ONCE: Final = 64
"""Connections opened together: a listener's backlog is often 100 to 128."""
GONE_S: Final = 5.0
"""A server that has refused or broken every connection for so long is gone; the level ends."""
LOST: Final = {"connection-refused", "connection-reset", "connection-closed", "connect-timeout", "tls"}
"""Kinds of errors that mean that there was no server at the other end."""
BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses of a slot after one, two, ... failures in a row."""
RETRY_AFTER_MOST_S: Final = 10.0
"""The longest Retry-After that a slot obeys."""
EXAMPLES: Final = 3
"""Messages kept for each kind of error."""
BUCKETS_PER_S: Final = 100
BUCKETS_AHEAD_S: Final = 60
"""Buckets that exist ahead of the time; the sweep makes more."""


@dataclass(frozen=True)
class Target:
    """Where the load goes."""

    host: str
    port: int
    tls: bool = False
    ca_file: str | None = None
    server_name: str | None = None
    base_path: str = ""
    api_key: str = ""

    def head(self, endpoint: str) -> bytes:
        """Request head up to the value of content-length."""
        name = self.host if ":" not in self.host else f"[{self.host}]"
        key = f"authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        return (
            f"POST {self.base_path}{PATHS[endpoint]} HTTP/1.1\r\nhost: {name}:{self.port}\r\naccept: text/event-stream\r\n"
            f"user-agent: gpunode-smoke\r\n"
            f"content-type: application/json\r\n{key}content-length: "
        ).encode()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Certificates are verified; there is no way around it but a CA file."""
        return ssl.create_default_context(cafile=self.ca_file) if self.tls else None


@dataclass(frozen=True)
class Plan:
    """What one level does in one process."""

    concurrency: int
    requests: int | None
    duration_s: float | None
    shape: Shape
    first_prompt: int = 0
    prompt_step: int = 1
    stall_s: float = 60.0
    request_s: float = 600.0
    deadline: float | None = None
    warmup: int = 1
    keep_rows: bool = False


@dataclass
class Data:
    """What one process saw in one level; times are seconds of the monotonic clock."""

    concurrency: int
    base: float = 0.0
    started: float = 0.0
    """All slots have left the warm-up."""
    dry: float = 0.0
    """The first slot has run dry."""
    ended: float = 0.0
    requested: int = 0
    warm_requests: int = 0
    completed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, list[str]] = field(default_factory=dict)
    warm_errors: Counter[str] = field(default_factory=Counter)
    error_at: list[tuple[float, str]] = field(default_factory=list)
    buckets: array.array[int] = field(default_factory=lambda: array.array("L"))
    gaps: array.array[float] = field(default_factory=lambda: array.array("f"))
    ttft: array.array[float] = field(default_factory=lambda: array.array("f"))
    tpot: array.array[float] = field(default_factory=lambda: array.array("f"))
    e2e: array.array[float] = field(default_factory=lambda: array.array("f"))
    input_tokens: int = 0
    output_tokens: int = 0
    all_tokens: int = 0
    """Output tokens of every request that completed, warm-up included: what the server's counters must have counted too."""
    all_prompts: int = 0
    shown_tokens: int = 0
    early: int = 0
    """Requests that stopped by themselves where that is allowed."""
    without_usage: int = 0
    events: int = 0
    coalesced: int = 0
    busy_s: float = 0.0
    cpu_share: float = 0.0
    pause_s: float = 0.0
    """The longest pause before sockets were read."""
    late_ms: array.array[float] = field(default_factory=lambda: array.array("f"))
    interrupted: bool = False
    gone: bool = False
    simulated: bool = False
    continuous: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Every request, when the plan asks for it."""


class Level:
    """Runs a plan. Slots call `ended`; the level decides what each does next."""

    def __init__(self, target: Target, plan: Plan, progress: Callable[[Level], None] | None = None) -> None:
        self.target, self.plan, self.progress = target, plan, progress
        self.reader = READERS[plan.shape.endpoint]
        self.data = Data(plan.concurrency)
        self.base = monotonic()
        self.data.base = self.base
        self.buckets = [0] * (BUCKETS_AHEAD_S * BUCKETS_PER_S)
        self.gaps = self.data.gaps
        self.suffixes: dict[tuple[bytes, int], list[bytes]] = {}
        self.plain: set[bytes] = set()
        self.warm_gaps: array.array[float] = array.array("f")
        self.coalesced = 0
        self.simulated = False
        self.prompts = Prompts(plan.shape, plan.first_prompt, plan.prompt_step)
        self.head = target.head(plan.shape.endpoint)
        self.context = target.ssl_context()
        self.reading = Reading(asyncio.get_running_loop())
        self.slots = [Slot(self, number) for number in range(plan.concurrency)]
        self.left = plan.requests if plan.requests is not None else 1 << 60
        self.warm_left = [plan.warmup] * plan.concurrency
        self.failures = [0] * plan.concurrency
        self.in_warmup = plan.concurrency if plan.warmup else 0
        self.active = 0
        self.lost: set[int] = set()
        self.last_good = monotonic()
        self.stopping = False
        self.finished = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.watch = Watch()

    # ---- the run ----
    async def run(self) -> Data:
        """Connect, warm up, measure, and return what was seen; never raises for what the server does."""
        await self._connect_all()
        self.last_good = monotonic()
        if not self.in_warmup:
            self._measure()
        self.active = len(self.slots)
        for slot in self.slots:
            self._next(slot)
        sweeper = asyncio.create_task(self._sweep())
        collecting = gc.isenabled()
        gc.disable()  # nothing here makes cycles in numbers, and a collection is a pause that reads as latency
        try:
            await self.finished.wait()
        finally:
            if collecting:
                gc.enable()
            sweeper.cancel()
            for task in self.tasks:
                task.cancel()
            self._collect()
        return self.data

    def stop(self, reason: str = "interrupted") -> None:
        """End now: requests in flight are cut off and counted as interrupted."""
        if self.stopping:
            return
        self.stopping = True
        if reason == "interrupted":
            self.data.interrupted = True
        for slot in self.slots:
            if slot.busy:
                slot.fail("interrupted", reason)
        self.finished.set()

    def _collect(self) -> None:
        data = self.data
        data.ended = data.ended or monotonic()
        data.dry = data.dry or data.ended
        data.started = data.started or data.ended
        share, late = self.watch.stop()
        data.cpu_share = share
        data.late_ms.extend(late)
        data.buckets = array.array("L", self.buckets[: int((data.ended - self.base) * BUCKETS_PER_S) + 1])
        # The last that each slot saw was a broken or refused connection: nobody is there any more.
        data.gone = len(self.lost) == len(self.slots)
        data.coalesced, data.simulated, data.pause_s = self.coalesced, self.simulated, self.reading.longest_s
        for slot in self.slots:
            if slot.transport is not None:
                transport, slot.transport = slot.transport, None
                transport.abort()

    def _measure(self) -> None:
        """Every slot has left the warm-up: from here on it counts."""
        self.data.started = monotonic()
        self.watch.start()
        self.reading.conclude(self.slots, len(self.warm_gaps))
        self.coalesced = 0
        if self.plan.duration_s is not None:
            asyncio.get_running_loop().call_later(self.plan.duration_s, self._time_up)

    def _time_up(self) -> None:
        self.left = 0

    # ---- connections ----
    async def _connect_all(self) -> None:
        for start in range(0, len(self.slots), CONNECT_AT_ONCE):
            await asyncio.gather(*(self._connect(slot) for slot in self.slots[start : start + CONNECT_AT_ONCE]))

    async def _connect(self, slot: Slot) -> str | None:
        """Return None, or the kind of error with the message in the slot."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(
                    lambda: slot,
                    self.target.host,
                    self.target.port,
                    ssl=self.context,
                    server_hostname=self.target.server_name if self.context else None,
                )
        except ssl.SSLError as error:
            slot.message = str(error)
            return "tls"
        except TimeoutError:
            slot.message = f"no connection within {CONNECT_S:.0f} s"
            return "connect-timeout"
        except OSError as error:
            slot.message = str(error)
            return "connection-refused"
        return None

    # ---- requests ----
    def _next(self, slot: Slot) -> None:
        """Give a slot its next request, or let it rest."""
        if self.stopping:
            return
        warm = self.warm_left[slot.number] > 0
        if warm:
            self.warm_left[slot.number] -= 1
            self.data.warm_requests += 1
        elif self.left > 0:
            self.left -= 1
            self.data.requested += 1
        else:
            if not self.data.dry:
                self.data.dry = monotonic()
            self.active -= 1
            if self.active == 0:
                self.data.ended = monotonic()
                self.finished.set()
            return
        if slot.transport is not None and not self.failures[slot.number]:
            slot.send(self.head, self.prompts.body(self.plan.shape.output_len), self.plan.shape.output_len, warm=warm)
        else:
            task = asyncio.create_task(self._reconnect(slot, warm=warm))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _reconnect(self, slot: Slot, *, warm: bool) -> None:
        failed = self.failures[slot.number]
        pause = BACKOFF_S[min(failed, len(BACKOFF_S)) - 1] if failed else 0.0
        await asyncio.sleep(max(pause, min(slot.retry_after, RETRY_AFTER_MOST_S)))
        if slot.transport is None:
            kind = await self._connect(slot)
            if kind:
                message = slot.message
                slot.warm, slot.busy = warm, False
                slot.problem, slot.message = kind, message
                self.ended(slot)
                return
        if not self.stopping:
            slot.send(self.head, self.prompts.body(self.plan.shape.output_len), self.plan.shape.output_len, warm=warm)

    def ended(self, slot: Slot) -> None:
        """A request is over: judge it, book it, go on."""
        now = monotonic()
        kind = slot.problem or self._judge(slot)
        self._book(slot, kind, now)
        if slot.warm and self.warm_left[slot.number] == 0:
            self.in_warmup -= 1
            if self.in_warmup == 0:
                self._measure()
        if kind in LOST:
            self.lost.add(slot.number)
            if now - self.last_good > GONE_S or kind == "tls":
                self.stop("the server is gone")
                return
        else:
            self.lost.discard(slot.number)
            self.last_good = now
        self.failures[slot.number] = self.failures[slot.number] + 1 if slot.problem else 0
        self._next(slot)

    def _judge(self, slot: Slot) -> str:
        """What is wrong with an answer that looks complete; empty when nothing is."""
        if slot.counted:
            slot.usage = slot.tokens
        tokens = slot.tokens if slot.usage < 0 else slot.usage
        if slot.usage > slot.wanted >= slot.events:
            slot.message = f"usage says {slot.usage} tokens, {slot.wanted} were asked for and {slot.events} events came"
            return "usage-mismatch"
        if 0 <= slot.usage < slot.events:
            slot.message = f"usage says {slot.usage} tokens, yet {slot.events} events with text came"
            return "usage-mismatch"
        if tokens == slot.wanted:
            return ""
        if slot.finish == "stop" and tokens < slot.wanted:
            if not self.plan.shape.ignore_eos:
                self.data.early += 1
                return ""
            slot.message = f"stopped after {tokens} of {slot.wanted} tokens although ignore_eos was asked for"
            return "early-stop"
        slot.message = f"{tokens} tokens came where {slot.wanted} were asked for (finish reason {slot.finish})"
        return "wrong-length"

    def _book(self, slot: Slot, kind: str, now: float) -> None:
        data = self.data
        tokens = slot.tokens if slot.usage < 0 else slot.usage
        if self.plan.keep_rows:
            data.rows.append(
                {
                    "concurrency": self.plan.concurrency,
                    "warmup": slot.warm,
                    "sent_s": round(slot.sent - self.base, 6),
                    "ttft_s": round(slot.first - slot.sent, 6) if slot.first else None,
                    "e2e_s": round((slot.last or now) - slot.sent, 6),
                    "output_tokens": tokens,
                    "error": kind or None,
                }
            )
        if kind:
            (data.warm_errors if slot.warm else data.errors)[kind] += 1
            data.error_at.append((now, kind))
            examples = data.messages.setdefault(kind, [])
            if len(examples) < EXAMPLES:
                examples.append(slot.message)
            return
        data.all_tokens += tokens
        data.continuous = data.continuous or slot.counted
        data.all_prompts += self.plan.shape.input_len
        if slot.warm:
            return
        data.completed += 1
        data.output_tokens += tokens
        data.shown_tokens += slot.tokens
        data.input_tokens += self.plan.shape.input_len
        data.without_usage += slot.usage < 0
        data.events += slot.events
        data.busy_s += now - slot.sent
        data.ttft.append(slot.first - slot.sent)
        data.e2e.append(slot.last - slot.sent)
        if tokens > 1:
            data.tpot.append((slot.last - slot.first) / (tokens - 1))

    # ---- reads ----
    def _tune(self, now: float) -> None:
        """Look at the last tenth of a second: how many tokens came, and how far apart in a stream."""
        last = int((now - self.base) * BUCKETS_PER_S)
        first = max(0, last - int(SWEEP_S * BUCKETS_PER_S))
        if last > first:
            rate = sum(self.buckets[first:last]) / (last - first) * BUCKETS_PER_S
            self.reading.tune(rate, self.warm_gaps if self.in_warmup else self.gaps)
        if self.in_warmup:
            self.reading.try_acks(self.slots, len(self.warm_gaps))

    # ---- deadlines ----
    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = monotonic()
            if len(self.buckets) < (now - self.base + BUCKETS_AHEAD_S / 2) * BUCKETS_PER_S:
                self.buckets.extend([0] * (BUCKETS_AHEAD_S * BUCKETS_PER_S))
            self._tune(now)
            plan = self.plan
            if plan.deadline is not None and now > plan.deadline:
                self.stop("the deadline of the run was reached")
                return
            for slot in self.slots:
                if not slot.busy:
                    continue
                if now - slot.sent > plan.request_s:
                    if slot.first:
                        slot.fail("request-timeout", f"not complete after {plan.request_s:.0f} s ({slot.tokens} of {slot.wanted} tokens)")
                    else:
                        slot.fail("no-first-token", f"no token within {plan.request_s:.0f} s")
                elif slot.events > slot.limit:
                    slot.fail("runaway", f"{slot.tokens} tokens in {slot.events} events came where {slot.wanted} were asked for")
                elif slot.first and now - slot.last > plan.stall_s:
                    kind = "no-end-of-stream" if slot.finish or slot.done_mark else "stalled"
                    slot.fail(kind, f"silent for {plan.stall_s:.0f} s after {slot.tokens} of {slot.wanted} tokens")
            if self.progress is not None:
                self.progress(self)
