#!/usr/bin/env python3
"""Build flash-attn on a real GPU machine by the role's own script, killed and resumed, and use it.

    tests/bench/bench_build_h200.py --sdist flash_attn-2.8.3.post2.tar.gz --arch sm90 --out DIR [--limit 560] [--work /tmp/gpunode-build]

Needs torch, nvcc, setuptools, wheel and ninja; no network. Where the limit comes first, the same command goes on from what is compiled.
Writes DIR/build.json and DIR/build.log.
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
KILL_AFTER = 6
"""Objects that must be there before the first build is killed."""

USE = r"""
import json, sys, time, zipfile
folder = "/tmp/gpunode-flash-attn"
zipfile.ZipFile(sys.argv[1]).extractall(folder)
sys.path.insert(0, folder)
import torch, flash_attn
from flash_attn import flash_attn_func
torch.manual_seed(0)
q, k, v = (torch.randn(2, 2048, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
ours = flash_attn_func(q, k, v, causal=True)
parts = (t.transpose(1, 2).float() for t in (q, k, v))
reference = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)
error = (ours.float() - reference).abs().max().item()
def clock(call):
    for _ in range(5): call()
    torch.cuda.synchronize(); began = time.perf_counter()
    for _ in range(50): call()
    torch.cuda.synchronize(); return (time.perf_counter() - began) / 50 * 1e3
flash = clock(lambda: flash_attn_func(q, k, v, causal=True))
def plain():
    s = (q.transpose(1, 2) @ k.transpose(1, 2).transpose(-1, -2)) / 128**0.5
    s.masked_fill_(torch.ones(2048, 2048, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    return s.softmax(-1) @ v.transpose(1, 2)
print(json.dumps({"version": flash_attn.__version__, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "max_error_against_fp32": error, "flash_ms": round(flash, 3), "plain_attention_ms": round(clock(plain), 3)}))
"""


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
        run(command, log, work, deadline, kill_at=KILL_AFTER)
        result |= {"killed_after_s": round(time.monotonic() - began, 1), "objects_when_killed": objects(work)}
    began = time.monotonic()
    code = run(command, log, work, deadline)
    result |= {"resumed_s": round(time.monotonic() - began, 1), "exit": code, "progress": progress(work), "objects": objects(work)}
    if code == 0:
        wheel = log.read_text().splitlines()[-1]
        result["wheel"] = Path(wheel).name
        result["wheel_bytes"] = Path(wheel).stat().st_size
        use = subprocess.run([sys.executable, "-c", USE, wheel], capture_output=True, text=True, check=False)
        result["use"] = json.loads(use.stdout.splitlines()[-1]) if use.returncode == 0 else use.stderr[-2000:]
        began = time.monotonic()
        result |= {"again_exit": run(command, log, work, deadline), "again_s": round(time.monotonic() - began, 2)}
    (options.out / "build.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
