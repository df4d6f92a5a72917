"""`gpunode snapshot`: save what the checks read, to be judged elsewhere."""

from __future__ import annotations

import sys
from typing import Any

import click


@click.command("snapshot", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", metavar="NAME", help="Read this host over ssh; address and user from the inventory. Default: this machine.")
@click.option(
    "-i", "--inventory", metavar="PATH", help="Ansible inventory that knows the host. Default: inventory/hosts.yml, if it is there."
)
@click.option(
    "--container", type=click.IntRange(min=100), metavar="VMID", help="Also read this container. Default: the one that has the GPUs."
)
@click.option("-o", "--output-file", "target", required=True, metavar="FILE|-", help="File to write; - is standard output.")
@click.option("--redact", is_flag=True, help="Leave host names, serial numbers, UUIDs and network addresses out.")
@click.pass_context
def command(context: click.Context, /, target: str, redact: bool, **options: Any) -> None:
    """Save what the checks read from a node and its GPU container, without measuring. Nothing secret is kept."""
    from gpunode.snapshot import dump
    from gpunode.snapshot import redact as without_names
    from gpunode_tools.cli.verify_p2p import connect, say
    from gpunode_tools.collect.errors import UnreachableError
    from gpunode_tools.collect.node import read_node
    from gpunode_tools.report.files import write_atomically

    try:
        machine = connect(options["host"], options["inventory"])
        try:
            data = read_node(machine, options["container"], say)
        finally:
            machine.close()
    except UnreachableError as error:
        say(f"snapshot: {error}")
        context.exit(error.exit_code)
    text = dump(without_names(data) if redact else data)
    if target == "-":
        sys.stdout.write(text)
    else:
        write_atomically(target, text)
