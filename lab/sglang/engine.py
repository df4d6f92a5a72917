"""The scheduler: a queue, a request cap, a KV cache, prefill before decode, and steps that take the time a GPU would need."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab.sglang.speed import Speed, prefill_batch

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE_BLOCK = 64  # prompt tokens per entry of the prefix cache
BEHIND_S = 0.25  # lag after which the model's clock is set to now: the machine was busy with something else


@dataclass(eq=False)
class Request:
    """One request inside the engine; `emit` is told (new tokens, finish reason) after each step."""

    rid: str
    prompt: int
    blocks: list[int]
    max_new: int
    emit: Callable[[int, str | None], None]
    streaming: bool = False
    stop_at: int | None = None
    cached: int = 0
    out: int = 0
    received: float = field(default_factory=time.monotonic)
    started: float = 0.0
    first: float = 0.0
    finished: float = 0.0
    aborted: bool = False


def log(text: str) -> None:
    """One line as sglang logs it."""
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Engine:
    """Requests in, tokens out; what /metrics shows is kept in `gauges` and the counters."""

    def __init__(
        self, speed: Speed, *, cap: int, kv_tokens: int, chunk: int, time_scale: float, radix: bool, accept: float, log_every: int
    ) -> None:
        self.speed, self.cap, self.kv_tokens, self.chunk = speed, cap, kv_tokens, chunk
        self.scale, self.radix, self.accept, self.log_every = time_scale, radix, accept, log_every
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.cache: set[int] = set()
        self.reserved = 0
        self.slow = 1.0
        self.hang = False
        self.wake = asyncio.Event()
        self.clock = 0.0
        self.model_s = 0.0  # seconds that the modelled GPUs have worked
        self.carry = self.accepted = 0.0
        self.gauges = {"running": 0, "queued": 0, "gen_throughput": 0.0, "tokens": 0, "hit_rate": 0.0, "accept_length": 0.0}
        self.counters: dict[str, float] = {"prefill_compute": 0, "prefill_cache": 0, "decode": 0, "prefill_passes": 0, "decode_passes": 0}
        self.on_finish: Callable[[Request], None] = lambda _request: None
        self._interval_tokens = self._interval_steps = 0
        self._interval_start = 0.0
        self._pending = 0

    def submit(self, request: Request) -> None:
        self.waiting.append(request)
        self.wake.set()

    def abort(self, request: Request) -> None:
        """The client is gone."""
        request.aborted = True
        if request in self.waiting:
            self.waiting.remove(request)

    def flush(self) -> bool:
        """Empty the prefix cache, unless anything runs or waits."""
        if self.running or self.waiting:
            return False
        self.cache.clear()
        return True

    def used_tokens(self) -> int:
        return sum(request.prompt + request.out for request in self.running)

    async def run(self) -> None:
        """Steps for ever."""
        while True:
            if self.hang or not (self.running or self.waiting):
                self._publish(idle=True)
                self.wake.clear()
                await self.wake.wait()
                self.clock = max(self.clock, time.monotonic())
                self._interval_start, self._interval_tokens, self._interval_steps = self.clock, 0, 0
                continue
            batch = self._admit()
            if batch:
                await self._prefill(batch)
            elif self.running:
                await self._decode()
            else:  # nothing fits: the queue waits for the cache
                await asyncio.sleep(0.01)

    async def _spend(self, seconds: float) -> None:
        self.model_s += seconds * self.slow
        self.clock += seconds * self.slow / self.scale
        now = time.monotonic()
        if now - self.clock > BEHIND_S:
            self.clock = now
        await asyncio.sleep(max(0.0, self.clock - now))

    def _admit(self) -> list[Request]:
        free = self.cap - len(self.running)
        if not self.waiting or free <= 0:
            return []
        allowance = prefill_batch(max(0, len(self.waiting) - free)) + self.carry
        most = max(1, int(allowance))
        batch: list[Request] = []
        tokens = 0
        while self.waiting and len(batch) < min(free, most):
            request = self.waiting[0]
            need = request.prompt + request.max_new
            if self.reserved + need > self.kv_tokens or (batch and tokens + request.prompt > self.chunk):
                break
            self.waiting.popleft()
            self.reserved += need
            tokens += request.prompt
            batch.append(request)
        self.carry = min(allowance - int(allowance), 1.0) if batch else self.carry
        return batch

    async def _prefill(self, batch: list[Request]) -> None:
        now = time.monotonic()
        tokens = cached = 0
        for request in batch:
            request.started = now
            if self.radix:
                hits = 0
                for block in request.blocks:
                    if block not in self.cache:
                        break
                    hits += 1
                request.cached = min(hits * CACHE_BLOCK, request.prompt - 1)
                if len(self.cache) * CACHE_BLOCK > self.kv_tokens:
                    self.cache.clear()
                self.cache.update(request.blocks)
            tokens += request.prompt - request.cached
            cached += request.cached
        await self._spend(self.speed.prefill_s(tokens, -(-tokens // self.chunk)))
        self.counters["prefill_compute"] += tokens
        self.counters["prefill_cache"] += cached
        self.counters["prefill_passes"] += 1
        self.gauges["hit_rate"] = cached / (tokens + cached)
        usage = self.used_tokens() / self.kv_tokens
        log(
            f"Prefill batch, #new-seq: {len(batch)}, #new-token: {tokens}, #cached-token: {cached}, "
            f"token usage: {usage:.2f}, #running-req: "
            f"{len(self.running)}, #queue-req: {len(self.waiting)}, #pending-token: 0, cuda graph: True, input throughput (token/s): "
            f"{tokens / max(time.monotonic() - now, 1e-6):.2f}"
        )
        self._publish()
        for request in batch:
            request.first = time.monotonic()
            self.running.append(request)
            self._give(request, 1)
        self._retire()

    async def _decode(self) -> None:
        await self._spend(self.speed.decode_s(len(self.running)) * (1.35 if self.accept > 1 else 1.0))
        self.counters["decode_passes"] += 1
        self.accepted += self.accept
        each = int(self.accepted)
        self.accepted -= each
        for request in self.running:
            self._give(request, each)
            self._interval_tokens += each
            self._pending += each
        self._interval_steps += 1
        if self._interval_steps >= self.log_every:
            now = time.monotonic()
            self.gauges["gen_throughput"] = self._interval_tokens / max(now - self._interval_start, 1e-6)
            self.gauges["accept_length"] = self.accept if self.accept > 1 else 0.0
            used = self.used_tokens()
            log(
                f"Decode batch, #running-req: {len(self.running)}, #token: {used}, "
                f"token usage: {used / self.kv_tokens:.2f}, cuda graph: True, "
                f"gen throughput (token/s): {self.gauges['gen_throughput']:.2f}, #queue-req: {len(self.waiting)}"
            )
            self._publish()
            self._interval_start, self._interval_tokens, self._interval_steps = now, 0, 0
        self._retire()

    def _give(self, request: Request, count: int) -> None:
        """Hand tokens to a request; the last hand-over carries the finish reason."""
        if request.aborted:
            return
        limit = min(request.max_new, request.stop_at or request.max_new)
        count = min(count, limit - request.out)
        request.out += count
        reason = None
        if request.out >= limit:
            reason = "length" if limit == request.max_new else "stop"
            request.finished = time.monotonic()
        request.emit(count, reason)

    def _retire(self) -> None:
        keep = []
        for request in self.running:
            if request.finished or request.aborted:
                self.reserved -= request.prompt + request.max_new
                self.on_finish(request)
            else:
                keep.append(request)
        self.running = keep

    def _publish(self, *, idle: bool = False) -> None:
        self.gauges.update(running=len(self.running), queued=len(self.waiting), tokens=self.used_tokens())
        self.counters["decode"] += self._pending
        self._pending = 0
        if idle:
            self.gauges["gen_throughput"] = 0.0

    def state(self) -> dict[str, Any]:
        """What /v1/loads shows."""
        return {"num_running_reqs": len(self.running), "num_waiting_reqs": len(self.waiting), "num_used_tokens": self.used_tokens()}


def blocks_of(tokens: list[int]) -> list[int]:
    """Keys of the prompt's prefixes, one per full block."""
    digest = hashlib.blake2b(digest_size=8)
    found = []
    for start in range(0, len(tokens) - len(tokens) % CACHE_BLOCK, CACHE_BLOCK):
        digest.update(json.dumps(tokens[start : start + CACHE_BLOCK]).encode())
        found.append(int.from_bytes(digest.digest(), "big"))
    return found
