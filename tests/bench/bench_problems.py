"""How fast known problems are searched, against one alternation of all their patterns over the same journal; and in how much memory."""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpunode.problems import CATALOGUE, diagnosis
from gpunode.problems.pattern import plain

MIB = 1 << 20
SIZE_MIB = int(os.environ.get("GPUNODE_BENCH_MIB", "128"))
"""Size of the file whose reading is measured in memory; 1024 proves the gigabyte."""


def journal(size: int, trouble: float) -> bytes:
    """A server's journal: batches, requests, now and then a known message (share ``trouble`` of the lines)."""
    chance = random.Random(1)
    messages = [text for problem in CATALOGUE for text in problem.shows]
    lines: list[str] = []
    length = 0
    second = 0.0
    while length < size:
        second += chance.random()
        stamp = (
            f"2026-11-30T{int(second // 3600) % 24:02d}:{int(second // 60) % 60:02d}:{int(second) % 60:02d}+0000 gpu-node-01 sglang[4711]: "
        )
        kind = chance.random()
        if kind < trouble:
            text = chance.choice(messages)
        elif kind < 0.45:
            text = (
                f"[2026-11-30 10:00:00 TP0] Decode batch, #running-req: {chance.randint(1, 256)}, #token: {chance.randint(1000, 300000)}, "
                f"token usage: {chance.random():.2f}, cuda graph: True, gen throughput (token/s): 1842.11, #queue-req: 0, "
            )
        elif kind < 0.65:
            text = (
                f"[2026-11-30 10:00:00 TP0] Prefill batch, #new-seq: {chance.randint(1, 9)}, #new-token: {chance.randint(1, 8192)}, "
                "#cached-token: 0, token usage: 0.12, #running-req: 31, #queue-req: 0, "
            )
        else:
            text = f'[2026-11-30 10:00:00] INFO:     192.0.2.{chance.randint(1, 254)}:41184 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        lines += [stamp + line + "\n" for line in text.split("\n")]
        length += sum(len(stamp) + len(line) + 1 for line in text.split("\n"))
    return "".join(lines).encode()


def searched(data: bytes) -> tuple[float, int]:
    """Seconds and problems of our search."""
    began = time.perf_counter()
    found = diagnosis()
    scanner = found.open("journal")
    for start in range(0, len(data), MIB):
        scanner.feed(data[start : start + MIB])
    scanner.close()
    return time.perf_counter() - began, len(found.matches())


def alternation() -> re.Pattern[str]:
    """All patterns of the catalogue in one, names of groups left out as they repeat."""
    texts = [plain(sign.text).pattern for problem in CATALOGUE for sign in problem.signs if not sign.source]
    return re.compile("|".join(f"(?:{re.sub(r'[?]P<[a-z]+>', '?:', text)})" for text in texts), re.IGNORECASE | re.MULTILINE)


def main() -> int:
    searched(journal(MIB // 4, 0.01))  # patterns are compiled when they are first needed
    every = alternation()
    slow = False
    for share, name in ((0.0, "healthy"), (0.0005, "a known message in 2,000 lines"), (0.02, "a known message in 50 lines")):
        data = journal(MIB // 2, share)
        ours, found = min(searched(data) for _ in range(2))
        text = data.decode()
        began = time.perf_counter()
        hits = sum(1 for _ in every.finditer(text))
        theirs = time.perf_counter() - began
        print(f"{name}: {theirs / ours:.0f} times the speed of one alternation ({found} problems; {hits} hits of the alternation)")
        slow = slow or theirs / ours < 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        piece = journal(4 * MIB, 0.0005)
        with path.open("wb") as stream:
            for _ in range(SIZE_MIB // 4):
                stream.write(piece)
        began = time.perf_counter()
        done = subprocess.run([Path(sys.executable).with_name("gpunode"), "diagnose", path], capture_output=True, check=False)
        spent = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        size = path.stat().st_size
    print(f"gpunode diagnose of {size / MIB:.0f} MiB: {size / 1e6 / spent:.0f} MB/s, at most {peak:.0f} MiB of memory")
    return 1 if slow or done.returncode != 1 or peak > 100 else 0


if __name__ == "__main__":
    sys.exit(main())
