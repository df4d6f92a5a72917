"""Text for terminals: colour where it is wanted and understood, tables that align."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

RESET: Final = "\x1b[0m"
STYLES: Final = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "magenta": "\x1b[35m",
}
SEVERITY_STYLES: Final = {"error": "red", "warning": "yellow", "unknown": "magenta", "info": "blue"}
VERDICT_STYLES: Final = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "magenta"}
_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;]*m")


def wants_colour(stream: TextIO) -> bool:
    """Say whether ``stream`` gets colour: a terminal that is not dumb, unless NO_COLOR is set; CLICOLOR_FORCE overrides (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def plural(count: float, noun: str) -> str:
    """A count with its noun: 1 line, 1,200 lines."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Paint:
    """Styles text when ``on``."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, *styles: str) -> str:
        """Return ``text`` in the named styles."""
        return "".join(STYLES[style] for style in styles) + text + RESET if self.on and styles else text

    def level(self, text: str, level: int) -> str:
        """Return ``text`` on a background of heat ``level``, 0 (bad) to 4 (good), for heat maps."""
        if not self.on:
            return text
        backgrounds = (196, 208, 220, 148, 77)
        return f"\x1b[30;48;5;{backgrounds[max(0, min(4, level))]}m{text}{RESET}"


def width(text: str) -> int:
    """Columns that ``text`` takes on a terminal; colours take none, wide characters two."""
    plain = _SEQUENCE.sub("", text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in plain if not unicodedata.combining(char))


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), gap: int = 2) -> list[str]:
    """Lines of a table whose columns align; ``right`` names the columns that align to the right."""
    if not rows:
        return []
    columns = max(len(row) for row in rows)
    widths = [max((width(row[index]) for row in rows if index < len(row)), default=0) for index in range(columns)]
    lines = []
    for row in rows:
        cells = []
        for index, cell in enumerate(row):
            fill = " " * (widths[index] - width(cell))
            cells.append(fill + cell if index in right else cell + fill)
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def wrapped(text: str, indent: int, columns: int = 110) -> list[str]:
    """Lines of ``text`` at most ``columns`` wide, each behind ``indent`` blanks."""
    import textwrap

    return textwrap.wrap(text, columns, initial_indent=" " * indent, subsequent_indent=" " * indent, break_long_words=False) or [""]
