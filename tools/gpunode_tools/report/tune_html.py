"""A comparison of variants as one HTML page: verdict, table, throughput and latency over concurrency, what each one changes."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from gpunode_tools.report import charts_svg
from gpunode_tools.report.charts_svg import Series, chart
from gpunode_tools.report.page import card, finding, page, simulated_notice, table, verdict_line
from gpunode_tools.report.tune_text import HEAD, LIMITS, bound, cells, change, slow, words

CHANGES: Final = ("Variant", "Change", "Bound by", "Far slower than another", "Why it was not compared")
DRAWN: Final = len(charts_svg.CLASSES)
"""Variants drawn in one chart: as many as there are colours that are told apart; the best ones."""


def render(result: dict[str, Any]) -> str:
    """Return the page of a comparison (schema gpunode.tune/1)."""
    verdict = result["verdict"]
    body = [
        f"<style>\n{charts_svg.STYLE.read_text(encoding='utf-8')}</style>",
        verdict_line("Variants of the server", verdict, words(result)),
    ]
    if result["limits"]:
        told = ", ".join(LIMITS[name].format(value) for name, value in result["limits"].items())
        body.append(f'<p class="soft">Limits: {escape(told)}.</p>')
    if result["simulated"]:
        body.append(simulated_notice())
    rows = [[("★ " if row["name"] == result["winner"] else "") + cells(row)[0], *cells(row)[1:]] for row in result["rows"]]
    note = '<p class="soft">Tokens a second of the steady state at the best level within the limits; times in milliseconds.</p>'
    body.append(card("Comparison", table([name.capitalize() if name.islower() else name for name in HEAD], rows), note))
    charts = _charts(result["rows"])
    if any(charts):
        body.append(card("Over concurrency", f'<div class="charts">{"".join(charts)}</div>'))
    body.append(card("What each variant changes", table(CHANGES, _changes(result["rows"]))))
    body.append(card("Findings", *([finding(entry) for entry in result["findings"]] or ["<p>None.</p>"])))
    body.append("<footer>gpunode tune-report</footer>")
    return page(f"{verdict}: variants of the server", body)


def _changes(rows: list[dict[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    # The whole cause of a start that failed stands among the findings.
    return [(str(row["name"]), change(row["variant"]), bound(row), "; ".join(slow(row)), (row["why"] or "").split("\n")[0]) for row in rows]


def _charts(rows: list[dict[str, Any]]) -> list[str]:
    drawn = [row for row in rows if row["levels"]][:DRAWN]
    made = []
    for title, figure, unit in (
        ("Total throughput", "total_tps", "tokens/s"),
        ("Time to first token, p99", "ttft_ms_p99", "ms"),
        ("Time between tokens, p99", "itl_ms_p99", "ms"),
    ):
        series = [
            Series(
                str(row["name"]),
                [(float(level["concurrency"]), float(level[figure])) for level in row["levels"] if level[figure] is not None],
                index,
                old=row["standing"] == "disbelieved",
            )
            for index, row in enumerate(drawn)
        ]
        made.append(chart(title, series, x_name="streams", y_name=unit, log_x=True))
    return made
