"""Variables of a shell or a compose file in a launch: put in what is known, and tell what is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\}|(?P<plain>[A-Za-z_]\w*)|(?P<other>[({]))")


def expand(word: str, known: Mapping[str, str]) -> str:
    """The word with known variables and written defaults put in; what is not known stays as it stands."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        if name and name in known and not _REFERENCE.search(known[name]):
            return known[name]
        if match["default"] is not None:
            return match["default"]
        return match[0]

    return _REFERENCE.sub(value, word)


def unresolved(word: str) -> bool:
    """Whether a reference is left that nobody here knows."""
    return bool(_REFERENCE.search(word))
