"""Variables of a shell, a unit, a compose or Kubernetes file, a template in a launch: put in what is known, and tell what is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^}]*)|:?\?[^}]*|(?P<base>##\*/))?\}|\((?P<kubernetes>[A-Za-z_]\w*)\)|(?P<plain>[A-Za-z_]\w*)"
    r"|(?P<other>[({@*0-9]))|\{\{(?P<template>[\w.]+)\}\}"
)
_ALONE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*(?::?[-=?][^}]*)?\})|\{\{[\w.]+\}\}")
_TEMPLATE = re.compile(r"\{\{-?(.*?)-?\}\}")
_STATEMENT = re.compile(r"(?m)^[ \t]*\{%.*%\}[ \t]*\n")


def expand(word: str, known: Mapping[str, str]) -> str:
    """The word with known variables and written defaults put in; what is not known stays as it stands."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"] or match["kubernetes"] or match["template"]
        if name and name in known and not _REFERENCE.search(known[name]):
            return known[name].rpartition("/")[2] if match["base"] else known[name]
        if match["default"] is not None:
            return match["default"]
        return match[0]

    return _REFERENCE.sub(value, word)


def without_statements(text: str) -> str:
    """A template's text with its expressions as one word each (``{{port}}``) and without lines of statements."""
    return _TEMPLATE.sub(lambda match: "{{" + re.sub(r"[^\w.]+", "_", match[1].strip()) + "}}", _STATEMENT.sub("", text))


def expand_words(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The words with known variables put in; one that is a variable alone and holds flags becomes as many words as it holds."""
    found: list[str] = []
    for word in words:
        value = expand(word, known)
        if value != word and _ALONE.fullmatch(word) and (not value.strip() or value.lstrip().startswith("-")):
            found += value.split() if "'" not in value and '"' not in value else _quoted(value)
        else:
            found.append(value)
    return found


def _quoted(value: str) -> list[str]:
    from .launch_words import split_words

    return split_words(value)


def unresolved(word: str) -> bool:
    """Whether a reference is left that nobody here knows."""
    return bool(_REFERENCE.search(word))
