"""Text as people and terminals hand it over: control sequences, line ends and blanks made plain; refusals by name."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, underline
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: window titles, hyperlinks
    r"|\x1b[@-Z\\^_]"  # two-character escapes
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"  # what is left of a cut sequence, NUL, backspace
)
_BLANKS: Final = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE: Final = re.compile("[\ufeff\u200b-\u200f\u2060\u00ad]")
EXIT_MARK: Final = re.compile(r"^\[exit -?\d+\]$")
"""A line that capture scripts append; never part of a program's output."""


class NotUnderstoodError(ValueError):
    """Raised for a text that is not what it was said to be; the message names the program and what was found instead."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why


def plain(text: str) -> str:
    """Return ``text`` without control sequences and invisible characters, with LF line ends and plain blanks; tabs stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _BLANKS.sub(" ", _INVISIBLE.sub("", _CONTROL.sub("", text)))


def lines_of(text: str) -> list[str]:
    """Return the lines of ``plain(text)``, without blanks at their ends and without marks of capture scripts."""
    return [line for line in (raw.rstrip() for raw in plain(text).split("\n")) if not EXIT_MARK.match(line)]


def is_cut(text: str) -> bool:
    """Say whether the last line has no line end, so that its last word may be cut short."""
    return bool(text) and not text.endswith(("\n", "\r"))


def excerpt(text: str, limit: int = 160) -> str:
    """Return the first line that says something, shortened to ``limit`` characters, for evidence and refusals."""
    for line in lines_of(text):
        if line.strip():
            short = line.strip()
            return short if len(short) <= limit else short[: limit - 1] + "…"
    return "(empty)"


def bus_id(raw: str) -> str:
    """Return a PCI address as sysfs writes it, ``0000:01:00.0``; '' when ``raw`` is none.

    ``00000000:01:00.0`` of NVML, ``01:00.0`` of lspci and the kernel's ``PCI:0000:01:00`` (function left out) are accepted.
    """
    match = re.fullmatch(r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", raw.strip(), re.IGNORECASE)
    if not match:
        return ""
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{int(match[2], 16):02x}:{int(match[3], 16):02x}.{match[4] or '0'}"
