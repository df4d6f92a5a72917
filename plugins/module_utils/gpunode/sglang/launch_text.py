"""Find the server's launch in a text: a command line, a shell script, a docker run, a systemd unit."""

from __future__ import annotations

import contextlib
import re
import shlex
from dataclasses import dataclass, field

_ENTRY = re.compile(r"^(?:.*/)?(?:sglang\.launch_server|launch_server\.py|dynamo\.sglang\S*)$")
_END = re.compile(r"^(?:[;&|]{1,2}|\d?>{1,2}.*|<.*|&>.*|done|fi|then)$")
_DESCRIPTOR = re.compile(r"(?<=\s)\d(?=>>?\s?[&\w./$-])")
"""The 2 of ``2>&1``: no word of its own, unlike the 2 of ``--tp-size 2 > log``."""
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Launch:
    """One launch: ``arguments`` after the entry point, ``environment`` set beside it, ``entry`` as written."""

    entry: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


class NoLaunchError(ValueError):
    """The text starts no sglang server."""


def split_words(line: str) -> list[str]:
    """Words as a shell splits them; a quote that is never closed ends with the text."""
    line = _DESCRIPTOR.sub("", line)
    for ending in ("", '"', "'"):
        with contextlib.suppress(ValueError):
            lexer = shlex.shlex(line + ending, posix=True, punctuation_chars=";|&<>")
            lexer.whitespace_split = True
            lexer.commenters = ""
            return list(lexer)
    return line.split()


def logical_lines(text: str) -> list[str]:
    """Lines with continuations joined; comment lines between continued ones are dropped, as people write them."""
    lines: list[str] = []
    current = ""
    for raw in text.replace("\r\n", "\n").splitlines():
        line = raw.strip()
        if line.startswith("#"):
            continue
        joined = line.endswith("\\")
        current += (line[:-1] if joined else line) + " "
        if not joined:
            lines.append(current.strip())
            current = ""
    if current.strip():
        lines.append(current.strip())
    return [line for line in lines if line]


def _continues(line: str) -> bool:
    return line.startswith("--")


def extract(text: str) -> list[Launch]:
    """Every launch in the text, in order.

    Flags that stand alone (no entry point at all) are one launch of entry ``""``. Raises NoLaunchError where nothing looks like one.
    """
    unit_environment: dict[str, str] = {}
    launches: list[Launch] = []
    lines = logical_lines(text)
    merged: list[str] = []
    for line in lines:
        # Several flags a line without a backslash: posts lose them.
        if _continues(line) and merged and (_continues(merged[-1]) or _find_entry(split_words(merged[-1])) is not None):
            merged[-1] += " " + line
        else:
            merged.append(line)
    for line in merged:
        body = line
        setting = re.match(r"^(Environment|ExecStart(?:Pre|Post)?)=[-@:+!]*(.*)$", line)
        if setting and setting[1] == "Environment":
            unit_environment.update(_assignments(split_words(setting[2])))
            continue
        if setting:
            body = setting[2]
        exported = re.match(r"^export\s+(.*)$", body)
        if exported:
            unit_environment.update(_assignments(split_words(exported[1])))
            continue
        words = split_words(body)
        entry = _find_entry(words)
        if entry is None:
            if words and all(_ASSIGNMENT.match(word) for word in words):
                unit_environment.update(_assignments(words))
            continue
        start, name = entry
        launches.append(Launch(name, tuple(_arguments(words[start:])), {**unit_environment, **_environment(words[:start])}))
    if not launches:
        flags = [line for line in merged if _continues(line)]
        if flags:
            return [Launch("", tuple(_arguments(split_words(" ".join(flags)))), unit_environment)]
        raise NoLaunchError("no launch of sglang found: neither `sglang.launch_server` nor `sglang serve`, nor lines of flags")
    return launches


def from_words(words: list[str]) -> list[Launch]:
    """The launch in a command that is split into words already; a word with line breaks is a script. Raises NoLaunchError."""
    entry = _find_entry(words)
    if entry is not None:
        start, name = entry
        return [Launch(name, tuple(_arguments(words[start:])), _environment(words[:start]))]
    for word in words:
        if "\n" in word and ("sglang.launch_server" in word or "sglang serve" in word or "dynamo.sglang" in word):
            return extract(word)
    raise NoLaunchError("this command starts no sglang server")


def _find_entry(words: list[str]) -> tuple[int, str] | None:
    """Index of the first argument and the entry's name."""
    for index, word in enumerate(words):
        if _ENTRY.match(word):
            return index + 1, word
        if word.rsplit("/", 1)[-1] == "sglang" and words[index + 1 : index + 2] == ["serve"]:
            return index + 2, "sglang serve"
        # The whole command as one quoted word: bash -c "python -m sglang.launch_server ..."
        if " " in word and "\n" not in word.strip() and ("sglang.launch_server" in word or "sglang serve" in word):
            inner = split_words(word)
            found = _find_entry(inner)
            if found is not None:
                words[index : index + 1] = inner
                return index + found[0], found[1]
    return None


def _arguments(words: list[str]) -> list[str]:
    arguments: list[str] = []
    for word in words:
        if _END.match(word):
            break
        arguments.append(word)
    return arguments


def _assignments(words: list[str]) -> dict[str, str]:
    return {word.split("=", 1)[0]: word.split("=", 1)[1] for word in words if _ASSIGNMENT.match(word)}


def _environment(words: list[str]) -> dict[str, str]:
    """Assignments before the command, and docker's ``-e K=V``, ``--env=K=V``."""
    plain = [re.sub(r"^--env=", "", word) for word in words]
    return _assignments(plain)
