"""Streams against a gateway, so many at a time, until a file appears; what failed and when, as JSON.

    constant_load.py URL --streams 8 --tokens 64 --until FILE --result FILE [--once] [--alike] [--key-file F]

With --once each stream sends one request; with --alike all prompts have one beginning, as those under one system prompt do. Counts as
failed: a status other than 200, a stream that ends without its last event, fewer tokens than were asked for, a connection that breaks,
and 60 s without a byte. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
import urllib.parse
from pathlib import Path
from typing import Any

SILENCE_S = 60.0


def prompt(number: int, *, alike: bool) -> str:
    """Thirty-two words that no other number has, or with a beginning that all have.

    A text, not token ids: to a cache-aware router (sglang-router 0.3.2) those are all one prompt, and one worker would get them all.
    """
    words = random.Random(number)
    own = ["".join(words.choices("abcdefghij", k=3)) for _ in range(8 if alike else 32)]
    return " ".join(["the"] * 24 * alike + own)


async def request(host: str, port: int, key: str, tokens: int, text: str) -> str:
    """Send one request and read its stream; an empty text when it is whole, else what is wrong."""
    body = json.dumps(
        {
            "text": text,
            "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True},
            "stream": True,
        }
    ).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    writer = None
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), SILENCE_S)
        writer.write(head.encode() + b"\r\n" + body)
        status = (await asyncio.wait_for(reader.readline(), SILENCE_S)).split()
        if status[1:2] != [b"200"]:
            return f"status {status[1:2]}: {(await asyncio.wait_for(reader.read(2000), SILENCE_S))[-300:]!r}"
        text = b""
        while part := await asyncio.wait_for(reader.read(65536), SILENCE_S):
            text = text[-4000:] + part
        if b"data: [DONE]" not in text:
            return f"cut after {text[-120:]!r}"
        if f'"completion_tokens":{tokens}' not in text.decode(errors="replace").replace('": ', '":'):
            return f"short: {text[-400:]!r}"
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        return f"{type(error).__name__}: {error}"
    else:
        return ""
    finally:
        if writer is not None:
            writer.close()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Keep the streams going until the file is there."""
    url = urllib.parse.urlsplit(options.url)
    key = options.key_file.read_text().strip() if options.key_file else ""
    done: list[float] = []
    failures: list[dict[str, Any]] = []
    began = time.time()

    async def stream(number: int) -> None:
        # Streams that began together would end together, wave after wave, with moments in between when nothing runs.
        tokens = options.tokens if options.once else max(1, options.tokens * (number + 1) // options.streams)
        while True:
            wrong = await request(str(url.hostname), int(url.port or 80), key, tokens, prompt(number, alike=options.alike))
            tokens = options.tokens
            if wrong:
                failures.append({"at": round(time.time(), 2), "what": wrong})
            else:
                done.append(time.time())
            number += options.streams
            if options.once or (options.until and options.until.exists()):
                return
            if wrong:
                await asyncio.sleep(0.2)

    await asyncio.gather(*(stream(number) for number in range(options.streams)))
    longest = max((b - a for a, b in zip([began, *done], done, strict=False)), default=0.0)
    return {"seconds": round(time.time() - began, 1), "completed": len(done), "failed": failures, "longest_pause_s": round(longest, 2)}


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--alike", action="store_true")
    parser.add_argument("--until", type=Path)
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    result = asyncio.run(run(options))
    options.result.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
