"""`nvidia-smi topo -m`: paths between GPUs and to adapters, CPU and NUMA affinity."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from .matrix import COLUMN, Row, Table, read_table

WHAT: Final = "nvidia-smi topo -m"
_CELL: Final = r"NV\d+|SYS|NODE|PHB|PXB|PIX|SOC|PSB|X|N/A|ERR!"
"""SOC and PSB are of drivers before 384; N/A and ERR! stand where the driver could not tell."""
_LEGEND_END: Final = r"NV#\s*="
_CPUS: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*|N/A")
_NUMBER: Final = re.compile(r"\d+|N/A")
SYMMETRIC_NUMA: Final = ("PIX", "PXB", "PHB", "NODE", "PSB")
"""Paths that stay within one NUMA node."""


@dataclass
class Topology:
    """The matrix as printed; ``rows`` names the GPU of each row of ``matrix``, all of them unless the text is cut."""

    gpus: list[str]
    nics: list[str]
    columns: list[str]
    rows: list[str]
    matrix: list[list[str]]
    gpu_nic_matrix: list[list[str]]
    cpu_affinity: list[str | None] = field(default_factory=list)
    numa_affinity: list[str | None] = field(default_factory=list)
    gpu_numa_id: list[str | None] = field(default_factory=list)
    nic_names: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    notes: list[str] = field(default_factory=list)

    def path(self, source: int, target: int) -> str | None:
        """Path between GPUs by their index; None where the text does not say."""
        for one, other in ((source, target), (target, source)):
            label = f"GPU{one}"
            if label in self.rows and f"GPU{other}" in self.gpus:
                return self.matrix[self.rows.index(label)][self.gpus.index(f"GPU{other}")]
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the result's ``topology``."""
        data: dict[str, Any] = {
            "gpus": self.gpus,
            "nics": self.nics,
            "matrix": self.matrix,
            "gpu_nic_matrix": self.gpu_nic_matrix,
            "cpu_affinity": self.cpu_affinity,
            "numa_affinity": self.numa_affinity,
            "gpu_numa_id": self.gpu_numa_id,
            "complete": self.complete,
        }
        if self.rows != self.gpus:
            data["rows"] = self.rows
        if self.nic_names:
            data["nic_names"] = self.nic_names
        if self.notes:
            data["notes"] = self.notes
        return data


def parse_topo(text: str) -> Topology:
    """Read the output of ``nvidia-smi topo -m``.

    A text that is cut gives the rows that are whole, with ``complete`` False. Raises NotUnderstoodError for a text that holds no such
    matrix, or one that contradicts itself (a cell too many, X off the diagonal, a cell that no driver prints).
    """
    table = read_table(text, WHAT, _CELL, _LEGEND_END)
    count = len(table.gpus)
    whole = [table.rows[label] for label in table.gpus if label in table.rows]
    rows = [(row.label, row.cells[:count]) for row in whole]
    if table.partial is not None and table.partial.label in table.gpus and len(table.partial.cells) >= count:
        rows.append((table.partial.label, table.partial.cells[:count]))
    topology = Topology(
        gpus=table.gpus,
        nics=table.others,
        columns=table.columns,
        rows=[label for label, _ in rows],
        matrix=[cells for _, cells in rows],
        gpu_nic_matrix=[row.cells[count:] for row in whole] if table.others else [],
        complete=table.complete,
        nic_names=_nic_names(table.legend),
    )
    _affinity(topology, table, whole)
    _notes(topology, table)
    return topology


def _nic_names(legend: list[str]) -> dict[str, str]:
    return {match[1]: match[2] for line in legend if (match := re.fullmatch(r"(NIC\d+)\s*:\s*(\S+)", line))}


def _affinity(topology: Topology, table: Table, whole: list[Row]) -> None:
    """Fill the affinity columns; the last row of a text that is cut gives only what cannot have been longer."""
    kinds = [("numa" if "NUMA" in name else "cpu") if "ID" not in name else "id" for name in table.columns]
    lists: dict[str, list[str | None]] = {kind: [] for kind in kinds}
    for row in whole:
        values = _columns_of(row, kinds, table.header)
        cut_here = row.last and None in values
        for kind, value in zip(kinds, values, strict=True):
            lists[kind].append(value)
        if cut_here:
            topology.complete = False
        if row.last and not table.complete and not cut_here and kinds and values[-1] not in {"N/A", None}:
            lists[kinds[-1]][-1] = None
    for kind, values in lists.items():
        while values and values[-1] is None:
            values.pop()
        setattr(topology, {"cpu": "cpu_affinity", "numa": "numa_affinity", "id": "gpu_numa_id"}[kind], values)


_SHAPES: Final = {"cpu": _CPUS, "numa": _CPUS, "id": _NUMBER}
_TAB_PLACES: Final = {"cpu": 1, "numa": 2, "id": 4}
"""Where nvidia-smi puts the columns behind the last cell, counted in tabs: two of them stand before the GPU NUMA ID."""
_NEAR: Final = 3
"""Blanks by which a word may stand off its column's heading and still belong to it."""


def _columns_of(row: Row, kinds: list[str], header: str) -> list[str | None]:
    """Values of the affinity columns; '' is an empty one (no CPU of the GPU is in this container's cpuset), None what is not given."""
    words = row.rest.split()
    if len(words) > len(kinds) and words[0].endswith(","):
        words[:2] = ["".join(words[:2])]
    values: list[str | None] | None = None
    if len(words) == len(kinds):
        values = list(words)
    elif 0 < len(words) < len(kinds):
        values = _by_tabs(row, kinds) if "\t" in row.rest else _by_place(row, kinds, header)
    if values is None and row.last:
        values = [*words[: max(0, len(words) - 1)], *[None] * len(kinds)][: len(kinds)]
    if values is None:
        values = [None] * len(kinds)
    return [value if not value or _SHAPES[kind].fullmatch(value) else None for kind, value in zip(kinds, values, strict=True)]


def _by_tabs(row: Row, kinds: list[str]) -> list[str | None] | None:
    """Take columns by counting tabs; None when the last one is not there, so that the row may be cut."""
    fields = [field.strip() for field in row.rest.split("\t")]
    values: list[str | None] = [fields[_TAB_PLACES[kind]] if _TAB_PLACES[kind] < len(fields) else None for kind in kinds]
    return values if values[-1] else None


def _by_place(row: Row, kinds: list[str], header: str) -> list[str | None] | None:
    """Take columns by where their words stand below the header; None when a word stands below no heading or the last one is not there."""
    starts = [match.start() for match in COLUMN.finditer(header)]
    values: list[str | None] = [""] * len(kinds)
    behind = len(row.line) - len(row.rest)
    for match in re.finditer(r"\S+", row.rest):
        near = [index for index, start in enumerate(starts) if abs(start - behind - match.start()) <= _NEAR]
        if not near:
            return None
        values[near[0]] = match[0]
    return values if values[-1] else None


def _notes(topology: Topology, table: Table) -> None:
    for line in table.before:
        if match := re.search(r"(\d+) NICs? found in the topology, only displaying (\d+)", line):
            topology.notes.append(f"{match[1]} NICs found, {match[2]} shown")
    for one, row in zip(topology.rows, topology.matrix, strict=True):
        for other, value in zip(topology.gpus, row, strict=True):
            if other in topology.rows and one < other:
                back = topology.matrix[topology.rows.index(other)][topology.gpus.index(one)]
                if back != value:
                    topology.notes.append(f"{one} to {other} reads {value}, back {back}")
    if not topology.complete:
        missing = [label for label in topology.gpus if label not in topology.rows]
        topology.notes.append("the text is cut" + (f": no row for {', '.join(missing)}" if missing else ""))
