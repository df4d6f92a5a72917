"""The verify-p2p report for a terminal: verdict, suspects, findings by consequence, heat map of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS: Final = {
    "pass": "healthy",
    "warn": "works, with warnings",
    "fail": "not whole",
    "unknown": "could not tell",
}
_STATUS_CELLS: Final = {"corrupt": "CORR", "hang": "HANG", "no-access": "none", "error": "ERR", "skipped": "skip"}


def render(result: dict[str, Any], *, colour: bool) -> str:
    """Return the report of a result (schema gpunode.p2p/1)."""
    paint = Paint(on=colour)
    host = result.get("host") or "node"
    verdict = result["verdict"]
    head = paint(verdict.upper(), "bold", VERDICT_STYLES[verdict])
    lines = [f"{paint(host, 'bold')}: {head}{not_known(result)} ({verdict_words(result)})" + _summary(result)]
    if result["simulated"]:
        lines.append(paint("SIMULATED: made by the lab's stand-ins, says nothing about hardware", "bold", "magenta"))
    lines += _baseline(result, paint)
    for finding in result["findings"]:
        lines += _finding(finding, paint)
    lines += _heat_map(result, paint)
    return "\n".join(lines) + "\n"


def not_known(result: dict[str, Any]) -> str:
    """', 3 not known' beside a verdict where things could not be read; '' where all was."""
    count = sum(1 for finding in result["findings"] if finding["severity"] == "unknown")
    return f", {count} not known" if count else ""


def verdict_words(result: dict[str, Any]) -> str:
    """The verdict in words."""
    if result["verdict"] == "pass" and not_known(result):
        return "healthy in all that was read"
    return WORDS[result["verdict"]]


def gpu_words(result: dict[str, Any], times: str = "x") -> str:
    """How many GPUs of which name there are, and how many of them answer; '' where none is known."""
    gpus = result["gpus"]
    names = sorted({gpu["name"] for gpu in gpus if "name" in gpu})
    there = f"{len(gpus)} {times} {names[0]}" if len(names) == 1 else f"{len(gpus)} GPUs"
    answering = sum(1 for gpu in gpus if gpu.get("answers", True))
    return "" if not gpus else there if answering == len(gpus) else f"{there}, {answering} of them answer{'s' if answering == 1 else ''}"


def _summary(result: dict[str, Any]) -> str:
    environment = result.get("environment", {})
    told = [words] if (words := gpu_words(result)) else []
    told += [f"driver {environment['driver']}"] if "driver" in environment else []
    told += [f"kernel {environment['kernel']}"] if "kernel" in environment else []
    pairs = result["pairs"]
    if pairs:
        good = sum(1 for pair in pairs if pair["status"] == "ok")
        told.append(f"{good} of {len(pairs)} pairs ok{light_words(pairs)}")
    return "\n  " + ", ".join(told) if told else ""


def light_words(pairs: Sequence[dict[str, Any]]) -> str:
    """Say where bandwidth was not judged because the GPUs were in use; '' otherwise."""
    light = sum(1 for pair in pairs if pair.get("light"))
    return f" ({light} of them measured lightly on GPUs in use: access, data and latency judged, not bandwidth)" if light else ""


def _baseline(result: dict[str, Any], paint: Paint) -> list[str]:
    baseline = result.get("baseline")
    if not baseline:
        return []
    lines = [f"  baseline of {baseline['saved_at']}" + ("" if baseline["changed"] else ": no version or setting that it keeps has changed")]
    word = paint("changed", "bold", "yellow")
    lines += [f"  {word} {change['what']}: {change['before']} -> {change['after']}" for change in baseline["changed"]]
    for words in baseline_gaps(baseline):
        lines += wrapped(words, 2)
    return lines


def baseline_gaps(baseline: dict[str, Any]) -> list[str]:
    """What was not compared with the baseline because one of the two does not know it."""
    gaps = [f"not kept in that baseline, so not compared: {', '.join(baseline['not_kept'])}"] if baseline.get("not_kept") else []
    gaps += [f"kept there, not readable now: {', '.join(baseline['not_read'])}"] if baseline.get("not_read") else []
    return gaps


def _finding(finding: dict[str, Any], paint: Paint) -> list[str]:
    severity = finding["severity"]
    lines = ["", f"{paint(severity, 'bold', SEVERITY_STYLES[severity])} {paint(finding['id'], 'bold')} {finding['subject']}"]
    lines += wrapped(finding["summary"], 2)
    if finding["evidence"]:
        lines += [paint(line, "dim") for line in wrapped(f"seen: {finding['evidence']}", 2)]
    if finding["remedy"] and severity != "info":
        lines += wrapped(f"do:   {finding['remedy']}", 2)
    return lines


def _heat_map(result: dict[str, Any], paint: Paint) -> list[str]:
    pairs = result["pairs"]
    if not pairs:
        return []
    by_pair = {(pair["src"], pair["dst"]): pair for pair in pairs}
    gpus = sorted({gpu for pair in by_pair for gpu in pair})
    best = best_by_path(pairs, "copy_gbps", higher=True)
    lines = ["", paint("GB/s by copy engine, row sends to column", "bold")]
    rows = [["", *(f"GPU{gpu}" for gpu in gpus)]]
    rows += [
        [f"GPU{source}", *(_cell(by_pair.get((source, target)), best, paint, same=source == target) for target in gpus)] for source in gpus
    ]
    lines += ["  " + line for line in table(rows, right=range(1, len(gpus) + 1))]
    latencies = [pair["read_latency_us"] for pair in pairs if pair.get("read_latency_us") is not None]
    if latencies:
        lines.append(f"  read latency {min(latencies):.2f} to {max(latencies):.2f} us")
    lines += _patterns(result.get("measurement", {}).get("patterns") or [])
    return lines


def best_by_path(pairs: Sequence[dict[str, Any]], key: str, *, higher: bool) -> dict[str | None, float]:
    """Path to the best value of its pairs: heat compares what can be alike, so that a healthy host is of one colour."""
    best: dict[str | None, float] = {}
    for pair in pairs:
        value = pair.get(key)
        if value:
            path = pair.get("path")
            best[path] = value if path not in best else max(best[path], value) if higher else min(best[path], value)
    return best


def heat_level(value: float, top: float) -> int:
    """Level 0 to 4 of a rate against the best one: 4 from 90 %, 3 from 70 %, 2 from 50 %, 1 from 25 %."""
    share = value / top if top else 0.0
    return sum(share >= limit for limit in (0.25, 0.5, 0.7, 0.9))


def _cell(pair: dict[str, Any] | None, best: dict[str | None, float], paint: Paint, *, same: bool) -> str:
    if same:
        return "·"
    if pair is None:
        return "?"
    if pair["status"] in _STATUS_CELLS:
        text = f"{_STATUS_CELLS[pair['status']]:>6}"
        return text if pair["status"] == "skipped" else paint.level(text, 0)
    if not pair.get("copy_gbps"):
        return "    ok"
    return paint.level(f"{pair['copy_gbps']:6.1f}", heat_level(pair["copy_gbps"], best[pair.get("path")]))


def _patterns(patterns: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        [str(pattern.get("name")), str(pattern.get("status")), f"{pattern['total_gbps']:.1f} GB/s" if pattern.get("total_gbps") else ""]
        for pattern in patterns
    ]
    return ["  at once:", *("    " + line for line in table(rows))] if rows else []
