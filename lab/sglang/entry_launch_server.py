"""What `python -m sglang.launch_server` runs in the lab."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.environ.get("GPUNODE_LAB_ROOT", "/usr/lib/gpunode-lab"))

from lab.sglang import launch

if __name__ == "__main__":
    sys.exit(launch.module_main())
