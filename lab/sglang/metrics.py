"""/metrics in the Prometheus text format, with the names, labels and quirks of sglang's."""

from __future__ import annotations

import math
import os
import resource
import time
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.sglang.engine import Engine, Request

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (*_TTFT, 600, 1200, 1800, 2400)
_ITL = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8)
_TOKENS = (100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500, 20000, 40000, 80000)

CPU_PERIOD_S = 5.0


def number(value: float) -> str:
    """A float as the Prometheus client for Python writes it (Go's style from a million on)."""
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    point = text.find(".")
    if value > 0 and point > 6 and "e" not in text:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+0{point - 1}"
    return text


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{labels[key]}"' for key in sorted(labels)) + "}" if labels else ""


def negotiated(text: str, accept: str) -> tuple[str, str]:
    """A page of metrics as prometheus_client 0.26 gives it to who sends this Accept header, and its content type.

    A Prometheus before 3 asks for OpenMetrics without `escaping`: it gets `sglang_...` for `sglang:...` in samples, not in HELP and TYPE.
    """
    for wanted in accept.split(","):
        kind, *parameters = (part.strip() for part in wanted.split(";"))
        if kind != "application/openmetrics-text":
            continue
        told = dict(part.split("=", 1) for part in parameters if "=" in part)
        version = told.get("version", "1.0.0")
        if version.startswith("0."):
            continue
        escaping = "allow-utf-8" if told.get("escaping") == "allow-utf-8" else "underscores"
        lines = []
        for line in text.splitlines():
            if line.startswith("# "):
                _, word, name, rest = line.split(" ", 3)
                counter = f"# TYPE {name} counter\n" in text
                lines.append(f"# {word} {name.removesuffix('_total') if counter else name} {rest}")
            else:
                name, brace, rest = line.partition("{" if "{" in line else " ")
                lines.append((name if escaping == "allow-utf-8" else name.replace(":", "_")) + brace + rest)
        return "\n".join([*lines, "# EOF", ""]), f"application/openmetrics-text; version={version}; charset=utf-8; escaping={escaping}"
    return text, "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts in buckets."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.sum += value * times

    def lines(self, name: str, labels: dict[str, str]) -> list[str]:
        total = sum(self.counts)
        found = [f"{name}_sum{_labels(labels)} {number(self.sum)}"]
        running = 0
        for edge, count in zip((*self.edges, math.inf), self.counts, strict=True):
            running += count
            found.append(f"{name}_bucket{_labels({**labels, 'le': number(edge)})} {number(running)}")
        return [*found, f"{name}_count{_labels(labels)} {number(total)}"]


class Metrics:
    """Everything that is counted, by the names under which it is shown."""

    def __init__(self, model: str, startup: dict[str, float], memory: dict[str, float]) -> None:
        self.base = {"engine_type": "unified", "model_name": model}
        self.rank = {**self.base, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        self.startup, self.memory = startup, memory
        self.ttft = {flag: Histogram(_TTFT) for flag in ("false", "true")}
        self.e2e = {flag: Histogram(_E2E) for flag in ("false", "true")}
        self.itl = Histogram(_ITL)
        self.prompt, self.generation = Histogram(_TOKENS), Histogram(_TOKENS)
        self.queue = Histogram(_E2E)
        self.totals: Counter[tuple[str, str]] = Counter()
        self.http: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, int]] = Counter()
        self.active: Counter[tuple[str, str]] = Counter()
        self._cpu, self._cpu_at = 0.0, time.monotonic()

    def finished(self, request: Request) -> None:
        """One request has left the engine."""
        flag = "true" if request.streaming else "false"
        if request.aborted:
            self.totals["num_aborted_requests_total", flag] += 1
            return
        self.ttft[flag].observe(request.first - request.received)
        self.e2e[flag].observe(request.finished - request.received)
        self.queue.observe(request.started - request.received)
        if request.out > 1:
            self.itl.observe((request.finished - request.first) / (request.out - 1), request.out - 1)
        self.prompt.observe(request.prompt)
        self.generation.observe(request.out)
        self.totals["prompt_tokens_total", flag] += request.prompt
        self.totals["generation_tokens_total", flag] += request.out
        self.totals["num_requests_total", flag] += 1
        self.totals["cached_tokens_total", flag] += request.cached

    def cpu_seconds(self) -> float:
        """Seconds of CPU as sglang's own thread counts them: anew every five seconds."""
        now = time.monotonic()
        if now - self._cpu_at >= CPU_PERIOD_S:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            self._cpu_at, self._cpu = now - (now - self._cpu_at) % CPU_PERIOD_S, usage.ru_utime + usage.ru_stime
        return self._cpu

    def text(self, engine: Engine) -> str:
        """The page."""
        out: list[str] = []

        def family(name: str, kind: str, help_text: str, lines: list[str]) -> None:
            if lines:
                out.extend([f"# HELP sglang:{name} {help_text}", f"# TYPE sglang:{name} {kind}", *lines])

        def gauge(name: str, help_text: str, value: float, **labels: str) -> None:
            family(name, "gauge", help_text, [f"sglang:{name}{_labels({**self.rank, **labels})} {number(value)}"])

        def by_stream(kind: str, source: dict[str, Histogram]) -> list[str]:
            return [
                line
                for flag, histogram in source.items()
                if sum(histogram.counts)
                for line in histogram.lines(f"sglang:{kind}", {**self.base, "is_streaming": flag})
            ]

        family(
            "time_to_first_token_seconds",
            "histogram",
            "Histogram of time to first token in seconds.",
            by_stream("time_to_first_token_seconds", self.ttft),
        )
        family(
            "e2e_request_latency_seconds",
            "histogram",
            "Histogram of End-to-end request latency in seconds",
            by_stream("e2e_request_latency_seconds", self.e2e),
        )
        family(
            "inter_token_latency_seconds",
            "histogram",
            "Histogram of inter-token latency in seconds.",
            self.itl.lines("sglang:inter_token_latency_seconds", self.base) if self.itl.sum else [],
        )
        family(
            "prompt_tokens_histogram",
            "histogram",
            "Histogram of prompt token length.",
            self.prompt.lines("sglang:prompt_tokens_histogram", self.base),
        )
        family(
            "generation_tokens_histogram",
            "histogram",
            "Histogram of generation token length.",
            self.generation.lines("sglang:generation_tokens_histogram", self.base),
        )
        cpu = self.cpu_seconds()
        family(
            "process_cpu_seconds_total",
            "counter",
            "Total CPU time consumed by this process (user + system)",
            [
                f'sglang:process_cpu_seconds_total{{component="tokenizer"}} {number(cpu)}',
                'sglang:process_cpu_seconds_total{component="detokenizer"} 0.0',
            ],
        )
        family(
            "http_requests_total",
            "counter",
            "Total number of HTTP requests by endpoint and method",
            [
                f'sglang:http_requests_total{{endpoint="{path}",method="{method}"}} {number(count)}'
                for (path, method), count in self.http.items()
            ],
        )
        family(
            "http_responses_total",
            "counter",
            "Total number of HTTP responses by endpoint and status code",
            [
                f'sglang:http_responses_total{{endpoint="{path}",method="{method}",status_code="{status}"}} {number(count)}'
                for (path, method, status), count in self.responses.items()
            ],
        )
        for name, help_text in (
            ("prompt_tokens_total", "Number of prefill tokens processed."),
            ("generation_tokens_total", "Number of generation tokens processed."),
            ("cached_tokens_total", "Number of cached prompt tokens."),
            ("num_requests_total", "Number of requests processed."),
            ("num_aborted_requests_total", "Number of requests aborted."),
        ):
            family(
                name,
                "counter",
                help_text,
                [
                    f"sglang:{name}{_labels({**self.base, 'is_streaming': flag})} {number(value)}"
                    for (key, flag), value in self.totals.items()
                    if key == name
                ],
            )
        family(
            "http_requests_active",
            "gauge",
            "Number of currently active HTTP requests",
            [
                f'sglang:http_requests_active{{endpoint="{path}",method="{method}"}} {number(count)}'
                for (path, method), count in self.active.items()
            ],
        )
        family(
            "queue_time_seconds",
            "histogram",
            "Histogram of queueing time in seconds.",
            self.queue.lines("sglang:queue_time_seconds", self.rank),
        )
        gauge("num_retracted_reqs", "The number of retracted requests.", 0, pid=str(os.getpid()))
        gauge("num_paused_reqs", "The number of paused requests by async weight sync.", 0, pid=str(os.getpid()))
        counters = engine.counters
        family(
            "cuda_graph_passes_total",
            "counter",
            "Total number of forward passes categorized by CUDA graph.",
            [
                f"sglang:cuda_graph_passes_total{_labels({**self.rank, 'mode': mode})} {number(counters[key])}"
                for mode, key in (("prefill_cuda_graph", "prefill_passes"), ("decode_cuda_graph", "decode_passes"))
            ],
        )
        family(
            "realtime_tokens_total",
            "counter",
            "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.",
            [
                f"sglang:realtime_tokens_total{_labels({**self.rank, 'mode': mode})} {number(counters[mode])}"
                for mode in ("prefill_compute", "prefill_cache", "decode")
            ],
        )
        family(
            "startup_time_seconds",
            "gauge",
            "Engine startup duration by phase in seconds.",
            [
                f"sglang:startup_time_seconds{_labels({**self.base, 'phase': phase})} {number(value)}"
                for phase, value in self.startup.items()
            ],
        )
        gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", engine.kv_tokens)
        for name, help_text in (
            ("weight_memory_usage_gb", "Memory used by model weights in GB."),
            ("kv_cache_memory_usage_gb", "Memory used by the KV cache pools in GB."),
            ("context_len", "Maximum context length."),
        ):
            gauge(name, help_text, self.memory[name])
        gauge("page_size", "KV cache page size in tokens.", 1)
        gauge("num_pages", "Number of KV cache pages.", engine.kv_tokens)
        shown = engine.gauges
        cached = min(len(engine.cache) * 64, engine.kv_tokens - shown["tokens"])
        gauge("num_running_reqs", "The number of running requests.", shown["running"])
        gauge("num_queue_reqs", "The number of requests in the waiting queue.", shown["queued"])
        gauge("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0)
        gauge("gen_throughput", "The generation throughput (token/s).", shown["gen_throughput"])
        gauge("cache_hit_rate", "The prefix cache hit rate.", shown["hit_rate"])
        gauge("decode_sum_seq_lens", "The sum of all sequence lengths in decode.", shown["tokens"])
        for name in ("token_usage", "full_token_usage"):
            gauge(name, "The token usage.", round(shown["tokens"] / engine.kv_tokens, 2))
        gauge("num_used_tokens", "The number of used tokens.", shown["tokens"])
        gauge("kv_available_tokens", "Number of free token slots in the KV cache pool.", engine.kv_tokens - shown["tokens"] - cached)
        gauge("kv_evictable_tokens", "Number of evictable (radix-cached) token slots in the KV cache pool.", cached)
        gauge("kv_used_tokens", "Number of actively used token slots in the KV cache pool.", shown["tokens"])
        gauge(
            "spec_accept_length",
            "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
            shown["accept_length"],
        )
        gauge(
            "spec_accept_rate",
            "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
            max(0.0, (shown["accept_length"] - 1) / 3),
        )
        gauge("utilization", "The utilization.", 0)
        gauge("fwd_occupancy", "Forward pass GPU occupancy percentage.", math.nan)
        gauge("new_token_ratio", "The new token ratio.", 0.7)
        gauge("is_cuda_graph", "Whether the batch is using CUDA graph.", float(shown["running"] > 0))
        return "\n".join(out) + "\n"
