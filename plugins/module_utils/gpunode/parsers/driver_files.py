"""/proc/driver/nvidia and its relatives: which module runs, with which parameters, and what /etc/modprobe.d asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .text import NotUnderstoodError, excerpt, lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION: Final = re.compile(r"Kernel Module(?: for \w+)?\s+(\d+\.\d+(?:\.\d+)*)\s")


@dataclass(frozen=True)
class LoadedDriver:
    """The module that runs."""

    version: str
    open: bool


def parse_driver_version(text: str) -> LoadedDriver:
    """Read /proc/driver/nvidia/version; raises NotUnderstoodError for anything else."""
    for line in lines_of(text):
        if line.startswith("NVRM version:") and (match := _VERSION.search(line + " ")):
            return LoadedDriver(match[1], "Open Kernel Module" in line)
    raise NotUnderstoodError("/proc/driver/nvidia/version", excerpt(text))


def parse_params(text: str) -> dict[str, str]:
    """Read /proc/driver/nvidia/params: name to value, quotes removed. Raises NotUnderstoodError when no line is one."""
    values = {}
    for line in lines_of(text):
        if match := re.fullmatch(r"(\w+):\s*(?:\"(.*)\"|(.*))", line.strip()):
            values[match[1]] = match[2] if match[2] is not None else match[3]
    if not values:
        raise NotUnderstoodError("/proc/driver/nvidia/params", excerpt(text))
    return values


def parse_gpu_information(text: str) -> dict[str, str]:
    """Read /proc/driver/nvidia/gpus/ADDRESS/information: key to value, empty when the file says nothing."""
    return {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines_of(text)) if colon and value.strip()}


@dataclass
class ModprobeOptions:
    """What modprobe hands to modules: module to option to (value, file), the last file winning as modprobe reads them."""

    options: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    blacklisted: set[str] = field(default_factory=set)

    def get(self, module: str, option: str) -> tuple[str, str] | None:
        """Return (value, file) of an option; modules spell - and _ alike."""
        return self.options.get(module.replace("-", "_"), {}).get(option)


def parse_modprobe(files: Mapping[str, str | None]) -> ModprobeOptions:
    """Read modprobe.d files: ``files`` maps a path to its text. Lines that modprobe would not read either are passed over."""
    found = ModprobeOptions()
    for path in sorted(files, key=lambda name: (name.rsplit("/", 1)[-1], name)):
        joined = (files[path] or "").replace("\\\n", " ")
        for line in lines_of(joined):
            words = _words(line)
            if len(words) >= 2 and words[0] == "options":
                for word in words[2:]:
                    name, _, value = word.partition("=")
                    found.options.setdefault(words[1].replace("-", "_"), {})[name] = (value, path)
            elif len(words) == 2 and words[0] == "blacklist":
                found.blacklisted.add(words[1].replace("-", "_"))
    return found


def _words(line: str) -> list[str]:
    """Split a line of modprobe.d; quotes keep blanks together and vanish, # begins a comment only at the line's start."""
    if line.lstrip().startswith("#"):
        return []
    return [re.sub(r'"', "", match[0]) for match in re.finditer(r'(?:[^\s"]|"[^"]*"?)+', line)]


def parse_registry(text: str) -> dict[str, str]:
    """Split RegistryDwords, 'ForceP2P=0x11;RMForceP2PType=1', into names and values."""
    pairs = (part.partition("=") for part in text.replace(",", ";").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def parse_majors(text: str) -> dict[str, int]:
    """Read the character devices of /proc/devices: name to major. Raises NotUnderstoodError for anything else."""
    head, _, _ = text.partition("Block devices:")
    if "Character devices:" not in head:
        raise NotUnderstoodError("/proc/devices", excerpt(text))
    return {match[2]: int(match[1]) for match in re.finditer(r"^\s*(\d+) (\S+)\s*$", head, re.MULTILINE)}


def parse_aer(text: str) -> dict[str, int]:
    """Read an aer_dev_* file of sysfs: error name to count, with TOTAL_ERR_COR, TOTAL_ERR_FATAL or TOTAL_ERR_NONFATAL."""
    return {match[1]: int(match[2]) for match in re.finditer(r"^(\w+) (\d+)$", text, re.MULTILINE)}


def parse_speed(text: str) -> float | None:
    """Read a link speed of sysfs, '32.0 GT/s PCIe', in GT/s; None for 'Unknown'."""
    match = re.match(r"([\d.]+) GT/s", text.strip())
    return float(match[1]) if match else None
