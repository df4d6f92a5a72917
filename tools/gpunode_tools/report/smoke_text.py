"""A smoke result for terminals: verdict, levels with sparklines, plateau, findings."""

from __future__ import annotations

from typing import Any, Final

from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, plural, table, wrapped

WORDS: Final = {
    "pass": "the server serves what was asked of it",
    "warn": "the server serves, with warnings",
    "fail": "the server does not serve what was asked of it",
    "unknown": "could not tell",
    "client-bound": "the client was the bottleneck: these figures are not the server's",
}
BARS: Final = "▁▂▃▄▅▆▇█"
SPARK_WIDTH: Final = 20
MAXIMA: Final = "each level's maximum, at different moments, so that both together may exceed the streams"
"""What figures of running and queued requests are, under every table of levels."""


def number(value: float | None, digits: int = 0) -> str:
    """A figure, or a dash."""
    return "–" if value is None else f"{value:,.{digits}f}"


def sparkline(values: list[float], width: int = SPARK_WIDTH) -> str:
    """The course of values as bars from zero to their highest; long courses are averaged to the width."""
    if not values:
        return ""
    if len(values) > width:
        step = len(values) / width
        values = [
            sum(part) / len(part)
            for index in range(width)
            if (part := values[int(index * step) : max(int((index + 1) * step), int(index * step) + 1)])
        ]
    top = max(values)
    return "".join(BARS[min(7, int(value / top * 7.999))] if top > 0 else BARS[0] for value in values)


def level_rows(result: dict[str, Any]) -> list[list[str]]:
    """Head and a row for each level."""
    levels = result["levels"]
    best = max((level.get("steady_total_tps") or level.get("total_tps") or 0 for level in levels), default=0)
    rows = [
        ["streams", "total/s", "", "out/s", "peak/s", "TTFT p50", "p99", "ITL p50", "p99", "run", "queue", "steady", "failed", "per second"]
    ]
    for level in levels:
        total = level.get("steady_total_tps") or level.get("total_tps")
        ttft, itl, server = level.get("ttft_ms") or {}, level.get("itl_ms") or {}, level.get("server") or {}
        bar = "█" * round((total or 0) / best * 10) if best else ""
        rows.append(
            [
                str(level["concurrency"]),
                number(total),
                bar,
                number(level.get("steady_output_tps") or level.get("output_tps")),
                number(level.get("peak_output_tps")),
                number(ttft.get("p50")),
                number(ttft.get("p99")),
                number(itl.get("p50"), 1),
                number(itl.get("p99"), 1),
                number(server.get("running_max")),
                number(server.get("queued_max")),
                f"{(level.get('steady') or {}).get('share', 0):.0%}",
                str(level.get("failed", 0)),
                sparkline(level.get("per_second_output") or []),
            ]
        )
    return rows


def plateau_lines(plateau: dict[str, Any]) -> list[str]:
    """What the sweep shows, in words."""
    gains = [f"{gain:+.1f} %" if gain is not None else "?" for gain in plateau["gains_pct"]]
    lines = [f"gain per doubling: {', '.join(gains)}"] if gains else []
    if plateau["knee_concurrency"] is not None:
        lines.append(f"knee at {plural(plateau['knee_concurrency'], 'stream')}: every later step gains less than 10 % per doubling")
    elif gains:
        lines.append("no knee: the last step still gains 10 % or more per doubling")
    if plateau["collapse_concurrency"] is not None:
        lines.append(f"collapse from {plateau['collapse_concurrency']:g} streams on: more than 5 % below the peak")
    lines.append(f"cause: {plateau['cause']}: {plateau['evidence']}")
    if plateau.get("next_step"):
        lines.append(f"next: {plateau['next_step']}")
    if plateau.get("undecided"):
        lines.append(f"too close to call at {', '.join(f'{level:g}' for level in plateau['undecided'])}")
    return lines


def render(result: dict[str, Any], *, colour: bool) -> str:
    """Return the text of a result (schema gpunode.smoke/1)."""
    paint = Paint(on=colour)
    verdict = result["verdict"]
    lines = [f"{paint(verdict.upper(), 'bold', VERDICT_STYLES.get(verdict, 'magenta'))}  {WORDS[verdict]}"]
    server, load = result.get("server") or {}, result.get("load") or {}
    told = [
        str(result["url"]),
        str(result.get("model") or "model unknown"),
        f"{server.get('engine', 'unknown')} {server.get('version') or ''}".strip(),
    ]
    if "input_len" in load:
        told.append(f"{load['input_len']} tokens in, {load['output_len']} out, {load['endpoint']}")
    lines.append(paint(", ".join(told), "dim"))
    if server.get("patches"):
        lines.append(paint(f"patched: {', '.join(patch['id'] for patch in server['patches'])}", "dim"))
    if result.get("simulated"):
        lines.append(paint("simulated: a stand-in answered", "magenta"))
    if result["levels"]:
        lines += ["", *table(level_rows(result), right=(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))]
        lines.append(paint("tokens a second of the steady state; times in ms", "dim"))
        lines.append(paint(f"run and queue: {MAXIMA}", "dim"))
        lines.append("")
        for text in plateau_lines(result["plateau"]):
            lines += wrapped(text, 0)
    rows = (result.get("baseline") or {}).get("rows") or []
    if rows:
        lines += ["", f"against the baseline of {result['baseline'].get('saved_at')}:"]
        shown = [
            [str(row["concurrency"]), row["figure"], number(row["before"], 1), number(row["now"], 1), f"{row['change_pct']:+.1f} %"]
            for row in rows
        ]
        lines += table([["streams", "figure", "then", "now", "change"], *shown], right=(0, 2, 3, 4))
    if result["findings"]:
        lines.append("")
        for entry in result["findings"]:
            lines.append(
                f"{paint(entry['severity'], SEVERITY_STYLES[entry['severity']])} {entry['id']} ({entry['subject']}): {entry['summary']}"
            )
            lines += wrapped(f"seen: {entry['evidence']}", 4) if entry["evidence"] else []
            lines += wrapped(f"do: {entry['remedy']}", 4) if entry["remedy"] else []
    return "\n".join(lines) + "\n"


def sweep(entry: dict[str, Any]) -> str:
    """One sweep of others, analysed."""
    rows = [["streams", "tokens/s"], *([f"{point[0]:g}", number(point[1], 1)] for point in entry["points"])]
    return "\n".join([f"{entry['file']}:", *table(rows, right=(0, 1)), *plateau_lines(entry["plateau"]), ""])
