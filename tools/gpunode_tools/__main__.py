"""``python -m gpunode_tools``."""

from __future__ import annotations

from gpunode_tools.cli import main

if __name__ == "__main__":
    main(prog_name="gpunode")
