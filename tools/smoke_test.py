#!/usr/bin/env python3
"""`gpunode smoke` from a checkout as it is: re-executes itself in the checkout's .venv."""

from __future__ import annotations

from gpunode_tools.checkout import enter

enter(__file__)

if __name__ == "__main__":
    from gpunode_tools.cli.smoke import command

    command(prog_name="smoke_test.py")
