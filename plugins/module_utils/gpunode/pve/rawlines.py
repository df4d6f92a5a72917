"""Raw ``lxc.*`` lines of a container: which have to come and which have to go. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .options import RAW_KEYS, REPEATABLE
from .propstring import PropertyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Line = tuple[str, str]


@dataclass(frozen=True)
class RawLine:
    """A desired raw line. With ``present`` False lines of that key (and value, if given) shall go."""

    key: str
    value: str | None
    present: bool = True


def raw_from_user(given: Sequence[Mapping[str, Any]]) -> list[RawLine]:
    """Desired raw lines from mappings of key, value and state, each once. Raises ``PropertyError`` for what Proxmox would drop."""
    lines: list[RawLine] = []
    for item in given:
        key = str(item["key"])
        value = item.get("value")
        if not RAW_KEYS.fullmatch(key):
            raise PropertyError(f"lxc: {key!r} is no raw key that Proxmox VE keeps; it would drop the line at its next write")
        present = item.get("state", "present") == "present"
        if present and value is None:
            raise PropertyError(f"lxc: {key} has no value")
        text = None if value is None else str(value).strip()
        if text is not None and ("\n" in text or "\r" in text):
            raise PropertyError(f"lxc: {key}: a raw line cannot hold a line feed")
        line = RawLine(key, text, present)
        if present and not REPEATABLE.fullmatch(key) and any(other.present and other.key == key and other != line for other in lines):
            raise PropertyError(f"lxc: {key} is given twice with different values; of two lines of this key only the last counts")
        if line not in lines:
            lines.append(line)
    return lines


def raw_changes(current: Sequence[Line], desired: Sequence[RawLine], *, purge: bool) -> tuple[list[Line], list[Line]]:
    """Lines to add and lines to remove.

    A repeatable key's line is wanted as it stands, beside others; of any other key the desired line alone remains. Lines that are not
    described stay unless ``purge``.
    """
    left = list(current)
    keep: list[Line] = []
    add: list[Line] = []
    remove: list[Line] = []
    for line in desired:
        if not line.present:
            remove += [have for have in left if have[0] == line.key and line.value in {None, have[1]}]
            left = [have for have in left if have not in remove]
            continue
        pair = (line.key, line.value or "")
        if REPEATABLE.fullmatch(line.key):
            if pair in left:
                left.remove(pair)
                keep.append(pair)
            elif pair not in keep:
                add.append(pair)
                keep.append(pair)
            continue
        same_key = [have for have in left if have[0] == line.key]
        left = [have for have in left if have[0] != line.key]
        if same_key != [pair]:
            remove += same_key
            add.append(pair)
    return add, remove + left if purge else remove
