"""`nvidia-smi nvlink -s`: the links of each GPU and whether they are up."""

from __future__ import annotations

import re
from typing import Final

from .text import NotUnderstoodError, excerpt, lines_of

WHAT: Final = "nvidia-smi nvlink -s"


def parse_nvlink(text: str) -> dict[int, list[float | None]]:
    """Return for each GPU index the speed in GB/s of its links, None for a link that is inactive; no entry without NVLink.

    Raises NotUnderstoodError for a text without a GPU line; an empty text is a host without NVLink.
    """
    links: dict[int, list[float | None]] = {}
    current: list[float | None] | None = None
    said = False
    for line in lines_of(text):
        if match := re.match(r"\s*GPU (\d+):", line):
            current = links.setdefault(int(match[1]), [])
        elif current is not None and (match := re.match(r"\s*Link \d+: (?:([\d.]+) GB/s|(<inactive>|inactive|N/A))", line)):
            current.append(float(match[1]) if match[1] else None)
        elif line.strip():
            said = True
    if said and not links:
        raise NotUnderstoodError(WHAT, excerpt(text))
    return links
