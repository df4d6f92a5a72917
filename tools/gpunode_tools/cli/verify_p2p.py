"""`gpunode verify-p2p`: collect, measure, judge against the baseline, report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpunode import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpunode.judge import Judgement
    from gpunode.snapshot import Snapshot
    from gpunode_tools.collect.machines import Machine

BASELINE = "/var/lib/gpunode/baseline.json"
NO_BASELINE = 44
READ_BASELINE = f'test -e "$0" || exit {NO_BASELINE}; exec head -c {{limit}} "$0"'
INPUT_LIMIT = 64 << 20
"""Characters: a snapshot of 16 GPUs has 2 million, one whose kernel log overflowed with errors some 20 million."""


def say(text: str) -> None:
    """A log line on standard error."""
    click.echo(text, err=True)


def parse_pairs(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[tuple[int, int], ...] | None:
    """Read '0:1,2:3'."""
    del context, parameter
    if value is None:
        return None
    pairs = []
    for part in value.split(","):
        source, colon, target = part.strip().partition(":")
        if not (colon and source.isdecimal() and target.isdecimal()) or source == target:
            raise click.BadParameter(f"{part!r} is no pair of two GPUs such as 0:1")
        pairs.append((int(source), int(target)))
    return tuple(pairs)


@click.command("verify-p2p", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", metavar="NAME", help="Check this host over ssh; address and user from the inventory. Default: this machine.")
@click.option(
    "-i", "--inventory", metavar="PATH", help="Ansible inventory that knows the host. Default: inventory/hosts.yml, if it is there."
)
@click.option(
    "--container", type=click.IntRange(min=100), metavar="VMID", help="Measure in this container. Default: the one that has the GPUs."
)
@click.option("--snapshot", "snapshot_file", metavar="FILE|-", help="Judge a saved snapshot; nothing is touched.")
@click.option("--save-snapshot", metavar="FILE", help="Save what was read and measured.")
@click.option("--redact", is_flag=True, help="Leave host names, serial numbers, UUIDs and network addresses out of the saved snapshot.")
@click.option(
    "--measure",
    "measure",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="full adds both directions at once, kernels' reads and writes, concurrent patterns, the staged path.",
)
@click.option("--no-measure", is_flag=True, help="Only read and judge; pairs are not required then.")
@click.option("--pairs", callback=parse_pairs, metavar="0:1,2:3", help="Ordered pairs to measure. Default: all.")
@click.option(
    "--pair-timeout", type=click.FloatRange(min=0.001), default=20.0, show_default=True, metavar="SECONDS", help="Deadline of one pair."
)
@click.option(
    "--when-busy",
    type=click.Choice(["light", "stop", "refuse"]),
    default="light",
    show_default=True,
    help="GPUs in use: light measures with 8 MiB buffers and compares no bandwidth; stop stops the server and starts it again; "
    "refuse does not measure.",
)
@click.option("--server-unit", default="sglang.service", show_default=True, metavar="UNIT", help="The server that --when-busy stop stops.")
@click.option(
    "--baseline", "baseline_file", metavar="FILE", help=f"Compare with this baseline. Default: {BASELINE} on the node, if it is there."
)
@click.option("--no-baseline", is_flag=True, help="Compare with no baseline.")
@click.option("--save-baseline", is_flag=False, flag_value="", metavar="[FILE]", help="Save this result as baseline when it is healthy.")
@click.option("--force", is_flag=True, help="Save the baseline although the result is not healthy.")
@click.option("--expect-gpus", type=click.IntRange(min=1), metavar="N", help="Number of GPUs that must be there.")
@click.option("--min-gbps", type=click.FloatRange(min=0), metavar="X", help="Rate that every measured pair must reach.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=10.0,
    show_default=True,
    metavar="PCT",
    help="Loss against the baseline that fails.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "junit", "prometheus"]),
    default="text",
    show_default=True,
    help="Form of standard output.",
)
@click.option("--report", metavar="FILE.html", help="Also write a self-contained HTML report.")
@click.option("--result", "result_file", metavar="FILE.json", help="Also write the result as JSON.")
@click.option("--metrics", "metrics_file", metavar="FILE.prom", help="Also write metrics for node_exporter's textfile collector.")
@click.option(
    "--measured",
    "measured_file",
    metavar="FILE|-",
    help="Judge this measurement instead of measuring: the probe's, or the output of nvbandwidth or p2pBandwidthLatencyTest.",
)
@click.version_option(__version__, prog_name="gpunode")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Say whether the node's GPUs are whole, and if not, why.

    Reads the host, measures every ordered pair of GPUs where the driver is used (host or container), compares with the baseline and
    prints findings, those of most consequence first.

    Exit codes: 0 healthy, 1 a finding of severity error, 2 wrong usage or input, 3 could not tell what was asked (GPU count, driver,
    measured pairs).
    """
    from gpunode_tools.collect.errors import UnreachableError

    _check(options)
    try:
        judgement = _run(options)
    except UnreachableError as error:
        say(f"verify-p2p: {error}")
        context.exit(error.exit_code)
    except KeyboardInterrupt:
        say("verify-p2p: interrupted before anything could be judged")
        context.exit(3)
    context.exit(judgement.exit_code)


def _check(options: dict[str, Any]) -> None:
    if options["snapshot_file"]:
        for name in ("host", "container"):
            if options[name]:
                raise click.UsageError(f"--snapshot touches nothing: --{name} does not go with it")
        if options["save_baseline"] == "":
            raise click.UsageError("--save-baseline needs a file with --snapshot")
    if options["baseline_file"] and options["no_baseline"]:
        raise click.UsageError("--baseline and --no-baseline exclude each other")
    if options["redact"] and not options["save_snapshot"]:
        raise click.UsageError("--redact needs --save-snapshot")


def _run(options: dict[str, Any]) -> Judgement:
    from gpunode.judge import Options, judge
    from gpunode.rules.baseline import is_foreign
    from gpunode.snapshot import Snapshot, SnapshotError, saved
    from gpunode_tools.report.files import do_all

    machine: Machine | None = None
    try:
        if options["snapshot_file"]:
            data = read_json(options["snapshot_file"], "snapshot")
        else:
            from gpunode_tools.collect.node import collect

            machine = connect(options["host"], options["inventory"])
            data = collect(machine, options, say)
        try:
            snapshot = saved(data) if options["snapshot_file"] else Snapshot(data)
        except SnapshotError as error:
            raise click.UsageError(f"{options['snapshot_file'] or 'snapshot'}: {error}") from None
        if options["measured_file"]:
            snapshot = _with_measured(snapshot, options["measured_file"])
        baseline = None if options["no_baseline"] else read_baseline(options["baseline_file"], machine)
        judgement = judge(
            snapshot,
            Options(
                measured=not options["no_measure"],
                expect_gpus=options["expect_gpus"],
                min_gbps=options["min_gbps"],
                tolerance_pct=options["tolerance"],
            ),
            baseline,
        )
        if baseline is not None and is_foreign(judgement.state, baseline):
            raise click.UsageError(
                f"the baseline is one of {baseline.get('host')}: none of its GPUs is here. Name this node's with --baseline, or judge "
                "without one (--no-baseline) and save a new one (--save-baseline)"
            )
        do_all([*_outputs(judgement, options), lambda: _save(judgement, options, machine)])
        return judgement
    finally:
        if machine is not None:
            machine.close()


def _with_measured(snapshot: Snapshot, path: str) -> Snapshot:
    """The snapshot with the measurement that somebody saved instead of its own."""
    from gpunode.snapshot import Snapshot, SnapshotError
    from gpunode_tools.collect.errors import InputError
    from gpunode_tools.collect.node import measured_from

    try:
        return Snapshot({**snapshot.data, **measured_from(read_text(path))})
    except (SnapshotError, InputError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def connect(host: str | None, inventory: str | None) -> Machine:
    """This machine, or the named one over ssh. Raises UnreachableError."""
    if host is None:
        from gpunode_tools.collect.machines import LocalMachine

        return LocalMachine()
    from gpunode_tools.collect.errors import InputError, UnreachableError
    from gpunode_tools.collect.inventory import known
    from gpunode_tools.collect.ssh import SshMachine, target_from_variables

    entry = known(host, inventory)
    try:
        return SshMachine(target_from_variables(host, entry.variables))
    except InputError:
        raise  # it names the file that is wrong
    except UnreachableError as error:
        raise UnreachableError(f"{error} ({entry.told(host)})") from None


def read_text(path: str) -> str:
    """Read a file that the user named, - for standard input; a mistake, and what is larger than any of ours, is wrong usage."""
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.read(INPUT_LIMIT + 1)
        else:
            with Path(path).open(encoding="utf-8") as stream:
                text = stream.read(INPUT_LIMIT + 1)
    except IsADirectoryError:
        raise click.UsageError(f"{name} is a folder: name the file in it") from None
    except FileNotFoundError:
        raise click.UsageError(f"{name} does not exist: look at the name, or make it with gpunode snapshot -o FILE") from None
    except PermissionError:
        raise click.UsageError(f"{name} may not be read by this user: chmod it, or run as its owner (ls -l {name})") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is no text: it is binary, compressed, or not in UTF-8") from None
    except OSError as error:
        raise click.UsageError(f"{name} could not be read: {error.strerror or error}") from None
    if len(text) > INPUT_LIMIT:
        raise click.UsageError(f"{name} is larger than {INPUT_LIMIT >> 20} MiB: no snapshot, baseline or measurement of a node is")
    return text


def read_json(path: str, what: str) -> Any:
    """Read JSON that the user named."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        begins = text.strip()[:40].splitlines()
        shown = f"it begins {begins[0]!r}" if begins else "it is empty"
        raise click.UsageError(f"{path} is no {what}: not JSON ({error}); {shown}") from None


def read_baseline(place: str | None, machine: Machine | None) -> dict[str, Any] | None:
    """The baseline in ``place``, else the one on the machine; None where there is none."""
    from gpunode.rules.baseline import BaselineError, load

    if place:
        text = read_text(place)
    elif machine is not None:
        code, text, error = machine.run(["sh", "-c", READ_BASELINE.format(limit=INPUT_LIMIT), BASELINE], timeout=20)
        if code == NO_BASELINE:
            return None
        if code != 0:
            say(f"gpunode: {BASELINE} could not be read, so nothing is compared: {error.strip() or code}")
            return None
        place = BASELINE
    else:
        return None
    try:
        return load(text)
    except BaselineError as error:
        raise click.UsageError(f"{place}: no baseline: {error}") from None


def _save(judgement: Judgement, options: dict[str, Any], machine: Machine | None) -> None:
    from gpunode.rules.baseline import build, known_pairs
    from gpunode.snapshot import dump, redact
    from gpunode_tools.report.files import OutputError, write_atomically

    data = judgement.state.snapshot.data
    if options["save_snapshot"]:
        write_atomically(options["save_snapshot"], dump(redact(data) if options["redact"] else data))
    place = options["save_baseline"]
    if place is None:
        return
    if judgement.exit_code != 0 and not options["force"]:
        say(f"verify-p2p: the baseline was not saved: the node is not healthy ({judgement.verdict}); --force saves it anyway")
        return
    baseline = build(judgement.state, str(data.get("collected_at", "")))
    text = json.dumps(baseline, indent=1) + "\n"
    if place or machine is None:
        write_atomically(place, text)
    else:
        script = 'd=${0%/*}; mkdir -p "$d" && cat >"$0.new" && mv "$0.new" "$0"'
        code, _, error = machine.run(["sh", "-c", script, BASELINE], text.encode(), timeout=20)
        if code != 0:
            raise OutputError(f"{BASELINE} could not be written: {error.strip()}")
    say(f"verify-p2p: baseline saved to {place or BASELINE}")
    rates, pairs = len(known_pairs(baseline)), (judgement.state.count or 0) * ((judgement.state.count or 0) - 1)
    if rates < pairs:
        say(f"verify-p2p: it has rates of {rates} of {pairs} pairs, later runs are compared for those only")


def _outputs(judgement: Judgement, options: dict[str, Any]) -> list[Callable[[], None]]:
    """Every output that was asked for, standard output first."""
    from gpunode_tools.report.files import show, write_atomically

    result = judgement.to_dict()
    kind = "state" if options["no_measure"] else "measured"

    def html() -> None:
        from gpunode_tools.report.p2p_html import render as render_html

        write_atomically(options["report"], render_html(result))

    def metrics() -> None:
        from gpunode_tools.report.p2p_machine import prometheus

        write_atomically(options["metrics_file"], prometheus(result, kind))

    steps: list[Callable[[], None]] = [lambda: show(render(result, options["output"], kind))]  # render() knows whether colour is wanted
    if options["report"]:
        steps.append(html)
    if options["result_file"]:
        steps.append(lambda: write_atomically(options["result_file"], json.dumps(result, indent=1) + "\n"))
    if options["metrics_file"]:
        steps.append(metrics)
    return steps


def render(result: dict[str, Any], output: str, check: str = "measured") -> str:
    """The result in one of the forms of --output; ``check`` is a label of the metrics."""
    if output == "json":
        return json.dumps(result, indent=1) + "\n"
    if output == "text":
        from gpunode_tools.report.p2p_text import render as render_text
        from gpunode_tools.report.terminal import wants_colour

        return render_text(result, colour=wants_colour(sys.stdout))
    from gpunode_tools.report.p2p_machine import junit, prometheus

    return junit(result) if output == "junit" else prometheus(result, check)
