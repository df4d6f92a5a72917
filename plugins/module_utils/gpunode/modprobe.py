"""What kmod will hand to a module: files of all modprobe.d folders as kmod reads them, the kernel command line last."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .cmdline import split
from .parsers.driver_files import parse_modprobe

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDERS: Final = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
"""In kmod's order: a file in an earlier folder hides one of the same name in a later one (modprobe.d(5))."""
CMDLINE: Final = "/proc/cmdline"


@dataclass(frozen=True)
class Override:
    """An option that does not come out as wanted; ``value`` is None where nothing sets it."""

    module: str
    option: str
    wanted: str
    value: str | None
    file: str


@dataclass
class Effective:
    """What counts in the end: module to option to (value, file), blacklists and install lines by module with their files."""

    options: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    blacklisted: dict[str, str] = field(default_factory=dict)
    installed: dict[str, tuple[str, str]] = field(default_factory=dict)


def visible(files: Mapping[str, str]) -> dict[str, str]:
    """The files that kmod reads: names ending in .conf, each name once, from the first folder that has it."""
    chosen: dict[str, str] = {}
    for folder in FOLDERS:
        for path in files:
            place, _, name = path.rpartition("/")
            if place == folder and name.endswith(".conf"):
                chosen.setdefault(name, path)
    return {path: files[path] for path in chosen.values()}


def effective(files: Mapping[str, str], cmdline: str = "") -> Effective:
    """What kmod hands to modules, from path to text of every file in ``FOLDERS`` and the text of /proc/cmdline.

    kmod joins the options of all files in the order of their names, the kernel command line (``module.option=value``) after them, and a
    module takes the last value of an option.
    """
    seen = visible(files)
    found = Effective(parse_modprobe(seen).options)
    for path in sorted(seen, key=lambda path: path.rsplit("/", 1)[-1]):
        for line in seen[path].replace("\\\n", " ").splitlines():
            words = line.split()
            if words[:1] == ["blacklist"] and len(words) > 1:
                found.blacklisted.setdefault(_name(words[1]), path)
            elif words[:1] == ["install"] and len(words) > 2:
                found.installed[_name(words[1])] = (" ".join(words[2:]), path)
    for option in split(cmdline):
        key, equals, value = option.partition("=")
        module, dot, name = key.partition(".")
        if dot and re.fullmatch(r"[\w-]+", module):
            if _name(module) == "modprobe" and name == "blacklist":
                found.blacklisted.update({_name(word): CMDLINE for word in value.split(",") if word})
            elif name:
                found.options.setdefault(_name(module), {})[name] = (value.strip('"') if equals else "1", CMDLINE)
    return found


def overridden(found: Effective, wanted: Mapping[str, Mapping[str, object]]) -> list[Override]:
    """The options of ``wanted`` (module to option to value) that come out otherwise, each with the file that decides."""
    wrong = []
    for module, options in wanted.items():
        for option, value in options.items():
            have = found.options.get(_name(module), {}).get(option)
            if have is None:
                wrong.append(Override(module, option, str(value), None, ""))
            elif _plain(have[0]) != _plain(str(value)):
                wrong.append(Override(module, option, str(value), have[0], have[1]))
    return wrong


def kept_out(found: Effective, modules: tuple[str, ...] = ("nvidia", "nvidia_uvm", "nvidia_modeset")) -> list[str]:
    """Lines for a person about modules that must load and that a file keeps out."""
    lines = [f"{found.blacklisted[name]} blacklists {name}: it is not loaded at boot" for name in modules if name in found.blacklisted]
    for name in modules:
        command, path = found.installed.get(name, ("", ""))
        if re.search(r"/(?:true|false)\b", command):
            lines += [f"{path} says `install {name} {command}`: modprobe never loads it"]
    return lines


def _name(module: str) -> str:
    return module.replace("-", "_")


def _plain(value: str) -> str:
    lowered = value.strip('"')
    return {"y": "1", "Y": "1", "n": "0", "N": "0", "on": "1", "off": "0"}.get(lowered, lowered)
