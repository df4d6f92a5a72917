"""Patterns of the catalogue: from their text to a regular expression, and to the words that every match must contain.

The words are what makes a journal of a gigabyte cheap: a block of text is searched only for patterns all of whose words occur in it.
They are read from the pattern itself, so that an entry states its message once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Final, TypeAlias

_ANY: Final = "\0"
"""A place of a pattern where letters may stand that it does not spell out: a word beside it is no whole word."""
_GAP: Final = " "
_LETTER_BEFORE: Final = "(?<![A-Za-z])"
_LETTER_AFTER: Final = "(?![A-Za-z])"

COMMON: Final = frozenset(
    word
    for line in (
        "and the for not with from this that error errors failed fail cuda memory nvidia gpu gpus python torch model file line",
        "info warning runtimeerror exception server process device kernel driver version module is was were are has have been",
        "already found use used using size max requested true false none no of to in on at by could cannot sglang vllm token",
        "tokens http post get batch decode prefill running usage throughput request requests input output health queue graph",
        "node host load loading config rank worker debug root json dist init run out can only such dev find call task code",
        "many open down port",
    )
    for word in line.split()
)
"""Words that healthy logs are full of: never the one word that a block is searched for when a pattern has another."""


MOST_VARIANTS: Final = 32
"""Sets of words that one pattern may be looked for by; a group of choices that would give more is passed over."""


class PatternError(ValueError):
    """A pattern that cannot be read, or that has no word to be found by."""


@dataclass(frozen=True)
class Alternative:
    """One alternative of a pattern: its source, the words that every match contains, and the rarest of them."""

    source: str
    words: frozenset[bytes]
    anchor: bytes

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Compiled when it is first needed: most of the catalogue never is."""
        return re.compile(self.source, re.IGNORECASE | re.MULTILINE)


@cache
def alternatives(text: str, *, wordless: bool = False) -> tuple[Alternative, ...]:
    """Read a pattern: its top-level ``|`` and, where a choice inside it holds the telling word, that choice give one alternative each.

    Raises:
        PatternError: an alternative has no whole word of three letters, and ``wordless`` does not allow it.
    """
    found = []
    for source, cells in _Reader(text).read():
        sets = [_words(_flat(cells))]
        if not sets[0] - COMMON:
            sets = [_words(variant) for variant in _variants(cells)]
        for words in sorted(set(sets), key=sorted):
            if not words and not wordless:
                raise PatternError(f"no word of three letters that every match of {source!r} contains")
            anchor = max(words, key=lambda word: (word not in COMMON, len(word), word), default="")
            found.append(Alternative(source, frozenset(word.encode() for word in words), anchor.encode()))
    return tuple(found)


@cache
def plain(text: str) -> re.Pattern[str]:
    """The pattern as one regular expression, for texts that are searched whole."""
    return re.compile("|".join(source for source, _ in _Reader(text).read()), re.IGNORECASE | re.MULTILINE)


@dataclass
class _Choice:
    """A group of several branches."""

    branches: list[list[_Cell]] = field(default_factory=list)


_Cell: TypeAlias = "str | _Choice"


def _words(cells: str) -> frozenset[str]:
    return frozenset(word for word in re.split(r"[^a-z\0]+", cells) if len(word) >= 3 and _ANY not in word)


def _flat(cells: list[_Cell]) -> str:
    return "".join(cell if isinstance(cell, str) else _ANY for cell in cells)


def _variants(cells: list[_Cell]) -> list[str]:
    """Every reading of the cells, choices taken one way or the other, as long as there are not too many."""
    readings: list[list[str]] = []
    total = 1
    for cell in cells:
        ways = [cell] if isinstance(cell, str) else [way for branch in cell.branches for way in _variants(branch)]
        if total * len(ways) > MOST_VARIANTS:
            ways = [_ANY]
        total *= len(ways)
        readings.append(ways)
    return ["".join(reading) for reading in product(*readings)]


class _Reader:
    """Reads the subset of regular expressions that the catalogue is written in."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def read(self) -> list[tuple[str, list[_Cell]]]:
        """Each top-level alternative as a regular expression that begins and ends with whole words, and its cells."""
        branches = self._branches()
        if self.at != len(self.text):
            raise PatternError(f"unbalanced bracket at {self.at} in {self.text!r}")
        return [(_LETTER_BEFORE * _edge(cells, 0) + source + _LETTER_AFTER * _edge(cells, -1), cells) for source, cells in branches]

    def _branches(self) -> list[tuple[str, list[_Cell]]]:
        branches: list[tuple[list[str], list[_Cell]]] = [([], [])]
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "|":
                self.at += 1
                branches.append(([], []))
                continue
            source, cells = self._atom()
            suffix, cells = self._quantified(cells)
            branches[-1][0].append(source + suffix)
            branches[-1][1].extend(cells)
        return [("".join(source), cells) for source, cells in branches]

    def _atom(self) -> tuple[str, list[_Cell]]:
        char = self.text[self.at]
        if char == "(":
            return self._group()
        if char == "[":
            return self._set()
        self.at += 1
        if char == "\\":
            return self._escape()
        if char == ".":
            return char, [_ANY]
        if char in "^$":
            return char, [_GAP]
        if char == " ":
            if self.text[self.at : self.at + 1] in {"?", "*"}:
                self.at += 1
                return r"\s*", [_Choice([[_GAP], []])]
            return r"\s+", [_GAP]
        return char, [_cell(char)]

    def _escape(self) -> tuple[str, list[_Cell]]:
        char = self.text[self.at]
        self.at += 1
        if char in "sdbAZ":
            return "\\" + char, [_GAP]
        if char in "wSDWB" or char.isdigit():
            return "\\" + char, [_ANY]
        return "\\" + char, [_cell(char)]

    def _set(self) -> tuple[str, list[_Cell]]:
        match = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]").match(self.text, self.at)
        if match is None:
            raise PatternError(f"open set at {self.at} in {self.text!r}")
        self.at = match.end()
        body = match[0][1:-1]
        separators_only = not body.startswith("^") and not re.search(r"[a-zA-Z]", re.sub(r"\\[sd]", "", body))
        return match[0], [_GAP if separators_only else _ANY]

    def _group(self) -> tuple[str, list[_Cell]]:
        reference = re.compile(r"\(\?P=\w+\)").match(self.text, self.at)
        if reference is not None:
            self.at = reference.end()
            return reference[0], [_ANY]
        head = re.compile(r"\((?:\?(?:P<\w+>|[:=!]|<[=!])|(?!\?))").match(self.text, self.at)
        if head is None:
            raise PatternError(f"group of a kind that is not used here at {self.at} in {self.text!r}")
        self.at = head.end()
        branches = self._branches()
        if self.text[self.at : self.at + 1] != ")":
            raise PatternError(f"open group in {self.text!r}")
        self.at += 1
        source = head[0] + "|".join(source for source, _ in branches) + ")"
        if head[0].endswith(("=", "!")):
            return source, [_ANY]
        if len(branches) == 1:
            return source, branches[0][1]
        return source, [_Choice([cells for _, cells in branches])]

    def _quantified(self, cells: list[_Cell]) -> tuple[str, list[_Cell]]:
        match = re.compile(r"(?:[?*+]|\{(\d+)(?:,\d*)?\})[?+]?").match(self.text, self.at)
        if match is None:
            return "", cells
        self.at = match.end()
        separators = all(cell == _GAP for cell in cells)
        if match[0][0] == "?" or (separators and (match[0][0] == "*" or match[1] == "0")):
            return match[0], [_Choice([cells, []])]
        if match[0][0] == "*" or match[1] == "0":
            return match[0], [_ANY]
        return match[0], cells if separators else [*cells, _ANY]


def _edge(cells: list[_Cell], place: int) -> bool:
    """Whether the cells begin (0) or end (-1) with a letter whichever way their choices go: then a whole word is meant."""
    if not cells:
        return False
    cell = cells[place]
    return cell.isalpha() if isinstance(cell, str) else all(_edge(branch, place) for branch in cell.branches)


def _cell(char: str) -> str:
    return char.lower() if char.isascii() and char.isalpha() else _GAP
