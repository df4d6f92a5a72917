"""Words of a command as a shell splits them."""

from __future__ import annotations

import contextlib
import re
import shlex

_DESCRIPTOR = re.compile(r"(?<=\s)\d(?=>>?\s?[&\w./$-])")
"""The 2 of ``2>&1``: no word of its own, unlike the 2 of ``--tp-size 2 > log``."""
_DEMAND = re.compile(r"\$\{([A-Za-z_]\w*):?\?[^}]*\}")
"""A variable that must be set, with the message for when it is not."""
_IF_SET = re.compile(r"\$\{([A-Za-z_]\w*):?\+[^{}]*\}")
"""Words that a shell puts in where a variable is set."""
_COMMAND = re.compile(r"\$\(\(([^\n]*?)\)\)|\$\(([^()]*)\)|`((?:(?!sglang)[^`\n])*)`")
"""What a shell counts, what a command prints, unless the command in back quotes is the launch itself, quoted in a text."""
ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\+?=")


def split_words(line: str) -> list[str]:
    """Words as a shell splits them; a quote that is never closed ends with the text."""
    line = _IF_SET.sub(r"${\1+}", _DEMAND.sub(r"${\1}", line))
    line = _COMMAND.sub(lambda match: "$(" + re.sub(r"\W+", "_", match[1] or match[2] or match[3] or "") + ")", line)
    line = _DESCRIPTOR.sub("", line)
    for ending in ("", '"', "'"):
        with contextlib.suppress(ValueError):
            lexer = shlex.shlex(line + ending, posix=True, punctuation_chars=";|&<>")
            lexer.whitespace_split = True
            lexer.commenters = ""
            return list(lexer)
    return line.split()


def assignments(words: list[str]) -> dict[str, str]:
    """The words of the form NAME=VALUE, as a table."""
    return {word.split("=", 1)[0]: word.split("=", 1)[1] for word in words if ASSIGNMENT.match(word)}
