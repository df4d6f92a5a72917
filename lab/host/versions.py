"""Versions of kernels: their order, and which are installed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def order(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions as ``sort -V`` does: numbers by value, the rest by text."""
    return [(1, int(word), "") if word.isdigit() else (0, 0, word) for word in re.findall(r"\d+|\D+", version)]


def newest_first(versions: set[str] | list[str]) -> list[str]:
    """Return the versions without repeats, the newest one first."""
    return sorted(set(versions), key=order, reverse=True)


def bootable(root: Path) -> list[str]:
    """Return the kernels with an image in /boot, the newest one first."""
    return newest_first([path.name.removeprefix("vmlinuz-") for path in (root / "boot").glob("vmlinuz-*")])


def first_line(path: Path) -> str:
    """Return a file's first line without its end, empty when there is no file."""
    return (path.read_text(encoding="utf-8").splitlines() or [""])[0].strip() if path.is_file() else ""
