"""The streaming search: text in, occurrences of the catalogue's signs out, in bounded memory.

A block of the text is brought to lower-case words once, and only patterns all of whose words occur in it are tried at all, at the places
where the rarest of their words stands. Healthy text costs two passes of C code whatever the size of the catalogue.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from . import lines
from .model import Evidence
from .pattern import alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .pattern import Alternative

BLOCK: Final = 512 * 1024
"""Bytes that are searched at a time: large enough that a block's set of words costs little, small enough to stay in the cache."""
REACH: Final = 32 * 1024
"""Bytes on either side of a line in which ``near`` is looked for: some 200 lines of a journal."""
BEFORE: Final = 4
AFTER: Final = 5
"""Lines before and after a word that belong to one wrapped message: the driver's longest spans five."""
GLANCES: Final = 4
"""Places in a block at which a mere fact (a version, a card's name) is looked for: it says the same at all of them."""
LONGEST_LINE: Final = 8 * 1024
"""Longer lines (progress bars that were never broken) are cut around the word."""
KEPT: Final = 4
"""Occurrences of a sign that are kept as proof besides the last one."""
FLOOD: Final = 200
"""After so many occurrences a sign is looked for once per block: its count is then a lower bound."""

_WORDS: Final = bytes(
    ord(chr(code).lower()) if code < 128 and chr(code).isalpha() else 0x20  # everything else separates words
    for code in range(256)
)
_ANSI: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\\u001b\[[0-9;?]*[A-Za-z]|\\x1b\[[0-9;?]*[A-Za-z]|\\[nrt](?=.)")


@dataclass
class Occurrence:
    """Where a text pattern was found: the proof, and the named groups."""

    evidence: list[Evidence]
    groups: dict[str, str]


@dataclass
class Seen:
    """What is known of one pattern after the search."""

    count: int = 0
    kept: list[Occurrence] = field(default_factory=list)
    last: Occurrence | None = None
    last_line: int = -1
    last_source: str = ""


@dataclass(frozen=True)
class Wanted:
    """A pattern to look for under ``key``, with the conditions of its neighbourhood."""

    key: object
    text: str
    near: tuple[str, ...] = ()
    not_near: tuple[str, ...] = ()
    within: int = 60
    fact: bool = False


class Index:
    """The patterns of a catalogue by the word that each is found by."""

    def __init__(self, wanted: Iterable[Wanted]) -> None:
        self.by_anchor: dict[bytes, list[tuple[Alternative, Wanted]]] = {}
        for item in wanted:
            for alternative in alternatives(item.text):
                self.by_anchor.setdefault(alternative.anchor, []).append((alternative, item))
            for text in (*item.near, *item.not_near):
                alternatives(
                    text, wordless=True
                )  # a pattern that cannot be read is an error of the catalogue, not of the log that meets it
        self.anchors = frozenset(self.by_anchor)


class Scanner:
    """Searches one source: ``feed`` it with bytes as they come, then ``close`` it; what was found gathers in ``seen``."""

    def __init__(self, index: Index, source: str, seen: dict[object, Seen]) -> None:
        self.index = index
        self.source = source
        self.seen = seen
        self.lines = 0
        self.bytes = 0
        self._buffer = b""
        self._pending: list[bytes] = []
        self._waiting = 0
        self._first_line = 1
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; search whatever has its whole neighbourhood."""
        self.bytes += len(data)
        self._pending.append(data)
        self._waiting += len(data)
        if len(self._buffer) - self._searched + self._waiting >= BLOCK + REACH:
            self._gather()
        while len(self._buffer) - self._searched >= BLOCK + REACH:
            until = self._buffer.rfind(b"\n", self._searched, self._searched + BLOCK) + 1
            if until <= self._searched:
                until = self._searched + BLOCK
            self._search(until, self._buffer[: until + REACH])

    def close(self) -> None:
        """Search what is left."""
        self._gather()
        while self._searched < len(self._buffer):
            until = self._buffer.rfind(b"\n", self._searched, self._searched + BLOCK) + 1
            if until <= self._searched or len(self._buffer) - self._searched <= BLOCK:
                until = min(len(self._buffer), self._searched + BLOCK)
            self._search(until, self._buffer[: until + REACH])
        self.lines = self._first_line - 1 + self._buffer.count(b"\n") + (0 if self._buffer.endswith(b"\n") or not self._buffer else 1)

    def _gather(self) -> None:
        self._buffer = b"".join([self._buffer, *self._pending])
        self._pending.clear()
        self._waiting = 0

    def _search(self, until: int, text: bytes) -> None:
        block = _Block(text, self._searched, until, self._first_line, self.source)
        for anchor in self.index.anchors & block.words:
            tried = [(alternative, item) for alternative, item in self.index.by_anchor[anchor] if alternative.words <= block.words]
            if not tried:
                continue
            facts = [pair for pair in tried if pair[1].fact]
            problems = [pair for pair in tried if not pair[1].fact]
            for count, position in enumerate(block.places(anchor, self._searched, until)):
                if count == GLANCES and not problems:
                    break
                for alternative, item in problems if count >= GLANCES else (*problems, *facts):
                    self._try(block, position, alternative, item)
        keep = self._buffer.rfind(b"\n", 0, max(0, until - REACH)) + 1
        self._first_line += self._buffer.count(b"\n", 0, keep)
        self._buffer = self._buffer[keep:]
        self._searched = until - keep

    def _try(self, block: _Block, position: int, alternative: Alternative, item: Wanted) -> None:
        seen = self.seen.get(item.key)
        here = seen is not None and seen.last_source == self.source
        if seen is not None and here and seen.count >= FLOOD and seen.last_line >= block.first_searched_line:
            return
        found = block.match(position, alternative)
        if found is None:
            return
        first_line, evidence, groups = found
        if seen is not None and here and first_line <= seen.last_line:
            return
        for text in item.not_near:
            if block.neighbour(position, text, item.within) is not None:
                return
        proof = evidence
        for text in item.near:
            neighbour = block.neighbour(position, text, item.within)
            if neighbour is None:
                return
            if all(place.line != neighbour[0] for place in proof):
                proof = [*proof, *neighbour[1]]
            groups = {**neighbour[2], **groups}
        if seen is None:
            seen = self.seen.setdefault(item.key, Seen())
        seen.count += 1
        seen.last_line = max(place.line for place in evidence)
        seen.last_source = self.source
        occurrence = Occurrence(sorted(proof, key=lambda place: place.line), groups)
        if len(seen.kept) < KEPT:
            seen.kept.append(occurrence)
        else:
            seen.last = occurrence


class _Block:
    """A stretch of text with its words, its lines, and the messages around a place."""

    def __init__(self, raw: bytes, start: int, until: int, first_line: int, source: str) -> None:
        if b"\x1b" in raw or b"\\" in raw:
            raw = _ANSI.sub(lambda match: b" " * len(match[0]), raw)
        self.raw = raw
        self.lower = raw.translate(_WORDS)
        self.words = frozenset(self.lower.split())
        self.first_line = first_line
        self.source = source
        self._ends: list[int] | None = None
        self._messages: dict[int, str] = {}
        self._start = start
        self.until = until

    @property
    def ends(self) -> list[int]:
        if self._ends is None:
            self._ends = [match.start() for match in re.finditer(b"\n", self.raw)]
        return self._ends

    @property
    def first_searched_line(self) -> int:
        return self.first_line + bisect_right(self.ends, self._start - 1)

    def places(self, word: bytes, start: int, until: int) -> Iterator[int]:
        """Offsets at which the whole word stands in [start, until)."""
        at = self.lower.find(word, start, until)
        while at >= 0:
            after = at + len(word)
            if (at == 0 or self.lower[at - 1] == 0x20) and (after >= len(self.lower) or self.lower[after] == 0x20):
                yield at
            at = self.lower.find(word, after, until)

    def match(self, position: int, alternative: Alternative) -> tuple[int, list[Evidence], dict[str, str]] | None:
        """The message around a place, when the pattern matches it there: its first line, the proof, the groups."""
        here = bisect_right(self.ends, position - 1)
        low, high = self._line(here)
        line = self.lower[low:high] if high - low <= LONGEST_LINE else self.lower[max(low, position - LONGEST_LINE // 2) : position + 1]
        before, after = BEFORE, AFTER
        if all(word in line for word in alternative.words):
            found = self._search(here, here, here, position, alternative)
            if found is not None:
                return found
            before, after = 1, 2  # its words stand in this line: what is missing is not far
        first = max(0, here - before)
        last = min(len(self.ends), here + after)
        low = self._line(first)[0]
        high = self._line(last)[1]
        if high - low > LONGEST_LINE:
            first, last, low, high = self._narrow(here, position)
        window = self.lower[low:high]
        if not all(word in window for word in alternative.words):
            return None
        return self._search(first, last, here, position, alternative)

    def _search(
        self, first: int, last: int, here: int, position: int, alternative: Alternative
    ) -> tuple[int, list[Evidence], dict[str, str]] | None:
        """Match the messages of these lines joined; the match must touch the line that the word stands in."""
        texts = [self._message(number, position) for number in range(first, last + 1)]
        joined = "\n".join(texts)
        starts = [0]
        for text in texts:
            starts.append(starts[-1] + len(text) + 1)
        for match in alternative.regex.finditer(joined):
            top = first + bisect_right(starts, match.start()) - 1
            bottom = first + bisect_right(starts, max(match.start(), match.end() - 1)) - 1
            if top <= here <= bottom:
                groups = {name: value for name, value in match.groupdict().items() if value}
                evidence = [self._evidence(number, texts[number - first], match[0]) for number in range(top, bottom + 1)]
                return self.first_line + top, evidence, groups
        return None

    def neighbour(self, position: int, text: str, within: int) -> tuple[int, list[Evidence], dict[str, str]] | None:
        """The first place within so many lines (and ``REACH`` bytes) where another pattern matches."""
        here = bisect_right(self.ends, position - 1)
        low = max(position - REACH, self._line(max(0, here - within))[0])
        high = min(position + REACH, self._line(min(len(self.ends), here + within))[1])
        for alternative in alternatives(text, wordless=True):
            if not alternative.words <= self.words:
                continue
            places = self.places(alternative.anchor, max(0, low), high) if alternative.anchor else self._line_starts(low, high)
            for place in places:
                found = self.match(place, alternative)
                if found is not None:
                    return found
        return None

    def _line_starts(self, low: int, high: int) -> Iterator[int]:
        for number in range(bisect_right(self.ends, low - 1), min(len(self.ends), bisect_right(self.ends, high - 1)) + 1):
            yield self._line(number)[0]

    def _narrow(self, here: int, position: int) -> tuple[int, int, int, int]:
        """Fewer lines where they are long, the line itself at least."""
        first = last = here
        while first > 0 and here - first < BEFORE and position - self._line(first - 1)[0] < LONGEST_LINE // 2:
            first -= 1
        while last < len(self.ends) and last - here < AFTER and self._line(last + 1)[1] - position < LONGEST_LINE // 2:
            last += 1
        low = max(self._line(first)[0], position - LONGEST_LINE // 2)
        high = min(self._line(last)[1], position + LONGEST_LINE // 2)
        return first, last, low, high

    def _line(self, number: int) -> tuple[int, int]:
        start = self.ends[number - 1] + 1 if number else 0
        end = self.ends[number] if number < len(self.ends) else len(self.raw)
        return start, end

    def _message(self, number: int, position: int) -> str:
        cached = self._messages.get(number)
        if cached is not None:
            return cached
        start, end = self._line(number)
        whole = end - start <= LONGEST_LINE
        if not whole:
            start, end = max(start, position - LONGEST_LINE // 2), min(end, position + LONGEST_LINE // 2)
        text = self.raw[start:end].decode("utf-8", "replace").replace("\r", "\n")
        text = lines.message(text) if "\n" not in text else "\n".join(lines.message(part) for part in text.split("\n"))
        if whole:
            self._messages[number] = text
        return text

    def _evidence(self, number: int, text: str, matched: str) -> Evidence:
        start, end = self._line(number)
        raw = self.raw[start : min(end, start + LONGEST_LINE)].decode("utf-8", "replace")
        name, seconds = lines.clock(raw)
        shown = " ".join(raw.split())
        if len(shown) > 240:
            at = text.find(matched.split("\n", 1)[0])
            head = shown[:40] if name else ""
            shown = f"{head}... {' '.join(text[max(0, at - 20) : at + 200].split())}"[:260]
        return Evidence(self.source, self.first_line + number, shown.strip(), name, seconds)
