"""Single requests beside the load: models, server information, metrics, flush. Plain HTTP/1.1 over asyncio, certificates verified."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import httptools

if TYPE_CHECKING:
    from gpunode_tools.smoke.level import Target

TIMEOUT_S: Final = 10.0


class Unreachable(Exception):  # noqa: N818 - a state of the server
    """Nothing answers at the address; the text says what was tried and what came back."""


class _Answer:
    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done = True


async def request(
    target: Target, path: str, *, method: str = "GET", body: bytes = b"", timeout_s: float = TIMEOUT_S
) -> tuple[int, dict[str, str], bytes]:
    """Return (status, headers by lower-case name, body); Unreachable when nothing answers in time."""
    name = f"[{target.host}]" if ":" in target.host else target.host
    key = f"authorization: Bearer {target.api_key}\r\n" if target.api_key else ""
    head = (
        f"{method} {target.base_path}{path} HTTP/1.1\r\nhost: {name}:{target.port}\r\nuser-agent: gpunode-smoke\r\nconnection: close\r\n"
        f"content-type: application/json\r\n{key}content-length: {len(body)}\r\n\r\n"
    )
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                target.host, target.port, ssl=target.ssl_context(), server_hostname=target.server_name if target.tls else None
            )
            try:
                writer.write(head.encode() + body)
                while not answer.done:
                    data = await reader.read(65536)
                    if not data:
                        break
                    parser.feed_data(data)
            finally:
                writer.close()
    except TimeoutError:
        raise Unreachable(f"no answer from {target.host}:{target.port}{path} within {timeout_s:g} s") from None
    except OSError as error:
        raise Unreachable(f"{target.host}:{target.port}: {error}") from error
    except httptools.HttpParserError as error:
        raise Unreachable(f"{target.host}:{target.port}{path} does not speak HTTP: {error}") from error
    return int(parser.get_status_code()), answer.headers, bytes(answer.body)


async def get_json(target: Target, path: str) -> Any:
    """The JSON at a path, or None when the server has no such thing."""
    status, _, body = await request(target, path)
    if status != 200:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return None
