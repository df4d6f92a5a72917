"""Rules about what others believe of peer-to-peer: the driver's flags and the caches of servers, held against the measurement."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ..findings import ERROR, INFO, WARNING, Finding
from ..parsers.p2p_status import CAPABILITIES, MEANINGS
from .pairs import is_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..state import State


def check_flags(state: State) -> Iterator[Finding]:
    """Yield findings about `topo -p2p` and about caches of peer access."""
    yield from _statuses(state)
    yield from _cache(state)


def _statuses(state: State) -> Iterator[Finding]:
    """What the driver says about read and write, the two that NCCL asks for; only a measurement proves or disproves it."""
    proven = {(pair.src, pair.dst) for pair in state.pairs or [] if pair.status == "ok" and pair.can_access is not False and pair.data_ok}
    for letter in ("r", "w"):
        status = state.p2p_status.get(letter)
        if status is None:
            continue
        refused: dict[str, list[tuple[int, int]]] = {}
        for label, row in zip(status.rows, status.matrix, strict=True):
            for other, cell in zip(status.gpus, row, strict=True):
                if cell not in {"X", "OK"}:
                    refused.setdefault(cell, []).append((int(label[3:]), int(other[3:])))
        for cell, where in sorted(refused.items()):
            total = len(status.gpus) * (len(status.gpus) - 1)
            subject = "all pairs" if len(where) == total else ", ".join(f"GPU{one}->GPU{other}" for one, other in where[:6])
            disproved = proven and proven.issuperset(where)
            never = is_consumer(state) and cell in {"GNS", "NS", "CNS"}
            yield Finding(
                "p2p-not-supported",
                INFO if disproved else WARNING if never else ERROR,
                subject + (f" and {len(where) - 6} more" if len(where) > 6 and len(where) != total else ""),
                f"the driver offers no peer {CAPABILITIES[letter]}: {MEANINGS.get(cell, cell)}"
                + (", yet data arrived" if disproved else ""),
                f"nvidia-smi topo -p2p {letter}: {cell} for {len(where)} of {total} pairs",
                {
                    "CNS": "the driver does not know this chipset: IOMMU off, a newer driver, or ForceP2P=0x11 in NVreg_RegistryDwords",
                    "GNS": "this card has no peer-to-peer with this driver (GeForce), or the GPUs are of different architectures",
                    "DR": "RegistryDwords switches it off: look for ForceP2P in /etc/modprobe.d",
                }.get(cell, "nvidia-smi topo -m shows the path; look at BIOS, chipset and driver release notes"),
            )


def _cache(state: State) -> Iterator[Finding]:
    """Sglang and vLLM remember which pairs have access; a file of another time makes them hang or stay slow."""
    by_pair = {(pair.src, pair.dst): pair for pair in state.pairs or [] if pair.status != "skipped"}
    for part in (state.host, state.container):
        if part is None:
            continue
        for match in part.paths("files", r".*/gpu_p2p_access_cache_for_([\d,]+)\.json"):
            reading = part.file(match[0])
            visible = [int(number) for number in match[1].split(",") if number]
            wrong = []
            for key, value in _cache_entries(reading.text).items():
                ends = [visible[number] for number in key if number < len(visible)]
                pair = by_pair.get((ends[0], ends[1])) if len(ends) == 2 else None
                if pair is not None and value != (pair.status == "ok" and pair.can_access is not False):
                    wrong.append(f"{pair.name} cached {'yes' if value else 'no'}, measured {pair.status}")
            if wrong:
                yield Finding(
                    "p2p-cache-stale",
                    WARNING,
                    part.name,
                    f"the cache of peer access in {part.name} contradicts the measurement for {len(wrong)} pairs",
                    f"{match[0]}: " + "; ".join(wrong[:6]),
                    f"delete it and restart the server: rm {match[0]}",
                )


def _cache_entries(text: str) -> dict[tuple[int, int], bool]:
    """Entries '0->1': true of a cache file; none for anything else."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    found = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        if (match := re.fullmatch(r"(\d+)->(\d+)", key)) and match[1] != match[2]:
            found[int(match[1]), int(match[2])] = bool(value)
    return found
