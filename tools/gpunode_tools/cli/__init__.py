"""The command ``gpunode``: one command a file, imported only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Final

import click

from gpunode import __version__

COMMANDS: Final = {
    "verify-p2p": ("gpunode_tools.cli.verify_p2p", "Say whether the node's GPUs are whole, and if not, why."),
    "boot-check": ("gpunode_tools.cli.boot_check", "Judge the node after a boot by what its container measured."),
    "smoke": ("gpunode_tools.cli.smoke", "Measure what a server serves, where it stops scaling, and why."),
    "tune-report": ("gpunode_tools.cli.tune_report", "Compare the variants of a server that playbooks/tune.yml tried."),
    "snapshot": ("gpunode_tools.cli.snapshot", "Save what the checks read, to be judged elsewhere."),
    "diagnose": ("gpunode_tools.cli.diagnose", "Find known problems in logs, command output or a node."),
    "check-launch": (
        "gpunode_tools.cli.check_launch",
        "Check a server's flags for its version and GPU before it starts.",
    ),
    "model-info": (
        "gpunode_tools.cli.model_info",
        "Find a checkpoint, its MoE shape, whether it is complete and fits.",
    ),
}
"""Command name to (module, one line of help). The module holds a click command named ``command``."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called: ``--help`` and one command stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for name, (module, _) in COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101 - a programmer's mistake, caught by the tests
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GPUNODE"})
@click.version_option(__version__, prog_name="gpunode")
def main() -> None:
    """Proxmox hosts full of NVIDIA GPUs as inference nodes that stay whole.

    Data goes to standard output, everything else to standard error. Exit codes: 0 healthy, 1 a finding of severity error or a
    threshold missed, 2 wrong usage or input, 3 could not tell.
    """
