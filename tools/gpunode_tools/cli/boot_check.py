"""`gpunode boot-check`: judge the node after a boot by what its container measured before the server started."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from gpunode_tools.boot import DEFAULT_OUT
from gpunode_tools.cli.verify_p2p import BASELINE, read_baseline, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpunode.judge import Judgement
    from gpunode_tools.collect.machines import Machine

LEVELS = {"error": 3, "unknown": 4, "warning": 4, "info": 6}
"""Severity to syslog's priority, which systemd reads from `<N>` at the start of a line."""


@click.command("boot-check", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--container", type=click.IntRange(min=100), metavar="VMID", help="Container that measured. Default: the one that has the GPUs."
)
@click.option("--unit", default="gpunode-measure.service", show_default=True, help="Unit in the container that measures; waited for.")
@click.option(
    "--measured", "measured_path", default=DEFAULT_OUT, show_default=True, metavar="FILE", help="File in the container that it writes."
)
@click.option(
    "--wait", type=click.FloatRange(min=1), default=90.0, show_default=True, metavar="SECONDS", help="How long to wait for the unit."
)
@click.option("--baseline", "baseline_file", metavar="FILE", help=f"Compare with this baseline. Default: {BASELINE}, if it is there.")
@click.option("--expect-gpus", type=click.IntRange(min=1), metavar="N", help="Number of GPUs that must be there.")
@click.option("--tolerance", type=click.FloatRange(0, 100), default=10.0, show_default=True, metavar="PCT", help="Loss that fails.")
@click.option(
    "--result", "result_file", default="/var/lib/gpunode/boot.json", show_default=True, metavar="FILE.json", help="Where the result goes."
)
@click.option("--metrics", "metrics_file", metavar="FILE.prom", help="Also write metrics for node_exporter's textfile collector.")
@click.option("--report", metavar="FILE.html", help="Also write an HTML report.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Judge host state and boot-time measurement against the baseline; write JSON, metrics and journal lines.

    Meant for a oneshot unit on the node. Exit codes as verify-p2p: 0 healthy, 1 an error, 2 wrong usage, 3 could not tell.
    """
    from gpunode_tools.collect.errors import UnreachableError
    from gpunode_tools.report.files import write_atomically

    try:
        judgement = _judge(options)
    except UnreachableError as error:
        say(f"boot-check: {error}")
        context.exit(error.exit_code)
    result = judgement.to_dict()
    write_atomically(options["result_file"], json.dumps(result, indent=1) + "\n")
    if options["metrics_file"]:
        from gpunode_tools.report.p2p_machine import prometheus

        write_atomically(options["metrics_file"], prometheus(result, "boot"))
    if options["report"]:
        from gpunode_tools.report.p2p_html import render

        write_atomically(options["report"], render(result))
    for line in journal_lines(result, to_journal="JOURNAL_STREAM" in os.environ):
        say(line)
    context.exit(judgement.exit_code)


def _judge(options: dict[str, Any]) -> Judgement:
    from gpunode.judge import Options, judge
    from gpunode.snapshot import Snapshot
    from gpunode_tools.collect.machines import LocalMachine
    from gpunode_tools.collect.node import read_node

    machine = LocalMachine()
    data = read_node(machine, options["container"], say)
    data.update(_measured(machine, data.get("container", {}).get("vmid"), options))
    expected = Options(expect_gpus=options["expect_gpus"], tolerance_pct=options["tolerance"])
    return judge(Snapshot(data), expected, read_baseline(options["baseline_file"], machine))


def _measured(machine: Machine, vmid: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """Wait for the measuring unit and read what it wrote; what is missing becomes the reason of the unknown."""
    from gpunode_tools.collect.errors import UnreachableError
    from gpunode_tools.collect.node import measured_from

    place = f"container {vmid}" if vmid else machine.name
    inside = ["pct", "exec", str(vmid), "--"] if vmid else []
    why = ""
    if options["unit"]:  # starting a oneshot that ran already does nothing, one that runs is waited for
        code, _, error = machine.run([*inside, "systemctl", "start", options["unit"]], timeout=options["wait"])
        if code is None:
            why = f"{options['unit']} did not end within {options['wait']:g} s"
        elif code != 0:
            why = f"{options['unit']} failed: {error.strip().splitlines()[0] if error.strip() else code}"
    code, text, error = machine.run([*inside, "cat", options["measured_path"]], timeout=20)
    try:
        if code == 0:
            found = measured_from(text)
            found["measurement"]["where"] = place
            return found
        why = why or error.strip()
    except UnreachableError as refusal:
        why = why or str(refusal)
    fatal = {"where": "file", "code": None, "name": "", "summary": f"no measurement in {options['measured_path']}: {why}"}
    return {"measured": [], "measurement": {"where": place, "fatal": fatal}}


def journal_lines(result: dict[str, Any], *, to_journal: bool) -> Iterator[str]:
    """The verdict and every finding that is no note, one line each, with systemd's priorities where they are read."""
    from gpunode_tools.report.p2p_text import gpu_words, not_known

    def line(level: int, text: str) -> str:
        return f"<{level}>{text}" if to_journal else text

    label = " (simulated)" if result["simulated"] else ""
    good = sum(1 for pair in result["pairs"] if pair["status"] == "ok")
    level = {"pass": 6, "warn": 4}.get(result["verdict"], 3)
    told = f"{gpu_words(result) or 'no GPU'}, {good} of {len(result['pairs'])} pairs ok{not_known(result)}"
    yield line(level, f"gpunode: verdict {result['verdict']}{label}: {told}")
    for finding in result["findings"]:
        if finding["severity"] != "info":
            text = (
                f"gpunode: {finding['severity']} {finding['id']} {finding['subject']}: {finding['summary']} ({finding['evidence'][:300]})"
            )
            yield line(LEVELS[finding["severity"]], f"{text} Do: {finding['remedy']}")
