"""The verify-p2p result for machines: JUnit and Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from gpunode_tools.report.junit import ERROR, FAILURE, SKIPPED, Case
from gpunode_tools.report.junit import render as render_junit
from gpunode_tools.report.metrics import Metrics

VERDICTS: Final = ("pass", "warn", "fail", "unknown")
_PAIR_GAUGES: Final = {
    "copy_gbps": ("gpunode_p2p_copy_gbps", "Rate of the copy engine from one GPU to another, 10^9 bytes a second."),
    "bidirectional_gbps": ("gpunode_p2p_bidirectional_gbps", "Rate of both directions at once, summed, 10^9 bytes a second."),
    "sm_read_gbps": ("gpunode_p2p_sm_read_gbps", "Rate of reads by kernels, 10^9 bytes a second."),
    "read_latency_us": ("gpunode_p2p_read_latency_us", "Latency of dependent reads from the peer, microseconds."),
}


def junit(result: dict[str, Any]) -> str:
    """One case per finding that is no note, one per measured pair, and one for the whole."""
    cases = []
    kinds = {"error": FAILURE, "unknown": SKIPPED}
    for finding in result["findings"]:
        if finding["severity"] in {"error", "unknown", "warning"}:
            text = f"seen: {finding['evidence']}\ndo: {finding['remedy']}"
            name = f"{finding['id']}: {finding['subject']}"
            cases.append(Case(name, kinds.get(finding["severity"], "passed"), finding["summary"], text))
    for pair in result["pairs"]:
        status = {"ok": "passed", "skipped": SKIPPED}.get(pair["status"], FAILURE)
        name, seconds = f"pair GPU{pair['src']}->GPU{pair['dst']}", (pair.get("elapsed_ms") or 0.0) / 1000
        cases.append(Case(name, status, pair["status"], str(pair.get("reason") or ""), seconds))
    whole = {"fail": FAILURE, "unknown": ERROR}.get(result["verdict"], "passed")
    rest = float((result.get("measurement") or {}).get("elapsed_s") or 0.0) - sum(case.seconds for case in cases)
    cases.append(Case("verdict", whole, result["verdict"], "could not tell what was asked" if whole == ERROR else "", max(rest, 0.0)))
    suite = f"verify-p2p {result.get('host') or 'node'}" + (" (simulated)" if result["simulated"] else "")
    return render_junit(suite, cases, result.get("collected_at"))


def _moment(text: str | None) -> float | None:
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def prometheus(result: dict[str, Any], check: str) -> str:
    """Gauges for the verdict, findings by severity and id, GPUs and pairs.

    ``check`` (state, measured, boot) becomes a label of every sample: several checks leave a file each in the same folder, and
    node_exporter refuses a sample that it has seen in another file.
    """
    metrics = Metrics()
    base = {"check": check}
    simulated = {"simulated": "true"} if result["simulated"] else {}
    for verdict in VERDICTS:
        metrics.gauge(
            "gpunode_p2p_verdict",
            "1 for the verdict of the last check.",
            verdict == result["verdict"],
            {**base, "verdict": verdict, **simulated},
        )
    moment = _moment(result.get("collected_at"))
    if moment is not None:
        metrics.gauge("gpunode_p2p_checked_timestamp_seconds", "When the node was last checked.", moment, base)
    for severity in ("error", "warning", "unknown", "info"):
        count = sum(1 for finding in result["findings"] if finding["severity"] == severity)
        metrics.gauge("gpunode_p2p_findings", "Findings of the last check by severity.", count, {**base, "severity": severity})
    counts: dict[tuple[str, str], int] = {}
    for finding in result["findings"]:
        counts[finding["id"], finding["severity"]] = counts.get((finding["id"], finding["severity"]), 0) + 1
    for (name, severity), count in sorted(counts.items()):
        metrics.gauge("gpunode_p2p_finding", "Findings of the last check by id.", count, {**base, "id": name, "severity": severity})
    answering = sum(1 for gpu in result["gpus"] if gpu.get("answers", True))
    metrics.gauge("gpunode_gpus", "GPUs that were found.", len(result["gpus"]), base)
    metrics.gauge("gpunode_gpus_answering", "GPUs that were found and answer.", answering, base)
    for pair in result["pairs"]:
        labels = {**base, "src": str(pair["src"]), "dst": str(pair["dst"]), "path": pair.get("path") or ""}
        metrics.gauge("gpunode_p2p_pair_ok", "1 when data arrived whole.", pair["status"] == "ok", labels)
        for key, (name, text) in _PAIR_GAUGES.items():
            if pair.get(key) is not None:
                metrics.gauge(name, text, pair[key], labels)
    return metrics.render()
