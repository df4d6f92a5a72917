"""Plain aiohttp as people write it: a task for each stream, JSON of each line. Usage: PORT STREAMS ROUNDS TOKENS; prints JSON."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time

import aiohttp

PORT, STREAMS, ROUNDS, TOKENS = (int(argument) for argument in sys.argv[1:5])
ttft: list[float] = []
gaps: list[float] = []


async def stream(session):
    for _ in range(ROUNDS):
        body = {
            "model": "truth",
            "prompt": [random.randrange(1000, 30000) for _ in range(256)],
            "max_tokens": TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        began, last = time.perf_counter(), None
        async with session.post(f"http://127.0.0.1:{PORT}/v1/completions", json=body) as answer:
            async for raw in answer.content:
                line = raw.strip()
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                if json.loads(line[6:])["choices"]:
                    now = time.perf_counter()
                    if last is None:
                        ttft.append(now - began)
                    else:
                        gaps.append(now - last)
                    last = now


async def main():
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(stream(session) for _ in range(STREAMS)))


def rank(values, q):
    return sorted(values)[int(q * (len(values) - 1))] * 1000


if __name__ == "__main__":
    start = time.perf_counter()
    asyncio.run(main())
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = STREAMS * ROUNDS * TOKENS
    print(
        json.dumps(
            {
                "output_tps": total / seconds,
                "ttft_p50": rank(ttft, 0.5),
                "ttft_p99": rank(ttft, 0.99),
                "itl_p50": rank(gaps, 0.5),
                "itl_p99": rank(gaps, 0.99),
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "tokens": total,
            }
        )
    )
