"""Container configuration files of Proxmox VE (/etc/pve/lxc/VMID.conf): read as Proxmox reads them, edited without harm."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PENDING: Final = "pve:pending"

_SECTION: Final = re.compile(r"\[([a-z][a-z0-9_-]+|pve:pending)\]\s*", re.IGNORECASE)
_RAW: Final = re.compile(r"(lxc\.[a-z0-9_.-]+)(?::|\s*=)\s*(.*?)\s*")
_OPTION: Final = re.compile(r"([a-z][a-z_]*\d*):(?=.)\s*(.*?)\s*")


@dataclass(frozen=True)
class Problem:
    """A line that Proxmox would not understand or would read in a way that its author did not mean."""

    line: int
    text: str
    why: str


@dataclass
class Section:
    """One section: the live configuration (``name`` empty), the pending changes, or a snapshot.

    ``options`` holds what Proxmox sees (of duplicate keys the last), ``raw`` the ``lxc.*`` lines in their order,
    ``description`` the text of the comment lines.
    """

    name: str = ""
    options: dict[str, str] = field(default_factory=dict)
    raw: list[tuple[str, str]] = field(default_factory=list)
    description: str = ""

    @property
    def deleted(self) -> list[str]:
        """Options that a pending section will delete at the next start."""
        return [word.lstrip("!") for word in re.split(r"[,;\s]+", self.options.get("delete", "")) if word]


@dataclass
class ConfigFile:
    """A whole file: the live section, the pending one, snapshots, and what is wrong with it."""

    live: Section = field(default_factory=Section)
    pending: Section = field(default_factory=lambda: Section(PENDING))
    snapshots: dict[str, Section] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    digest: str = ""
    """SHA-1 of the file, which is what Proxmox compares with the ``digest`` of a request."""


def decode_text(text: str) -> str:
    """Undo Proxmox's percent encoding of descriptions; bytes that are no UTF-8 become replacement characters."""
    data = re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "surrogateescape"))
    return data.decode("utf-8", "replace")


def encode_text(text: str) -> str:
    """Percent-encode as Proxmox does: control characters, ``:``, ``%`` and everything beyond ASCII.

    Releases before 9.2 leave ``%`` as it is. Source: proxmox/pve-common, PVE::ParseUtils and before it PVE::Tools, encode_text.
    """
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b":%" else f"%{byte:02X}" for byte in text.encode())


def parse(text: str) -> ConfigFile:
    """Read a file as Proxmox does: sections, comments as description, last of duplicate keys; never raises."""
    config = ConfigFile(digest=hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest())
    section = config.live
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        header = _SECTION.fullmatch(line)
        if header:
            section = _open_section(config, header[1])
            continue
        if line.startswith("#"):
            section.description += decode_text(line[1:]) + "\n"
            continue
        raw = _RAW.fullmatch(line)
        if raw:
            section.raw.append((raw[1], raw[2]))
            continue
        option = _OPTION.fullmatch(line)
        if not option:
            config.problems.append(Problem(number, line, "Proxmox VE cannot parse this line and drops it at its next write"))
            continue
        key, value = option[1], option[2]
        if key == "description":
            section.description += decode_text(value)
            continue
        if key in section.options:
            config.problems.append(Problem(number, line, f"{key} is given twice; the last one counts"))
        section.options[key] = value
    return config


def _open_section(config: ConfigFile, name: str) -> Section:
    if name.lower() == PENDING:
        return config.pending
    section = Section(name)
    config.snapshots[name] = section
    return section


def render(config: ConfigFile) -> str:
    """Write a file as Proxmox does: description first, options by name, raw lines in their order, pending, snapshots by name."""
    parts = [_render_section(config.live)]
    if config.pending.options or config.pending.raw:
        parts.append(f"[{PENDING}]\n{_render_section(config.pending)}")
    parts.extend(f"[{name}]\n{_render_section(config.snapshots[name])}" for name in sorted(config.snapshots))
    return "\n".join(parts)


def _render_section(section: Section) -> str:
    lines = [f"#{encode_text(line)}" for line in section.description.split("\n")]
    if lines and not section.description.split("\n")[-1]:
        lines.pop()
    lines += [f"{key}: {section.options[key]}" for key in sorted(section.options)]
    lines += [f"{key}: {value}" for key, value in section.raw]
    return "".join(f"{line}\n" for line in lines)


def edit_raw(text: str, remove: Iterable[tuple[str, str]], add: Sequence[tuple[str, str]]) -> str:
    """Take raw ``lxc.*`` lines out of the live section and put others in, every other byte left alone.

    Each pair in ``remove`` takes out one line. New lines go after the last line of the live section, above the first
    ``[section]``: at the end of the file they would fall into a snapshot. No marker comments, which Proxmox would move to the top.
    """
    outgoing = list(remove)
    lines = text.split("\n")
    end = next((index for index, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    live, rest = lines[:end], lines[end:]
    kept = []
    for line in live:
        raw = _RAW.fullmatch(line)
        if raw and (raw[1], raw[2]) in outgoing:
            outgoing.remove((raw[1], raw[2]))
            continue
        kept.append(line)
    if add:
        last = max((index for index, line in enumerate(kept) if line.strip()), default=-1)
        kept[last + 1 : last + 1] = [f"{key}: {value}" for key, value in add]
    result = "\n".join(kept + rest)
    return result if result.endswith("\n") or not add else result + "\n"
