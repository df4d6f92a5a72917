"""A no-change run of site.yml over 1, 2 and 4 lab nodes with as many forks: what an added node costs, as a share of the first.

The lab's nodes share this machine's cores with the controller, so the share depends on the cores: the limit is for two of them, and on a
machine that is busy with something else the times say little; seconds of CPU, which are printed beside them, say more. Each round runs over
1, 2 and 4 nodes, one after the other, and is compared within itself, because a machine's speed drifts from minute to minute; the median
of the rounds counts. Nodes that are missing are stood up first, which takes minutes each. ``--strict`` fails above the limit, ``--keep``
leaves the lab up.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INDEX = os.environ.get("GPUNODE_LAB_INDEX", "22")
COUNTS = (1, 2, 4)
ROUNDS = 3
LIMIT = 0.35
"""Time per added node over the time of the first, on two cores."""
ENVIRONMENT = os.environ | {
    "GPUNODE_LAB_INDEX": INDEX,
    "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
    "ANSIBLE_FORCE_COLOR": "0",
    "GPUNODE_TASK_TIMES": "12",
}


def lab(*words: str) -> None:
    """Run a command of the lab."""
    subprocess.run([sys.executable, "-m", "lab", *words], cwd=ROOT, env=ENVIRONMENT, check=True)


def node_cpu(name: str) -> float:
    """Seconds of CPU that a node has used since it started, from its control group; 0 where the machine keeps no such account."""
    group = f"gpulab{INDEX}.{name}"
    for path in (Path(f"/sys/fs/cgroup/cpuacct/{group}/cpuacct.usage"), Path(f"/sys/fs/cgroup/cpu,cpuacct/{group}/cpuacct.usage")):
        if path.exists():
            return int(path.read_text()) / 1e9
    path = Path(f"/sys/fs/cgroup/{group}/cpu.stat")
    return int(re.findall(r"usage_usec (\d+)", path.read_text())[0]) / 1e6 if path.exists() else 0.0


def controller_cpu() -> float:
    """Seconds of CPU that ended children of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(inventory: Path, nodes: list[str]) -> tuple[float, int, str]:
    """Seconds of a run over these nodes, how much it changed, and what it said."""
    command = [
        "ansible-playbook",
        "-i",
        "inventory/lab",
        "-i",
        str(inventory),
        "site.yml",
        "-l",
        ",".join(nodes),
        "--forks",
        str(len(nodes)),
    ]
    began = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout[-6000:]}{ended.stderr}")
    return seconds, sum(int(count) for count in re.findall(r"changed=(\d+)", ended.stdout)), ended.stdout


def spread(values: list[float], form: str) -> str:
    """The median, and the least and the most in brackets."""
    return f"{statistics.median(values):{form}} ({min(values):{form.lstrip('7')}} to {max(values):{form.lstrip('7')}})"


def main() -> int:
    """Measure, print, and judge where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--counts", type=lambda text: [int(part) for part in text.split(",")], default=list(COUNTS))
    options = parser.parse_args()
    names = [f"gpu-node-{number:02d}" for number in range(1, max(options.counts) + 1)]
    times: dict[int, list[float]] = {count: [] for count in options.counts}
    said: dict[int, str] = {}
    cpu: dict[int, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        inventory = Path(scratch) / "hosts.yml"
        inventory.write_text("gpu_nodes:\n  hosts:\n" + "".join(f"    {name}:\n" for name in names))
        try:
            lab("up", *names)
            run(inventory, names)
            for _ in range(ROUNDS):
                for count in options.counts:
                    before = controller_cpu(), sum(map(node_cpu, names[:count]))
                    seconds, changed, said[count] = run(inventory, names[:count])
                    cpu[count] = controller_cpu() - before[0], sum(map(node_cpu, names[:count])) - before[1]
                    if changed:
                        raise SystemExit(f"the run over {count} nodes changed something:\n{said[count]}")
                    times[count].append(seconds)
        finally:
            if not options.keep:
                lab("down")
    first = options.counts[0]
    print(f"cores {os.cpu_count()}, load {os.getloadavg()[0]:.1f}, rounds {ROUNDS}, their medians (least to most):")
    medians = []
    for count, seconds in times.items():
        used = f"CPU: controller {cpu[count][0]:.0f} s, nodes {cpu[count][1]:.0f} s"
        line = f"  {count} nodes {spread(seconds, '7.1f')} s   {used}"
        if count > first:
            shares = [(more - one) / (count - first) / one for one, more in zip(times[first], seconds, strict=True)]
            medians.append(statistics.median(shares))
            line += f"   each added node {spread(shares, '.2f')} of the first (limit {LIMIT})"
        print(line)
    largest = max(options.counts)
    print(f"where the time went with {largest} nodes:")
    print(said[largest].rpartition("\nTime:")[2])
    return 1 if options.strict and max(medians, default=0.0) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
