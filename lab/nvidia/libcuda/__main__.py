"""Command line of the build."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.nvidia.libcuda import build

print(build(Path(sys.argv[1])))
