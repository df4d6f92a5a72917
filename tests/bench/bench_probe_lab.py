"""The probe on the stand-in's reference node: 8 GPUs, 56 ordered pairs at 53 and 40 GB/s, quick under 12 s as a whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 12.0


def main() -> int:
    """Measure once and compare; 1 when a figure or the time is missed."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "lab.nvidia.libcuda", folder], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "tools"),
            "LD_LIBRARY_PATH": folder,
            "GPUNODE_LAB_FABRIC": str(ROOT / "lab/nvidia/libcuda/reference.conf"),
        }
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "gpunode_tools.probe", "--json"], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
        )
        elapsed = time.monotonic() - began
    result = json.loads(done.stdout)
    wrong = [
        pair
        for pair in result["pairs"]
        if pair["status"] != "ok" or not 0.985 <= pair["copy_gbps"] / (53 if pair["src"] // 4 == pair["dst"] // 4 else 40) <= 1.01
    ]
    print(f"simulated: {len(result['pairs'])} pairs in {elapsed:.2f} s (limit {LIMIT_S:g} s), {len(wrong)} wrong")
    return 0 if elapsed < LIMIT_S and len(result["pairs"]) == 56 and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
