"""The NUMA nodes of the pretended host, as /sys/devices/system/node shows them. The machine's own processors stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import model
from .state import write

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_MIB = 773 * 1024  # of each node: 24 modules of 64 GiB in all, less what the firmware keeps
_DISTANCES = ((10, 32), (32, 10))


def mask(cpulist: str, width: int = 384) -> str:
    """A list like 0-3,8 as the kernel's mask: groups of 32 bits in hexadecimal, the highest first."""
    value = 0
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            value |= 1 << number
    return ",".join(f"{value >> shift & 0xFFFFFFFF:08x}" for shift in range(width - 32, -1, -32))


def build(folder: Path) -> None:
    """Write the tree."""
    every = f"0-{len(model.NODE_CPULISTS) - 1}\n"
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        write(folder / name, every)
    for number, cpulist in enumerate(model.NODE_CPULISTS):
        place = folder / f"node{number}"
        write(place / "cpulist", cpulist + "\n")
        write(place / "cpumap", mask(cpulist) + "\n")
        write(place / "distance", " ".join(map(str, _DISTANCES[number])) + "\n")
        free = MEMORY_MIB * 1024 * 97 // 100
        rows = (("MemTotal", MEMORY_MIB * 1024), ("MemFree", free), ("MemUsed", MEMORY_MIB * 1024 - free))
        write(place / "meminfo", "".join(f"Node {number} {name + ':':<15} {value:>12} kB\n" for name, value in rows))
