"""`gpunode check-launch`: judge a server's flags for its release and GPU before it is started."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpunode.findings import Finding
    from gpunode.sglang.launch_text import Launch

_SECRET = re.compile(r"(?i)(?:api-?key|password|secret|token$|_key$|-key$)")
"""Names of flags and variables whose values are secrets (HF_TOKEN, --api-key, AWS_SECRET_ACCESS_KEY)."""


def parse_pairs(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE, given any number of times."""
    del context, parameter
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE")
        pairs[name] = text
    return pairs


@click.command("check-launch", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sglang", "version", metavar="VERSION|PROFILE|all", default="default", show_default=True, help="Release to judge for.")
@click.option(
    "--gpu",
    "architecture",
    metavar="ARCH",
    default="",
    help="GPU architecture: sm90, sm100, sm120 ... Without it, faults of GPUs are skipped.",
)
@click.option(
    "--file",
    "file",
    metavar="FILE|-",
    help="Read a command line, a script, a systemd unit, a compose or Kubernetes file, a Dockerfile, a file of --config.",
)
@click.option(
    "--define", "defines", multiple=True, callback=parse_pairs, metavar="NAME=VALUE", help="Value of a shell variable in the launch."
)
@click.option("--env", "environment", multiple=True, callback=parse_pairs, metavar="NAME=VALUE", help="Environment of the server.")
@click.option("--patch", "patches", multiple=True, metavar="ID", help="A patch that the installed release has.")
@click.option("--stock", is_flag=True, help="The release is the one from PyPI: flags of forks are errors.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of standard output.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS...]")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Check a server's flags for its version and GPU before it starts.

    FLAGS are the server's flags, or a whole command line, after `--`; a single `-` or the name of a file is read as with --file.

    Exit codes: 0 the launch would start, 1 a flag that ends the start or does not serve, 2 wrong usage, 3 not everything could be
    checked (no launch found, flags hidden in a wrapper, variables, flags of a fork).
    """
    from gpunode.sglang.flags import UnknownVersionError
    from gpunode.sglang.flags_data import VERSIONS
    from gpunode.sglang.profiles import version_of

    try:
        versions = list(VERSIONS) if options["version"] == "all" else [_known(options["version"])]
        for version in versions:
            version_of(version)
    except UnknownVersionError as error:
        raise click.UsageError(str(error)) from None
    launches, missing = _launches(options["file"], list(options["words"]))
    results = [_judge(launches, missing, version, options) for version in versions]
    if options["output"] == "json":
        click.echo(json.dumps(results[0] if len(results) == 1 else {"schema": "gpunode.launch/1", "releases": results}, indent=1))
    elif len(results) > 1:
        _table(results)
    else:
        _print(results[0])
    codes = {"fail": 1, "unknown": 3}
    # Over all releases the question is whether one of them takes the launch.
    context.exit(min(codes.get(result["verdict"], 0) for result in results) if len(results) > 1 else codes.get(results[0]["verdict"], 0))


def _known(name: str) -> str:
    """The release, or for a sibling without a table (0.5.8) the one of the same number that has one (0.5.8.post1)."""
    from gpunode.sglang.flags import UnknownVersionError
    from gpunode.sglang.flags_data import VERSIONS
    from gpunode.sglang.profiles import version_of

    try:
        return version_of(name.removeprefix("v").partition("+")[0])
    except UnknownVersionError:
        base = name.removeprefix("v").partition(".post")[0].partition("rc")[0]
        siblings = [version for version in VERSIONS if version.partition(".post")[0] == base]
        if not siblings:
            raise
        click.echo(f"check-launch: there is no table for sglang {name}; judged as {siblings[0]}", err=True)
        return siblings[0]


def _launches(file: str | None, words: list[str]) -> tuple[list[Launch], str]:
    """The launches, and why there is none."""
    from gpunode.sglang.launch_text import Launch, NoLaunchError, from_words
    from gpunode_tools.launch_files import launches_in

    if file is None and len(words) == 1 and not words[0].startswith("--") and (words[0] == "-" or Path(words[0]).is_file()):
        file, words = words[0], []
    if file is not None and words:
        raise click.UsageError("give either flags or a file")
    if file is None and not words:
        raise click.UsageError("nothing to check: give flags after `--`, or a file")
    try:
        if file is None:
            return (from_words(words) if not words[0].startswith("-") else [Launch("", tuple(words))]), ""
        text = sys.stdin.read() if file == "-" else Path(file).read_text(errors="replace")
        return launches_in(text), ""
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    except NoLaunchError as error:
        return [], str(error)


def _judge(launches: list[Launch], missing: str, version: str, options: dict[str, Any]) -> dict[str, Any]:
    from gpunode.findings import UNKNOWN, Finding, by_consequence, verdict
    from gpunode.sglang.launch_check import check_launch, resolve

    findings: list[Finding] = []
    shown = []
    for launch in launches:
        environment = {**launch.environment, **options["environment"]}
        findings += check_launch(
            launch.arguments,
            environment,
            version,
            options["architecture"],
            stock=options["stock"],
            patches=options["patches"],
            entry=launch.entry,
            defines=options["defines"],
        )
        shown.append({"entry": launch.entry, "flags": _masked(resolve(launch.arguments, version)), "environment": _masked(environment)})
    if missing:
        remedy = "Where a wrapper script starts the server, check that script: `gpunode check-launch --file SCRIPT`."
        findings.append(Finding("launch-not-found", UNKNOWN, "launch", f"Nothing could be checked: {missing}.", "", remedy, required=True))
    return {
        "schema": "gpunode.launch/1",
        "sglang": version,
        "gpu": options["architecture"],
        "verdict": verdict(findings),
        "findings": [finding.to_dict() for finding in by_consequence(findings)],
        "launches": shown,
    }


def _masked(values: dict[str, Any]) -> dict[str, Any]:
    """The values with those of secrets covered: a report is shown to others."""
    return {name: "***" if value and _SECRET.search(name) else value for name, value in values.items()}


def _print(result: dict[str, Any]) -> None:
    from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, wants_colour

    paint = Paint(on=wants_colour(sys.stdout))
    target = f"sglang {result['sglang']}" + (f" on {result['gpu']}" if result["gpu"] else ", no GPU named")
    click.echo(f"{paint(result['verdict'].upper(), VERDICT_STYLES[result['verdict']])}  {target}, {len(result['launches'])} launch(es)")
    for finding in result["findings"]:
        click.echo(f"{paint(finding['severity'], SEVERITY_STYLES[finding['severity']]):<8} {finding['summary']}")
        if finding["remedy"]:
            click.echo(f"         {finding['remedy']}")
        if finding.get("source"):
            click.echo(paint(f"         source: {finding['source']}", "dim"))


def _table(results: list[dict[str, Any]]) -> None:
    for result in results:
        errors = [finding for finding in result["findings"] if finding["severity"] in {"error", "unknown"}]
        click.echo(f"{result['sglang']:<13} {result['verdict']:<8} {'; '.join(dict.fromkeys(f['summary'] for f in errors[:2]))}".rstrip())
