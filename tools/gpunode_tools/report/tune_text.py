"""A comparison of variants for terminals and files."""

from __future__ import annotations

import json
from typing import Any, Final

from gpunode_tools.report.smoke_text import number
from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, plural, table, wrapped

STANDINGS: Final = {
    "compared": "compared",
    "limit": "misses a limit",
    "disbelieved": "not believed",
    "failed": "did not come up",
    "refused": "refused before a start",
}
NOT_KNOWN: Final = "reason not known from these figures"
HEAD: Final = ("variant", "total/s", "against", "at", "alone/s", "TTFT p99", "ITL p99", "bound by", "standing")
LIMITS: Final = {
    "min_single_stream_tps": "a single stream gets at least {:g} tokens/s",
    "max_ttft_ms": "time to first token (p99) at most {:g} ms",
    "max_itl_ms": "time between tokens (p99) at most {:g} ms",
}


def words(result: dict[str, Any]) -> str:
    """The outcome in one sentence."""
    winner = next((row for row in result["rows"] if row["name"] == result["winner"]), None)
    if winner is None:
        return "no variant could be compared: nothing should be changed"
    told = f"{winner['name']} serves best: {number(winner['total_tps'])} tokens/s in all at {plural(winner['concurrency'], 'stream')}"
    if winner["single_stream_tps"] is not None:
        told += f", {number(winner['single_stream_tps'], 1)} for a single one"
    gain = winner["against_known_pct"]
    if not result["worth_a_change"]:
        return f"{told}; the settings in use are as good"
    return told + (f" ({gain:+.1f} % against the settings in use)" if gain is not None else "")


def change(variant: dict[str, Any]) -> str:
    """What a variant changes, in one line."""
    told = [f"--{name.lstrip('-')}{'' if value is True else f' {_value(value)}'}" for name, value in (variant.get("flags") or {}).items()]
    told += [f"{name}={_value(value)}" for name, value in (variant.get("environment") or {}).items()]
    if variant.get("power_limit_w"):
        told.append(f"{variant['power_limit_w']} W for each GPU")
    return ", ".join(told) or "nothing"


def _value(value: Any) -> str:
    if value is None:
        return "(taken out)"
    return value if isinstance(value, str) else json.dumps(value)


def bound(row: dict[str, Any]) -> str:
    """What stopped a variant's throughput from growing, with the evidence; '' for one that was not measured."""
    if not row["levels"]:
        return ""
    cause = row["plateau"]
    if cause in {None, "unknown"}:
        return NOT_KNOWN + (f" ({row['plateau_evidence']})" if row["plateau_evidence"] else "")
    return f"{cause}: {row['plateau_evidence']}" if row["plateau_evidence"] else str(cause)


def slow(row: dict[str, Any]) -> list[str]:
    """The levels of a variant that are far slower than another's, each with why."""
    told = []
    for level in row["slow_levels"]:
        share = level["total_tps"] / level["best_tps"]
        reason = level["reason"] or NOT_KNOWN
        told.append(
            f"at {plural(level['concurrency'], 'stream')} {number(level['total_tps'])} tokens/s, {share:.0%} of {level['best']}'s "
            f"{number(level['best_tps'])}: {reason}" + (f" ({level['evidence']})" if level["evidence"] else "")
        )
    return told


def cells(row: dict[str, Any]) -> list[str]:
    """One row of the comparison."""
    gain = row["against_known_pct"]
    return [
        str(row["name"]),
        number(row["total_tps"]),
        "–" if gain is None else f"{gain:+.1f} %",
        "–" if row["concurrency"] is None else str(row["concurrency"]),
        number(row["single_stream_tps"], 1),
        number(row["ttft_ms_p99"]),
        number(row["itl_ms_p99"], 1),
        "not known" if row["levels"] and row["plateau"] in {None, "unknown"} else str(row["plateau"] or "–"),
        STANDINGS[row["standing"]],
    ]


def render(result: dict[str, Any], *, colour: bool) -> str:
    """Return the text of a comparison (schema gpunode.tune/1)."""
    paint = Paint(on=colour)
    verdict = result["verdict"]
    lines = [f"{paint(verdict.upper(), 'bold', VERDICT_STYLES.get(verdict, 'magenta'))}  {words(result)}"]
    if result["limits"]:
        lines.append(paint("limits: " + ", ".join(LIMITS[name].format(value) for name, value in result["limits"].items()), "dim"))
    if result["simulated"]:
        lines.append(paint("simulated: a stand-in answered", "magenta"))
    lines += ["", *table([list(HEAD), *(cells(row) for row in result["rows"])], right=(1, 2, 3, 4, 5, 6))]
    lines.append(paint("tokens a second of the steady state at the best level within the limits; times in ms", "dim"))
    lines.append("")
    for row in result["rows"]:
        lines += wrapped(f"{row['name']} changes {change(row['variant'])}", 0)
        lines += wrapped(f"bound by: {bound(row)}", 4) if bound(row) else []
        for text in slow(row):
            lines += wrapped(text, 4)
        lines += wrapped(row["why"], 4) if row["why"] and row["standing"] in {"limit", "disbelieved"} else []
    if result["findings"]:
        lines.append("")
    for entry in result["findings"]:
        severity = paint(entry["severity"], SEVERITY_STYLES[entry["severity"]])
        lines.append(f"{severity} {entry['id']} ({entry['subject']}): {entry['summary']}")
        lines += wrapped(f"seen: {entry['evidence']}", 4) if entry["evidence"] else []
        lines += wrapped(f"do: {entry['remedy']}", 4) if entry["remedy"] else []
    return "\n".join(lines) + "\n"
