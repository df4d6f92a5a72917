"""One slot of the load: a connection that sends a request, reads its stream, and tells the level what happened."""

from __future__ import annotations

import asyncio
import os
import re
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import httptools
from orjson import loads

if TYPE_CHECKING:
    from gpunode_tools.smoke.level import Level

BODY_LIMIT: Final = 4096
"""Bytes kept of an answer that is no stream: enough for its message."""
USAGE: Final = re.compile(rb'"total_tokens": ?(\d+), ?"completion_tokens": ?(\d+)')
MARKERS: Final = {"completions": b'"text":"', "chat": b'"content":"', "generate": b""}
HEX: Final = {(b"%x" if small else b"%X") % size: size for size in range(2048) for small in (True, False)}
"""Sizes of chunks as servers write them; larger ones take the long way."""
SUFFIXES: Final = 4096
"""Tokens of an answer up to which the ends of events are made beforehand (half a megabyte)."""
PLAIN: Final = 1 << 16
"""Texts of events remembered as free of quotes and escapes: a vocabulary's usual part, a few megabytes."""
RUNAWAY: Final = 1.5
"""A stream that has sent this many times the events that were asked for as tokens is cut off."""

# How a request can end otherwise than well: the kinds that are counted.
KINDS: Final = (
    "connection-refused",
    "connection-reset",
    "connection-closed",
    "connect-timeout",
    "tls",
    "redirect",
    "not-a-stream",
    "stream-error",
    "malformed-event",
    "stream-ended-early",
    "no-end-of-stream",
    "no-first-token",
    "stalled",
    "request-timeout",
    "runaway",
    "early-stop",
    "wrong-length",
    "usage-mismatch",
    "interrupted",
)


class Slot(asyncio.Protocol):
    """A connection with at most one request in flight; everything hot happens in `data_received` and `on_body`."""

    # Slots and no dictionary: at 50,000 reads a second on one core, locality is what costs.
    __slots__ = (
        "base",
        "buckets",
        "busy",
        "complete",
        "content_type",
        "counted",
        "done_mark",
        "events",
        "fd",
        "finish",
        "first",
        "gaps",
        "keep",
        "known",
        "last",
        "leads",
        "learnt",
        "level",
        "limit",
        "marker",
        "message",
        "number",
        "parser",
        "partial",
        "plain",
        "prefix",
        "problem",
        "read",
        "reading",
        "retry_after",
        "sent",
        "socket",
        "status",
        "streaming",
        "suffixes",
        "tokens",
        "transport",
        "usage",
        "wanted",
        "warm",
    )

    def __init__(self, level: Level, number: int) -> None:
        self.level, self.number = level, number
        self.base, self.buckets, self.plain = level.base, level.buckets, level.plain
        self.read, self.reading = level.reader, level.reading
        self.marker = MARKERS[level.plan.shape.endpoint]
        self.transport: asyncio.Transport | None = None
        self.socket: Any = None
        self.fd = -1
        self.parser: Any = None
        self.busy = self.warm = False
        self._clear()

    def _clear(self) -> None:
        self.sent = self.first = self.last = 0.0
        self.wanted = self.tokens = self.events = 0
        self.usage = -1
        self.finish: str | None = None
        self.done_mark = self.streaming = self.complete = self.counted = False
        self.keep = True
        self.problem = ""
        self.message = ""
        self.partial = b""
        self.status = 0
        self.content_type = b""
        self.retry_after = 0.0
        self.limit = self.known = 0
        self.leads: dict[int, bytes] = {}
        self.prefix = self.learnt = b""
        self.suffixes: list[bytes] = []

    # ---- a request ----
    def send(self, head: bytes, body: bytes, wanted: int, *, warm: bool) -> None:
        """Write one request; its end is told to the level."""
        self._clear()
        self.wanted, self.warm, self.busy = wanted, warm, True
        self.limit = int(wanted * RUNAWAY) + 16
        self.gaps = self.level.warm_gaps if warm else self.level.gaps
        transport = self.transport
        if transport is None:
            raise ConnectionError("the slot is not connected")
        request = head + b"%d\r\n\r\n" % len(body) + body
        written = 0
        if self.fd >= 0 and not transport.is_closing() and not transport.get_write_buffer_size():
            # The loop writes at the end of its turn only, after other sockets' reads: the request would be older than it is.
            self.sent = monotonic()
            try:
                written = os.write(self.fd, request)
            except OSError:
                written = 0  # a full buffer or a broken connection: the transport finds out which
        else:
            self.sent = monotonic()
        if written < len(request):
            transport.write(request[written:])

    def fail(self, kind: str, message: str = "", *, close: bool = True) -> None:
        """End the request with an error; the connection is no longer trusted."""
        if not self.busy:
            return
        self.problem, self.message = kind, message[:300]
        if close and self.transport is not None:
            transport, self.transport = self.transport, None
            transport.abort()
        self._over()

    def _over(self) -> None:
        self.busy = False
        self.level.ended(self)

    # ---- the connection ----
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.socket = transport.get_extra_info("socket")
        self.fd = -1 if self.level.context is not None else self.socket.fileno()
        self.parser = httptools.HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return
        self.transport = None
        if self.busy:
            kind = "connection-closed" if exc is None else "connection-reset"
            self.fail(kind, str(exc or "the server closed the connection before the answer was complete"), close=False)

    def data_received(self, data: bytes) -> None:
        now = monotonic()
        reading = self.reading
        if reading.due:
            reading.begin()
        tokens = self.tokens + 1
        if tokens < self.known:
            # One chunk with one event that differs from the one before in its text and in one more token: most reads of a stream are that,
            # and need no parser. A whole chunk more leaves the parser where it was: between two chunks.
            size = len(data)
            lead = self.leads.get(size)
            suffix = self.suffixes[tokens]
            if (lead or (lead := self._lead(data, size))) and data.startswith(lead) and data.endswith(suffix):
                # Text without quotes and backslashes, seen before or looked at now: then the event ends where its suffix begins.
                text = data[len(lead) : size - len(suffix)]
                if text in self.plain or self._plain(text, size - len(lead) - len(suffix)):
                    self.tokens = tokens
                    self.events += 1
                    self.buckets[int((now - self.base) * 100)] += 1
                    self.gaps.append(now - self.last)
                    self.last = now
                    return
            self.known = 0  # something else: read it properly, and learn anew
        tokens -= 1
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.problem, self.message = self.problem or "malformed-event", self.message or f"not HTTP: {error}"
        fresh = self.tokens - tokens
        if fresh > 0:
            # All tokens of one read arrived together: the gap before them is shared out.
            self.buckets[int((now - self.base) * 100)] += fresh
            if not self.first:
                self.first = now
                if reading.spare_acks:
                    reading.spare(self)
            elif fresh == 1:
                self.gaps.append(now - self.last)
            else:
                self.gaps.extend([(now - self.last) / fresh] * fresh)
                together = data.count(b"data: {") - 1
                if together > 0:
                    self.level.coalesced += together
                    reading.together[self.number & 1] += together
            self.last = now
        if self.learnt:
            # Only where this read held that event's chunk and nothing else, the parser now stands between two chunks.
            if (
                self.marker
                and self.first
                and not self.problem
                and data.endswith(self.learnt + b"\r\n")
                and len(data) - len(self.learnt) <= 8
            ):
                self._learn(self.learnt)
            self.learnt = b""
        if self.problem:
            self.fail(self.problem, self.message)
        elif self.complete:
            self.complete = False
            if not self.keep and self.transport is not None:
                transport, self.transport = self.transport, None
                transport.close()
            self._over()

    # ---- callbacks of the HTTP parser ----
    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self.content_type = value
        elif name == b"retry-after":
            try:
                self.retry_after = float(value)
            except ValueError:
                self.retry_after = 1.0
        elif name == b"x-gpunode-simulated":
            self.level.simulated = True

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.streaming = self.status == 200 and self.content_type.startswith(b"text/event-stream")

    def on_body(self, body: bytes) -> None:
        if not self.streaming:
            if len(self.partial) < BODY_LIMIT:
                self.partial += body
            return
        if self.partial:
            body, self.partial = self.partial + body, b""
        # The usual case: one event, whole.
        if body.startswith(b"data: {") and body.endswith(b"}\n\n") and body.find(b"\n\n") == len(body) - 2:
            events = self.events
            try:
                self.read(self, loads(body[6:]))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                self._malformed(body, error)
                return
            self.learnt = body if self.events == events + 1 else b""
            return
        self._slow(body)

    def _lead(self, data: bytes, size: int) -> bytes:
        """Make what a read of this size begins with, its chunk's size and the event up to the text; empty where it is none."""
        start = data.find(b"\r\n", 1, 8) + 2
        if HEX.get(data[: start - 2]) != size - start - 2:
            return b""
        lead = self.leads[size] = data[:start] + self.prefix
        return lead

    def _plain(self, text: bytes, length: int) -> bool:
        """Whether a text ends nowhere before its end; kept, as most texts of a stream come again."""
        if length < 0 or b'"' in text or b"\\" in text:
            return False
        if text and len(self.plain) < PLAIN:  # an empty one is looked at each time: its length may be below nothing
            self.plain.add(text)
        return True

    def _learn(self, body: bytes) -> None:
        """Keep what the next event should look like around its text."""
        start = body.find(self.marker)
        cut = start + len(self.marker)
        tail = body[body.find(b'"', cut) :]
        if start < 0 or b"%" in tail or body.find(b"\\", cut) >= 0:
            return
        if self.counted:
            match = USAGE.search(tail)
            if match is None or int(match[2]) != self.tokens:
                return
            prompt = int(match[1]) - self.tokens
            tail = tail[: match.start(1)] + b"%d" + tail[match.end(1) : match.start(2)] + b"%d" + tail[match.end(2) :]
        else:
            prompt = 0
        # What follows the text is the same in every stream, but for the counts: made once for the whole level.
        suffixes = self.level.suffixes.get((tail, prompt))
        if suffixes is None:
            numbers = range(min(self.limit, SUFFIXES))
            line = tail + b"\r\n"
            suffixes = [line % (prompt + number, number) for number in numbers] if self.counted else [line] * len(numbers)
            self.level.suffixes[tail, prompt] = suffixes
        self.prefix, self.suffixes, self.known = body[:cut], suffixes, len(suffixes)
        self.leads = {}

    def _slow(self, body: bytes) -> None:
        """Anything else: several events, parts of one, comments, other line ends."""
        text = body.replace(b"\r\n", b"\n") if b"\r" in body else body
        *blocks, rest = text.split(b"\n\n")
        self.partial = rest
        for block in blocks:
            data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if not data:
                continue
            if data == b"[DONE]":
                self.done_mark = True
                continue
            try:
                self.read(self, loads(data))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                self._malformed(data, error)
                return

    def _malformed(self, data: bytes, error: Exception) -> None:
        if not self.problem:
            self.problem = "malformed-event"
            self.message = f"{type(error).__name__}: {error}: {data[:120]!r}"

    def on_message_complete(self) -> None:
        if not self.busy or self.problem:
            return
        if not self.streaming:
            self._no_stream()
        elif self.partial.strip():
            self.problem = "stream-ended-early"
            self.message = f"the stream ended inside an event: {self.partial[:80]!r}"
        elif not (self.done_mark or self.finish):
            self.problem, self.message = (
                "stream-ended-early",
                f"the stream ended after {self.tokens} tokens without a finish reason or [DONE]",
            )
        if self.problem:
            return
        self.keep = bool(self.parser.should_keep_alive())
        self.complete = True

    def _no_stream(self) -> None:
        text = self.partial.decode("utf-8", "replace").strip()
        self.message = f"HTTP {self.status}: {text[:250]}"
        if 300 <= self.status < 400:
            self.problem = "redirect"
        elif self.status != 200:
            self.problem = f"http-{self.status}"
        else:
            self.problem = "not-a-stream"
            self.message = f"content-type {self.content_type.decode('latin-1')!r} where an event stream was asked for: {text[:120]}"
