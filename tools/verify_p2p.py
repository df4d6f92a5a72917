#!/usr/bin/env python3
"""`gpunode verify-p2p` from a checkout as it is: re-executes itself in the checkout's .venv."""

from __future__ import annotations

from gpunode_tools.checkout import enter

enter(__file__)

if __name__ == "__main__":
    from gpunode_tools.cli.verify_p2p import command

    command(prog_name="verify_p2p.py")
