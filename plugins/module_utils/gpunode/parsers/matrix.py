"""The shape that `nvidia-smi topo -m` and `topo -p2p` share: a header of labels, then one row of cells per label.

The walls against misreading: cells come from a closed vocabulary, every row has exactly as many as the header says, the diagonal is X
and nothing else is. Glued cells are split; a row that is cut short is left out, never padded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .text import NotUnderstoodError, excerpt, lines_of

_GPU: Final = re.compile(r"GPU\d+")
_NUMBERED: Final = re.compile(r"(?:GPU|NIC|NVME)\d+")
_NIC: Final = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*")
"""Older drivers name the adapters themselves: mlx5_0, mlx5_bond_0, hfi1_0, bnxt_re0, rocep1s0f0, ibp24s0."""
COLUMN: Final = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID|NUMA(?!\s*\w)")
SELF: Final = "X"
MAX_GPUS: Final = 64
"""More labels than any host has: a longer header is not one."""


@dataclass
class Row:
    """One whole row: its label, its cells in the header's order, and the text after them."""

    label: str
    cells: list[str]
    rest: str
    last: bool = False
    """True when nothing of the table follows, so that the text may be cut right here."""
    line: str = ""
    """The whole line: where columns are kept by blanks, the place of a word tells which column it is in."""


@dataclass
class Table:
    """What the header promised and the rows that kept it."""

    gpus: list[str]
    others: list[str]
    columns: list[str]
    rows: dict[str, Row] = field(default_factory=dict)
    partial: Row | None = None
    """The row in which the text is cut, with the cells that are certain."""
    header: str = ""
    complete: bool = False
    legend: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_table(text: str, what: str, cell: str, legend_end: str) -> Table:
    """Read the first table of ``text`` whose cells match the pattern ``cell``.

    ``what`` names the program in refusals. ``legend_end`` is a pattern for the legend's last line: a legend that begins and does not
    reach it says that the text is cut. Raises NotUnderstoodError when there is no such table or when a row contradicts the header.
    """
    lines = lines_of(text)
    if any(line.count("|") > 2 and _GPU.search(line) for line in lines):
        raise NotUnderstoodError(what, f"a table re-typed with | between the cells, not the command's own output: {excerpt(text)}")
    start = 0
    why = f"no header line with GPU0; the text begins: {excerpt(text)}"
    refusal: NotUnderstoodError | None = None
    while (found := _find_header(lines, start)) is not None:
        index, table = found
        table.before = lines[:index]
        try:
            if _read_rows(table, lines[index + 1 :], what, re.compile(cell), re.compile(legend_end)):
                return table
        except NotUnderstoodError as error:  # perhaps another command's table, and ours follows
            refusal = refusal or error
        why = f"a header with {', '.join(table.gpus)} but no row that belongs to it; the text begins: {excerpt(text)}"
        start = index + 1
    raise refusal or NotUnderstoodError(what, why)


def _find_header(lines: list[str], start: int) -> tuple[int, Table] | None:
    for index in range(start, len(lines)):
        table = _parse_header(lines[index])
        if table is not None:
            return index, table
    return None


def _parse_header(line: str) -> Table | None:
    """Read a header from the first GPU label on: a command or a prompt may stand before it on the same line."""
    first = re.search(r"(?<![\w-])GPU\d", line)
    if not first:
        return None
    header = line[first.start() :]
    columns = [re.sub(r"\s+", " ", match[0]) for match in COLUMN.finditer(header)]
    labels_text = COLUMN.split(header, maxsplit=1)[0]
    if columns and COLUMN.sub("", header[len(labels_text) :]).strip():
        return None  # words among the columns that no driver prints
    labels: list[str] = []
    for token in labels_text.split():
        glued = _NUMBERED.findall(token)
        if glued and "".join(glued) == token:
            labels += glued
        elif _NIC.fullmatch(token) and not token.startswith(("GPU", "NV")) and labels:
            labels.append(token)
        else:
            return None
    gpus = [label for label in labels if _GPU.fullmatch(label)]
    numbers = [int(label[3:]) for label in gpus]
    if labels[: len(gpus)] != gpus or numbers != sorted(set(numbers)) or len(set(labels)) != len(labels) or len(gpus) > MAX_GPUS:
        return None
    return Table(gpus=gpus, others=labels[len(gpus) :], columns=columns, header=line)


def _split_cells(words: str, cell: re.Pattern[str], count: int) -> tuple[list[str], str]:
    """Return up to ``count`` cells from the start of ``words`` (glued ones split) and the text behind the last of them."""
    cells: list[str] = []
    behind = 0
    for match in re.finditer(r"\S+", words):
        if len(cells) >= count:
            break
        pieces = cell.findall(match[0])
        joined = "".join(pieces)
        if joined == match[0]:
            cells += pieces
            behind = match.end()
            continue
        glued = match[0].startswith(joined) and match[0][len(joined)].isdigit()
        if glued and len(cells) + len(pieces) == count:  # the last cell and the CPU affinity
            return cells + pieces, words[match.start() + len(joined) :]
        break
    return cells, words[behind:]


def _read_rows(table: Table, lines: list[str], what: str, cell: re.Pattern[str], legend_end: re.Pattern[str]) -> bool:
    labels = [*table.gpus, *table.others]
    elided = False
    in_legend = legend_whole = False
    last: Row | None = None
    short: Row | None = None
    for line in lines:
        stripped = line.strip()
        if in_legend:
            table.legend.append(stripped)
            legend_whole = legend_whole or bool(legend_end.match(stripped))
            continue
        if re.match(r"Legend\s*:", stripped):
            in_legend = True
            continue
        words = stripped.split(maxsplit=1)
        if not words or words[0] not in labels:
            elided = elided or stripped in {"...", "…"}
            continue
        if table.rows and _parse_header(stripped) is not None:
            break  # a second command's table
        row = _read_row(table, words[0], stripped[len(words[0]) :], what, cell)
        if row is None:
            return False
        row.line = line
        if short is not None:
            raise NotUnderstoodError(what, f"row {short.label} is short of its {len(labels)} cells, yet more rows follow")
        if len(row.cells) < len(labels):
            short = row
        elif row.label in table.rows:
            raise NotUnderstoodError(what, f"two rows named {row.label}")
        else:
            table.rows[row.label] = last = row
    if short is not None and short.label not in table.rows:
        table.partial = short
    if last is not None:
        last.last = table.partial is None
    table.complete = not elided and len(table.rows) == len(labels) and (legend_whole or not in_legend)
    return bool(table.rows or (table.partial and len(table.partial.cells) >= len(table.gpus)))


def _read_row(table: Table, label: str, words: str, what: str, cell: re.Pattern[str]) -> Row | None:
    """Return the row; None when its first cell is of another vocabulary, so that the table is another command's."""
    labels = [*table.gpus, *table.others]
    cells, rest = _split_cells(words, cell, len(labels))
    if len(cells) < len(labels) and rest.strip():
        if not cells:
            return None
        if not re.fullmatch(r"[A-Z]+", rest.strip()):
            raise NotUnderstoodError(what, f"cell {rest.split()[0]!r} in row {label}")
        rest = ""  # the last word of the text, cut in the middle of a cell
    if rest.strip() and cell.fullmatch(rest.split()[0]) and rest.split()[0] != "N/A":
        raise NotUnderstoodError(what, f"row {label} has more than the {len(labels)} cells of the header")
    may_grow = bool(cells) and cells[-1].startswith("NV") and not rest.strip()
    if may_grow and (len(cells) < len(labels) or (table.columns and label in table.gpus)):
        cells.pop()  # the text may be cut here: NV1 may be the beginning of NV18
    position = labels.index(label)
    for index, value in enumerate(cells):
        if (value == SELF) != (index == position):
            expected = SELF if index == position else "a value"
            raise NotUnderstoodError(what, f"row {label} reads {value} under {labels[index]}, expected {expected}")
    return Row(label, cells, rest)
