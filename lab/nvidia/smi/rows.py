"""What `nvidia-smi -q` is made of: rows that know their label as text and their tag as XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPRECATED = "Requested functionality has been deprecated"
NA = "N/A"


class Row:
    """A line or a section: text label, XML tag, and a value or the rows below. A missing label or tag leaves that form out."""

    def __init__(self, label: str | None, tag: str | None, value: Any = None, *, text: str | None = None) -> None:
        """Keep the value; text replaces it in the text form."""
        self.label, self.tag, self.text = label, tag, text
        self.rows: list[Row] | None = value if isinstance(value, list) else None
        self.value = "" if self.rows is not None else str(value)


def both(label: str, tag: str, value: Any = NA, *, text: str | None = None) -> Row:
    """A row of both forms."""
    return Row(label, tag, value, text=text)


def same(pairs: Iterable[tuple[str, str]], value: str) -> list[Row]:
    """Rows that all say the same."""
    return [both(label, tag, value) for label, tag in pairs]


def mib(value: float) -> str:
    """A memory size with its unit."""
    return f"{int(value)} MiB"


def watt(value: float) -> str:
    """A power with its unit."""
    return f"{value:.2f} W"
