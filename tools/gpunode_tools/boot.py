"""`python3 -m gpunode_tools.boot`: measure once at boot, within a deadline, and leave the result in a file.

Runs in the container before the server starts, on the standard library alone: this file and ``gpunode_tools/probe`` are all it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from gpunode_tools.probe import Options, measure

DEFAULT_OUT = "/run/gpunode/measured.json"
DEFAULT_DEADLINE_S = 50.0
"""Ends before the unit's own 60 s, so that what was measured until then is kept."""


def main(argv: list[str] | None = None) -> int:
    """Measure and write; 0 when every pair is ok, 1 when one is not, 3 when that could not be told."""
    parser = argparse.ArgumentParser(prog="python3 -m gpunode_tools.boot", description="Measure GPU peer-to-peer once at boot.")
    parser.add_argument("--out", default=DEFAULT_OUT, metavar="FILE", help="where the result goes (default: %(default)s)")
    parser.add_argument(
        "--deadline", type=float, default=DEFAULT_DEADLINE_S, metavar="SECONDS", help="time for all pairs (default: %(default)s)"
    )
    parser.add_argument("--measure", choices=("quick", "full"), default="quick")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # measure() ends early with what it has, as with Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, args.deadline)
    try:
        result = measure(Options(measure=args.measure, pair_timeout_s=min(20.0, args.deadline)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    write(args.out, result)
    print(summary(result), file=sys.stderr)
    return exit_code(result)


def write(path: str, result: dict[str, Any]) -> None:
    """Write the result whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(result) + "\n", encoding="utf-8")
    partial.replace(target)


def exit_code(result: dict[str, Any]) -> int:
    """0 when every pair is ok, 1 when one is not, 3 when some were not measured or nothing could be."""
    statuses = {pair["status"] for pair in result["pairs"]}
    if statuses - {"ok", "skipped"}:
        return 1
    return 3 if result["fatal"] or "skipped" in statuses or (not statuses and len(result["gpus"]) != 1) else 0


def summary(result: dict[str, Any]) -> str:
    """One line for the journal."""
    pairs = result["pairs"]
    good = sum(1 for pair in pairs if pair["status"] == "ok")
    label = " (simulated)" if result["simulated"] else ""
    told = f"{good} of {len(pairs)} pairs ok, {len(result['gpus'])} GPUs{label}, {result['elapsed_s']} s"
    return f"{told}: {result['fatal']['summary']}" if result["fatal"] else told


if __name__ == "__main__":
    sys.exit(main())
