"""Look flags up: what one release of sglang accepts, and what became of a flag that it does not."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .flags_data import FLAGS, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

SUCCESSORS = {
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--enable-flashinfer-allreduce-fusion": "--flashinfer-allreduce-fusion-backend",
    "--enable-dp-attention": "--attn-dp-size",
}
"""What took a flag's place where the parsers do not say it themselves (release notes and wheels of 0.5.13 to 0.5.23)."""


class UnknownVersionError(ValueError):
    """There is no table for this release."""


@dataclass(frozen=True)
class Flag:
    """A flag of one release; ``name`` is its primary spelling, ``spellings`` all of them.

    ``switch`` takes no value, ``many`` takes several, ``optional`` may stand without one. ``choices`` is None where any value is
    taken, or where the choices are not known. ``instead`` names the successor of a deprecated one, ``error`` the message with which
    the release refuses it.
    """

    name: str
    spellings: tuple[str, ...]
    switch: bool
    many: bool
    optional: bool
    type: str
    choices: tuple[str, ...] | None
    deprecated: bool
    instead: str
    error: str


def index_of(version: str) -> int:
    """Position of a release in VERSIONS; raises UnknownVersionError with the releases that are known."""
    plain = version.partition("+")[0]
    if plain not in VERSIONS:
        raise UnknownVersionError(f"sglang {version} is not one of the releases that are known: {', '.join(VERSIONS)}")
    return VERSIONS.index(plain)


@cache
def flags_of(version: str) -> dict[str, Flag]:
    """Every flag of a release by each of its spellings."""
    index = index_of(version)
    flags: dict[str, Flag] = {}
    for name, spans in FLAGS.items():
        for first, last, record in spans:
            if first <= index <= last:
                flag = _flag(name, record)
                flags.update(dict.fromkeys(flag.spellings, flag))
    return flags


def _flag(name: str, record: Mapping[str, Any]) -> Flag:
    return Flag(
        name=name,
        spellings=(name, *record.get("aliases", ())),
        switch=record.get("switch", False),
        many=record.get("many", False),
        optional=record.get("optional", False),
        type=record.get("type", "str"),
        choices=tuple(record["choices"]) if record.get("choices") else None,
        deprecated=record.get("deprecated", False),
        instead=record.get("instead", ""),
        error=record.get("error", ""),
    )


@dataclass(frozen=True)
class History:
    """When releases had a flag: ``first`` and ``last`` release, and what was named as its successor."""

    first: str
    last: str
    instead: str


def history(spelling: str) -> History | None:
    """What became of a flag, over all releases that are known; None for one that no release had."""
    indexes: list[int] = []
    instead = SUCCESSORS.get(spelling, "")
    for name, spans in FLAGS.items():
        for first, last, record in spans:
            if spelling in (name, *record.get("aliases", ())):
                indexes.extend((first, last))
                instead = record.get("instead") or instead
    if not indexes:
        return None
    return History(VERSIONS[min(indexes)], VERSIONS[max(indexes)], instead)


def prefix_matches(text: str, flags: Mapping[str, Flag]) -> list[str]:
    """Spellings that argparse would take ``text`` for: exact, else every one that begins with it."""
    if text in flags:
        return [text]
    return sorted(spelling for spelling in flags if spelling.startswith(text))


def nearest(text: str, flags: Mapping[str, Flag]) -> str:
    """The spelling that was probably meant, or an empty text."""
    spellings = {spelling.lower().replace("_", "-"): spelling for spelling in flags}
    dashed = text.lower().replace("_", "-")
    close = [dashed] if dashed in spellings else difflib.get_close_matches(dashed, list(spellings), n=1, cutoff=0.8)
    return spellings[close[0]] if close else ""
