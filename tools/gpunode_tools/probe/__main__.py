"""The probe by itself: ``python -m gpunode_tools.probe --measure full --json`` measures the GPUs of this machine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gpunode_tools.probe.measure import Options, measure
from gpunode_tools.probe.session import LocalSession, command


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    pairs = []
    for part in text.split(","):
        left, _, right = part.partition(":")
        pairs.append((int(left), int(right)))
    return tuple(pairs)


def _show(event: dict[str, Any]) -> None:
    pair = event.get("pair")
    if pair:
        print(f"{event['done']}/{event['total']} GPU{pair['src']}->GPU{pair['dst']} {pair['status']}", file=sys.stderr)


def main() -> int:
    """Measure and print; 0 when every pair is ok, 1 when one is not, 3 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m gpunode_tools.probe", description=__doc__)
    parser.add_argument("--measure", choices=("quick", "full"), default="quick")
    parser.add_argument("--pairs", type=_pairs, help="such as 0:1,1:0 (default: all ordered pairs)")
    parser.add_argument("--pair-timeout", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--light", choices=("auto", "yes", "no"), default="auto", help="buffers of 8 MiB (auto: on GPUs in use)")
    parser.add_argument("--container", type=int, metavar="VMID", help="measure inside this container of the Proxmox node")
    parser.add_argument("--json", action="store_true", help="print the whole result")
    parser.add_argument("--program", action="store_true", help="print the program that is streamed, and do not run it")
    args = parser.parse_args()
    light: bool | str = "auto" if args.light == "auto" else args.light == "yes"
    options = Options(measure=args.measure, pairs=args.pairs, pair_timeout_s=args.pair_timeout, light=light)
    if args.program:
        sys.stdout.write(options.program().decode())
        return 0
    result = measure(options, lambda: LocalSession(command(args.container)), None if args.json else _show)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        for copy in result["host"]:
            rates = f"{copy.get('to_gpu_gbps')} GB/s to the GPU  {copy.get('from_gpu_gbps')} GB/s from it"
            print(f"GPU{copy['gpu']}          {copy['status']:9}  {rates}  {copy.get('reason') or ''}".rstrip())
        for pair in result["pairs"]:
            print(f"GPU{pair['src']} -> GPU{pair['dst']}  {pair['status']:9}  {_figures(pair)}  {pair.get('reason') or ''}".rstrip())
        for pattern in result["patterns"]:
            print(f"{pattern['name']}  {pattern['status']}  {pattern.get('total_gbps')} GB/s")
        if result["fatal"]:
            print(result["fatal"]["summary"], file=sys.stderr)
        print(f"{result['elapsed_s']} s{'  simulated' if result['simulated'] else ''}", file=sys.stderr)
    checked = [*result["pairs"], *result["host"]]
    if result["fatal"] or not checked:
        return 3
    return 0 if all(each["status"] == "ok" for each in checked) else 1


def _figures(pair: dict[str, Any]) -> str:
    names = {
        "copy_gbps": "copy",
        "bidirectional_gbps": "both",
        "sm_read_gbps": "sm read",
        "sm_write_gbps": "sm write",
        "staged_gbps": "staged",
    }
    parts = [f"{label} {pair[key]} GB/s" for key, label in names.items() if pair.get(key) is not None]
    if pair["read_latency_us"] is not None:
        parts.append(f"latency {pair['read_latency_us']} us")
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
