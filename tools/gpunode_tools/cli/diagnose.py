"""`gpunode diagnose`: known problems in logs, command output, snapshots or a node."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpunode.problems import Context, Diagnosis
    from gpunode_tools.diagnose.sources import Source

UNIT = "sglang.service"


@click.command("diagnose", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@click.option("--host", metavar="NAME", help="Read this host over ssh, address and user from the inventory. Default: this machine.")
@click.option(
    "-i", "--inventory", metavar="PATH", help="Ansible inventory that knows the host. Default: inventory/hosts.yml, if it is there."
)
@click.option("--container", type=click.IntRange(min=100), metavar="VMID", help="The server's container. Default: the one with the GPUs.")
@click.option("--unit", default=UNIT, show_default=True, metavar="UNIT", help="The server's systemd unit.")
@click.option("--since", metavar="T", help="Read journals from then on, as journalctl understands it. Default: the current boot.")
@click.option("--sglang", metavar="VERSION", help="The server's version, where the log does not tell it.")
@click.option("--gpu", metavar="ARCH", help="The GPU's architecture (sm120), where the log does not tell it.")
@click.option("--driver", metavar="VERSION", help="The driver's version, where the log does not tell it.")
@click.option("--all", "show_all", is_flag=True, help="Also show what is known to be harmless.")
@click.option("--list", "list_all", is_flag=True, help="Print the catalogue as Markdown and end.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of standard output.")
@click.pass_context
def command(context: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Find known problems in journals, kernel logs, command output (FILE, also .gz and .xz; - is standard input), snapshots, or a node.

    Prints what was found, root causes before consequences, each with the lines that prove it and what to do.

    Exit codes: 0 nothing found (warnings aside), 1 an error found, 2 wrong usage, 3 something could not be read.
    """
    if options["list_all"]:
        from gpunode.problems.page import render

        click.echo(render(), nl=False)
        return
    if files and (options["host"] or options["container"]):
        raise click.UsageError("FILE is read here: --host and --container do not go with it")
    from gpunode.problems import diagnosis as start
    from gpunode_tools.diagnose.render import as_data, as_text, exit_code
    from gpunode_tools.report.terminal import wants_colour

    diagnosis = start(_context(options))
    if files:
        from gpunode_tools.diagnose.sources import read_files

        sources = read_files(diagnosis, files)
    else:
        sources = _read_node(context, diagnosis, options)
    result = as_data(diagnosis.matches(), sources, diagnosis.known(), harmless=options["show_all"], simulated=diagnosis.simulated)
    if options["output"] == "json":
        click.echo(json.dumps(result, indent=1))
    else:
        click.echo(as_text(result, colour=wants_colour(sys.stdout)), nl=False)
    context.exit(exit_code(result["verdict"]))


def _context(options: dict[str, Any]) -> Context:
    from gpunode.problems import Context

    versions = {name: options[name] for name in ("sglang", "driver") if options[name]}
    for name, version in versions.items():
        if not re.match(r"\d+(\.\d+)+", version):
            raise click.UsageError(f"--{name}: {version!r} is no version")
    arch = (options["gpu"] or "").lower().replace("_", "")
    if arch and not re.fullmatch(r"sm\d+a?", arch):
        raise click.UsageError(f"--gpu: {options['gpu']!r} is no architecture such as sm120")
    return Context(versions, arch)


def _read_node(context: click.Context, diagnosis: Diagnosis, options: dict[str, Any]) -> list[Source]:
    from gpunode_tools.cli.verify_p2p import connect, say
    from gpunode_tools.collect.errors import UnreachableError
    from gpunode_tools.diagnose.node import read_node

    try:
        machine = connect(options["host"], options["inventory"])
        try:
            return read_node(diagnosis, machine, container=options["container"], unit=options["unit"], since=options["since"], say=say)
        finally:
            machine.close()
    except UnreachableError as error:
        say(f"diagnose: {error}")
        context.exit(error.exit_code)
