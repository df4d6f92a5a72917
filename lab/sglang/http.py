"""HTTP/1.1 as uvicorn speaks it: header order, chunk framing, keep-alive; one asyncio protocol, standard library only."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.sglang.api import Api

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
KEEP_ALIVE_S = 5  # uvicorn's default
MAX_HEADER = 65536


class _Date:
    """The date header of this second: formatting it costs as much as a token."""

    second = 0
    text = ""

    @classmethod
    def now(cls) -> str:
        second = int(time.time())
        if cls.second != second:
            cls.second, cls.text = second, formatdate(second, usegmt=True)
        return cls.text


def dumps(value: Any) -> bytes:
    """JSON without blanks, UTF-8 as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Exchange:
    """One request and its answer."""

    def __init__(self, protocol: Protocol, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.protocol, self.method, self.headers, self.body = protocol, method, headers, body
        self.path = target.split("?", 1)[0]
        self.on_disconnect: Callable[[], None] | None = None
        self.done = self.streaming = False
        self.status = 0

    def _head(self, status: int, lines: list[str]) -> bytes:
        self.status = status
        reason = REASONS.get(status, "Unknown")
        fixed = [f"HTTP/1.1 {status} {reason}", f"date: {_Date.now()}", "server: uvicorn"]
        return "\r\n".join([*fixed, *lines, "x-gpunode-simulated: 1", "", ""]).encode()

    def answer(self, status: int, body: bytes = b"", content_type: str | None = None, extra: tuple[str, ...] = ()) -> None:
        """A complete answer."""
        if self.done:
            return
        lines = [f"content-length: {len(body)}"]
        if content_type:
            lines.append(f"content-type: {content_type}")
        lines += [*extra, "vary: Origin"]
        self.protocol.write(self._head(status, lines) + (b"" if self.method == "HEAD" else body))
        self.finish()

    def json(self, status: int, value: Any) -> None:
        self.answer(status, dumps(value), "application/json")

    def chunked(self, status: int, body: bytes, content_type: str) -> None:
        """A complete answer in one chunk."""
        self.protocol.write(
            self._head(status, [f"Content-Type: {content_type}", "vary: Origin", "Transfer-Encoding: chunked"])
            + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        self.finish()

    def start_stream(self) -> None:
        self.streaming = True
        self.protocol.write(
            self._head(200, ["content-type: text/event-stream; charset=utf-8", "vary: Origin", "Transfer-Encoding: chunked"])
        )

    def event(self, data: bytes) -> None:
        """One server-sent event in one chunk."""
        self.protocol.write(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))

    def end_stream(self) -> None:
        self.protocol.write(b"0\r\n\r\n")
        self.finish()

    def finish(self) -> None:
        if not self.done:
            self.done = True
            self.protocol.finished(self)

    def reset(self) -> None:
        """Break the connection off."""
        self.done = True
        self.protocol.api.left(self)
        transport = self.protocol.transport
        if transport is not None:
            # Without lingering the kernel sends a reset instead of a tidy end.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()


class Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.current: Exchange | None = None
        self.close_after = False
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._arm()

    def _arm(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._idle)

    def _idle(self) -> None:
        if self.current is None and self.transport is not None:
            self.transport.close()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None
        if self.timer is not None:
            self.timer.cancel()
        if self.current is not None and not self.current.done:
            self.current.done = True
            self.api.left(self.current)
            if self.current.on_disconnect is not None:
                self.current.on_disconnect()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.current is None:
            self._next()

    def _next(self) -> None:
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        if not blank:
            if len(self.buffer) > MAX_HEADER:
                self._invalid()
            return
        lines = head.decode("latin-1").split("\r\n")
        parts = lines[0].split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            self._invalid()
            return
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        try:
            length = int(headers.get("content-length", "0"))
        except ValueError:
            self._invalid()
            return
        if len(rest) < length:
            if headers.pop("expect", "").lower() == "100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self.buffer = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:")) + blank + rest
            return
        self.buffer = rest[length:]
        if self.timer is not None:
            self.timer.cancel()
        self.close_after = headers.get("connection", "").lower() == "close" or parts[2] == "HTTP/1.0"
        self.current = Exchange(self, parts[0], parts[1], headers, rest[:length])
        self.api.handle(self.current)

    def _invalid(self) -> None:
        text = b"Invalid HTTP request received."
        self.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (len(text), text)
        )
        if self.transport is not None:
            self.transport.close()

    def finished(self, exchange: Exchange) -> None:
        self.api.left(exchange)
        self.current = None
        if self.close_after:
            if self.transport is not None:
                self.transport.close()
            return
        self._arm()
        if self.buffer:
            asyncio.get_running_loop().call_soon(self._next)
