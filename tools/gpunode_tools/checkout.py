"""Run a command from a checkout as it is: in the checkout's own `.venv`, whatever Python called it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"


def enter(script: str) -> None:
    """Go on in `.venv`: returns once that is the interpreter, or where another one has what the tools need; ends with status 2 otherwise.

    ``script`` is the path of the program that calls; it is started again in `.venv` with the same arguments.
    """
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        if PYTHON.exists():
            os.execv(PYTHON, [str(PYTHON), script, *sys.argv[1:]])  # noqa: S606 - the same program, no shell wanted
        try:
            import click  # noqa: F401
        except ImportError:
            print(f"{Path(script).name}: {PYTHON} does not exist; run tools/setup.sh once", file=sys.stderr)
            sys.exit(2)
    sys.path[:0] = [str(ROOT / "plugins/module_utils"), str(ROOT / "tools")]
