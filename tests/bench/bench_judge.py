"""Judging a snapshot of 16 GPUs: under 100 ms after import; `verify_p2p.py --snapshot` as a whole process under 400 ms."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.healthy import make_node  # noqa: E402

from gpunode.judge import judge  # noqa: E402
from gpunode.rules.baseline import build  # noqa: E402
from gpunode.snapshot import load  # noqa: E402
from gpunode.state import State  # noqa: E402

JUDGE_LIMIT_MS = 100.0
PROCESS_LIMIT_MS = 400.0
ROUNDS = 9


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Best CPU time and best wall time of some rounds in ms: CPU time is what a busy machine does not stretch."""
    cpu, wall = [], []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), os.times()
        work()
        after = os.times()
        wall.append((time.perf_counter() - began) * 1000)
        cpu.append(1000 * (sum(after[:4]) - sum(used[:4])))
    print(f"  CPU best {min(cpu):.0f} ms, wall best {min(wall):.1f} ms, median {statistics.median(wall):.1f} ms of {ROUNDS}")
    return min(cpu), min(wall)


def main() -> int:
    """Print figures; 1 when one is over its limit."""
    data = make_node(16)
    text = json.dumps(data)
    baseline = build(State(load(text)), "then")
    assert len(data["measured"]) == 240
    judge(load(text), None, baseline)
    print("judging 16 GPUs, 240 pairs, against a baseline, from text to result:")
    judging = timed(lambda: judge(load(text), None, baseline).to_dict())
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        command = [ROOT / "tools/verify_p2p.py", "--snapshot", file.name]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        print("verify_p2p.py --snapshot as a whole process:")
        process = timed(lambda: subprocess.run(command, check=True, capture_output=True, env=environment))
        print("python -c pass:")
        bare = timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    print(f"judging {min(judging) / JUDGE_LIMIT_MS:.2f} of its limit, process {min(process) / PROCESS_LIMIT_MS:.2f} of its limit")
    print(f"process {process[0] / max(bare[0], 10):.1f} x an empty Python by CPU time, {process[1] / bare[1]:.1f} x by wall time")
    return 0 if min(judging) < JUDGE_LIMIT_MS and min(process) < PROCESS_LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
