"""The whole run: look at the server, measure level by level, repeat what is undecided, and make the result."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpunode import plateau, smoke_rules
from gpunode_tools.report.terminal import plural
from gpunode_tools.smoke import stats
from gpunode_tools.smoke.dialects import DEFAULT_VOCABULARY, Shape
from gpunode_tools.smoke.gpu import Gpus, local
from gpunode_tools.smoke.level import Plan
from gpunode_tools.smoke.sampler import Sampler
from gpunode_tools.smoke.server import Server, flush, learn_ids, look, vocabulary_of
from gpunode_tools.smoke.shards import Running, count

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpunode_tools.smoke.http import Unreachable
    from gpunode_tools.smoke.level import Level, Target

SCHEMA: Final = "gpunode.smoke/1"
REQUESTS_PER_SLOT: Final = 3
LEAST_REQUESTS: Final = 16
MOST_REPEATS: Final = 2
"""Runs of an undecided level beyond its first: the median of three ends most doubts, more would cost more than they tell."""


@dataclass(frozen=True)
class Options:
    """What the run was asked to do."""

    url: str
    model: str | None = None
    concurrency: tuple[int, ...] = (1, 32, 64, 128, 256, 512)
    input_len: int = 256
    output_len: int = 128
    requests_per_level: int | None = None
    requests_per_slot: int = REQUESTS_PER_SLOT
    duration_s: float | None = None
    endpoint: str = "completions"
    stall_s: float = 60.0
    request_s: float = 600.0
    deadline_s: float | None = None
    shared_prefix: int = 0
    ignore_eos: bool = True
    vocabulary: int | None = None
    model_config: str | None = None
    processes: int | None = None
    repeats: int = MOST_REPEATS
    gpu: str = "auto"
    node: str | None = None
    seed: int | None = None
    keep_rows: bool = False


class WrongModel(Exception):  # noqa: N818 - wrong input
    """The model that was asked for is not served."""


@dataclass
class Run:
    """State of a run; `result` is valid at any time."""

    options: Options
    target: Target
    say: Callable[[str], None] = lambda _text: None
    progress: Callable[[Level], None] | None = None
    server: Server = field(default_factory=Server)
    model: str = ""
    levels: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    messages: dict[str, list[str]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    stopped: str | None = None
    simulated: bool = False
    started_at: str = ""
    prompts: int = 0
    running: Running | None = None

    async def run(self) -> dict[str, Any]:
        """Measure everything and return the result; Unreachable and WrongModel before the first level only."""
        self.started_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        begun = time.monotonic()
        self.deadline = begun + self.options.deadline_s if self.options.deadline_s else None
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.interrupt)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.interrupt)
        self.server = await look(self.target)
        self._choose_model()
        await self._choose_ids()
        wanted = self.options.gpu == "yes" or (self.options.gpu == "auto" and local(self.target.host))
        self.sampler, self.gpus = Sampler(self.target, self.server), Gpus(wanted=wanted)
        self._tell_plan()
        for concurrency in self.options.concurrency:
            if self.stopped:
                break
            await self._level(concurrency)
        await self._repeat()
        return self.result()

    def interrupt(self) -> None:
        """Ctrl-C: what was measured so far becomes a valid, partial result."""
        self.stopped = "interrupted"
        if self.running is not None:
            self.running.stop()

    # ---- before the load ----
    def _choose_model(self) -> None:
        names = self.server.models
        if self.options.model is None:
            if not names and self.options.endpoint != "generate":
                raise WrongModel("the server does not list its models: name one with --model")
            self.model = names[0] if names else ""
        elif names and self.options.model not in names:
            raise WrongModel(
                f"the server serves {', '.join(names)}, not {self.options.model!r} (a server may answer any name: /v1/models is the truth)"
            )
        else:
            self.model = self.options.model

    async def _choose_ids(self) -> None:
        options = self.options
        self.server.vocabulary = options.vocabulary or vocabulary_of(options.model_config) or vocabulary_of(self.server.model_path)
        if self.server.vocabulary is None and options.endpoint != "chat":
            await learn_ids(self.target, self.server, self.model)
            if not self.server.alphabet:
                self.say(f"the vocabulary's size is not known: token ids stay below {DEFAULT_VOCABULARY} (set --vocab-size)")
                self.server.unknown.append("vocabulary")

    def shape(self) -> Shape:
        """Shape of every request."""
        options = self.options
        return Shape(
            endpoint=options.endpoint,
            model=self.model,
            input_len=options.input_len,
            output_len=options.output_len,
            vocabulary=self.server.vocabulary or DEFAULT_VOCABULARY,
            alphabet=self.server.alphabet,
            shared_prefix=options.shared_prefix,
            ignore_eos=options.ignore_eos,
            seed=options.seed if options.seed is not None else time.time_ns() & 0xFFFFFFFF,
        )

    def requests_of(self, concurrency: int) -> int | None:
        """Measured requests of a level; None where it is measured for a time."""
        options = self.options
        if options.duration_s is not None:
            return None
        return max(options.requests_per_level or max(LEAST_REQUESTS, options.requests_per_slot * concurrency), concurrency)

    def _amount(self, concurrency: int) -> str:
        requests = self.requests_of(concurrency)
        return f"{self.options.duration_s:g} s" if requests is None else plural(requests, "request")

    def _tell_plan(self) -> None:
        options = self.options
        levels = ", ".join(f"{concurrency} ({self._amount(concurrency)})" for concurrency in options.concurrency)
        self.say(
            f"plan: levels {levels}, before each one warm-up request a stream; {plural(options.input_len, 'token')} in and "
            f"{options.output_len:,} out of each request, {options.endpoint}"
            + (f"; levels around a knee too close to call up to {plural(options.repeats, 'time')} more" if options.repeats else "")
            + (f"; at most {options.deadline_s:g} s in all" if options.deadline_s else "")
        )

    # ---- the load ----
    async def _level(self, concurrency: int) -> None:
        options = self.options
        self.say(f"level {concurrency}{' again' if concurrency in self.levels else ''}: {self._amount(concurrency)}")
        plan = Plan(
            concurrency,
            self.requests_of(concurrency),
            options.duration_s,
            self.shape(),
            first_prompt=self.prompts,
            stall_s=options.stall_s,
            request_s=options.request_s,
            deadline=self.deadline,
            keep_rows=options.keep_rows,
        )
        self.prompts += 1 << 20
        before = await self.sampler.quiet() if self.sampler.able else {}
        await flush(self.target, self.server)
        self.sampler.start()
        self.gpus.start()
        processes = count(concurrency, options.processes)
        self.running = Running(self.target, plan, processes, self.progress if processes == 1 else None)
        try:
            parts = await self.running.run()
        finally:
            self.running = None
            await self.sampler.stop()
            await self.gpus.stop()
        after = await self.sampler.quiet() if self.sampler.able and not self.stopped else {}
        level = stats.level(parts, concurrency)
        level["server"] = self.sampler.level(before, after)
        level["gpu"] = self.gpus.level()
        level["client_bound"] = smoke_rules.client_bound(level)
        level["counters_differ"] = self._difference(level)
        self.simulated = self.simulated or any(part.simulated for part in parts) or self.server.simulated or self.gpus.simulated
        for part in parts:
            self.rows.extend(part.rows)
            for kind, texts in part.messages.items():
                kept = self.messages.setdefault(kind, [])
                kept.extend(text for text in texts if text not in kept)
                del kept[3:]
        if level["failed"] or level["warmup_errors"]:
            gc.collect()  # errors leave cycles behind, and nobody else collects
        self.levels.setdefault(concurrency, []).append(level)
        self._after(level, parts)

    def _after(self, level: dict[str, Any], parts: list[Any]) -> None:
        if any(part.interrupted for part in parts) and not self.stopped:
            self.stopped = "interrupted"
        if self.deadline is not None and time.monotonic() > self.deadline and not self.stopped:
            self.stopped = f"the deadline of {self.options.deadline_s:g} s was reached"
        if any(part.gone for part in parts) and not self.stopped:
            self.stopped = "the server is gone: every connection failed"
        self.say(
            f"{plural(level['concurrency'], 'stream'):>13}: {level['steady_total_tps'] or level['total_tps'] or 0:>9.1f} total tokens/s, "
            f"TTFT p50 {(level['ttft_ms'] or {}).get('p50', 0):.0f} ms, ITL p50 {(level['itl_ms'] or {}).get('p50', 0):.1f} ms, "
            f"{level['completed']} of {level['requested']} completed"
        )

    @staticmethod
    def _difference(level: dict[str, Any]) -> float | None:
        """Server's against client's count of output tokens; None when requests failed (their tokens are nobody's) or nothing was read."""
        theirs, ours = level["server"].get("generation_tokens"), level["client"]["generation_tokens"]
        if theirs is None or not ours or level["failed"] or level["warmup_errors"]:
            return None
        return round(float(theirs) / float(ours) - 1, 4)

    async def _repeat(self) -> None:
        """Measure again what decides the knee and is too close to call."""
        for _ in range(self.options.repeats):
            if self.stopped or len(self.levels) < 2:
                return
            doubtful = plateau.analyse(self._medians())["undecided"]
            if not doubtful:
                return
            self.say(f"the knee is too close to call: measuring {', '.join(map(str, doubtful))} again")
            for concurrency in doubtful:
                if not self.stopped:
                    await self._level(int(concurrency))

    def _medians(self) -> list[dict[str, Any]]:
        """One level for each concurrency: the run with the median throughput, the others' figures beside it."""
        found = []
        for concurrency in sorted(self.levels):
            runs = sorted(self.levels[concurrency], key=lambda level: plateau.throughput(level) or 0.0)
            middle = dict(runs[(len(runs) - 1) // 2])
            if len(runs) > 1:
                values = [plateau.throughput(level) or 0.0 for level in runs]
                middle["runs"] = [round(value, 1) for value in values]
            found.append(middle)
        return found

    # ---- the result ----
    def result(self) -> dict[str, Any]:
        """As in the contract, without verdict and findings."""
        options = self.options
        levels = self._medians()
        tokens = options.input_len + options.output_len
        server = self.server.to_dict()
        return {
            "schema": SCHEMA,
            "url": options.url,
            "node": options.node or (socket.gethostname() if local(self.target.host) else self.target.host),
            "model": self.model,
            "server": server,
            "started_at": self.started_at,
            "finished_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "load": {
                "endpoint": options.endpoint,
                "input_len": options.input_len,
                "output_len": options.output_len,
                "concurrency": list(options.concurrency),
                "shared_prefix": options.shared_prefix,
                "ignore_eos": options.ignore_eos,
            },
            "levels": levels,
            "error_examples": self.messages,
            "plateau": plateau.analyse(levels, {**server, "request_tokens": tokens}),
            "stopped": self.stopped,
            "simulated": self.simulated,
        }


def unreachable(options: Options, error: Unreachable | WrongModel) -> dict[str, Any]:
    """Return the result of a run that never began."""
    return {
        "schema": SCHEMA,
        "url": options.url,
        "node": options.node,
        "model": options.model,
        "server": {},
        "load": {"concurrency": list(options.concurrency)},
        "levels": [],
        "error_examples": {},
        "plateau": plateau.analyse([]),
        "stopped": str(error),
        "simulated": False,
    }
