"""What the command line tools share: the context of root@pam, errors to standard error, exit codes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from lab.proxmox import tasks
from lab.proxmox.context import Context
from lab.proxmox.errors import PveError
from lab.proxmox.schema import Schema
from lab.proxmox.upid import Upid
from lab.proxmox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable


def context() -> Context:
    """The surroundings of a tool that root runs; LAB_PVE_ROOT moves the node's files, for tests."""
    world = World(os.environ.get("LAB_PVE_ROOT", "/"))
    return Context(world, Schema(world))


def run(job: Callable[[Context, list[str]], int | None]) -> None:
    """Run a tool's main function and leave as Proxmox's tools do: the error's text on standard error, 255 (or 2 for a missing file)."""
    if os.geteuid() != 0:
        sys.exit("please run as root")
    try:
        code = job(context(), sys.argv[1:]) or 0
        sys.stdout.flush()
    except PveError as error:
        sys.stdout.flush()
        sys.stderr.write(error.for_terminal())
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 141
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def task_exit(ctx: Context, upid: Any) -> int:
    """The exit code after a task: 0 when it was OK or had warnings only."""
    parsed = Upid.parse(str(upid))
    return 0 if parsed is None or not tasks.is_error(tasks.read_status(ctx.world, parsed)) else 255
