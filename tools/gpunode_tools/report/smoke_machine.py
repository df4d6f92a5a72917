"""A smoke result for machines: CSV, JUnit, Prometheus."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import Any, Final

from gpunode_tools.report import junit as junit_xml
from gpunode_tools.report.metrics import Metrics

COLUMNS: Final[tuple[str, ...]] = (
    "concurrency", "requested", "completed", "failed", "duration_s", "steady_share", "total_tps", "input_tps", "output_tps",
    "steady_total_tps", "steady_output_tps", "peak_output_tps", "ttft_ms_p50", "ttft_ms_p99", "itl_ms_p50", "itl_ms_p99",
    "tpot_ms_p50", "e2e_ms_p50", "e2e_ms_p99", "running_max", "queued_max", "token_usage_max", "power_w_mean",
    "client_cpu_share", "late_reads_ms_p99",
)  # fmt: skip

DEFAULT_RUN: Final = "smoke"
"""Label of the metrics of a smoke test that nobody named."""


def _flat(level: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: level.get(key) for key in COLUMNS if key in level}
    for kind in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
        for quantile, value in (level.get(kind) or {}).items():
            found[f"{kind}_{quantile}"] = value
    found["steady_share"] = (level.get("steady") or {}).get("share")
    found |= {key: (level.get("server") or {}).get(key) for key in ("running_max", "queued_max", "token_usage_max")}
    found["power_w_mean"] = (level.get("gpu") or {}).get("power_w_mean")
    client = level.get("client") or {}
    found["client_cpu_share"], found["late_reads_ms_p99"] = client.get("cpu_share"), client.get("late_reads_ms_p99")
    return found


def csv_text(result: dict[str, Any]) -> str:
    """One row for each level; what was not measured is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for level in result["levels"]:
        flat = _flat(level)
        writer.writerow(["" if flat.get(column) is None else flat[column] for column in COLUMNS])
    return buffer.getvalue()


def junit(result: dict[str, Any]) -> str:
    """One case for each level and one for each other finding of weight."""
    cases = []
    for level in result["levels"]:
        where = f"{level['concurrency']} streams"
        total = level.get("steady_total_tps") or level.get("total_tps") or 0
        mine = [entry for entry in result["findings"] if entry["subject"] == where and entry["severity"] in {"error", "unknown"}]
        worst = mine[0] if mine else None
        status = junit_xml.PASSED if worst is None else junit_xml.FAILURE if worst["severity"] == "error" else junit_xml.ERROR
        text = "\n".join(f"{entry['summary']}\n{entry['evidence']}\n{entry['remedy']}" for entry in mine)
        cases.append(
            junit_xml.Case(
                f"{where}: {total:.0f} total tokens/s", status, worst["summary"] if worst else "", text, level.get("duration_s") or 0.0
            )
        )
    levels = {f"{level['concurrency']} streams" for level in result["levels"]}
    for entry in result["findings"]:
        if entry["subject"] in levels or entry["severity"] == "info":
            continue
        status = {"error": junit_xml.FAILURE, "unknown": junit_xml.ERROR}.get(entry["severity"], junit_xml.SKIPPED)
        cases.append(
            junit_xml.Case(f"{entry['id']}: {entry['subject']}", status, entry["summary"], f"{entry['evidence']}\n{entry['remedy']}")
        )
    return junit_xml.render(f"smoke {result['url']}", cases, result.get("started_at") or None)


def prometheus(result: dict[str, Any], run: str = DEFAULT_RUN) -> str:
    """Gauges for node_exporter's textfile collector.

    ``run`` tells apart the files of several smoke tests of one node: it is a label of every sample.
    """
    metrics = Metrics()
    base = {"run": run, "model": str(result.get("model") or ""), "simulated": "true" if result.get("simulated") else "false"}
    for verdict in ("pass", "warn", "fail", "unknown", "client-bound"):
        metrics.gauge(
            "gpunode_smoke_verdict",
            "1 for the verdict of the last smoke test.",
            float(result["verdict"] == verdict),
            {**base, "verdict": verdict},
        )
    finished = result.get("finished_at")
    if finished:
        metrics.gauge(
            "gpunode_smoke_timestamp_seconds", "When the last smoke test ended.", dt.datetime.fromisoformat(finished).timestamp(), base
        )
    for level in result["levels"]:
        labels = {**base, "concurrency": str(level["concurrency"])}
        flat = _flat(level)
        for column, name, text in (
            ("steady_total_tps", "gpunode_smoke_total_tokens_per_second", "Input and output tokens a second, steady state."),
            ("steady_output_tps", "gpunode_smoke_output_tokens_per_second", "Output tokens a second, steady state."),
            ("completed", "gpunode_smoke_requests_completed", "Measured requests that completed."),
            ("failed", "gpunode_smoke_requests_failed", "Measured requests that failed."),
        ):
            if flat.get(column) is not None:
                metrics.gauge(name, text, float(flat[column]), labels)
        for kind, name in (("ttft_ms", "gpunode_smoke_ttft_seconds"), ("itl_ms", "gpunode_smoke_itl_seconds")):
            for quantile, share in (("p50", "0.5"), ("p99", "0.99")):
                value = flat.get(f"{kind}_{quantile}")
                if value is not None:
                    text = "Time to first token." if kind == "ttft_ms" else "Time between output tokens of a stream."
                    metrics.gauge(name, text, value / 1000, {**labels, "quantile": share})
    for row in (result.get("baseline") or {}).get("rows") or []:
        if row["figure"] in {"steady_total_tps", "total_tps"}:
            metrics.gauge(
                "gpunode_smoke_baseline_total_tokens_per_second",
                "Input and output tokens a second of the baseline that the last smoke test was compared with.",
                float(row["before"]),
                {**base, "concurrency": str(row["concurrency"])},
            )
    knee = result["plateau"].get("knee_concurrency")
    if knee is not None:
        metrics.gauge("gpunode_smoke_knee_concurrency", "First level after which every later step gains less than 10 %.", float(knee), base)
    return metrics.render()
