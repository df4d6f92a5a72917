"""Find the server's launch in a text: a command line, a shell script, a docker run, a Dockerfile, a systemd unit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from .launch_shell import Shell, logical_lines
from .launch_words import ASSIGNMENT, assignments, split_words
from .variables import without_statements

_MODULE = re.compile(r"^(?:sglang(?:_router)?\.launch_server|dynamo\.sglang\S*)$")
_SCRIPT = re.compile(r"^(?:.*/)?launch_server\.py$")
_PYTHON = re.compile(r"^(?:.*/)?python[\d.]*$|^-[uOBEsS]+$")
_TALK = re.compile(r"^(?:.*/)?(?:echo|printf|log\w*|p?kill|pkill|pgrep|killall\w*|grep|ps)$")
"""Commands that name a launch and start none."""
_SETTING = re.compile(r"^[A-Z]\w*=")
_DOCKERFILE = re.compile(r"(?m)^FROM\s+\S")
_END = re.compile(r"^(?:[;&|]{1,2}|\d?>{1,2}.*|<.*|&>.*|done|fi|then)$")


@dataclass(frozen=True)
class Launch:
    """One launch: ``arguments`` after the entry point, ``environment`` set beside it, ``entry`` as written."""

    entry: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


class NoLaunchError(ValueError):
    """The text starts no sglang server."""


def _continues(line: str) -> bool:
    return line.startswith("--")


def extract(text: str) -> list[Launch]:
    """Every launch in the text, in order.

    Flags that stand alone (no entry point at all) are one launch of entry ``""``. Raises NoLaunchError where nothing looks like one.
    """
    if _DOCKERFILE.search(text):
        return _dockerfile(text)
    shell = Shell(without_statements(text))
    environment: dict[str, str] = {}
    launches: list[Launch] = []
    merged: list[str] = []
    for line in logical_lines(shell.text):
        # Several flags a line without a backslash: posts lose them.
        if _continues(line) and merged and (_continues(merged[-1]) or _find_entry(split_words(merged[-1])) is not None):
            merged[-1] += " " + line
        else:
            merged.append(line)
    for line in merged:
        body = line
        setting = re.match(r"^(Environment|ExecStart(?:Pre|Post)?|Exec)=[-@:+!]*(.*)$", line)
        if setting and setting[1] == "Environment":
            environment.update(assignments(split_words(setting[2])))
            continue
        if setting:
            body = setting[2]
        elif shell.unit and _SETTING.match(line):
            continue
        if shell.assign(body):
            environment.update(shell.variables)
            continue
        words = shell.elements(split_words(body))
        if words and _TALK.match(words[1] if words[0] == "sudo" and len(words) > 1 else words[0]):
            continue
        entry = _find_entry(words)
        if entry is None:
            continue
        start, name = entry
        launches.append(Launch(name, tuple(_arguments(words[start:])), {**environment, **_environment(words[:start])}))
    if not launches:
        flags = [line for line in merged if _continues(line)]
        if flags:
            return [Launch("", tuple(_arguments(split_words(" ".join(flags)))), environment)]
        raise NoLaunchError("no launch of sglang found: neither `sglang.launch_server` nor `sglang serve`, nor lines of flags")
    return launches


def _dockerfile(text: str) -> list[Launch]:
    """The launch that an image starts: the last ENTRYPOINT with the last CMD behind it. Raises NoLaunchError."""
    command: dict[str, list[str]] = {"ENTRYPOINT": [], "CMD": []}
    environment: dict[str, str] = {}
    for line in logical_lines(text):
        keyword, _, rest = line.partition(" ")
        rest = rest.strip()
        if keyword.upper() in {"ENV", "ARG"}:
            words = split_words(rest)
            name, blank, value = rest.partition(" ")
            environment.update({name: value} if blank and not ASSIGNMENT.match(words[0]) else assignments(words))
        elif keyword.upper() in command:
            try:
                words = json.loads(rest)
            except ValueError:
                words = split_words(rest)
            command[keyword.upper()] = [str(word) for word in words]
    launches = from_words(command["ENTRYPOINT"] + command["CMD"])
    return [Launch(launch.entry, launch.arguments, {**environment, **launch.environment}) for launch in launches]


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
        before = words[index - 1] if index else ""
        if (_MODULE.match(word) and before == "-m") or (_SCRIPT.match(word) and (not before or _PYTHON.match(before))):
            return index + 1, word
        if word.rsplit("/", 1)[-1] == "sglang" and words[index + 1 : index + 2] == ["serve"] and _serves(words[index + 2 :]):
            return index + 2, "sglang serve"
        # The whole command as one quoted word: bash -c "python -m sglang.launch_server ..."
        if " " in word and "\n" not in word.strip() and ("sglang.launch_server" in word or "sglang serve" in word):
            inner = split_words(word)
            found = _find_entry(inner)
            if found is not None:
                words[index : index + 1] = inner
                return index + found[0], found[1]
    return None


def _serves(words: list[str]) -> bool:
    """Whether ``sglang serve`` with these words is a command, not a sentence about it."""
    arguments = _arguments(words)
    return not arguments or any(word[:1] in "-$" for word in arguments) or (len(arguments) == 1 and "/" in arguments[0])


def _arguments(words: list[str]) -> list[str]:
    arguments: list[str] = []
    for word in words:
        if _END.match(word):
            break
        if word.endswith("`") and word.count("`") == 1:  # the end of a line that a text quotes
            return [*arguments, word[:-1]]
        arguments.append(word)
    return arguments


def _environment(words: list[str]) -> dict[str, str]:
    """Assignments before the command, docker's ``-e K=V``, ``--env=K=V``, and the GPUs that its ``--gpus`` shows."""
    found: dict[str, str] = {}
    for position, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == "--gpus":
            found.update(shown_gpus(value or "".join(words[position + 1 : position + 2])))
    return found | assignments([re.sub(r"^--env=", "", word) for word in words])


def shown_gpus(asked: str) -> dict[str, str]:
    """What a container sees of GPUs asked for as docker does it (``2``, ``"device=0,1"``), as the variable that tells it so."""
    asked = asked.strip("'\"")
    if asked.isdigit():
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(str(index) for index in range(int(asked)))}
    devices = re.match(r"device=([\w,-]+)", asked)
    return {"NVIDIA_VISIBLE_DEVICES": devices[1]} if devices else {}
