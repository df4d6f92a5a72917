"""What the `sglang` program runs in the lab."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.environ.get("GPUNODE_LAB_ROOT", "/usr/lib/gpunode-lab"))

from lab.sglang import launch


def main() -> int:
    """Entry point of the console script."""
    return launch.command(sys.argv[1:])
