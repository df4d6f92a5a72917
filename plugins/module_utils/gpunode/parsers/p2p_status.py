"""`nvidia-smi topo -p2p r|w|n|a|p`: what the driver says about peer-to-peer between each pair. A capability, not a proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .matrix import read_table
from .text import NotUnderstoodError

CAPABILITIES: Final = {"r": "read", "w": "write", "n": "NVLink", "a": "atomics", "p": "PCIe"}
MEANINGS: Final = {
    "OK": "ok",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "DR": "disabled by a registry key of the driver",
    "NS": "not supported",
    "U": "unknown",
}
_CELL: Final = r"OK|CNS|GNS|TNS|NS|DR|U|X|N/A"


@dataclass
class P2pStatus:
    """Status of each ordered pair as printed; ``rows`` names the GPU of each row of ``matrix``."""

    gpus: list[str]
    rows: list[str]
    matrix: list[list[str]]
    complete: bool

    def status(self, source: int, target: int) -> str | None:
        """Status between GPUs by their index; None where the text does not say."""
        label, other = f"GPU{source}", f"GPU{target}"
        if label not in self.rows or other not in self.gpus:
            return None
        return self.matrix[self.rows.index(label)][self.gpus.index(other)]


def parse_p2p_status(text: str, capability: str = "r") -> P2pStatus:
    """Read the output of ``nvidia-smi topo -p2p CAPABILITY``; cut texts give whole rows, with ``complete`` False.

    Raises NotUnderstoodError for a text without such a matrix.
    """
    what = f"nvidia-smi topo -p2p {capability}"
    table = read_table(text, what, _CELL, r"U\s*=")
    if table.others:
        raise NotUnderstoodError(what, f"columns {', '.join(table.others)} beside the GPUs")
    rows = [table.rows[label] for label in table.gpus if label in table.rows]
    return P2pStatus(
        gpus=table.gpus,
        rows=[row.label for row in rows],
        matrix=[row.cells for row in rows],
        complete=table.complete,
    )
