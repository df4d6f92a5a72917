"""Results as text: the tables that pvesh and its kin print without --output-format."""

from __future__ import annotations

import json
import sys
from typing import Any


def show(result: Any, form: str, kind: str | None = None) -> None:
    """Print a result as json, json-pretty, yaml or text."""
    if form in {"json", "json-pretty"}:
        if result is None and kind == "null":
            return
        indent = 3 if form == "json-pretty" else None
        separators = (",", ":") if form == "json" else None
        print(json.dumps(result, indent=indent, separators=separators, sort_keys=True, ensure_ascii=False))
        return
    if result is None:
        return
    if isinstance(result, list) and all(isinstance(row, dict) for row in result):
        _rows(result)
    elif isinstance(result, dict):
        _grid(["key", "value"], [[name, _cell(result[name])] for name in sorted(result)])
    elif isinstance(result, list):
        for row in result:
            print(_cell(row))
    else:
        print(_cell(result))


def _cell(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return "" if value is None else str(value)


def _rows(rows: list[dict[str, Any]]) -> None:
    names = sorted({name for row in rows for name in row})
    if rows:
        _grid(names, [[_cell(row.get(name)) for name in names] for row in rows])


def _grid(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(line) for row in [head, *rows] for line in (row[column].split("\n") or [""])) for column in range(len(head))]
    box = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    bar, line = ("│", "─") if box else ("|", "-")
    edges = (("┌", "┬", "┐"), ("╞", "╪", "╡"), ("├", "┼", "┤"), ("└", "┴", "┘")) if box else ((("+",) * 3,) * 4)

    def rule(edge: tuple[str, ...], with_: str) -> None:
        print(edge[0] + edge[1].join(with_ * (width + 2) for width in widths) + edge[2])

    def text(row: list[str]) -> None:
        cells = [cell.split("\n") for cell in row]
        for number in range(max(len(cell) for cell in cells)):
            parts = [(cell[number] if number < len(cell) else "").ljust(width) for cell, width in zip(cells, widths, strict=True)]
            print(f"{bar} " + f" {bar} ".join(parts) + f" {bar}")

    rule(edges[0], line)
    text(head)
    rule(edges[1], "═" if box else "=")
    for number, row in enumerate(rows):
        if number:
            rule(edges[2], line)
        text(row)
    rule(edges[3], line)
