"""`p2pBandwidthLatencyTest` of NVIDIA's samples: matrices of what somebody else measured, to compare with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .text import NotUnderstoodError, bus_id, excerpt, lines_of

WHAT: Final = "p2pBandwidthLatencyTest"
_ACCESS: Final = re.compile(r"Device=(\d+) (CAN|CANNOT) Access Peer Device=(\d+)")
_DEVICE: Final = re.compile(r"Device: (\d+), (.+?), pciBusID: ([0-9a-f]+), pciDeviceID: ([0-9a-f]+), pciDomainID: ?([0-9a-f]+)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
SECTIONS: Final = (
    "connectivity",
    "uni_p2p_off",
    "uni_p2p_on",
    "bidir_p2p_off",
    "bidir_p2p_on",
    "latency_p2p_off",
    "cpu_latency_p2p_off",
    "latency_p2p_on",
    "cpu_latency_p2p_on",
)


@dataclass
class Matrix:
    """One matrix, row = source; ``complete`` is False when rows are missing."""

    rows: list[list[float]]
    complete: bool


@dataclass
class P2pTest:
    """Bandwidth in GB/s, latency in microseconds (pipelined 16-byte writes, no round trip)."""

    devices: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    """PCI address of each device: CUDA may number them in another order than the bus."""
    access: dict[tuple[int, int], bool] = field(default_factory=dict)
    matrices: dict[str, Matrix] = field(default_factory=dict)
    complete: bool = False
    """Whether the whole run is there, from the first section to the last."""


def _section(line: str, current: str) -> str | None:
    """Return the name of the section that a line opens; headings re-typed by people are known by their words."""
    low = re.sub(r"[*_`#]", "", line).lower()
    if "connectivity matrix" in low:
        return "connectivity"
    if "p2p" in low and ("enabled" in low or "disabled" in low):
        state = "on" if "enabled" in low else "off"
        if "bidirectional" in low:
            return f"bidir_p2p_{state}"
        if "unidirectional" in low:
            return f"uni_p2p_{state}"
        if "latency" in low:
            return f"latency_p2p_{state}"
    if re.match(r"\s*CPU(?:\s+\d+)+$", line) and current.startswith("latency"):
        return f"cpu_{current}"
    return None


def parse_p2p_test(text: str) -> P2pTest:
    """Read the program's output or a part of it; a row that is cut short is left out and its matrix marked.

    Raises NotUnderstoodError when the text holds neither a matrix nor a line about peer access.
    """
    test = P2pTest()
    section = ""
    columns = 0
    for line in lines_of(text):
        if match := _ACCESS.search(line):
            test.access[int(match[1]), int(match[3])] = match[2] == "CAN"
        elif match := _DEVICE.search(line):
            test.devices.append(match[2])
            test.addresses.append(bus_id(f"{match[5]:0>4}:{match[3]:0>2}:{match[4]:0>2}.0"))
        elif (name := _section(line, section)) is not None:
            section, columns = name, 0
        words = line.split()
        if (
            len(words) > 1
            and words[0] in {"D\\D", "GPU", "CPU"}
            and [int(word) if word.isdecimal() else -1 for word in words[1:]] == [*range(len(words) - 1)]
        ):
            columns = len(words) - 1
            if section:
                test.matrices.setdefault(section, Matrix([], complete=False))
        elif section and columns and words and words[0].isdecimal():
            _row(test.matrices[section], words, columns)
    if not test.matrices and not test.access:
        raise NotUnderstoodError(WHAT, excerpt(text))
    test.complete = all(test.matrices.get(name, Matrix([], complete=False)).complete for name in SECTIONS)
    return test


def _row(matrix: Matrix, words: list[str], columns: int) -> None:
    """Append a whole row in its turn. The last value of the text may be cut: it has two decimals or one like its neighbours."""
    values = words[1:]
    if int(words[0]) != len(matrix.rows) or matrix.complete or len(values) != columns or not all(map(_NUMBER.fullmatch, values)):
        return
    decimals = {len(value.partition(".")[2]) for value in values}
    if len(decimals) > 1:
        return
    matrix.rows.append([float(value) for value in values])
    matrix.complete = len(matrix.rows) == columns
