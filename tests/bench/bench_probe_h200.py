"""The probe on real GPUs beside PyTorch and cuda-bindings in the same run: figures, time, and clean ends when it goes wrong.

``python3 tests/bench/bench_probe_h200.py [--out DIR]`` with any Python from 3.10 that has torch or cuda-bindings; whatever is missing is
left out and named. Exit code 1 when a ratio or a clean end is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROBE = [sys.executable, "-m", "gpunode_tools.probe", "--json"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
COPY_RATIO = 0.985  # of the best beside it
LATENCY_RATIO = 0.05
QUICK_S = {2: 3.0, 4: 8.0, 8: 15.0}  # a plain script over cuda-bindings needs 3.0 s on two

TORCH = """
import json, time, torch
n, size, out = torch.cuda.device_count(), 256 << 20, {}
buffers = [[torch.empty(size, dtype=torch.uint8, device=f"cuda:{i}") for _ in range(2)] for i in range(n)]
for a in range(n):
    for b in range(n):
        if a == b:
            continue
        best = 0.0
        with torch.cuda.device(a):
            for _ in range(6):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(20):
                    buffers[b][1].copy_(buffers[a][0], non_blocking=True)
                end.record()
                end.synchronize()
                best = max(best, size * 20 / begin.elapsed_time(end) / 1e6)
        out[f"{a}:{b}"] = best
print(json.dumps(out))
"""

# Another way to the latency than the probe's: absolute pointers, no mask, timed by the GPU's own nanosecond counter inside the kernel.
BINDINGS = r"""
import ctypes, json, random, struct
from cuda.bindings import driver as d

def ck(result):
    if result[0] != d.CUresult.CUDA_SUCCESS:
        raise SystemExit(str(result[0]))
    return result[1] if len(result) == 2 else result[1:]

PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry walk(.param .u64 p, .param .u64 o, .param .u32 c) {
  .reg .u64 %a, %o, %s, %e; .reg .u32 %i, %c; .reg .pred %q;
  ld.param.u64 %a, [p]; ld.param.u64 %o, [o]; ld.param.u32 %c, [c];
  mov.u64 %s, %globaltimer;
L: ld.volatile.global.u64 %a, [%a]; sub.u32 %c, %c, 1; setp.ne.u32 %q, %c, 0; @%q bra L;
  mov.u64 %e, %globaltimer; sub.u64 %e, %e, %s; st.global.u64 [%o], %e; st.global.u64 [%o+8], %a; ret;
}\x00'''
ck(d.cuInit(0))
n = ck(d.cuDeviceGetCount())
devices = [ck(d.cuDeviceGet(i)) for i in range(n)]
contexts = [ck(d.cuDevicePrimaryCtxRetain(x)) for x in devices]
cells, hops, out = (2 << 20) // 128, 20000, {}
for a in range(n):
    for b in range(n):
        if a == b or not ck(d.cuDeviceCanAccessPeer(devices[a], devices[b])):
            continue
        ck(d.cuCtxSetCurrent(contexts[b]))
        base = int(ck(d.cuMemAlloc(2 << 20)))
        order = random.sample(range(cells), cells)
        image = bytearray(2 << 20)
        for here, there in zip(order, order[1:] + order[:1]):
            struct.pack_into("<Q", image, here * 128, base + there * 128)
        ck(d.cuMemcpyHtoD(base, bytes(image), 2 << 20))
        ck(d.cuCtxSetCurrent(contexts[a]))
        d.cuCtxEnablePeerAccess(contexts[b], 0)
        walk = ck(d.cuModuleGetFunction(ck(d.cuModuleLoadData(PTX)), b"walk"))
        word = int(ck(d.cuMemAlloc(16)))
        samples = []
        for _ in range(5):
            arguments = (base + order[0] * 128, word, hops), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
            ck(d.cuLaunchKernel(walk, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0))
            ck(d.cuCtxSynchronize())
            back = bytearray(16)
            ck(d.cuMemcpyDtoH(back, word, 16))
            samples.append(struct.unpack("<Q", back[:8])[0] / hops / 1000)
        out[f"{a}:{b}"] = sorted(samples)[2]
print(json.dumps(out))
"""

# Take all but `leave` MiB of GPU 0, say so, and hold it until standard input closes.
FILL = """
import ctypes, sys
cuda, leave = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1]) << 20
context, device, free, total, p = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) and not cuda.cuCtxSetCurrent(context)
step = 1 << 30
while step >= 2 << 20:
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if free.value - leave < step or cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(step)):
        step //= 2
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print(free.value >> 20, flush=True)
sys.stdin.read()
"""


def used_mib() -> list[int] | None:
    """Memory in use a GPU as nvidia-smi says, None without it."""
    argv = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return [int(float(line)) for line in done.stdout.split()]


def probe(*arguments: str) -> tuple[dict[str, Any], float]:
    """The probe's result and the seconds of the whole process."""
    began = time.monotonic()
    done = subprocess.run([*PROBE, *arguments], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    elapsed = time.monotonic() - began
    if not done.stdout:
        raise SystemExit(f"the probe said nothing: {done.stderr}")
    return json.loads(done.stdout), elapsed


def beside(name: str, source: str) -> dict[str, float]:
    """What a script beside prints, by pair; empty and named when it does not run here."""
    done = subprocess.run([sys.executable, "-c", source], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or not done.stdout.strip():
        print(f"{name}: left out: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
        return {}
    return {pair: float(value) for pair, value in json.loads(done.stdout.splitlines()[-1]).items()}


class Judge:
    """Collects what was claimed and whether it held."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def claim(self, what: str, held: bool, seen: Any) -> None:
        self.rows.append({"claim": what, "held": bool(held), "seen": seen})
        print(f"{'ok  ' if held else 'MISS'} {what}: {seen}", flush=True)


def figures(judge: Judge, quick: dict[str, Any]) -> None:
    """Compare the probe's figures with those of PyTorch and of cuda-bindings."""
    by_pair = {f"{pair['src']}:{pair['dst']}": pair for pair in quick["pairs"]}
    for pair, best in beside("PyTorch", TORCH).items():
        mine = by_pair[pair]["copy_gbps"] or 0
        judge.claim(f"copy {pair} at least {COPY_RATIO} of PyTorch's best", mine >= COPY_RATIO * best, f"{mine} against {best:.1f} GB/s")
    for pair, latency in beside("cuda-bindings", BINDINGS).items():
        mine = by_pair[pair]["read_latency_us"] or 0
        held = abs(mine / latency - 1) <= LATENCY_RATIO
        judge.claim(f"read latency {pair} within {LATENCY_RATIO:.0%} of cuda-bindings", held, f"{mine} against {latency:.3f} us")


def clean_ends(judge: Judge, several: bool) -> None:
    """A deadline of 1 ms, a worker killed in mid-copy, a full GPU: clean reports, and nothing left on the GPUs."""
    before = used_mib()
    if several:
        result, _ = probe("--pair-timeout", "0.001")
        seen = sorted({pair["status"] for pair in result["pairs"]})
        judge.claim("a deadline of 1 ms ends in hang and skipped", set(seen) <= {"hang", "skipped"} and "hang" in seen, seen)
        killed = kill_in_mid_copy()
        seen = [pair["reason"] for pair in killed["pairs"] if pair["status"] == "error"]
        others = {pair["status"] for pair in killed["pairs"] if pair["status"] != "error"}
        judge.claim("a worker killed in mid-copy costs one pair", len(seen) == 1 and others <= {"ok"}, seen)
    for leave in (600, 100):
        with subprocess.Popen(
            [sys.executable, "-c", FILL, str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
        ) as filler:
            assert filler.stdout
            left = filler.stdout.readline().decode().strip()
            for light in ("auto", "no"):
                result, elapsed = probe("--light", light)
                touched = [pair for pair in result["pairs"] if 0 in {pair["src"], pair["dst"]}] or result["host"]
                seen = min(f"{pair['status']}: {pair.get('reason')}" for pair in touched)
                held = result["complete"] and (leave > 500 or {pair["status"] for pair in touched} == {"skipped"})
                judge.claim(f"GPU0 filled to its last {left} MiB, light {light}", held, f"{seen} in {elapsed:.1f} s")
            assert filler.stdin
            filler.stdin.close()
            filler.wait(timeout=60)
    after = used_mib()
    if before is not None and after is not None:
        judge.claim(
            "nothing is left on the GPUs", all(b - a <= 16 for a, b in zip(before, after, strict=True)), {"before": before, "after": after}
        )


def kill_in_mid_copy() -> dict[str, Any]:
    """Measure with a callback that kills the worker 30 ms into its first pair."""
    sys.path.insert(0, str(ROOT / "tools"))
    from gpunode_tools.probe import Options, measure

    state: dict[str, Any] = {}

    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "hello":
            state["watcher"] = event["pid"]
        if event["event"] == "start" and "src" in event and "killed" not in state:
            state["killed"] = True
            time.sleep(0.03)
            children = Path(f"/proc/{state['watcher']}/task/{state['watcher']}/children").read_text(encoding="ascii").split()
            for pid in children:
                os.kill(int(pid), signal.SIGKILL)

    return measure(Options(measure="full"), on_event=watch)


def main() -> int:
    """Run everything; 1 when something was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the probe's results and the claims as JSON")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    judge = Judge()
    results = [probe() for _ in range(args.repeats)]
    quick, times = results[-1][0], [elapsed for _, elapsed in results]
    if quick["fatal"]:
        raise SystemExit(quick["fatal"]["summary"])
    gpus = len(quick["gpus"])
    print(f"{gpus} GPUs: {quick['gpus'][0]['name']}{'  SIMULATED' if quick['simulated'] else ''}")
    limit = QUICK_S.get(gpus)
    judge.claim(f"quick as a whole process under {limit} s", limit is None or max(times) < limit, [round(t, 2) for t in times])
    bad = [each for result, _ in results for each in result["pairs"] + result["host"] if each["status"] != "ok"]
    judge.claim("every pair and every host copy ok in every repeat", not bad, bad[:3])
    for pair in quick["pairs"]:
        figure = [next(p["copy_gbps"] for p in r["pairs"] if (p["src"], p["dst"]) == (pair["src"], pair["dst"])) for r, _ in results]
        judge.claim(f"copy {pair['src']}:{pair['dst']} repeats within 2 %", max(figure) <= 1.02 * min(figure), figure)
    full, elapsed = probe("--measure", "full")
    bad = [pair for pair in full["pairs"] if pair["status"] != "ok"]
    judge.claim(
        "full: every pair ok, both kernels resident", not bad and all(p.get("resident_ok") for p in full["pairs"]), f"{elapsed:.2f} s"
    )
    bad = [pattern for pattern in full["patterns"] if pattern["status"] != "ok"]
    judge.claim("full: every concurrent pattern ok", not bad, [(p["name"], p.get("total_gbps")) for p in full["patterns"]])
    print(json.dumps({"setup": [gpu.get("setup_ms") for gpu in full["gpus"]], "host": full["host"], "pairs": full["pairs"][:2]}, indent=1))
    figures(judge, quick)
    clean_ends(judge, gpus > 1)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, data in (("quick", quick), ("full", full), ("claims", judge.rows)):
            (args.out / f"probe-{name}.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 0 if all(row["held"] for row in judge.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
