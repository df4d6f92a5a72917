#!/usr/bin/env python3
"""The load generator against a server whose truth is known, beside a client in C, aiohttp and others' clients, in the same run.

    tests/bench/bench_smoke.py [--rounds 3] [--repeat 1] [--rungs 64x20,512x100] [--strict]
        [--aiohttp PYTHON] [--sglang PYTHON] [--vllm PYTHON]

One core for the server and one for the client (with real-time priority where that is allowed, so that other work on the machine does not
count). aiohttp: an interpreter that has it; without, a virtual environment is made for the run. sglang, vllm: interpreters that have these
packages (gigabytes, so none is made), to run `sglang.bench_serving` and `vllm bench serve`. With --strict a limit missed is exit 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
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
LONGEST_S = 300
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "CUDA_VISIBLE_DEVICES": ""}


def pinned(core: int) -> list[str]:
    """Prefix that keeps a command on a core, ahead of other work where the kernel allows it."""
    found = ["taskset", "-c", str(core)]
    if shutil.which("chrt") and subprocess.run(["chrt", "-f", "20", "true"], capture_output=True, check=False).returncode == 0:
        found = ["chrt", "-f", "20", *found]
    return found


def timed(command: list[str]) -> tuple[str, float, float, float]:
    """Run: (stdout, CPU seconds and peak memory in MiB of it and of what it waited for, wall seconds)."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen(command, stdout=output, stderr=error, cwd=ROOT, env=os.environ | OFFLINE)
        killer = threading.Timer(LONGEST_S, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0), error.seek(0)
        text = output.read()
        if process.returncode not in {0, 3}:
            raise RuntimeError(f"{command}: {process.returncode}: {(error.read() or text)[-800:]}")
    return text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - began


def tokenizer(folder: Path) -> Path:
    """A tokenizer of one word for each token, which the others' clients cannot do without: (its folder)."""
    folder.mkdir()
    words = {f"w{index}": index for index in range(30_000)} | {"tok": 30_000, "[UNK]": 30_001}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    parts: dict[str, Any] = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    whole = {"version": "1.0", "added_tokens": [], **parts, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 100_000}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 30_002}), encoding="utf-8")
    return folder


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
        self.folder = folder
        self.tokenizer = tokenizer(folder / "tokenizer") if options.sglang or options.vllm else folder
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

    def peer(self, name: str, streams: int, itl: float) -> dict[str, Any]:
        """Run sglang's or vLLM's client as its users do, with prompts and answers of the same lengths."""
        self.server.reset(ttft_ms=TTFT_MS, itl_ms=itl)
        result = self.folder / f"{name}.json"
        result.unlink(missing_ok=True)
        count = ["--num-prompts", str(streams * (self.options.rounds + 1)), "--max-concurrency", str(streams)]
        common = ["--base-url", self.server.url, "--model", "truth", "--tokenizer", str(self.tokenizer), *count, "--disable-tqdm"]
        lengths = ["--random-input-len", "256", "--random-output-len", str(TOKENS)]
        if name == "sglang":
            command = [self.options.sglang, "-m", "sglang.bench_serving", "--backend", "sglang-oai", "--dataset-name", "random-ids"]
            command += [*lengths, "--random-range-ratio", "1", "--output-file", str(result)]
        else:
            command = [
                str(Path(self.options.vllm).with_name("vllm")),
                "bench",
                "serve",
                "--dataset-name",
                "random",
                *lengths,
                "--ignore-eos",
            ]
            command += ["--percentile-metrics", "ttft,itl", "--save-result", "--result-filename", str(result)]
        launched = time.monotonic()
        _, cpu, memory, _ = timed([*self.client, *command, *common])
        found, truth = json.loads(result.read_text(encoding="utf-8")), self.server.truth()
        return {
            "output_tps": found["output_throughput"],
            "ttft_p50": found["median_ttft_ms"],
            "ttft_p99": found["p99_ttft_ms"],
            "itl_p50": found["median_itl_ms"],
            "itl_p99": found["p99_itl_ms"],
            "truth": truth,
            "us_per_token": cpu / truth["tokens"] * 1e6,
            "memory_mib": memory,
            "first_request_s": truth["first_s"] - TTFT_MS / 1000 - launched,
        }

    def rung(self, rung: str) -> dict[str, Any]:
        streams, rate = (int(part) for part in rung.split("x"))
        itl = 1000 / rate
        runs: dict[str, list[dict[str, Any]]] = {"gpunode": [], "c": [], "aiohttp": []}
        for _ in range(self.options.repeat):
            runs["gpunode"].append(self.gpunode(streams, itl))
            for name in ("sglang", "vllm"):
                if getattr(self.options, name) and rung in AIOHTTP_RATIO:
                    runs.setdefault(name, []).append(self.peer(name, streams, itl))
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
        for name in ("sglang", "vllm"):
            if name in middle:
                ratio = middle[name]["us_per_token"] / ours["us_per_token"]
                told = f"{ratio:.1f} times fewer; first request after {middle[name]['first_request_s']:.1f} s"
                self.limit(rung, f"CPU against {name}'s client", ratio > 1, told)
        self.limit(rung, "time to the first request", ours["first_request_s"] < FIRST_REQUEST_S, f"{ours['first_request_s']:.2f} s")
        if streams == 512:
            self.limit(rung, "peak memory", ours["memory_mib"] < MEMORY_MIB, f"{ours['memory_mib']:.0f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--aiohttp")
    parser.add_argument("--sglang", metavar="PYTHON")
    parser.add_argument("--vllm", metavar="PYTHON")
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
