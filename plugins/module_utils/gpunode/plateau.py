"""Where throughput stops growing with concurrency, where it falls, and why: pure rules over the levels of a sweep."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KNEE_GAIN: Final = 0.10
"""A step that gains less than this per doubling is no longer worth its latency; with the knee, every later step is below it."""
COLLAPSE_LOSS: Final = 0.05
"""Throughput that stays this far below the peak has fallen; less is noise."""
NEAR: Final = 0.03
"""A gain this close to the limit is within the noise of a single run (2 to 3 % between runs of one server): the level is repeated."""
CAP_SHARE: Final = 0.95
"""Running requests at this share of the cap, or one below it, sit at it: gauges are read between a finish and the next start."""
KV_FULL: Final = 0.90
"""sglang stops admitting requests a little below a full cache."""
KV_ADMISSION: Final = 0.60
"""Usage at which a server that queues below its cap keeps room for what running requests may still generate (new_token_ratio is 0.7)."""
POWER_FAR_BELOW: Final = 0.60
"""GPUs below this share of their power limit wait: decoding bound by memory reaches 60 to 75 %, prefill and compute 80 to 100 %."""
POWER_NEAR: Final = 0.80
FRONTEND_BUSY: Final = 0.90
"""CPU seconds per second of the busiest of the server's front-end processes: each is one thread of Python."""
PREFILL_SHARE: Final = 0.50
"""Share of the time between tokens that is spent on other requests' prefills."""

MOST_POWER: Final = 700.0
"""Levels that hardly differ in concurrency and much in throughput gain more per doubling than a number holds."""

Point = tuple[float, float]
"""Concurrency and throughput."""


def gains(points: Sequence[Point]) -> list[float]:
    """Gain of each step per doubling of concurrency, as a fraction: (t2/t1)^(1/log2(c2/c1)) - 1; infinite from zero."""
    found = []
    for (c1, t1), (c2, t2) in itertools.pairwise(points):
        if c2 <= c1 or c1 <= 0:
            raise ValueError(f"concurrency must grow from level to level, not go from {c1:g} to {c2:g}")
        if t1 <= 0:
            found.append(math.inf if t2 > 0 else 0.0)
        elif t2 / t1 <= 0:  # also a share too small for a number
            found.append(-1.0)
        else:
            found.append(_per_doubling(t2 / t1, math.log2(c2 / c1)))
    return found


def _per_doubling(ratio: float, doublings: float) -> float:
    """Gain of a step, also where its ends are too close or too far apart for a number."""
    if ratio <= 0:
        return -1.0
    if doublings <= 0:
        return math.inf if ratio > 1 else ratio - 1
    power = math.log(ratio) / doublings
    return math.expm1(power) if power < MOST_POWER else math.inf


def knee(points: Sequence[Point], limit: float = KNEE_GAIN) -> float | None:
    """Return the first level after which every later step gains less than the limit; None while the last step still gains it."""
    steps = gains(points)
    if not steps or steps[-1] >= limit:
        return None
    index = len(steps)
    while index > 0 and steps[index - 1] < limit:
        index -= 1
    return points[index][0]


def collapse(points: Sequence[Point], loss: float = COLLAPSE_LOSS) -> float | None:
    """Return the first level after the peak from which throughput stays more than the loss below it, else None."""
    if not points:
        return None
    peak = max(range(len(points)), key=lambda index: points[index][1])
    floor = points[peak][1] * (1 - loss)
    found = None
    for concurrency, throughput in reversed(points[peak + 1 :]):
        if throughput >= floor:
            break
        found = concurrency
    return found


def undecided(points: Sequence[Point], near: float = NEAR) -> list[float]:
    """Levels whose repetition could move the knee.

    Both ends of steps with a gain near the limit after which none gains clearly, and levels around one that is out of line.
    """
    steps = gains(points)
    found: set[float] = set()
    for index in range(len(steps) - 1, -1, -1):
        if steps[index] >= KNEE_GAIN + near:
            break
        if abs(steps[index] - KNEE_GAIN) < near:
            found |= {points[index][0], points[index + 1][0]}
    # A level that gains nothing before one that gains again is out of line: seen as noise of up to 60 % between short runs of one server.
    for index, (gain, after) in enumerate(itertools.pairwise(steps)):
        if gain < KNEE_GAIN - near and after >= KNEE_GAIN:
            found |= {point[0] for point in points[index : index + 3]}
    return sorted(found)


def throughput(level: Mapping[str, Any]) -> float | None:
    """Total tokens a second of a level: of the steady state where there is one, else of the whole level; 0 where it served nothing."""
    values = [_number(level, key) for key in ("steady_total_tps", "total_tps", "steady_output_tps", "output_tps")]
    told = [value for value in values if value is not None and value >= 0]
    return next((value for value in told if value > 0), told[0] if told else None)


def _server(level: Mapping[str, Any]) -> Mapping[str, Any]:
    found = level.get("server")
    return found if isinstance(found, dict) else {}


def _number(source: Mapping[str, Any], key: str) -> float | None:
    value = source.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def next_cap(cap: float, most: float, kv_tokens: float | None, request_tokens: float | None) -> int:
    """Return the request cap to try: the next power of two that the sweep would fill, no more than fits into the KV cache."""
    wanted = 1 << max(0, math.ceil(math.log2(max(cap + 1, most))))
    if kv_tokens and request_tokens:
        wanted = min(wanted, max(1, int(kv_tokens // request_tokens)))
    return max(wanted, 1)


def _at(running: float, cap: float) -> bool:
    """Whether running requests sit at the cap."""
    return running >= min(cap * CAP_SHARE, cap - 1)


class _Cause:
    """What the levels at and beyond the knee show, looked at cause by cause."""

    def __init__(self, levels: Sequence[Mapping[str, Any]], server: Mapping[str, Any], knee_at: float) -> None:
        self.beyond = [level for level in levels if level["concurrency"] >= knee_at]
        self.last = self.beyond[-1]
        self.server = server
        self.queued = [_number(_server(level), "queued_max") for level in self.beyond]
        self.running = [_number(_server(level), "running_max") for level in self.beyond]

    def client(self) -> tuple[str, str, str] | None:
        bound = [level for level in self.beyond if level.get("client_bound")]
        if not bound:
            return None
        told = "; ".join(f"at {level['concurrency']}: {level['client_bound']}" for level in bound)
        return (
            "client-bound",
            told,
            "run with more cores (the client shards itself) or from another machine; these figures are not the server's",
        )

    def cap(self) -> tuple[str, str, str] | None:
        queues = any((queued or 0) > 0 for queued in self.queued)
        seen = [running for running in self.running if running]
        if not queues or not seen:
            return None
        cap = _number(self.server, "max_running_requests")
        running = max(seen)
        usage = _number(_server(self.last), "token_usage_max")
        kv_tokens = _number(self.server, "max_total_num_tokens")
        queued = max(queued or 0 for queued in self.queued)
        below = cap is not None and not _at(running, cap)
        each = _number(self.server, "request_tokens")
        # Samples meet a cache that fills and empties in step at any moment: what the running requests are let in for is certain.
        no_more = bool(below and each and kv_tokens) and (running + 1) * (each or 0) > (kv_tokens or 0)
        high = usage is not None and (below or cap is None) and usage >= (KV_ADMISSION if below else KV_FULL)
        if high or no_more:
            told = f"the KV cache was {usage:.0%} full" if high else f"{running + 1:.0f} requests of {each:.0f} tokens exceed the KV cache"
            return (
                "kv-cache-full",
                f"{told} with {running:.0f} requests running and {queued:.0f} queued" + (f", below the cap of {cap:.0f}" if cap else ""),
                "give the cache more room: a higher --mem-fraction-static, --kv-cache-dtype fp8_e4m3, or more GPUs",
            )
        if cap is None and len(seen) > 1 and seen[-1] <= max(seen[:-1]) * 1.05:
            cap = running
        if cap is None or not _at(running, cap):
            return None
        most = max(level["concurrency"] for level in self.beyond)
        wanted = next_cap(cap, most, kv_tokens, _number(self.server, "request_tokens"))
        flag = {"vllm": "--max-num-seqs", "llama.cpp": "--parallel"}.get(str(self.server.get("engine")), "--max-running-requests")
        if wanted <= cap:
            step = f"the KV cache holds no more requests of this length than the cap of {cap:.0f} lets in: make room there first"
        else:
            step = f"raise {flag} from {cap:.0f} to {wanted} and measure again"
        return "request-cap", f"{running:.0f} requests ran, the cap is {cap:.0f}, and up to {queued:.0f} waited behind them", step

    def prefill(self) -> tuple[str, str, str] | None:
        share = _number(self.last, "prefill_share")
        if share is None or share < PREFILL_SHARE:
            return None
        return (
            "prefill-bound",
            f"{share:.0%} of the time between tokens went to other requests' prefills at {self.last['concurrency']} streams",
            "try a larger --chunked-prefill-size, fewer input tokens, or prefill and decode on servers of their own",
        )

    def frontend(self) -> tuple[str, str, str] | None:
        if any((queued or 0) > 0 for queued in self.queued):
            return None
        busy = _number(_server(self.last), "frontend_cpu_share")
        if busy is None or busy < FRONTEND_BUSY:
            return None
        return (
            "frontend-bound",
            f"a front-end process of the server used {busy:.0%} of a core and nothing queued",
            "give the front end more processes: --tokenizer-worker-num 4, and --detokenizer-worker-num where the version has it",
        )

    def gpu(self) -> tuple[str, str, str] | None:
        gpu = self.last.get("gpu")
        gpu = gpu if isinstance(gpu, dict) else {}
        power, limit = _number(gpu, "power_w_mean"), _number(gpu, "power_limit_w")
        if power is None or not limit:
            return None
        share = power / limit
        told = f"the GPUs drew {power:.0f} W of {limit:.0f} W in the mean"
        if share >= POWER_NEAR:
            return "compute-bound", told, "the GPUs are at work: a faster kernel, a smaller model or more GPUs"
        if any(queued is None or queued > 0 for queued in self.queued):
            return None
        if share < POWER_FAR_BELOW:
            if _number(_server(self.last), "frontend_cpu_share") is None:
                told += " (the CPU of the server's front end is not known)"
            step = (
                "look at the all-reduce: gpunode verify-p2p --measure full, NCCL's settings, fewer ranks "
                "(tensor parallel 4 with pipeline 2), autotuned kernels"
            )
            return "communication-or-latency-bound", f"nothing queued, and {told}", step
        return None


def cause(
    levels: Sequence[Mapping[str, Any]], server: Mapping[str, Any], knee_at: float | None, fell: float | None
) -> tuple[str, str, str]:
    """Return (cause, evidence, next step); `unknown` says what would have to be read."""
    if not levels:
        return "unknown", "no level was completed", ""
    if knee_at is None and fell is None:
        look = _Cause(levels, server, levels[-1]["concurrency"])
        # A server that queues while its running requests sit at the cap is capped, whatever noise makes of the last step.
        scaling = ("still-scaling", "the last step still gains 10 % or more per doubling", "measure at higher concurrency")
        # As many streams as the cap queue for moments only, when one hands over to the next.
        running = [value for value in look.running if value]
        crowded = bool(running) and levels[-1]["concurrency"] > max(running) * 1.05
        return look.client() or (look.cap() if crowded else None) or scaling
    look = _Cause(levels, server, knee_at if knee_at is not None else levels[0]["concurrency"])
    for rule in (look.client, look.cap, look.frontend, look.prefill, look.gpu):
        found = rule()
        if found is not None:
            return found
    missing = []
    if all(queued is None for queued in look.queued):
        missing.append("the server's queue (start it with --enable-metrics)")
    if not isinstance(look.last.get("gpu"), dict):
        missing.append("GPU power (run on the node, or with --gpu yes)")
    told = f"not read: {', '.join(missing)}" if missing else "nothing queued, no process at its limit and GPU power in between"
    return "unknown", told, "read what is missing and measure again" if missing else "profile the server at the knee"


def analyse(levels: Sequence[Mapping[str, Any]], server: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `plateau` of a result: levels as in the contract, in any order; those without throughput are left out.

    Keys: detected, knee_concurrency, collapse_concurrency, gains_pct, cause, evidence, next_step, undecided.
    """
    usable = sorted((level for level in levels if throughput(level) is not None), key=lambda level: float(level["concurrency"]))
    points = [(float(level["concurrency"]), throughput(level) or 0.0) for level in usable]
    at, fell = knee(points), collapse(points)
    name, evidence, step = cause(usable, server or {}, at, fell)
    return {
        "detected": at is not None or fell is not None,
        "knee_concurrency": _whole(at),
        "collapse_concurrency": _whole(fell),
        "gains_pct": [round(gain * 100, 1) if math.isfinite(gain) else None for gain in gains(points)],
        "cause": name,
        "evidence": evidence,
        "next_step": step,
        "undecided": [_whole(level) for level in undecided(points)],
    }


def _whole(value: float | None) -> int | float | None:
    return int(value) if value is not None and float(value).is_integer() else value
