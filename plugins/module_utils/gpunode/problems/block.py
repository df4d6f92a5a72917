"""A block of text: its words, its lines, and the messages around a place in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from . import lines
from .model import Evidence
from .pattern import alternatives
from .told import is_told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .pattern import Alternative

REACH: Final = 32 * 1024
"""Bytes on either side of a line in which ``near`` is looked for: some 200 lines of a journal."""
BEFORE: Final = 4
AFTER: Final = 5
"""Lines before and after a word that belong to one wrapped message: the driver's longest spans five."""
LONGEST_LINE: Final = 8 * 1024
"""Longer lines (progress bars that were never broken, JSON) are cut around the word."""
CUT: Final = 1024
"""Bytes of such a line on either side of the word: a message and what stands before it fit in."""
SHOWN: Final = 240
"""Characters of a line that are quoted as proof."""

_WORDS: Final = bytes(
    ord(chr(code).lower()) if code < 128 and chr(code).isalpha() else 0x20  # everything else separates words
    for code in range(256)
)
_ANSI: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\\u001b\[[0-9;?]*[A-Za-z]|\\x1b\[[0-9;?]*[A-Za-z]|\\[nrt](?=.)")
_NUMBER: Final = re.compile(
    r"0x[\da-fA-F]+|(?<![\da-zA-Z])(?=[a-fA-F]*\d)[\da-fA-F]{4,}(?![a-zA-Z])|(?<=[A-Z])\d{1,2}(?![\da-zA-Z])|(?<=\d_)\d{1,2}(?!\d)"
)
"""Addresses, process numbers, ranks (TP3) and parts of the GPU (GPC5, T1_11). An Xid's code, which tells, stands alone and is shorter."""

_REQUESTS: Final = re.compile(
    rb"(?:Receive(?: OpenAI)?|Finish): obj=[^\n]*|\"event\": ?\"request\.[^\n]*"
    rb"|Received request \S+: prompt: [^\n]*|Generated response \S+: [^\n]*"
)
"""Requests and answers that a server logs (--log-requests): what people write to a model is no sign of anything."""
_REQUEST_MARKS: Final = (b": obj=", b'"request.', b"Received request ", b"Generated response ")
_SETTINGS: Final = re.compile(rb"\bServerArgs\([^\n]*")
_OFF: Final = re.compile(rb"\b\w+=(?:None|False)\b")
"""sglang writes every setting it knows when it starts: the names of what is off are no sign of anything either."""
_SECRET: Final = re.compile(
    r"""((?:api[_-]?key|password|passwd|secret|hf_token|auth_token|access_token)\w*["']?\s*[=:]\s*["']?|Bearer\s+)(?!None\b)[^\s"',)]+""",
    re.IGNORECASE,
)

Found = tuple[int, list[Evidence], dict[str, str]]
"""A match: the number of its first line, the proof, the named groups."""


class Block:
    """A stretch of ``raw`` text that begins with line ``first_line`` of its source and is searched from ``start`` on.

    Lines end at line feeds and, as progress bars write them, at carriage returns; only the former are counted.
    """

    def __init__(self, raw: bytes, start: int, first_line: int, source: str) -> None:
        if b"\x1b" in raw or b"\\" in raw:
            raw = _ANSI.sub(lambda match: b" " * len(match[0]), raw)
        if any(mark in raw for mark in _REQUEST_MARKS):
            raw = _REQUESTS.sub(lambda match: b" " * len(match[0]), raw)
        if b"ServerArgs(" in raw:
            raw = _SETTINGS.sub(lambda match: _OFF.sub(lambda off: b" " * len(off[0]), match[0]), raw)
        self.raw = raw
        self.lower = raw.translate(_WORDS)
        self.words = frozenset(self.lower.split())
        self.source = source
        self._start = start
        self._first_line = first_line
        self._ends: list[int] | None = None
        self._numbers: list[int] | None = None
        self._messages: dict[int, tuple[str, bool]] = {}
        self._shapes: dict[int, tuple[str, str]] = {}
        self._joined: tuple[int, int, str, list[str], list[int]] | None = None

    @property
    def ends(self) -> list[int]:
        """Offsets of the ends of lines, found when they are first needed."""
        if self._ends is None:
            if b"\r" in self.raw:
                self._ends = [match.start() for match in re.finditer(rb"[\r\n]", self.raw)]
                number = self._first_line
                self._numbers = [number]
                for end in self._ends:
                    number += self.raw[end] == 0x0A
                    self._numbers.append(number)
            else:
                self._ends = [match.start() for match in re.finditer(rb"\n", self.raw)]
        return self._ends

    def number(self, line: int) -> int:
        """Number in the source of a line of this block."""
        return self._numbers[line] if self._numbers is not None else self._first_line + line

    @property
    def first_searched_line(self) -> int:
        """Number of the first line in which matches may begin."""
        return self.number(bisect_right(self.ends, self._start - 1))

    def places(self, word: bytes, start: int, until: int) -> Iterator[int]:
        """Offsets at which the whole word stands in [start, until)."""
        at = self.lower.find(word, start, until)
        while at >= 0:
            after = at + len(word)
            if (at == 0 or self.lower[at - 1] == 0x20) and (after >= len(self.lower) or self.lower[after] == 0x20):
                yield at
            at = self.lower.find(word, after, until)

    def shape(self, position: int) -> tuple[str, str]:
        """The message at a place without what differs from line to line of a flood, and the next line where it goes on with the message."""
        here = bisect_right(self.ends, position - 1)
        held = self._shapes.get(here)
        if held is None:
            after, prefixed = self._message(here + 1, self._line(here + 1)[0]) if here < len(self.ends) else ("", True)
            held = _NUMBER.sub("#", self._message(here, position)[0]), "" if prefixed else _NUMBER.sub("#", after)
            if held[0] and self._line(here)[1] - self._line(here)[0] <= LONGEST_LINE:
                self._shapes[here] = held
        return held

    def match(self, position: int, alternative: Alternative, *, told: bool = False) -> Found | None:
        """The message around a place, when the pattern matches it there; with ``told`` also where the line only tells of it.

        The line itself is tried first. More lines are joined when the pattern's words do not all stand in it, or when the next line goes
        on without a prefix of its own: messages are wrapped by programs, terminals and people.
        """
        here = bisect_right(self.ends, position - 1)
        low, high = self._span(here, position)
        if all(word in self.lower[low:high] for word in alternative.words):
            found = self._search(here, here, here, position, alternative, told=told)
            if found is not None and not (alternative.source.endswith(")?") and self._ends_here(here, position, alternative)):
                return found
            if found is None and not self._goes_on(here, position):
                return None
        first, last = self._window(here, position)
        low, high = self._span(first, position)[0], self._span(last, position)[1]
        window = self.lower[low:high]
        if not all(word in window for word in alternative.words):
            return None
        return self._search(first, last, here, position, alternative, told=told)

    def neighbour(self, position: int, text: str, within: int) -> Found | None:
        """The first place within so many lines (and ``REACH`` bytes) where another pattern matches."""
        here = bisect_right(self.ends, position - 1)
        low = max(0, position - REACH, self._line(max(0, here - within))[0])
        high = min(position + REACH, self._line(min(len(self.ends), here + within))[1])
        for alternative in alternatives(text, wordless=True):
            if not alternative.words <= self.words:
                continue
            places = self.places(alternative.anchor, low, high) if alternative.anchor else self._line_starts(low, high)
            for place in places:
                found = self.match(place, alternative, told=True)
                if found is not None:
                    return found
        return None

    def _search(self, first: int, last: int, here: int, position: int, alternative: Alternative, *, told: bool) -> Found | None:
        """Match the messages of these lines joined; the match must touch the line that the word stands in."""
        joined, texts, starts = self._join(first, last, position)
        for match in alternative.regex.finditer(joined):
            top = first + bisect_right(starts, match.start()) - 1
            bottom = first + bisect_right(starts, max(match.start(), match.end() - 1)) - 1
            if top <= here <= bottom and (told or not is_told(joined, match.start(), match.end())):
                groups = {name: value for name, value in match.groupdict().items() if value}
                evidence = [self._evidence(line, texts[line - first], match[0]) for line in range(top, bottom + 1)]
                return self.number(top), evidence, groups
        return None

    def _join(self, first: int, last: int, position: int) -> tuple[str, list[str], list[int]]:
        """The messages of these lines as one text, and where each begins; many patterns ask for the same lines one after the other."""
        held = self._joined
        if held is not None and held[0] == first and held[1] == last:
            return held[2:]
        texts = [self._message(line, position)[0] for line in range(first, last + 1)]
        starts = [0]
        for text in texts:
            starts.append(starts[-1] + len(text) + 1)
        joined = "\n".join(texts)
        short = all(line in self._messages for line in range(first, last + 1))
        self._joined = (first, last, joined, texts, starts) if short else None
        return joined, texts, starts

    def _ends_here(self, here: int, position: int, alternative: Alternative) -> bool:
        """Whether a match reaches the end of its line, so that its optional part may stand in the next."""
        text = self._message(here, position)[0].rstrip()
        match = alternative.regex.search(text)
        return match is not None and len(text) - match.end() < 12

    def _goes_on(self, here: int, position: int) -> bool:
        """Whether this line or the next has no prefix, or is one of the driver's, which writes long messages as several prefixed lines."""
        start, end = self._span(here, position)
        if b"NVRM" in self.raw[start:end] and b"Xid" not in self.raw[start:end]:
            return True
        messages = [self._message(line, position) for line in (here, here + 1) if line <= len(self.ends)]
        return any(text and not prefixed for text, prefixed in messages)

    def _window(self, here: int, position: int) -> tuple[int, int]:
        """The lines that may belong to one message, as long as they are not far."""
        first, last = max(0, here - BEFORE), min(len(self.ends), here + AFTER)
        while first < here and position - self._line(first)[0] > LONGEST_LINE:
            first += 1
        while last > here and self._line(last)[1] - position > LONGEST_LINE:
            last -= 1
        return first, last

    def _line(self, line: int) -> tuple[int, int]:
        start = self.ends[line - 1] + 1 if line else 0
        end = self.ends[line] if line < len(self.ends) else len(self.raw)
        return start, end

    def _line_starts(self, low: int, high: int) -> Iterator[int]:
        for line in range(bisect_right(self.ends, low - 1), bisect_right(self.ends, high - 1) + 1):
            yield self._line(line)[0]

    def _span(self, line: int, position: int) -> tuple[int, int]:
        """Where a line begins and ends; a long one is cut around the place."""
        start, end = self._line(line)
        if end - start > LONGEST_LINE:
            return max(start, min(position - CUT, end - CUT)), min(end, max(position + CUT, start + CUT))
        return start, end

    def _message(self, line: int, position: int) -> tuple[str, bool]:
        """A line's message, and whether a prefix stood before it."""
        held = self._messages.get(line)
        if held is not None:
            return held
        start, end = self._span(line, position)
        text = self.raw[start:end].decode("utf-8", "replace")
        said = lines.message(text)
        result = said, len(said) < len(text.lstrip())
        if (start, end) == self._line(line):
            self._messages[line] = result
        return result

    def _evidence(self, line: int, text: str, matched: str) -> Evidence:
        start, end = self._line(line)
        raw = self.raw[start : min(end, start + LONGEST_LINE)].decode("utf-8", "replace")
        name, seconds = lines.clock(raw)
        shown = " ".join(raw.split())
        if len(shown) > SHOWN:
            at = text.find(matched.split("\n", 1)[0])
            head = shown[:40] if name else ""
            shown = f"{head}... {' '.join(text[max(0, at - 20) : at + SHOWN - 40].split())}"
        shown = _SECRET.sub(r"\1***", shown)
        return Evidence(self.source, self.number(line), shown.strip(), name, seconds)
