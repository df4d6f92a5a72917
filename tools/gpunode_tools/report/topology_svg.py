"""A drawing of the topology: one picture a NUMA node, CPU above switches above GPUs; pictures wrap on a narrow page."""

from __future__ import annotations

from html import escape
from typing import Any, Final

_WIDTH: Final = 84
_GAP: Final = 10
_TOP: Final = 34


def draw(result: dict[str, Any]) -> str:
    """Return HTML with the drawing of a result's ``topology``; GPUs that a finding of severity error names are marked."""
    topology = result["topology"]
    labels: list[str] = topology["gpus"]
    nodes = _nodes(topology)
    bad = {
        label
        for finding in result["findings"]
        if finding["severity"] == "error"
        for label in labels
        if label in finding["subject"].replace("->", " ").replace("<->", " ").replace(",", " ").split()
    }
    groups = _switches(result)
    cards = {gpu.get("index"): gpu for gpu in result["gpus"]}
    pictures = []
    for node, members in nodes.items():
        pictures.append(_picture(node, members, groups, bad, cards))
    parts = ['<div class="flex">', '<span class="between">SYS</span>'.join(pictures), "</div>"]
    words = _between(topology)
    return "\n".join([*parts, f"<p>{escape(words)}</p>" if words else ""])


def _nodes(topology: dict[str, Any]) -> dict[str, list[str]]:
    """NUMA node to its GPUs; '?' where it was not told."""
    rows = topology.get("rows", topology["gpus"])
    where = dict(zip(rows, topology.get("numa_affinity") or [], strict=False))
    nodes: dict[str, list[str]] = {}
    for label in topology["gpus"]:
        nodes.setdefault(where.get(label) or "?", []).append(label)
    return nodes


def _switches(result: dict[str, Any]) -> dict[str, int]:
    """GPU label to the number of its switch: GPUs joined by PIX or PXB share one."""
    topology = result["topology"]
    rows = topology.get("rows", topology["gpus"])
    group: dict[str, int] = {}
    for label, row in zip(rows, topology["matrix"], strict=True):
        near = [other for other, cell in zip(topology["gpus"], row, strict=True) if cell in {"PIX", "PXB"}]
        if near:
            number = next((group[other] for other in [label, *near] if other in group), len(set(group.values())))
            for other in [label, *near]:
                group[other] = number
    return group


def _between(topology: dict[str, Any]) -> str:
    paths: dict[str, int] = {}
    for row in topology["matrix"]:
        for cell in row:
            if cell != "X":
                paths[cell] = paths.get(cell, 0) + 1
    return "Ordered pairs by path: " + ", ".join(f"{count} {path}" for path, count in sorted(paths.items())) if paths else ""


def _picture(node: str, members: list[str], groups: dict[str, int], bad: set[str], cards: dict[Any, dict[str, Any]]) -> str:
    ordered = sorted(members, key=lambda label: (groups.get(label, 1000), members.index(label)))
    columns = min(4, len(ordered))
    rows = [ordered[start : start + columns] for start in range(0, len(ordered), columns)]
    width = columns * (_WIDTH + _GAP) + _GAP
    height = _TOP + 22 + (len(rows) - 1) * 96 + 58
    title = f"NUMA node {node}" if node != "?" else "NUMA node not told"
    label = f"{title}: {', '.join(members)}"
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{escape(label)}">',
        f'<rect class="box" x="1" y="1" width="{width - 2}" height="26" rx="6"/>',
        f'<text x="{width / 2:g}" y="18" text-anchor="middle">{escape(title)}</text>',
    ]
    for index, row in enumerate(rows):
        top = _TOP + 22 + index * 96
        for column, gpu in enumerate(row):
            left = _GAP + column * (_WIDTH + _GAP)
            middle = left + _WIDTH / 2
            parts.append(f'<path class="wire" d="M{middle:g} {27 if index == 0 else top - 42} V{top}"/>')
            parts += _gpu(gpu, left, top, gpu in bad, cards)
        parts += _switch_boxes(row, top, groups)
    return "\n".join([*parts, "</svg>"])


def _switch_boxes(row: list[str], top: int, groups: dict[str, int]) -> list[str]:
    parts = []
    for number in sorted({groups[label] for label in row if label in groups}):
        places = [index for index, label in enumerate(row) if groups.get(label) == number]
        left = _GAP + min(places) * (_WIDTH + _GAP)
        width = (max(places) - min(places) + 1) * (_WIDTH + _GAP) - _GAP
        parts.append(f'<rect class="box" x="{left}" y="{top - 24}" width="{width}" height="16" rx="4"/>')
        parts.append(f'<text class="small" x="{left + width / 2:g}" y="{top - 12}" text-anchor="middle">switch</text>')
    return parts


def _gpu(label: str, left: int, top: int, bad: bool, cards: dict[Any, dict[str, Any]]) -> list[str]:
    gpu = cards.get(int(label[3:]), {})
    lanes = f"x{gpu['link_width']}" if "link_width" in gpu else ""
    middle = left + _WIDTH / 2
    return [
        f'<rect class="{"bad" if bad else "good"}" x="{left}" y="{top}" width="{_WIDTH}" height="54" rx="6"/>',
        f'<text x="{middle:g}" y="{top + 18}" text-anchor="middle">{escape(label)}{" !" if bad else ""}</text>',
        f'<text class="small" x="{middle:g}" y="{top + 33}" text-anchor="middle">{escape(gpu.get("bdf", "")[-7:])}</text>',
        f'<text class="small" x="{middle:g}" y="{top + 47}" text-anchor="middle">{lanes}</text>',
    ]
