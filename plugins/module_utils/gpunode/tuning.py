"""Variants of a server that were tried, and which of them serves best: pure rules over what each start and each smoke test left."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from .findings import INFO, PASS, UNKNOWN, WARN, WARNING, Finding, by_consequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA: Final = "gpunode.tune/1"
RECORD_SCHEMA: Final = "gpunode.tune-record/1"
KEYS: Final = ("flags", "environment", "power_limit_w")
"""What a variant may change, beside its name: flags and environment of the server, power limit of the GPUs in watts."""
NOISE: Final = 0.03
"""Two good runs of one server differ by 2 to 3 %: variants this close to the best are equally fast, and a single stream's speed decides."""
WORTH: Final = 0.03
"""A winner that gains less than this over the settings in use is not worth a change."""

FAR_SLOWER: Final = 0.70
"""A level below this share of another variant's at as many streams is slower for a reason, not by noise: one is looked for."""

REFUSED: Final = "refused"
FAILED: Final = "failed"
MEASURED: Final = "measured"
STATUSES: Final = (MEASURED, FAILED, REFUSED)
"""measured: the smoke test ran. failed: the server did not come up. refused: its flags or the model's size rule it out before a start."""

DISBELIEVED: Final = {
    "client-bound": "the client was the bottleneck: these figures are not the server's",
    "cut-short": "the smoke test was cut short",
    "nothing-measured": "no level was completed",
    "counters-differ": "server and client counted different tokens",
    "request-failed": "requests failed",
    "early-stop": "answers ended before their length",
    "usage-mismatch": "the server counts tokens wrongly",
}
"""Findings of a smoke test with which a variant cannot win, whatever its figures say."""


def problems(variants: Any, known: str) -> list[str]:
    """Return what is wrong with the list of variants; ``known`` is the name that stands for the settings in use."""
    if not isinstance(variants, (list, tuple)):
        return ["variants must be a list of mappings"]
    found = []
    names: list[str] = []
    for position, variant in enumerate(variants, 1):
        name = variant.get("name") if hasattr(variant, "get") else None
        if not isinstance(name, str) or not name.strip():
            found.append(f"variant {position} has no name")
            continue
        names.append(name)
        unknown = sorted(set(variant) - {"name", *KEYS})
        if unknown:
            found.append(f"variant {name} has {', '.join(unknown)}; a variant knows name, {', '.join(KEYS)}")
        found += [
            f"{key} of variant {name} must be a mapping" for key in ("flags", "environment") if not hasattr(variant.get(key, {}), "keys")
        ]
        limit = variant.get("power_limit_w")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0):
            found.append(f"power_limit_w of variant {name} must be whole watts above 0")
        if not any(variant.get(key) for key in KEYS):
            found.append(f"variant {name} changes nothing: the settings in use are measured anyway, as `{known}`")
    found += [f"two variants are named {name}" for name in sorted({name for name in names if names.count(name) > 1})]
    if known in names:
        found.append(f"the name {known} stands for the settings in use")
    return found


def key(variant: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """Return twelve hexadecimal digits that stand for a variant on what it was tried on (release, model, base settings, load).

    The name is no part of it: a variant that is renamed was measured already.
    """
    content = {"variant": {name: variant.get(name) or None for name in KEYS}, "context": dict(context)}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def figures(result: Mapping[str, Any], limits: Mapping[str, float | None]) -> dict[str, Any]:
    """Return what counts of a smoke result (schema gpunode.smoke/1).

    ``limits``: min_single_stream_tps (output tokens a second of one stream), max_ttft_ms and max_itl_ms (p99). Throughput is the steady
    total of the best level within the latency limits. Keys: total_tps, concurrency, single_stream_tps, ttft_ms_p99, itl_ms_p99 (of that
    level), missed (what keeps it from being chosen), disbelieved (why the figures do not count).
    """
    disbelieved = [f"{DISBELIEVED[name]} ({where})" for name, where in _marks(result)]
    levels = [level for level in result.get("levels", []) if level.get("completed")]
    best: Mapping[str, Any] | None = None
    fastest: Mapping[str, Any] | None = None
    for level in levels:
        total = _total(level)
        if total is None:
            continue
        if fastest is None or total > (_total(fastest) or 0):
            fastest = level
        if not _over(level, limits) and (best is None or total > (_total(best) or 0)):
            best = level
    missed = []
    if best is None and fastest is not None:
        missed += _over(fastest, limits)
    one = next((level for level in levels if level["concurrency"] == 1), None)
    single = next((value for name in ("steady_output_tps", "output_tps") if one and (value := _number(one.get(name))) is not None), None)
    wanted = limits.get("min_single_stream_tps")
    if wanted is not None and single is None:
        disbelieved.append("a single stream was to be measured and was not (no level 1)")
    elif wanted is not None and single is not None and single < wanted:
        missed.append(f"a single stream gets {single:.1f} tokens/s, {wanted:g} are wanted")
    shown = best or fastest
    if shown is None and not disbelieved:
        disbelieved.append(DISBELIEVED["nothing-measured"])
    return {
        "total_tps": _total(shown) if shown else None,
        "concurrency": shown["concurrency"] if shown else None,
        "single_stream_tps": single,
        "ttft_ms_p99": _number((shown.get("ttft_ms") or {}).get("p99")) if shown else None,
        "itl_ms_p99": _number((shown.get("itl_ms") or {}).get("p99")) if shown else None,
        "missed": missed,
        "disbelieved": disbelieved,
    }


def _marks(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Findings with which a result cannot be believed, and where they stand; a tolerated error is a warning and counts all the same."""
    found = [
        (entry["id"], str(entry["subject"]))
        for entry in result.get("findings", [])
        if entry["id"] in DISBELIEVED and entry["severity"] != INFO
    ]
    if result.get("verdict") == "client-bound" and not any(name == "client-bound" for name, _ in found):
        found.append(("client-bound", "verdict"))
    return found


def _total(level: Mapping[str, Any]) -> float | None:
    return next((value for name in ("steady_total_tps", "total_tps") if (value := _number(level.get(name)))), None)


def _over(level: Mapping[str, Any], limits: Mapping[str, float | None]) -> list[str]:
    """Latency limits that a level misses; one that was not measured counts as missed."""
    found = []
    for limit, kind, words in (("max_ttft_ms", "ttft_ms", "time to first token"), ("max_itl_ms", "itl_ms", "time between tokens")):
        wanted = limits.get(limit)
        if wanted is None:
            continue
        value = _number((level.get(kind) or {}).get("p99"))
        if value is None:
            found.append(f"{words} was not measured at {level['concurrency']} streams")
        elif value > wanted:
            found.append(f"{words} (p99) is {value:.0f} ms at {level['concurrency']} streams, {wanted:g} ms are allowed")
    return found


def rank(records: Sequence[Mapping[str, Any]], limits: Mapping[str, float | None], known: str) -> dict[str, Any]:
    """Return the comparison of all records (schema gpunode.tune/1): rows from best to worst, the winner, findings, verdict.

    A record is ``{"name", "key", "variant", "status", "cause", "result"}``; ``known`` names the settings in use. Believed figures within
    the limits are ordered by throughput; among those within `NOISE` of the best the fastest single stream wins. Verdict: unknown without a
    winner, warn where something was doubted, else pass. ValueError for a record with another status.
    """
    rows = [_row(record, limits) for record in records]
    chosen = sorted((row for row in rows if row["standing"] == "compared"), key=lambda row: -row["total_tps"])
    if chosen:
        close = [row for row in chosen if row["total_tps"] >= chosen[0]["total_tps"] * (1 - NOISE)]
        # Python's sort keeps the order of equals: without single-stream figures the higher throughput stays first.
        close.sort(key=lambda row: -(row["single_stream_tps"] or 0.0))
        chosen = close + [row for row in chosen if row not in close]
    order = {"compared": 0, "limit": 1, "disbelieved": 2, FAILED: 3, REFUSED: 4}
    others = sorted(
        (row for row in rows if row["standing"] != "compared"), key=lambda row: (order[row["standing"]], -(row["total_tps"] or 0))
    )
    now = next((row for row in rows if row["name"] == known), None)
    winner = chosen[0] if chosen else None
    for row in rows:
        row["against_known_pct"] = _change(row, now)
        row["slow_levels"] = _slow_levels(row, rows)
    findings = by_consequence(_findings(chosen, others, now, known))
    worth = bool(winner and winner["name"] != known and (winner["against_known_pct"] is None or winner["against_known_pct"] >= WORTH * 100))
    doubted = any(finding.severity in {WARNING, UNKNOWN} for finding in findings)
    verdict = "unknown" if winner is None else WARN if doubted else PASS
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "winner": winner["name"] if winner else None,
        "worth_a_change": worth,
        "limits": {name: value for name, value in limits.items() if value is not None},
        "rows": chosen + others,
        "findings": [finding.to_dict() for finding in findings],
        "simulated": any((record.get("result") or {}).get("simulated") for record in records),
    }


def _row(record: Mapping[str, Any], limits: Mapping[str, float | None]) -> dict[str, Any]:
    status = record.get("status")
    if status not in STATUSES:
        raise ValueError(f"record of {record.get('name')!r} has status {status!r}, not one of {', '.join(STATUSES)}")
    found = (
        figures(record.get("result") or {}, limits)
        if status == MEASURED
        else dict.fromkeys(("total_tps", "concurrency", "single_stream_tps", "ttft_ms_p99", "itl_ms_p99"))
    )
    if status != MEASURED:
        standing, why = str(status), str(record.get("cause") or "")
    elif found["disbelieved"]:
        standing, why = "disbelieved", "; ".join(found["disbelieved"])
    elif found["missed"]:
        standing, why = "limit", "; ".join(found["missed"])
    else:
        standing, why = "compared", ""
    result = record.get("result") or {}
    plateau = result.get("plateau") or {}
    return {
        "name": record.get("name"),
        "key": record.get("key"),
        "variant": dict(record.get("variant") or {}),
        "standing": standing,
        "why": why,
        **{name: found[name] for name in ("total_tps", "concurrency", "single_stream_tps", "ttft_ms_p99", "itl_ms_p99")},
        "plateau": plateau.get("cause"),
        "plateau_evidence": str(plateau.get("evidence") or ""),
        "knee_concurrency": _number(plateau.get("knee_concurrency")),
        "collapse_concurrency": _number(plateau.get("collapse_concurrency")),
        "request_cap": _number((result.get("server") or {}).get("max_running_requests")),
        "levels": [
            {
                "concurrency": level["concurrency"],
                "total_tps": _total(level),
                "ttft_ms_p99": _number((level.get("ttft_ms") or {}).get("p99")),
                "itl_ms_p99": _number((level.get("itl_ms") or {}).get("p99")),
                "running_max": _number((level.get("server") or {}).get("running_max")),
                "queued_max": _number((level.get("server") or {}).get("queued_max")),
                "client_bound": str(level.get("client_bound") or ""),
            }
            for level in result.get("levels", [])
        ],
    }


def _change(row: Mapping[str, Any], now: Mapping[str, Any] | None) -> float | None:
    """Gain of a row over the settings in use, in per cent of throughput, where both are believed."""
    believed = {"compared", "limit"}
    if now is None or row["standing"] not in believed or now["standing"] not in believed or not now["total_tps"] or not row["total_tps"]:
        return None
    return round((float(row["total_tps"]) / float(now["total_tps"]) - 1) * 100, 1)


def _slow_levels(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Levels far below the best believed variant's at as many streams, each with its reason; None where the figures tell none.

    Keys: concurrency, total_tps, best, best_tps, reason, evidence.
    """
    believed = {"compared", "limit"}
    if row["standing"] not in believed:
        return []
    others = [other for other in rows if other is not row and other["standing"] in believed]
    found = []
    for level in row["levels"]:
        same = [
            (other["name"], one["total_tps"])
            for other in others
            for one in other["levels"]
            if one["concurrency"] == level["concurrency"] and one["total_tps"]
        ]
        best, best_tps = max(same, key=lambda pair: pair[1], default=(None, 0.0))
        if level["total_tps"] is None or level["total_tps"] >= best_tps * FAR_SLOWER:
            continue
        reason, evidence = _reason(row, level)
        found.append(
            {
                "concurrency": level["concurrency"],
                "total_tps": level["total_tps"],
                "best": best,
                "best_tps": best_tps,
                "reason": reason,
                "evidence": evidence,
            }
        )
    return found


def _reason(row: Mapping[str, Any], level: Mapping[str, Any]) -> tuple[str | None, str]:
    """Why a level is slow, from its own figures and from the plateau where that begins at or below it; None is not known."""
    streams, cap = float(level["concurrency"]), row["request_cap"]
    if level["client_bound"]:
        return "client-bound", level["client_bound"]
    if cap is not None and streams > cap:
        return "request-cap", f"the cap lets {cap:.0f} requests run, {streams:.0f} streams asked"
    begins = [value for value in (row["knee_concurrency"], row["collapse_concurrency"]) if value is not None]
    reached = bool(begins) and streams >= min(begins)
    named = row["plateau"] not in {None, "unknown", "still-scaling"}
    # A cap above the streams cannot limit them, whatever it does to the levels beyond.
    capped = row["plateau"] == "request-cap" and cap is not None
    if reached and named and not capped:
        return str(row["plateau"]), row["plateau_evidence"]
    told = []
    if cap is not None:
        told.append(f"the cap of {cap:.0f} does not limit {streams:.0f} stream{'' if streams == 1 else 's'}")
    gauges = (("running", level["running_max"]), ("queued", level["queued_max"]))
    told += [f"at most {value:.0f} {words}" for words, value in gauges if value is not None]
    return None, ", ".join(told)


def _findings(
    chosen: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], now: Mapping[str, Any] | None, known: str
) -> list[Finding]:
    found = []
    best = chosen[0]["total_tps"] if chosen else 0.0
    if not chosen:
        found.append(
            Finding(
                "nothing-comparable",
                UNKNOWN,
                "variants",
                "no variant has figures that are believed and within the limits",
                "the table says why for each",
                "mend what it names, or widen the limits, and run again: only what is missing is measured",
                required=True,
            )
        )
    if now is None or now["standing"] != "compared":
        why = "it was not measured" if now is None else f"{now['standing']}: {now['why']}"
        text = f"the settings in use ({known}) cannot be compared, so what a change gains is not known"
        found.append(Finding("known-not-compared", WARNING, known, text, why, "measure again before a change is made"))
    for row in (*chosen, *others):
        unexplained = [level for level in row["slow_levels"] if level["reason"] is None]
        if unexplained:
            where = ", ".join(f"{level['concurrency']}" for level in unexplained)
            text = f"far slower than another variant at {where} streams, reason not known from these figures"
            seen = "; ".join(
                f"at {level['concurrency']}: {level['total_tps']:.0f} tokens/s, {level['best']} has {level['best_tps']:.0f}"
                + (f" ({level['evidence']})" if level["evidence"] else "")
                for level in unexplained
            )
            remedy = "look at the server's journal of that time (gpunode diagnose), or measure the variant again"
            found.append(Finding("slow-unexplained", INFO, str(row["name"]), text, seen, remedy))
    for row in others:
        if row["standing"] == "disbelieved" and (row["total_tps"] or 0) > best:
            text = f"its figures are higher than the winner's ({row['total_tps']:.0f} tokens/s) but not believed"
            remedy = "remove its record and measure it again from a machine with idle cores, or at fewer streams"
            found.append(Finding("maybe-better", WARNING, str(row["name"]), text, row["why"], remedy))
        elif row["standing"] in {FAILED, REFUSED}:
            text = "the server did not come up" if row["standing"] == FAILED else "it was refused before a start"
            cause = row["why"].partition("\nThe end of `journalctl")[0]
            found.append(Finding(f"variant-{row['standing']}", INFO, str(row["name"]), text, cause, ""))
    return found


def settings(variant: Mapping[str, Any], flags: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inventory variables that make a variant lasting, on top of the inventory's own flags and environment."""
    found: dict[str, Any] = {}
    if variant.get("flags"):
        found["sglang_server_flags"] = {**flags, **variant["flags"]}
    if variant.get("environment"):
        found["sglang_server_environment"] = {**environment, **variant["environment"]}
    if variant.get("power_limit_w"):
        found["nvidia_driver_power_limit_w"] = variant["power_limit_w"]
    return found
