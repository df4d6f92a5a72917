"""From what the processes saw to a level of the result: windows, percentiles, peaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.smoke.level import BUCKETS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpunode_tools.smoke.level import Data

PEAK_WINDOW_S: Final = 1.0
QUANTILES: Final = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile of sorted values, linear between neighbours."""
    at = q * (len(ordered) - 1)
    low = int(at)
    rest = at - low
    return ordered[low] if rest == 0 else ordered[low] * (1 - rest) + ordered[low + 1] * rest


def summary_ms(seconds: Iterable[float]) -> dict[str, float] | None:
    """Mean, p50, p90, p99 and max in milliseconds of durations in seconds; None of nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    found = {"mean": sum(ordered) / len(ordered) * 1000}
    found |= {name: quantile(ordered, q) * 1000 for name, q in QUANTILES.items()}
    found["max"] = ordered[-1] * 1000
    return {name: round(value, 3) for name, value in found.items()}


@dataclass
class Merged:
    """All processes of a level as one."""

    parts: list[Data]
    base: float = 0.0
    started: float = 0.0
    dry: float = 0.0
    ended: float = 0.0
    buckets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base = min(part.base for part in self.parts)
        self.started = max(part.started for part in self.parts)
        self.dry = max(self.started, min(part.dry for part in self.parts))
        self.ended = max(part.ended for part in self.parts)
        self.buckets = [0] * (int((self.ended - self.base) * BUCKETS_PER_S) + 2)
        scale = self._scale()
        for part in self.parts:
            offset = int((part.base - self.base) * BUCKETS_PER_S)
            for index, count in enumerate(part.buckets):
                if count and index + offset < len(self.buckets):
                    self.buckets[index + offset] += count
        self.scale = scale

    def _scale(self) -> float:
        """Tokens for each event shown, where only the final usage tells (several tokens in an event, no usage in each)."""
        shown = sum(part.shown_tokens for part in self.parts)
        tokens = sum(part.output_tokens for part in self.parts)
        continuous = any(part.continuous for part in self.parts)
        return tokens / shown if shown and not continuous else 1.0

    def total(self, name: str) -> int:
        """Sum of a count over the processes."""
        return sum(getattr(part, name) for part in self.parts)

    def tokens_between(self, start: float, end: float) -> float:
        """Output tokens that arrived between two times; the edges' hundredths of a second are shared out."""
        low, high = (start - self.base) * BUCKETS_PER_S, (end - self.base) * BUCKETS_PER_S
        first, last = int(low), int(high)
        if last <= first:
            return 0.0
        inside = sum(self.buckets[first : last + 1]) - self.buckets[first] * (low - first)
        if last < len(self.buckets):
            inside -= self.buckets[last] * (1 - (high - last))
        return inside * self.scale

    def peak(self) -> float | None:
        """Most tokens in any second, the window sliding by hundredths; None when the level was shorter."""
        width = int(PEAK_WINDOW_S * BUCKETS_PER_S)
        start, end = int((self.started - self.base) * BUCKETS_PER_S), int((self.ended - self.base) * BUCKETS_PER_S) + 1
        values = self.buckets[start:end]
        if len(values) < width:
            return None
        window = best = sum(values[:width])
        for index in range(width, len(values)):
            window += values[index] - values[index - width]
            best = max(best, window)
        return best * self.scale / PEAK_WINDOW_S

    def per_second(self) -> list[float]:
        """Output tokens of each second since the measurement began; the last, incomplete one is left out."""
        start, end = int((self.started - self.base) * BUCKETS_PER_S), int((self.ended - self.base) * BUCKETS_PER_S)
        return [sum(self.buckets[at : at + BUCKETS_PER_S]) * self.scale for at in range(start, end - BUCKETS_PER_S + 1, BUCKETS_PER_S)]


def level(parts: list[Data], concurrency: int) -> dict[str, Any]:
    """One level of the result, without what the server and the GPUs told."""
    merged = Merged(parts)
    duration = merged.ended - merged.started
    steady = merged.dry - merged.started
    completed = merged.total("completed")
    inputs, outputs = merged.total("input_tokens"), merged.total("output_tokens")
    # Input tokens are credited as the output of their request arrives: no edge of a window then cuts through a prefill.
    ratio = inputs / outputs if outputs else 0.0
    whole = merged.tokens_between(merged.started, merged.ended) / duration if duration > 0 and completed else None
    calm = merged.tokens_between(merged.started, merged.dry) / steady if steady > 0 and completed else None
    gaps = chain.from_iterable(part.gaps for part in parts)
    itl = summary_ms(gaps if merged.scale == 1 else (gap / merged.scale for gap in gaps))
    late = sorted(value for part in parts for value in part.late_ms)
    events = merged.total("events")
    errors: Counter[str] = Counter()
    warm: Counter[str] = Counter()
    for part in parts:
        errors += part.errors
        warm += part.warm_errors
    busy = merged.total("busy_s")
    found: dict[str, Any] = {
        "concurrency": concurrency,
        "requested": merged.total("requested"),
        "completed": completed,
        "failed": sum(errors.values()),
        "errors": dict(errors),
        "warmup_requests": merged.total("warm_requests"),
        "warmup_errors": dict(warm),
        "natural_stops": merged.total("early"),
        "duration_s": round(duration, 3),
        "steady": {"start_s": 0.0, "end_s": round(steady, 3), "share": round(steady / duration, 4) if duration > 0 else 0.0},
        "clock": {"started_s": round(merged.started, 6), "dry_s": round(merged.dry, 6), "ended_s": round(merged.ended, 6)},
        "total_tps": _rounded(whole, 1 + ratio),
        "input_tps": _rounded(whole, ratio),
        "output_tps": _rounded(whole, 1),
        "steady_total_tps": _rounded(calm, 1 + ratio),
        "steady_output_tps": _rounded(calm, 1),
        "peak_output_tps": _rounded(merged.peak(), 1),
        "ttft_ms": summary_ms(value for part in parts for value in part.ttft),
        "itl_ms": itl,
        "tpot_ms": summary_ms(value for part in parts for value in part.tpot),
        "e2e_ms": summary_ms(value for part in parts for value in part.e2e),
        "prefill_share": round(max(0.0, 1 - itl["p50"] / itl["mean"]), 4) if itl and itl["mean"] > 0 else None,
        "server": {},
        "gpu": None,
        "client": {
            "cpu_share": round(max(part.cpu_share for part in parts), 4),
            "late_reads_ms_mean": round(sum(late) / len(late), 3) if late else None,
            "late_reads_ms_p90": round(quantile(late, 0.90), 3) if late else None,
            "late_reads_ms_p99": round(quantile(late, 0.99), 3) if late else None,
            "read_pause_ms": round(max(part.pause_s for part in parts) * 1000, 3),
            "coalesced_share": round(merged.total("coalesced") / events, 4) if events else 0.0,
            "mean_concurrency": round(busy / duration, 2) if duration > 0 else None,
            "processes": len(parts),
            "generation_tokens": merged.total("all_tokens"),
        },
        "per_second_output": [round(value, 1) for value in merged.per_second()],
        "token_count": "usage in each event"
        if any(part.continuous for part in parts)
        else "final usage"
        if not merged.total("without_usage")
        else "events",
    }
    return found


def _rounded(value: float | None, factor: float) -> float | None:
    return round(value * factor, 2) if value is not None else None
