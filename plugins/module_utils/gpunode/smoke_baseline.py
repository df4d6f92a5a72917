"""What a server served before, and whether it serves less now: comparison of a smoke result with a saved one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .findings import ERROR, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "gpunode.smoke-baseline/1"
RESULT_SCHEMA: Final = "gpunode.smoke/1"
TOLERANCE_PCT: Final = 10.0
"""Loss of throughput that fails: three times what two good runs of one server differ by."""
LATENCY_FACTOR: Final = 2.5
"""Latencies may worsen by this many tolerances: their percentiles scatter more than throughput does."""
LATENCY_FLOOR_MS: Final = 5.0
"""Differences below this are never reported: they are within a scheduler's tick."""
IDENTITY: Final = ("node", "model", "version", "flags", "endpoint", "input_len", "output_len")
"""What must be equal for two results to be comparable without a word."""


def identity(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: node, model, server version, a digest of its flags, and the shape of the load."""
    server = result.get("server") or {}
    load = result.get("load") or {}
    values = {
        "node": result.get("node"),
        "model": result.get("model"),
        "version": server.get("version"),
        "flags": server.get("flags_digest"),
        "endpoint": load.get("endpoint"),
        "input_len": load.get("input_len"),
        "output_len": load.get("output_len"),
    }
    return {key: values[key] for key in IDENTITY}


def make(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the baseline of a result: its identity and the figures of each level."""
    keep = ("steady_total_tps", "steady_output_tps", "total_tps", "output_tps")
    levels = {}
    for level in result.get("levels", []):
        figures = {key: level.get(key) for key in keep}
        figures["ttft_ms_p50"] = (level.get("ttft_ms") or {}).get("p50")
        figures["itl_ms_p50"] = (level.get("itl_ms") or {}).get("p50")
        levels[str(level["concurrency"])] = figures
    return {
        "schema": SCHEMA,
        "saved_at": result.get("finished_at"),
        "simulated": bool(result.get("simulated")),
        "identity": identity(result),
        "levels": levels,
    }


def load(data: Any) -> dict[str, Any]:
    """Return the baseline in what a file held: a saved baseline, or a whole result. ValueError for anything else."""
    if isinstance(data, dict):
        if data.get("schema") == SCHEMA:
            return data
        if data.get("schema") == RESULT_SCHEMA:
            return make(data)
    raise ValueError(f"neither {SCHEMA} nor {RESULT_SCHEMA}")


def differences(result: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Return what a result and a baseline were not both measured on: keys of IDENTITY that both know, and `simulated`."""
    before, now = dict(baseline.get("identity") or {}), identity(result)
    different = [key for key in IDENTITY if before.get(key) is not None and now.get(key) is not None and before.get(key) != now.get(key)]
    return different + (["simulated"] if bool(baseline.get("simulated")) != bool(result.get("simulated")) else [])


def stays(result: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    """Return whether a baseline still holds for what a result measured: the same server and load, and a level that both have."""
    levels = {str(level["concurrency"]) for level in result.get("levels", [])}
    return not differences(result, baseline) and bool(levels & set(baseline.get("levels") or {}))


def compare(
    result: Mapping[str, Any], baseline: Mapping[str, Any], tolerance_pct: float = TOLERANCE_PCT
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Return (findings, one row for each level and figure): concurrency, figure, before, now, change_pct.

    Different identities are marked with `baseline-differs`, and a loss is then a warning: two things were changed at once.
    """
    found: list[Finding] = []
    before, now = dict(baseline.get("identity") or {}), identity(result)
    different = differences(result, baseline)
    if different:
        told = (
            "; ".join(f"{key}: {before.get(key)!r} then, {now.get(key)!r} now" for key in different if key != "simulated")
            or "one of the two is simulated"
        )
        found.append(
            Finding(
                "baseline-differs",
                WARNING,
                "baseline",
                f"the baseline was measured on something else ({', '.join(different)})",
                told,
                "save a new baseline with --save-baseline once this state is the wanted one",
            )
        )
    severity = WARNING if different else ERROR
    rows: list[dict[str, Any]] = []
    saved = baseline.get("levels") or {}
    for level in result.get("levels", []):
        old = saved.get(str(level["concurrency"]))
        if not isinstance(old, dict):
            continue
        found += _throughput(level, old, tolerance_pct, severity, rows)
        found += _latency(level, old, tolerance_pct, rows)
    if not rows:
        found.append(
            Finding(
                "baseline-differs",
                WARNING,
                "baseline",
                "no level of this run is in the baseline",
                f"baseline: {', '.join(saved) or 'empty'}",
                "measure the same levels, or save a new baseline",
            )
        )
    return found, rows


def _throughput(
    level: Mapping[str, Any], old: Mapping[str, Any], tolerance: float, severity: str, rows: list[dict[str, Any]]
) -> list[Finding]:
    figure = next((key for key in ("steady_total_tps", "total_tps") if old.get(key) and level.get(key)), None)
    if figure is None:
        return []
    change = (float(level[figure]) / float(old[figure]) - 1) * 100
    rows.append(
        {"concurrency": level["concurrency"], "figure": figure, "before": old[figure], "now": level[figure], "change_pct": round(change, 1)}
    )
    if change >= -tolerance:
        return []
    return [
        Finding(
            "regression",
            severity,
            f"{level['concurrency']} streams",
            f"throughput fell by {-change:.1f} % against the baseline",
            f"{figure} {float(old[figure]):.0f} then, {float(level[figure]):.0f} now; {tolerance:g} % are allowed",
            "repeat the run; when it stays, look at what changed since: driver, kernel, server flags, P2P (gpunode verify-p2p)",
        )
    ]


def _latency(level: Mapping[str, Any], old: Mapping[str, Any], tolerance: float, rows: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for name, key in (("time to first token", "ttft_ms"), ("inter-token latency", "itl_ms")):
        before, now = old.get(f"{key}_p50"), (level.get(key) or {}).get("p50")
        if not before or not now:
            continue
        change = (float(now) / float(before) - 1) * 100
        rows.append(
            {"concurrency": level["concurrency"], "figure": f"{key} p50", "before": before, "now": now, "change_pct": round(change, 1)}
        )
        if change > tolerance * LATENCY_FACTOR and float(now) - float(before) > LATENCY_FLOOR_MS:
            found.append(
                Finding(
                    "latency-regression",
                    WARNING,
                    f"{level['concurrency']} streams",
                    f"{name} rose by {change:.0f} % against the baseline",
                    f"p50 {float(before):.1f} ms then, {float(now):.1f} ms now",
                    "compare the server's flags and the GPUs' clocks and power with those of the baseline",
                )
            )
    return found
