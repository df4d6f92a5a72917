"""A smoke result as one HTML page: verdict, charts over concurrency, course of each level, plateau, errors, baseline."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from gpunode_tools.report import charts_svg
from gpunode_tools.report.charts_svg import Series, chart
from gpunode_tools.report.page import card, finding, page, simulated_notice, table, verdict_line
from gpunode_tools.report.smoke_text import MAXIMA, WORDS, number, plateau_lines
from gpunode_tools.report.terminal import plural

TIMELINES: Final = 6
"""Courses drawn in one chart: more than six lines are no longer told apart."""


def render(result: dict[str, Any]) -> str:
    """Return the page of a result (schema gpunode.smoke/1)."""
    verdict = result["verdict"]
    body = [
        f"<style>\n{charts_svg.STYLE.read_text(encoding='utf-8')}</style>",
        verdict_line(f"Throughput of {result.get('model') or result['url']}", verdict, WORDS[verdict]),
        f'<p class="soft">{escape(_summary(result))}</p>',
    ]
    if result.get("simulated"):
        body.append(simulated_notice())
    if result["levels"]:
        body.append(card("Plateau", *[f"<p>{escape(line)}</p>" for line in plateau_lines(result["plateau"])]))
        body.append(card("Levels", _levels(result)))
        body.append(card("Over concurrency", f'<div class="charts">{"".join(_charts(result))}</div>'))
        body.append(card("Course of each level", f'<div class="charts">{_courses(result)}</div>'))
    body += _baseline(result)
    body.append(card("Findings", *([finding(entry) for entry in result["findings"]] or ["<p>None.</p>"])))
    body += _errors(result)
    body.append(_server(result))
    body.append(f"<footer>gpunode smoke, {escape(str(result.get('started_at')))} to {escape(str(result.get('finished_at')))}</footer>")
    return page(f"{verdict}: {result.get('model') or result['url']}", body)


def _summary(result: dict[str, Any]) -> str:
    load, server = result.get("load") or {}, result.get("server") or {}
    told = [str(result["url"]), f"{server.get('engine', 'unknown')} {server.get('version') or ''}".strip()]
    told += [f"node {result['node']}"] if result.get("node") else []
    if "input_len" in load:
        told.append(f"{load['input_len']} tokens in, {load['output_len']} out, {load['endpoint']}")
    return ", ".join(told)


def _levels(result: dict[str, Any]) -> str:
    head = (
        "Streams",
        "Total/s",
        "Output/s",
        "Peak/s",
        "TTFT p50",
        "p99",
        "ITL p50",
        "p99",
        "E2E p50",
        "Running",
        "Queued",
        "KV",
        "GPU W",
        "Steady",
        "Done",
        "Failed",
    )
    rows = []
    for level in result["levels"]:
        ttft, itl, e2e = (level.get(key) or {} for key in ("ttft_ms", "itl_ms", "e2e_ms"))
        server, gpu = level.get("server") or {}, level.get("gpu") or {}
        usage = server.get("token_usage_max")
        rows.append(
            (
                str(level["concurrency"]),
                number(level.get("steady_total_tps") or level.get("total_tps")),
                number(level.get("steady_output_tps") or level.get("output_tps")),
                number(level.get("peak_output_tps")),
                number(ttft.get("p50")),
                number(ttft.get("p99")),
                number(itl.get("p50"), 1),
                number(itl.get("p99"), 1),
                number(e2e.get("p50")),
                number(server.get("running_max")),
                number(server.get("queued_max")),
                "–" if usage is None else f"{usage:.0%}",
                number(gpu.get("power_w_mean")),
                f"{(level.get('steady') or {}).get('share', 0):.0%}",
                f"{level['completed']}/{level['requested']}",
                str(level["failed"]),
            )
        )
    note = f"Tokens a second of the steady state; times in milliseconds. Running and queued: {MAXIMA}."
    return table(head, rows) + f'<p class="soft">{escape(note)}</p>'


def _points(levels: list[dict[str, Any]], *keys: str) -> list[tuple[float, float]]:
    found = []
    for level in levels:
        value: Any = level
        for key in keys:
            value = (value or {}).get(key)
        if isinstance(value, (int, float)):
            found.append((float(level["concurrency"]), float(value)))
    return found


def _charts(result: dict[str, Any]) -> list[str]:
    levels, plateau = result["levels"], result["plateau"]
    fell, knee = plateau.get("collapse_concurrency"), plateau.get("knee_concurrency")
    mark = (float(knee), f"knee {knee:g}") if knee is not None else (float(fell), f"collapse {fell:g}") if fell is not None else None
    old = [row for row in (result.get("baseline") or {}).get("rows") or [] if row["figure"] in {"steady_total_tps", "total_tps"}]
    before = Series("baseline, total", [(float(row["concurrency"]), float(row["before"])) for row in old], 0, old=True)
    over = {"x_name": "streams", "log_x": True}
    return [
        chart(
            "Throughput",
            [
                Series("total", _points(levels, "steady_total_tps") or _points(levels, "total_tps")),
                Series("output", _points(levels, "steady_output_tps") or _points(levels, "output_tps"), 1),
                before,
            ],
            y_name="tokens/s",
            mark=mark,
            **over,  # type: ignore[arg-type]
        ),
        chart(
            "Time to first token",
            [Series("p50", _points(levels, "ttft_ms", "p50"), 2), Series("p99", _points(levels, "ttft_ms", "p99"), 4)],
            y_name="ms",
            mark=mark,
            **over,  # type: ignore[arg-type]
        ),
        chart(
            "Inter-token latency",
            [Series("p50", _points(levels, "itl_ms", "p50"), 2), Series("p99", _points(levels, "itl_ms", "p99"), 4)],
            y_name="ms",
            mark=mark,
            **over,  # type: ignore[arg-type]
        ),
        chart(
            "Requests in the server",
            [
                Series("running, most", _points(levels, "server", "running_max"), 3),
                Series("queued, most", _points(levels, "server", "queued_max"), 5),
            ],
            y_name="requests",
            mark=mark,
            **over,  # type: ignore[arg-type]
        ),
    ]


def _courses(result: dict[str, Any]) -> str:
    series = []
    for index, level in enumerate(result["levels"][-TIMELINES:]):
        values = level.get("per_second_output") or []
        if len(values) > 1:
            points = [(float(second), float(value)) for second, value in enumerate(values)]
            series.append(Series(plural(level["concurrency"], "stream"), points, index, dots=len(points) <= 60))
    drawn = chart("Output tokens in each second", series, x_name="seconds since the warm-up", y_name="tokens/s")
    return drawn or "<p>Each level was shorter than two seconds.</p>"


def _baseline(result: dict[str, Any]) -> list[str]:
    baseline = result.get("baseline")
    if not baseline or not baseline["rows"]:
        return []
    rows = [
        (str(row["concurrency"]), row["figure"], number(row["before"], 1), number(row["now"], 1), f"{row['change_pct']:+.1f} %")
        for row in baseline["rows"]
    ]
    note = f'<p class="soft">A loss of more than {baseline["tolerance_pct"]:g} % of throughput fails.</p>'
    return [card(f"Against the baseline of {baseline['saved_at']}", table(("Streams", "Figure", "Then", "Now", "Change"), rows), note)]


def _errors(result: dict[str, Any]) -> list[str]:
    kinds = sorted({kind for level in result["levels"] for source in ("errors", "warmup_errors") for kind in level.get(source) or {}})
    if not kinds:
        return []
    examples = result.get("error_examples") or {}
    rows = []
    for kind in kinds:
        where = [
            f"{(level.get('errors') or {}).get(kind, 0) + (level.get('warmup_errors') or {}).get(kind, 0)} at {level['concurrency']}"
            for level in result["levels"]
            if kind in (level.get("errors") or {}) or kind in (level.get("warmup_errors") or {})
        ]
        rows.append((kind, ", ".join(where), (examples.get(kind) or [""])[0]))
    return [card("Errors", table(("Kind", "Where", "First message"), rows))]


def _server(result: dict[str, Any]) -> str:
    server = result.get("server") or {}
    rows = [("Models", ", ".join(server.get("models") or [])), ("Version", str(server.get("version") or "unknown"))]
    rows += [("Patch", f"{patch['id']}: {patch['why']} ({patch['upstream']})") for patch in server.get("patches") or []]
    rows += [(key, str(value)) for key, value in (server.get("flags") or {}).items() if value is not None]
    rows += [("Not read", ", ".join(server["unknown"]))] if server.get("unknown") else []
    clients = [_client(level) for level in result["levels"]]
    return card("Server and client", table(("What", "Value"), rows), *[f'<p class="soft">Client at {escape(text)}</p>' for text in clients])


def _client(level: dict[str, Any]) -> str:
    client = level["client"]
    late = number(client["late_reads_ms_p99"], 1)
    told = f"{plural(level['concurrency'], 'stream')}: CPU {client['cpu_share']:.0%}, reads {late} ms late (p99)"
    if client.get("read_pause_ms"):
        told += f", stamped up to {client['read_pause_ms']:.2f} ms after their arrival to read several at once"
    return f"{told}, {client['processes']} process{'' if client['processes'] == 1 else 'es'}"
