"""The kernel command line: merged without losing what others put there, and compared with the one that is live."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

GRUB_KEY = "GRUB_CMDLINE_LINUX_DEFAULT"


@dataclass(frozen=True)
class Comparison:
    """``missing``: wanted but not live. ``leftover``: unwanted but still live. Both in the order in which they were asked for."""

    missing: tuple[str, ...]
    leftover: tuple[str, ...]

    @property
    def pending(self) -> bool:
        """Whether only a reboot makes the command line live."""
        return bool(self.missing or self.leftover)


def key_of(option: str) -> str:
    """The key of ``key`` or ``key=value``; the kernel takes dashes and underscores of a key for the same."""
    return option.split("=", 1)[0].replace("-", "_")


def split(text: str) -> list[str]:
    """The options of a command line; a value in double quotes may hold blanks."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', text)


def merge(text: str, present: list[str], absent: list[str]) -> str:
    """The command line with each wanted option once, at the place of its key where the key was there, else at the end.

    Options that nobody named keep their place and their spelling. A key in both lists is wanted.
    """
    wanted = {key_of(option): option for option in present}
    unwanted = {key_of(option) for option in absent} - set(wanted)
    merged: list[str] = []
    placed: set[str] = set()
    for option in split(text):
        key = key_of(option)
        if key in unwanted:
            continue
        if key in wanted:
            if key not in placed:
                merged.append(wanted[key])
                placed.add(key)
            continue
        merged.append(option)
    merged.extend(option for key, option in wanted.items() if key not in placed)
    return " ".join(merged)


def compare(live: str, present: list[str], absent: list[str]) -> Comparison:
    """Compare the live command line (``/proc/cmdline``) with what is wanted; the last option of a key counts, as in the kernel."""
    options = {key_of(option): option for option in split(live)}
    wanted = {key_of(option) for option in present}
    missing = tuple(option for option in present if options.get(key_of(option)) != option)
    leftover = tuple(options[key_of(option)] for option in absent if key_of(option) in options and key_of(option) not in wanted)
    return Comparison(missing, leftover)


def read_grub(text: str) -> str:
    """The default command line of ``/etc/default/grub``: the last assignment counts, as in the shell that reads the file."""
    value = ""
    for match in re.finditer(rf"(?m)^\s*{GRUB_KEY}=(.*)$", text):
        try:
            words = shlex.split(match.group(1), comments=True)
        except ValueError as error:
            raise ValueError(f"{GRUB_KEY}={match.group(1)}: {error}") from error
        value = words[0] if words else ""
    return value


def write_grub(text: str, cmdline: str) -> str:
    """``/etc/default/grub`` with this default command line; every other line stays as it is."""
    quoted = f'{GRUB_KEY}="{cmdline}"' if '"' not in cmdline else f"{GRUB_KEY}={shlex.quote(cmdline)}"
    matches = list(re.finditer(rf"(?m)^\s*{GRUB_KEY}=.*$", text))
    if not matches:
        return f"{text.rstrip()}\n{quoted}\n" if text.strip() else f"{quoted}\n"
    last = matches[-1]
    return text[: last.start()] + quoted + text[last.end() :]
