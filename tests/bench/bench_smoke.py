#!/usr/bin/env python3
"""The load generator against a server whose truth is known, beside a client in C, aiohttp and others' clients, in the same run.

    tests/bench/bench_smoke.py [--rounds 3] [--repeat 1] [--aiohttp PYTHON] [--rungs 64x20,512x100] [--strict]

One core for the server and one for the client (with real-time priority where that is allowed, so that other work on the machine does not
count). aiohttp: an interpreter that has it; without, a virtual environment is made for the run. With --strict a limit missed is exit 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.truth import SOURCE, Truth  # noqa: E402

TTFT_MS = 200
TOKENS = 128
RUNGS = "64x20,64x100,256x100,512x100,1024x100"
# At least so many times fewer CPU seconds a token than plain aiohttp.
AIOHTTP_RATIO = {"64x20": 3.0, "64x100": 3.0, "256x100": 3.0, "512x100": 1.6}
WITHIN = 0.01
TAIL_MS = 1.0
FIRST_REQUEST_S = 0.6
MEMORY_MIB = 80


def pinned(core: int) -> list[str]:
    """Prefix that keeps a command on a core, ahead of other work where the kernel allows it."""
    found = ["taskset", "-c", str(core)]
    if shutil.which("chrt") and subprocess.run(["chrt", "-f", "20", "true"], capture_output=True, check=False).returncode == 0:
        found = ["chrt", "-f", "20", *found]
    return found


def timed(command: list[str]) -> tuple[str, float, float, float]:
    """Run: (stdout, CPU seconds, peak memory in MiB, wall seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    output, error = process.communicate(timeout=300)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in {0, 3}:
        raise RuntimeError(f"{command}: {process.returncode}: {error[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return output, cpu, after.ru_maxrss / 1024, wall


class Bench:
    """One server, several clients, one table."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.server = Truth(*pinned(1))
        self.client = pinned(0)
        folder = Path(tempfile.mkdtemp(prefix="gpunode-bench-"))
        self.yardstick = folder / "yardstick"
        subprocess.run(["cc", "-O2", "-o", self.yardstick, SOURCE.with_name("yardstick.c")], check=True)
        self.aiohttp = options.aiohttp or self.make_aiohttp(folder)
        self.missed: list[str] = []

    @staticmethod
    def make_aiohttp(folder: Path) -> str:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "-q", "--disable-pip-version-check", "aiohttp"], check=True)
        return str(folder / "venv/bin/python")

    def limit(self, rung: str, what: str, ok: bool, told: str) -> None:
        print(f"    {'ok    ' if ok else 'MISSED'} {what}: {told}")
        if not ok:
            self.missed.append(f"{rung} {what}: {told}")

    def gpunode(self, streams: int, itl: float) -> dict[str, Any]:
        self.server.reset(ttft_ms=TTFT_MS, itl_ms=itl)
        command = [
            str(ROOT / ".venv/bin/python"),
            str(ROOT / "tools/smoke_test.py"),
            "--url",
            self.server.url,
            "--concurrency",
            str(streams),
        ]
        command += ["--requests-per-level", str(streams * self.options.rounds), "--output-len", str(TOKENS), "--vocab-size", "30000"]
        launched = time.monotonic()
        output, cpu, memory, _ = timed([*self.client, *command, "--gpu", "no", "--repeats", "0", "--output", "json"])
        result = json.loads(output)
        level, truth = result["levels"][0], self.server.truth()
        inside = self.server.truth(level["clock"]["started_s"], level["clock"]["dry_s"])["inside"]
        seconds = level["clock"]["dry_s"] - level["clock"]["started_s"]
        return {
            "verdict": result["verdict"],
            "output_tps": level["output_tps"],
            "steady_output_tps": level["steady_output_tps"],
            "server_tps": inside / seconds,
            "ttft_p50": level["ttft_ms"]["p50"],
            "ttft_p99": level["ttft_ms"]["p99"],
            "itl_p50": level["itl_ms"]["p50"],
            "itl_p99": level["itl_ms"]["p99"],
            "truth": truth,
            "us_per_token": cpu / truth["tokens"] * 1e6,
            "memory_mib": memory,
            "first_request_s": truth["first_s"] - TTFT_MS / 1000 - launched,
            "cpu_share": level["client"]["cpu_share"],
            "errors": level["errors"],
        }

    def other(self, command: list[str], streams: int, itl: float) -> dict[str, Any]:
        self.server.reset(ttft_ms=TTFT_MS, itl_ms=itl)
        shape = [str(self.server.port), str(streams), str(self.options.rounds + 1), str(TOKENS)]
        output, cpu, memory, _ = timed([*self.client, *command, *shape])
        found = json.loads(output)
        return {**found, "truth": self.server.truth(), "us_per_token": cpu / found["tokens"] * 1e6, "memory_mib": memory}

    def rung(self, rung: str) -> dict[str, Any]:
        streams, rate = (int(part) for part in rung.split("x"))
        itl = 1000 / rate
        runs: dict[str, list[dict[str, Any]]] = {"gpunode": [], "c": [], "aiohttp": []}
        for _ in range(self.options.repeat):
            runs["gpunode"].append(self.gpunode(streams, itl))
            runs["c"].append(self.other([str(self.yardstick)], streams, itl))
            if rung in AIOHTTP_RATIO:
                runs["aiohttp"].append(self.other([self.aiohttp, str(ROOT / "tests/bench/yardstick_aiohttp.py")], streams, itl))
        middle = {name: sorted(found, key=lambda one: one["us_per_token"])[len(found) // 2] for name, found in runs.items() if found}
        self.judge(rung, streams, itl, middle)
        return middle

    def judge(self, rung: str, streams: int, itl: float, middle: dict[str, dict[str, Any]]) -> None:
        ours, yard = middle["gpunode"], middle["c"]
        ideal = streams * TOKENS / ((TTFT_MS + (TOKENS - 1) * itl) / 1000)
        print(f"{rung}: ideal {ideal:.0f} tokens/s")
        for name, one in middle.items():
            rate = one.get("steady_output_tps") or one["output_tps"]
            print(
                f"  {name:8} {rate:9.1f} tok/s ({rate / ideal:.4f}), TTFT {one['ttft_p50']:7.2f} / {one['ttft_p99']:7.2f} "
                f"(server {one['truth']['ttft_ms']['p50']:.2f} / {one['truth']['ttft_ms']['p99']:.2f}), "
                f"ITL {one['itl_p50']:6.3f} / {one['itl_p99']:6.2f} "
                f"(server {one['truth']['itl_ms']['p50']:.3f} / {one['truth']['itl_ms']['p99']:.2f}), "
                f"{one['us_per_token']:5.1f} us/token, {one['memory_mib']:.0f} MiB"
            )
        bound = ours["verdict"] == "client-bound"
        for what, said, true in (
            ("output throughput", ours["steady_output_tps"], ours["server_tps"]),
            ("TTFT p50", ours["ttft_p50"], ours["truth"]["ttft_ms"]["p50"]),
            ("ITL p50", ours["itl_p50"], ours["truth"]["itl_ms"]["p50"]),
        ):
            off = said / true - 1
            self.limit(rung, what, abs(off) <= WITHIN or (streams > 512 and bound), f"{off:+.2%}{' (client-bound)' if bound else ''}")
        if streams <= 512:
            for what, key, name in (("TTFT p99", "ttft_p99", "ttft_ms"), ("ITL p99", "itl_p99", "itl_ms")):
                off, least = ours[key] - ours["truth"][name]["p99"], abs(yard[key] - yard["truth"][name]["p99"])
                self.limit(rung, what, abs(off) <= least + TAIL_MS, f"{off:+.2f} ms, C {least:.2f} ms")
            self.limit(rung, "verdict", not bound and not ours["errors"], ours["verdict"])
        if rung in AIOHTTP_RATIO:
            ratio = middle["aiohttp"]["us_per_token"] / ours["us_per_token"]
            self.limit(rung, "CPU against aiohttp", ratio >= AIOHTTP_RATIO[rung], f"{ratio:.2f} times fewer")
        self.limit(rung, "time to the first request", ours["first_request_s"] < FIRST_REQUEST_S, f"{ours['first_request_s']:.2f} s")
        if streams == 512:
            self.limit(rung, "peak memory", ours["memory_mib"] < MEMORY_MIB, f"{ours['memory_mib']:.0f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--aiohttp")
    parser.add_argument("--rungs", default=RUNGS)
    parser.add_argument("--json", dest="json_file")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        found = {rung: bench.rung(rung) for rung in options.rungs.split(",")}
    finally:
        bench.server.close()
    ratios = [found[rung]["aiohttp"]["us_per_token"] / found[rung]["gpunode"]["us_per_token"] for rung in found if "aiohttp" in found[rung]]
    if ratios:
        print(f"aiohttp takes {statistics.geometric_mean(ratios):.2f} times the CPU a token in the geometric mean")
    if options.json_file:
        Path(options.json_file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for missed in bench.missed:
        print(f"missed: {missed}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return 1 if bench.missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
