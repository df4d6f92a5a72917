"""What the server says while it is measured: gauges and counters of /metrics or /v1/loads, by time."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.smoke.http import Unreachable, get_json, request

if TYPE_CHECKING:
    from gpunode_tools.smoke.level import Target
    from gpunode_tools.smoke.server import Server

PERIOD_S: Final = 0.5
FIRST_S: Final = 0.2
FIRST_SAMPLES: Final = 4
"""A level can be over in a second: the first samples are taken closer to each other."""
FRONTEND_SPAN_S: Final = 4.0
"""sglang reads the CPU of its processes every 5 s; two readings must be about so far apart to say anything."""
QUIET_S: Final = 30.0
"""The longest wait for a server to finish what an earlier level left."""

# Our name: the names of sglang, vLLM and llama.cpp. Values with several label sets are added up, shares are taken at their highest.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "running": ("sglang:num_running_reqs", "vllm:num_requests_running", "llamacpp:requests_processing"),
    "queued": ("sglang:num_queue_reqs", "vllm:num_requests_waiting", "llamacpp:requests_deferred"),
    "token_usage": ("sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio"),
    "accept_length": ("sglang:spec_accept_length",),
    "generation_tokens": ("sglang:generation_tokens_total", "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total"),
    "prompt_tokens": ("sglang:prompt_tokens_total", "vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "retracted": ("sglang:num_retracted_reqs", "vllm:num_preemptions_total"),
}
SHARES: Final = {"token_usage", "accept_length"}
_OURS: Final = {theirs: ours for ours, names in NAMES.items() for theirs in names}
_CPU: Final = re.compile(r'^sglang:process_cpu_seconds_total\{[^}]*component="([^"]+)"[^}]*\} (\S+)')


def parse(text: str) -> dict[str, Any]:
    """Read a /metrics page; keys are ours, `cpu` maps the server's front-end processes to CPU seconds."""
    found: dict[str, Any] = {}
    cpu: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or "_bucket{" in line:
            continue
        name, _, _ = line.partition("{") if "{" in line else line.partition(" ")
        ours = _OURS.get(name)
        if ours is not None:
            try:
                value = float(line.rsplit(" ", 1)[1])
            except (ValueError, IndexError):
                continue
            found[ours] = max(found.get(ours, 0.0), value) if ours in SHARES else found.get(ours, 0.0) + value
        elif name == "sglang:process_cpu_seconds_total":
            match = _CPU.match(line)
            if match:
                cpu[match[1]] = float(match[2])
    if cpu:
        found["cpu"] = cpu
    return found


class Sampler:
    """Takes samples, soon every half second, until it is told to stop."""

    def __init__(self, target: Target, server: Server) -> None:
        self.target, self.server = target, server
        self.samples: list[dict[str, Any]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def able(self) -> bool:
        """Whether there is anything to read."""
        return self.server.has_metrics or self.server.has_loads

    async def once(self) -> dict[str, Any]:
        """One sample, empty when it could not be read."""
        try:
            if self.server.has_metrics:
                status, _, body = await request(self.target, "/metrics", timeout_s=5)
                found = parse(body.decode("utf-8", "replace")) if status == 200 else {}
            elif self.server.has_loads:
                loads = (await get_json(self.target, "/v1/loads") or {}).get("loads") or []
                found = {
                    "running": float(sum(load.get("num_running_reqs", 0) for load in loads)),
                    "queued": float(sum(load.get("num_waiting_reqs", 0) for load in loads)),
                    "token_usage": max((float(load.get("token_usage", 0)) for load in loads), default=0.0),
                }
            else:
                return {}
        except (Unreachable, AttributeError, TypeError, ValueError):
            return {}
        found["at"] = time.monotonic()
        return found

    def start(self) -> None:
        """Begin a level."""
        self.samples = []
        if self.able:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            sample = await self.once()
            if sample:
                self.samples.append(sample)
            await asyncio.sleep(FIRST_S if len(self.samples) < FIRST_SAMPLES else PERIOD_S)

    async def stop(self) -> None:
        """End a level."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def quiet(self) -> dict[str, Any]:
        """Wait until nothing runs or queues (an earlier level's requests must not be in the next), then return a sample."""
        until = time.monotonic() + QUIET_S
        while True:
            sample = await self.once()
            if not sample or (not sample.get("running") and not sample.get("queued")) or time.monotonic() > until:
                return sample
            await asyncio.sleep(0.2)

    def level(self, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        """What a level's samples and the counters around it say."""
        found: dict[str, Any] = {}
        for key, name in (
            ("running", "running_max"),
            ("queued", "queued_max"),
            ("token_usage", "token_usage_max"),
            ("accept_length", "accept_length"),
        ):
            values = [sample[key] for sample in self.samples if key in sample]
            found[name] = max(values) if values else None
        found["accept_length"] = found["accept_length"] or None
        for key in ("generation_tokens", "prompt_tokens"):
            found[key] = int(after[key] - before.get(key, 0.0)) if key in after else None
        found["frontend_cpu_share"] = self._frontend()
        found["samples"] = len(self.samples)
        return found

    def _frontend(self) -> float | None:
        """CPU share of the busiest front-end process between the first and the last time its counter moved; None where it moved once.

        sglang reads its processes' CPU every few seconds only. From sample to sample the counter stands still and then jumps, so that a
        level of three seconds would read anything from 0 to 150 % of a core.
        """
        moves: dict[str, list[tuple[float, float]]] = {}
        last: dict[str, float] = {}
        for sample in self.samples:
            for name, seconds in sample.get("cpu", {}).items():
                if name in last and seconds != last[name]:
                    moves.setdefault(name, []).append((sample["at"], seconds))
                last[name] = seconds
        shares = [
            (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
            for seen in moves.values()
            if len(seen) > 1 and seen[-1][0] - seen[0][0] >= FRONTEND_SPAN_S
        ]
        return round(max(shares), 3) if shares else None
