"""What a shell makes of a script before the server sees it: comments, continued lines, arrays, assignments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .launch_words import ASSIGNMENT, split_words
from .variables import expand

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNIT = re.compile(r"(?m)^\[(?:Service|Container|Unit)\]\s*$")
_ARRAY = re.compile(r"(?m)^[ \t]*(?:(?:local|readonly|export|declare|typeset)[ \t]+(?:-\w+[ \t]+)*)?([A-Za-z_]\w*)(\+?)=\(")
_ELEMENTS = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_DEFAULTS = re.compile(r"\$\{([A-Za-z_]\w*):?=([^}]*)\}")
_DECLARED = re.compile(r"^(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*(.*)$")
BROKEN = "\\ "
"""A backslash before a blank: it continues no line, it makes one argument of a blank."""


def is_unit(text: str) -> bool:
    """Whether the text is a systemd unit or a drop-in of one: there ``#`` begins a comment only where it begins the line."""
    return bool(_UNIT.search(text))


def logical_lines(text: str) -> list[str]:
    """Lines with continuations joined; comment lines between continued ones are dropped, as people write them.

    A backslash that a blank or a comment follows continues nothing: it stays in the line as ``BROKEN``.
    """
    unit = is_unit(text)
    lines: list[str] = []
    current = ""
    for raw in text.replace("\r\n", "\n").splitlines():
        line = raw.lstrip()
        if line.startswith("#"):
            continue
        if not unit:
            line = _without_comment(line)
        bare = line.rstrip()
        joined = bare.endswith("\\") and not bare.endswith("\\\\")
        if joined and bare != line:
            lines.append(current + bare[:-1] + BROKEN)
            current = ""
            continue
        current += (bare[:-1] if joined else bare) + " "
        if not joined:
            lines.append(current.strip())
            current = ""
    if current.strip():
        lines.append(current.strip())
    return [line for line in lines if line]


def _unquoted(text: str, position: int, before_comment: str) -> Iterator[tuple[int, str]]:
    """Place and letter of what stands outside quotes and is not escaped.

    A ``#`` after one of ``before_comment`` is told too; what follows it on its line is not.
    """
    quote = ""
    while position < len(text):
        letter = text[position]
        if letter == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and text[position - 1] in before_comment:
            yield position, letter
            position = text.find("\n", position)
            if position < 0:
                return
        else:
            yield position, letter
        position += 1


def _without_comment(line: str) -> str:
    """The line up to a comment; a quote that another line closes ends with the line."""
    for position, letter in _unquoted(line, 0, " \t"):
        if letter == "#" and line[position - 1] in " \t":
            return line[:position]
    return line


class Shell:
    """Arrays and variables of one script, as far as it sets them itself."""

    def __init__(self, text: str) -> None:
        self.arrays: dict[str, list[str]] = {}
        self.variables: dict[str, str] = {}
        self.unit = is_unit(text)
        self.text = text if self.unit else self._take_arrays(text)

    def _take_arrays(self, text: str) -> str:
        kept, position = "", 0
        while match := _ARRAY.search(text, position):
            end = _closing(text, match.end())
            if end < 0:
                break
            words = split_words(" ".join(logical_lines(text[match.end() : end])))
            name, more = match[1], match[2]
            self.arrays[name] = [*(self.arrays.get(name, []) if more else []), *self.elements(words)]
            kept += text[position : match.start()]
            position = end + 1
        return kept + text[position:]

    def elements(self, words: list[str]) -> list[str]:
        """The words with the elements of known arrays in the place of ``${NAME[@]}``."""
        found: list[str] = []
        for word in words:
            match = _ELEMENTS.fullmatch(word)
            found += self.arrays[match[1]] if match and match[1] in self.arrays else [word]
        return found

    def assign(self, line: str) -> bool:
        """Take the assignments of a line that holds nothing else; False where it holds more."""
        for name, value in _DEFAULTS.findall(line):
            self.variables.setdefault(name, expand(value.strip("\"'"), self.variables))
        declared = _DECLARED.match(line)
        words = split_words(declared[1] if declared else line)
        if not words or not (declared or all(ASSIGNMENT.match(word) for word in words)):
            return words[:1] == [":"]
        for word in words:
            if not ASSIGNMENT.match(word):
                continue
            name, _, value = word.partition("=")
            value = expand(value, self.variables)
            if name.endswith("+"):
                name = name[:-1]
                value = self.variables.get(name, "") + value
            self.variables[name] = value
        return True


def _closing(text: str, position: int) -> int:
    """Where the parenthesis that is open at this place closes; -1 where it does not."""
    depth = 1
    for place, letter in _unquoted(text, position, " \t\n("):
        if letter in "()":
            depth += 1 if letter == "(" else -1
            if depth == 0:
                return place
    return -1
