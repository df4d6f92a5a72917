"""Line charts as SVG: no script, colours of the page, every point told in a title for mouse and screen reader."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 500
HEIGHT: Final = 260
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 24, 42
CLASSES: Final = ("c0", "c1", "c2", "c3", "c4", "c5")
STYLE: Final = Path(__file__).with_name("charts.css")


@dataclass
class Series:
    """Points of one line; `old` marks a baseline, drawn dashed."""

    name: str
    points: list[tuple[float, float]]
    colour: int = 0
    old: bool = False
    dots: bool = field(default=True)


def nice(top: float) -> list[float]:
    """Four to six round ticks from zero to at least the top."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    return [step * index for index in range(math.ceil(top / step - 1e-9) + 1)]


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def chart(
    title: str, series: Sequence[Series], *, x_name: str, y_name: str, log_x: bool = False, mark: tuple[float, str] | None = None
) -> str:
    """One chart as a figure; empty where there is nothing to draw. ``mark`` is a vertical line with a label."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return ""
    xs = sorted({x for one in drawn for x, _ in one.points})
    ticks = nice(max(y for one in drawn for _, y in one.points))
    low, high = (math.log2(xs[0]), math.log2(xs[-1])) if log_x else (min(0.0, xs[0]), xs[-1])

    def at_x(x: float) -> float:
        share = ((math.log2(x) if log_x else x) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def at_y(y: float) -> float:
        return HEIGHT - BOTTOM - y / ticks[-1] * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ticks:
        y = at_y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(tick)}</text>')
    shown = xs if log_x else nice(xs[-1])
    bottom = HEIGHT - BOTTOM
    inside = [x for x in shown if low <= (math.log2(x) if log_x else x) <= high]
    parts += [f'<text class="small" x="{at_x(x):.1f}" y="{bottom + 16}" text-anchor="middle">{_text(x)}</text>' for x in inside]
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="small" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_name)}</text>')
    parts.append(f'<text class="small" x="4" y="{TOP - 12}">{escape(y_name)}</text>')
    if mark is not None and xs[0] <= mark[0] <= xs[-1]:
        x = at_x(mark[0])
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        anchor, shift = ("end", -4) if x > WIDTH * 0.7 else ("start", 4)
        parts.append(f'<text class="small" x="{x + shift:.1f}" y="{bottom - 6}" text-anchor="{anchor}">{escape(mark[1])}</text>')
    for one in drawn:
        parts += _line(one, [(at_x(x), at_y(y)) for x, y in one.points])
    legend = " ".join(_key(one) for one in drawn)
    return f'<figure><figcaption>{escape(title)}</figcaption>{"".join(parts)}</svg><p class="legend">{legend}</p></figure>'


def _kind(one: Series) -> str:
    return CLASSES[one.colour % len(CLASSES)] + (" old" if one.old else "")


def _line(one: Series, places: list[tuple[float, float]]) -> list[str]:
    """The line of a series, and a dot for each point that tells its figures."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline class="line {_kind(one)}" points="{path}"><title>{escape(one.name)}</title></polyline>']
    for (x, y), (streams, value) in zip(places, one.points, strict=True) if one.dots else ():
        told = f"{escape(one.name)}: {_text(value)} at {_text(streams)}"
        parts.append(f'<circle class="dot {_kind(one)}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{told}</title></circle>')
    return parts


def _key(one: Series) -> str:
    sample = f'<svg viewBox="0 0 22 8" width="22" height="8"><line class="line {_kind(one)}" x1="0" x2="22" y1="4" y2="4"/></svg>'
    return f'<span class="key">{sample}{escape(one.name)}</span>'
