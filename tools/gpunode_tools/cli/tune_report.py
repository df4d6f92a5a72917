"""`gpunode tune-report`: compare the variants of a server that playbooks/tune.yml tried."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

KNOWN = "as-is"
"""Name of the settings in use among the variants."""


@click.command("tune-report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--known", default=KNOWN, show_default=True, metavar="NAME", help="Name of the settings in use.")
@click.option(
    "--min-single-stream-tps", type=click.FloatRange(min=0), metavar="X", help="Output tokens a second that one stream must reach."
)
@click.option("--max-ttft-ms", type=click.FloatRange(min=0), metavar="X", help="Time to first token (p99) of a level that counts.")
@click.option("--max-itl-ms", type=click.FloatRange(min=0), metavar="X", help="Time between tokens (p99) of a level that counts.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of standard output.")
@click.option("--result", "result_file", metavar="FILE.json", help="Also write the comparison as JSON.")
@click.option("--text", "text_file", metavar="FILE.txt", help="Also write the comparison as text.")
@click.option("--report", metavar="FILE.html", help="Also write a self-contained HTML report.")
@click.pass_context
def command(context: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Rank variants by steady throughput within the latency limits; among equals the fastest single stream wins.

    FILES are records of variants, one JSON object each. A variant whose figures cannot be believed (client-bound, failed requests) does not
    win.

    Exit codes: 0 there is a winner, 2 wrong usage or input, 3 no variant could be compared.
    """
    from gpunode import tuning
    from gpunode_tools.report import tune_html, tune_text
    from gpunode_tools.report.files import write_atomically
    from gpunode_tools.report.terminal import wants_colour

    records = [read(name) for name in files]
    limits = {name: options[name] for name in ("min_single_stream_tps", "max_ttft_ms", "max_itl_ms")}
    try:
        result = tuning.rank(records, limits, options["known"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if options["result_file"]:
        write_atomically(options["result_file"], json.dumps(result, indent=1) + "\n")
    if options["text_file"]:
        write_atomically(options["text_file"], tune_text.render(result, colour=False))
    if options["report"]:
        write_atomically(options["report"], tune_html.render(result))
    if options["output"] == "json":
        click.echo(json.dumps(result, indent=1))
    else:
        click.echo(tune_text.render(result, colour=wants_colour(sys.stdout)), nl=False, color=True)
    context.exit(0 if result["winner"] else 3)


def read(name: str) -> dict[str, Any]:
    """One record; wrong usage where the file holds none."""
    from gpunode.tuning import RECORD_SCHEMA

    try:
        record = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{name}: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != RECORD_SCHEMA:
        raise click.UsageError(f"{name}: no record of a variant (schema {RECORD_SCHEMA})")
    return record
