#!/usr/bin/env python3
"""`gpunode smoke` from a checkout as it is: re-executes itself in the checkout's .venv."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv/bin/python"

if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
    if PYTHON.exists():
        os.execv(PYTHON, [str(PYTHON), __file__, *sys.argv[1:]])  # noqa: S606 - the same program, no shell wanted
    try:
        import click  # noqa: F401
    except ImportError:
        print(f"smoke_test.py: {PYTHON} does not exist; run tools/setup.sh once", file=sys.stderr)
        sys.exit(2)

sys.path[:0] = [str(ROOT / "plugins/module_utils"), str(ROOT / "tools")]

if __name__ == "__main__":
    from gpunode_tools.cli.smoke import command

    command(prog_name="smoke_test.py")
