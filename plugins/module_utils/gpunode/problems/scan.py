"""The streaming search: text in, occurrences of the catalogue's signs out, in bounded memory.

A block of the text is brought to lower-case words once, and only patterns all of whose words occur in it are tried at all, at the places
where the rarest of their words stands. Healthy text costs two passes of C code whatever the size of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .block import REACH, Block
from .pattern import alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Evidence
    from .pattern import Alternative

BLOCK: Final = 512 * 1024
"""Bytes that are searched at a time: large enough that a block's set of words costs little, small enough to stay in the cache."""
GLANCES: Final = 4
"""Places in a block at which a mere fact (a version, a card's name) is looked for: it says the same at all of them."""
KEPT: Final = 4
"""Occurrences of a sign that are kept as proof besides the last one."""
FLOOD: Final = 200
"""After so many occurrences a sign is looked for once per block: its count is then a lower bound."""

BUSY: Final = 64
"""Places of one word in a block from which lines are told apart by their shape: in a flood they differ in addresses and numbers alone."""
SAMPLES: Final = 4
"""Lines of one shape on which every pattern is tried; on further ones only those that matched."""
SAMPLED: Final = 16
"""Of a flood of one shape every line up to ``FLOOD`` is tried, then one of so many: what surrounds them may still decide."""


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


@dataclass
class _Shape:
    """Lines of one shape in a block: how many, and what matched the first of them."""

    count: int = 0
    matching: list[tuple[Alternative, Wanted]] = field(default_factory=list)


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
        block = Block(text, self._searched, self._first_line, self.source)
        for anchor in self.index.anchors & block.words:
            tried = [(alternative, item) for alternative, item in self.index.by_anchor[anchor] if alternative.words <= block.words]
            if not tried:
                continue
            facts = [pair for pair in tried if pair[1].fact]
            problems = [pair for pair in tried if not pair[1].fact]
            shapes: dict[tuple[str, str], _Shape] = {}
            for count, position in enumerate(block.places(anchor, self._searched, until)):
                if count == GLANCES and not problems:
                    break
                if count < BUSY:
                    for alternative, item in problems if count >= GLANCES else (*problems, *facts):
                        self._try(block, position, alternative, item)
                    continue
                shape = shapes.setdefault(block.shape(position), _Shape())
                shape.count += 1
                if shape.count <= SAMPLES:
                    shape.matching += [pair for pair in problems if self._try(block, position, *pair) and pair not in shape.matching]
                elif shape.count <= FLOOD or shape.count % SAMPLED == 0:
                    for alternative, item in shape.matching:
                        self._try(block, position, alternative, item)
        keep = self._buffer.rfind(b"\n", 0, max(0, until - REACH)) + 1
        self._first_line += self._buffer.count(b"\n", 0, keep)
        self._buffer = self._buffer[keep:]
        self._searched = until - keep

    def _try(self, block: Block, position: int, alternative: Alternative, item: Wanted) -> bool:
        """Count the pattern here when it matches; whether it does, or has been counted too often to be tried."""
        seen = self.seen.get(item.key)
        here = seen is not None and seen.last_source == self.source
        if seen is not None and here and seen.count >= FLOOD and seen.last_line >= block.first_searched_line:
            return True
        found = block.match(position, alternative)
        if found is None:
            return False
        first_line, evidence, groups = found
        if seen is not None and here and first_line <= seen.last_line:
            return True
        for text in item.not_near:
            if block.neighbour(position, text, item.within) is not None:
                return True
        proof = evidence
        for text in item.near:
            neighbour = block.neighbour(position, text, item.within)
            if neighbour is None:
                return True
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
        return True
