"""`gpunode smoke`: measure what a server serves, where it stops scaling, and why; `smoke analyse` does the last for others' results."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpunode_tools.collect.machines import Machine
    from gpunode_tools.smoke.level import Level, Target
    from gpunode_tools.smoke.run import Options, Run

LEVELS: Final = "1,32,64,128,256,512"
CLEAR: Final = "\r\x1b[K"
LEAST_FOR_A_RATE: Final = 3
"""Answers of a level that tell its rate: with one or two the part of the next that has passed misleads by half."""


def say(text: str) -> None:
    """A log line on standard error, in place of the progress that may stand there."""
    if shows_progress():
        sys.stderr.write(CLEAR)
    click.echo(text, err=True)


def shows_progress() -> bool:
    """Whether standard error is a terminal on which a line can be written anew."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def parse_levels(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Read '1,32,64': growing, without repetition."""
    del context, parameter
    try:
        levels = [int(part) for part in value.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers such as {LEVELS}") from None
    if not levels or min(levels) < 1 or max(levels) > 16384:
        raise click.BadParameter("levels lie between 1 and 16384")
    return tuple(sorted(set(levels)))


def parse_allowed(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, float]:
    """Read 'http-500=0.01' and 'any=0.01'."""
    del context, parameter
    found = {}
    for part in value:
        kind, equals, ratio = part.partition("=")
        try:
            found[kind.strip()] = float(ratio)
        except ValueError:
            raise click.BadParameter(f"{part!r} is no KIND=RATIO such as http-500=0.01") from None
        if not equals or not 0 <= found[kind.strip()] <= 1:
            raise click.BadParameter(f"the ratio of {part!r} lies between 0 and 1")
    return found


def target_of(url: str, key_file: str | None, ca_file: str | None) -> Target:
    """The address in parts, with the key; UsageError for what cannot be one."""
    from gpunode_tools.smoke.level import Target

    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        raise click.UsageError(f"--url {url}: the port is no number") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise click.UsageError(f"--url {url}: not an address such as http://10.0.0.5:30000")
    if parts.username or parts.password:
        raise click.UsageError("--url takes no user or password; a key goes into --api-key-file")
    key = ""
    if key_file:
        key = read(key_file).strip()
        if not key or any(ord(char) < 33 or ord(char) > 126 for char in key):
            raise click.UsageError(f"{key_file}: holds no key on one line")
    base = parts.path.rstrip("/")
    return Target(
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        tls=parts.scheme == "https",
        ca_file=ca_file,
        server_name=parts.hostname,
        base_path=base.removesuffix("/v1"),
        api_key=key,
    )


def read(path: str) -> str:
    """Read a file that the user named, - for standard input; a mistake is wrong usage."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def read_baseline(path: str | None, *, optional: bool) -> dict[str, Any] | None:
    """The baseline in a file; None without one, or where it may be missing and is."""
    if path is None or (optional and not Path(path).exists()):
        return None
    from gpunode import smoke_baseline

    try:
        return smoke_baseline.load(json.loads(read(path)))
    except ValueError as error:
        raise click.UsageError(f"{path}: no baseline: {error}") from None


@click.group("smoke", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", metavar="URL", help="Server, such as http://10.0.0.5:30000.")
@click.option("--model", metavar="NAME", help="Model to ask for; must be in /v1/models. Default: the first one there.")
@click.option("--api-key-file", metavar="FILE", help="File with the server's API key.")
@click.option("--ca-file", metavar="FILE", help="Authorities that certificates are verified with. Default: the system's.")
@click.option("--concurrency", default=LEVELS, show_default=True, callback=parse_levels, metavar="N,N,...", help="Levels.")
@click.option("--input-len", type=click.IntRange(1, 1_000_000), default=256, show_default=True, help="Tokens in each prompt.")
@click.option("--output-len", type=click.IntRange(1, 1_000_000), default=128, show_default=True, help="Tokens of each answer.")
@click.option("--requests-per-level", type=click.IntRange(min=1), metavar="N", help="Measured requests of each level.")
@click.option(
    "--requests-per-slot", type=click.IntRange(min=1), default=3, show_default=True, help="Measured requests for each stream, at least 16."
)
@click.option("--duration", type=click.FloatRange(min=0.1), metavar="S", help="Measure each level for so long instead.")
@click.option(
    "--endpoint",
    type=click.Choice(["completions", "chat", "generate"]),
    default="completions",
    show_default=True,
    help="generate is sglang's own.",
)
@click.option(
    "--shared-prefix",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Let all prompts begin with the same N tokens (a prefix cache helps).",
)
@click.option("--natural-stop", is_flag=True, help="Let the model end by itself (no ignore_eos); early stops are then no errors.")
@click.option(
    "--vocab-size", type=click.IntRange(min=2), metavar="N", help="Token ids stay below this. Default: from config.json or the server."
)
@click.option("--model-config", metavar="PATH", help="Checkpoint folder or config.json that tells the vocabulary's size.")
@click.option(
    "--processes",
    type=click.IntRange(1, 128),
    metavar="N",
    help="Processes that read streams. Default: as the level and the cores ask for.",
)
@click.option(
    "--repeats", type=click.IntRange(0, 5), default=2, show_default=True, help="Repeat levels so often where the knee is too close to call."
)
@click.option(
    "--gpu",
    type=click.Choice(["auto", "yes", "no"]),
    default="auto",
    show_default=True,
    help="Sample nvidia-smi; auto: when the server is here.",
)
@click.option(
    "--container",
    type=click.IntRange(min=100),
    metavar="VMID",
    help="Container whose journal is read when requests fail. Default: the one here that has the server's address.",
)
@click.option("--journal-unit", default="sglang.service", show_default=True, metavar="UNIT", help="The server's unit in that journal.")
@click.option("--journal-host", metavar="NAME", help="Read that journal on this host over ssh; address and user from the inventory.")
@click.option(
    "-i", "--inventory", metavar="PATH", help="Inventory that knows --journal-host. Default: inventory/hosts.yml, if it is there."
)
@click.option("--node", metavar="NAME", help="Name of the node in results and baselines.")
@click.option("--baseline", metavar="FILE", help="Compare with this baseline, or with a saved JSON result.")
@click.option("--baseline-optional", is_flag=True, help="Go on where the baseline's file does not exist yet.")
@click.option("--save-baseline", metavar="FILE", help="Save this result as baseline when it is healthy.")
@click.option("--keep-baseline", is_flag=True, help="Save it only where that file has none of the same server, flags and load.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=10.0,
    show_default=True,
    metavar="PCT",
    help="Loss against the baseline that fails.",
)
@click.option("--min-total-tps", type=click.FloatRange(min=0), metavar="X", help="Total tokens a second that the best level must reach.")
@click.option(
    "--min-single-stream-tps", type=click.FloatRange(min=0), metavar="X", help="Output tokens a second that one stream must reach."
)
@click.option("--max-ttft-ms", type=click.FloatRange(min=0), metavar="X", help="Time to first token (p99) that no level may exceed.")
@click.option("--warn-only-thresholds", is_flag=True, help="A threshold missed is a warning.")
@click.option(
    "--allow",
    multiple=True,
    callback=parse_allowed,
    metavar="KIND=RATIO",
    help="Allow a kind of error up to a ratio of the requests, or any=RATIO.",
)
@click.option(
    "--stall-timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="S", help="Silence that ends a stream."
)
@click.option("--request-timeout", type=click.FloatRange(min=0.1), default=600.0, show_default=True, metavar="S", help="Longest request.")
@click.option("--deadline", type=click.FloatRange(min=0.1), metavar="S", help="Longest run; what was measured until then is reported.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "csv", "junit", "prometheus"]),
    default="text",
    show_default=True,
    help="Form of standard output.",
)
@click.option("--report", metavar="FILE.html", help="Also write a self-contained HTML report.")
@click.option("--result", "result_file", metavar="FILE.json", help="Also write the result as JSON.")
@click.option("--metrics", "metrics_file", metavar="FILE.prom", help="Also write metrics for node_exporter's textfile collector.")
@click.option("--metrics-run", default="smoke", show_default=True, metavar="NAME", help="Label `run` of the metrics: one for each file.")
@click.option("--raw", metavar="FILE.jsonl", help="Also write every request.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Measure what a server serves at each level of concurrency, where it stops scaling, and why.

    A closed loop of streams, timed at the arrival of the bytes; tokens from the server's usage; throughput of the steady state. The client
    watches itself: where it is the bottleneck the verdict is client-bound.

    Exit codes: 0 healthy, 1 requests failed, a threshold was missed or throughput regressed, 2 wrong usage or input, 3 could not tell
    (server unreachable, run cut short, client-bound).
    """
    if context.invoked_subcommand is not None:
        return
    if not options["url"]:
        raise click.UsageError("--url is needed")
    with uncollected():
        code = measure(options)
    context.exit(code)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles while it measures nor at the process' end: what lives is modules, classes and numbers."""
    collecting = gc.isenabled()
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def measure(options: dict[str, Any]) -> int:
    """Run, judge, write; the exit code."""
    import uvloop

    from gpunode_tools.smoke.http import Unreachable
    from gpunode_tools.smoke.judging import judge
    from gpunode_tools.smoke.run import Run, WrongModel, unreachable

    target = target_of(options["url"], options["api_key_file"], options["ca_file"])
    baseline = read_baseline(options["baseline"], optional=options["baseline_optional"])
    wanted = options_of(options)
    run = Run(
        wanted, target, say=say if options["output"] == "text" or sys.stderr.isatty() else lambda _text: None, progress=progress_line()
    )
    wrong = None
    try:
        result = uvloop.run(run.run())
    except Unreachable as error:
        result = unreachable(wanted, error)
    except WrongModel as error:
        wrong = str(error)
        result = unreachable(wanted, error)
    code = judge(
        result,
        limits={name: options[name] for name in ("min_total_tps", "min_single_stream_tps", "max_ttft_ms")},
        warn_only=options["warn_only_thresholds"],
        allowed=options["allow"],
        baseline=baseline,
        tolerance_pct=options["tolerance"],
        wrong_input=wrong,
    )
    if wrong is None:
        explain(result, target, options)
    write(result, run, options, code)
    return code


def explain(result: dict[str, Any], target: Target, options: dict[str, Any]) -> None:
    """Where requests failed: what the server's journal says, when it may be read."""
    from gpunode_tools.smoke.judging import failed

    if not failed(result):
        return  # what reads journals is a quarter of the tool's start
    from gpunode_tools.collect.machines import LocalMachine
    from gpunode_tools.smoke import journal

    def far() -> Machine:
        from gpunode_tools.cli.verify_p2p import connect

        return connect(options["journal_host"], options["inventory"])

    place = far if options["journal_host"] else LocalMachine
    journal.explain(result, target.host, machine=place, container=options["container"], unit=options["journal_unit"])


def options_of(options: dict[str, Any]) -> Options:
    """The run's options from the command line's."""
    from gpunode_tools.smoke.run import Options

    return Options(
        url=options["url"],
        model=options["model"],
        concurrency=options["concurrency"],
        input_len=options["input_len"],
        output_len=options["output_len"],
        requests_per_level=options["requests_per_level"],
        requests_per_slot=options["requests_per_slot"],
        duration_s=options["duration"],
        endpoint=options["endpoint"],
        stall_s=options["stall_timeout"],
        request_s=options["request_timeout"],
        deadline_s=options["deadline"],
        shared_prefix=options["shared_prefix"],
        ignore_eos=not options["natural_stop"],
        vocabulary=options["vocab_size"],
        model_config=options["model_config"],
        processes=options["processes"],
        repeats=options["repeats"],
        gpu=options["gpu"],
        node=options["node"],
        keep_rows=bool(options["raw"]),
    )


def remaining(level: Level) -> str:
    """How long the level's measured part still takes, at its own rate so far; '' until every stream could have answered once."""
    data, plan = level.data, level.plan
    elapsed = time.monotonic() - data.started
    if level.in_warmup or not data.started:
        return ""
    if plan.duration_s is not None:
        return f", {max(0.0, plan.duration_s - elapsed):.0f} s left"
    done = data.completed + sum(data.errors.values())
    if not plan.requests or done < max(plan.concurrency, LEAST_FOR_A_RATE):
        return ""
    return f", about {elapsed / done * max(0, plan.requests - done):.0f} s left at its rate so far"


def progress_line() -> Any:
    """A line on a terminal that says how far the level is; None elsewhere."""
    if not shows_progress():
        return None

    from gpunode_tools.report.terminal import plural

    def show(level: Level) -> None:
        data, plan = level.data, level.plan
        done = data.completed + sum(data.errors.values())
        phase = "warm-up" if level.in_warmup else f"{done} of {plan.requests}" if plan.requests else f"{done} requests"
        failed = f", {sum(data.errors.values())} failed" if data.errors else ""
        sys.stderr.write(f"{CLEAR}{plural(plan.concurrency, 'stream'):>13}: {phase}{failed}{remaining(level)}")
        sys.stderr.flush()

    return show


def write(result: dict[str, Any], run: Run, options: dict[str, Any], code: int) -> None:
    """Everything that was asked for, standard output first."""
    from gpunode_tools.report.files import do_all, show, write_atomically

    if shows_progress():
        sys.stderr.write(CLEAR)

    def baseline() -> None:
        from gpunode import smoke_baseline

        saved = read_baseline(options["save_baseline"], optional=True) if options["keep_baseline"] else None
        if saved is not None and smoke_baseline.stays(result, saved):
            say(f"smoke: the baseline in {options['save_baseline']} stays")
            return
        write_atomically(options["save_baseline"], json.dumps(smoke_baseline.make(result), indent=1) + "\n")
        say(f"smoke: baseline saved to {options['save_baseline']}")

    def html() -> None:
        from gpunode_tools.report.smoke_html import render as render_html

        write_atomically(options["report"], render_html(result))

    def metrics() -> None:
        from gpunode_tools.report.smoke_machine import prometheus

        write_atomically(options["metrics_file"], prometheus(result, options["metrics_run"]))

    steps: list[Callable[[], object]] = [lambda: show(render(result, options["output"], options["metrics_run"]))]
    if options["raw"]:
        steps.append(lambda: write_atomically(options["raw"], "".join(json.dumps(row) + "\n" for row in run.rows)))
    if options["result_file"]:
        steps.append(lambda: write_atomically(options["result_file"], json.dumps(result, indent=1) + "\n"))
    if options["report"]:
        steps.append(html)
    if options["metrics_file"]:
        steps.append(metrics)
    if options["save_baseline"] and code == 0:
        steps.append(baseline)
    elif options["save_baseline"]:
        say(f"smoke: the baseline was not saved: the verdict is {result['verdict']}")
    do_all(steps)


def render(result: dict[str, Any], output: str, run: str = "smoke") -> str:
    """The result in one of the forms of --output; ``run`` is a label of the metrics."""
    if output == "json":
        return json.dumps(result, indent=1) + "\n"
    if output == "text":
        from gpunode_tools.report.smoke_text import render as render_text
        from gpunode_tools.report.terminal import wants_colour

        return render_text(result, colour=wants_colour(sys.stdout))
    from gpunode_tools.report import smoke_machine

    if output == "prometheus":
        return smoke_machine.prometheus(result, run)
    return {"csv": smoke_machine.csv_text, "junit": smoke_machine.junit}[output](result)


@command.command("analyse", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--max-running-requests", type=click.IntRange(min=1), metavar="N", help="The server's request cap, where the file does not tell it."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def analyse(context: click.Context, files: tuple[str, ...], max_running_requests: int | None, output: str) -> None:
    """Find the knee and the collapse in results of this tool, sglang (JSONL), vLLM and guidellm (JSON), or CSV concurrency,throughput.

    Files that hold one level each become one sweep. Exit codes: 0 analysed, 2 not readable, 3 fewer than two levels.
    """
    from gpunode import plateau
    from gpunode_tools.smoke import sweeps

    read_sweeps: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = []
    for name in files:
        text = read(name)
        try:
            levels = sweeps.read(text)
        except sweeps.NotASweep as error:
            raise click.UsageError(f"{name}: {error}") from None
        read_sweeps.append((name, levels, _server_of(text)))
    if len(read_sweeps) > 1 and all(len(levels) == 1 for _, levels, _ in read_sweeps):
        joined = sweeps.merged([levels[0] for _, levels, _ in read_sweeps])
        read_sweeps = [(" ".join(files), joined, read_sweeps[0][2])]
    found = []
    for name, levels, server in read_sweeps:
        cap = (
            max_running_requests or server.get("max_running_requests") or next((level["cap"] for level in levels if level.get("cap")), None)
        )
        points = [(level["concurrency"], plateau.throughput(level)) for level in levels]
        found.append({"file": name, "points": points, "plateau": plateau.analyse(levels, {**server, "max_running_requests": cap})})
    if output == "json":
        click.echo(json.dumps({"schema": "gpunode.smoke-analysis/1", "sweeps": found}, indent=1))
    else:
        from gpunode_tools.report.smoke_text import sweep

        for entry in found:
            click.echo(sweep(entry))
    context.exit(3 if any(len(entry["points"]) < 2 for entry in found) else 0)


def _server_of(text: str) -> dict[str, Any]:
    """What one of our own results says of the server; nothing for others."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(document, dict) or not isinstance(document.get("server"), dict):
        return {}
    load = document.get("load")
    lengths = [load.get(key) for key in ("input_len", "output_len")] if isinstance(load, dict) else []
    return {**document["server"], "request_tokens": sum(length for length in lengths if isinstance(length, int))}
