#!/usr/bin/env python3
"""Build a CUDA source package on a real GPU machine by the role's own script, killed and resumed, and use it against a reference.

    tests/bench/bench_build_h200.py --sdist causal_conv1d-1.7.0.tar.gz --arch sm90 --out DIR [--limit 560] [--work /tmp/gpunode-build]

Knows how to use causal-conv1d (4 objects, minutes) and flash-attn (73 objects, 40 minutes on 16 cores). Needs torch, nvcc, setuptools,
wheel and ninja; no network. Where the limit comes first, the same command goes on from what is compiled. Writes DIR/build.json and
DIR/build.log.
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

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "roles/sglang_venv/files/gpunode_build_wheel.py"
KILL_AFTER = {"flash_attn": 6, "causal_conv1d": 1}
"""Objects that must be there before the first build is killed, by package."""

OPEN = r"""
import json, sys, tempfile, time, zipfile
folder = tempfile.mkdtemp()
zipfile.ZipFile(sys.argv[1]).extractall(folder)
sys.path.insert(0, folder)
import torch
def clock(call):
    for _ in range(5): call()
    torch.cuda.synchronize(); began = time.perf_counter()
    for _ in range(50): call()
    torch.cuda.synchronize(); return (time.perf_counter() - began) / 50 * 1e3
"""
USES = {
    "causal_conv1d": r"""
import causal_conv1d, causal_conv1d_cuda
from causal_conv1d import causal_conv1d_fn
torch.manual_seed(0)
x = torch.randn(4, 2048, 4096, device="cuda", dtype=torch.bfloat16)
weight, bias = torch.randn(2048, 4, device="cuda", dtype=torch.bfloat16), torch.randn(2048, device="cuda", dtype=torch.bfloat16)
ours = causal_conv1d_fn(x, weight, bias, activation="silu")
def reference(x, weight, bias):
    pad = torch.nn.functional.conv1d(x, weight.unsqueeze(1), bias, padding=3, groups=x.shape[1])[..., : x.shape[-1]]
    return torch.nn.functional.silu(pad)
exact = reference(x.float(), weight.float(), bias.float())
error = ((ours.float() - exact).abs() / exact.abs().clamp(min=1)).max().item()
assert error < 0.02, error
kernel = lambda: causal_conv1d_fn(x, weight, bias, activation="silu")
print(json.dumps({"version": causal_conv1d.__version__, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "module": causal_conv1d_cuda.__file__, "max_relative_error_against_fp32": error, "kernel_ms": round(clock(kernel), 3),
                  "torch_ms": round(clock(lambda: reference(x, weight, bias)), 3)}))
""",
    "flash_attn": r"""
import flash_attn
from flash_attn import flash_attn_func
torch.manual_seed(0)
q, k, v = (torch.randn(2, 2048, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
ours = flash_attn_func(q, k, v, causal=True)
parts = (t.transpose(1, 2).float() for t in (q, k, v))
reference = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)
error = (ours.float() - reference).abs().max().item()
assert error < 0.05, error
flash = clock(lambda: flash_attn_func(q, k, v, causal=True))
def plain():
    s = (q.transpose(1, 2) @ k.transpose(1, 2).transpose(-1, -2)) / 128**0.5
    s.masked_fill_(torch.ones(2048, 2048, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    return s.softmax(-1) @ v.transpose(1, 2)
print(json.dumps({"version": flash_attn.__version__, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "max_error_against_fp32": error, "flash_ms": round(flash, 3), "plain_attention_ms": round(clock(plain), 3)}))
""",
}
"""What is done with each package, after OPEN: compare with a reference in fp32, and time it."""


def progress(work: Path) -> dict[str, object]:
    """The youngest progress file below the work folder."""
    files = sorted(work.glob("*/progress.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(files[-1].read_text()) if files else {}


def objects(work: Path) -> int:
    """Object files that are compiled."""
    return sum(1 for _ in work.glob("*/source/*/build/**/*.o"))


def run(command: list[str], log: Path, work: Path, deadline: float, kill_at: int = 0) -> int | None:
    """Run the build; None when it was killed on purpose or by the deadline."""
    with log.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        while process.poll() is None:
            if time.monotonic() > deadline or (kill_at and objects(work) >= kill_at):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            time.sleep(0.5)
        return process.returncode


def main() -> int:
    """Build, kill, resume, use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", type=Path)
    parser.add_argument("--arch", default="sm90")
    parser.add_argument("--out", type=Path, default=Path("build-bench"))
    parser.add_argument("--work", type=Path, default=Path("/tmp/gpunode-build"))
    parser.add_argument("--limit", type=float, default=560)
    parser.add_argument("--jobs", type=int, default=0)
    options = parser.parse_args()
    if options.sdist is None:
        print("no --sdist given: this bench needs a GPU machine and a source package; nothing was measured")
        return 0
    package = options.sdist.name.rpartition("-")[0]
    if package not in USES:
        parser.error(f"{options.sdist.name}: this bench knows how to use {', '.join(USES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.limit
    log = options.out / "build.log"
    command = [sys.executable, str(SCRIPT), "--python", sys.executable, "--arch", options.arch, "--keep-work",
               "--wheelhouse", str(options.work / "wheelhouse"), "--work", str(options.work / "work"), str(options.sdist)]  # fmt: skip
    command += ["--jobs", str(options.jobs)] if options.jobs else []
    work = options.work / "work"
    result: dict[str, object] = {"arch": options.arch, "sdist": options.sdist.name, "objects_at_start": objects(work)}
    if objects(work) == 0:
        began = time.monotonic()
        run(command, log, work, deadline, kill_at=KILL_AFTER[package])
        result |= {"killed_after_s": round(time.monotonic() - began, 1), "objects_when_killed": objects(work)}
    began = time.monotonic()
    code = run(command, log, work, deadline)
    result |= {"resumed_s": round(time.monotonic() - began, 1), "exit": code, "progress": progress(work), "objects": objects(work)}
    if code == 0:
        wheel = log.read_text().splitlines()[-1]
        result["wheel"] = Path(wheel).name
        result["wheel_bytes"] = Path(wheel).stat().st_size
        use = subprocess.run([sys.executable, "-c", OPEN + USES[package], wheel], capture_output=True, text=True, check=False)
        result["use"] = json.loads(use.stdout.splitlines()[-1]) if use.returncode == 0 else use.stderr[-2000:]
        began = time.monotonic()
        result |= {"again_exit": run(command, log, work, deadline), "again_s": round(time.monotonic() - began, 2)}
    (options.out / "build.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if code == 0 and isinstance(result["use"], dict) else 1


if __name__ == "__main__":
    sys.exit(main())
