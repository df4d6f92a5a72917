"""The verify-p2p report as one HTML page: verdict, what changed, findings, topology drawing, heat maps."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from gpunode.rules.environment import ENVIRONMENT
from gpunode_tools.report.p2p_text import baseline_gaps, best_by_path, gpu_words, heat_level, light_words, not_known, verdict_words
from gpunode_tools.report.page import card, finding, heat, page, simulated_notice, table, verdict_line
from gpunode_tools.report.topology_svg import draw

_MAPS: Final = (
    ("copy_gbps", "Copies, GB/s (row sends to column)", True),
    ("bidirectional_gbps", "Both directions at once, GB/s in sum", True),
    ("sm_read_gbps", "Reads by kernels, GB/s (row reads from column)", True),
    ("staged_gbps", "Copies through host memory, GB/s", True),
    ("read_latency_us", "Latency of dependent reads, µs (row reads from column)", False),
)
_STATUS: Final = {"corrupt": "CORR", "hang": "HANG", "no-access": "none", "error": "ERR", "skipped": "skip"}


def render(result: dict[str, Any]) -> str:
    """Return the page of a result (schema gpunode.p2p/1)."""
    host = result.get("host") or "node"
    verdict = result["verdict"]
    body = [
        verdict_line(f"GPU peer-to-peer on {host}", verdict, verdict_words(result) + not_known(result)),
        f'<p class="soft">{escape(_summary(result))}</p>',
    ]
    if result["simulated"]:
        body.append(simulated_notice())
    body += _changed(result)
    findings = result["findings"]
    body.append(card("Findings", *([finding(entry) for entry in findings] or ["<p>None.</p>"])))
    if result["topology"]:
        body.append(card("Topology", draw(result)))
    body += _heat_maps(result)
    body += _host_copies(result)
    body += _patterns(result)
    body.append(_gpus(result))
    body += _environment(result)
    body.append(f"<footer>gpunode verify-p2p, {escape(result.get('collected_at') or 'time unknown')}</footer>")
    return page(f"{verdict}: {host}", body)


def _summary(result: dict[str, Any]) -> str:
    environment = result.get("environment", {})
    told = [gpu_words(result, "×") or "no GPU known"]
    told += [f"driver {environment['driver']}"] if "driver" in environment else []
    told += [f"kernel {environment['kernel']}"] if "kernel" in environment else []
    pairs = result["pairs"]
    good = sum(1 for pair in pairs if pair["status"] == "ok")
    told.append(f"{good} of {len(pairs)} pairs ok{light_words(pairs)}" if pairs else "nothing measured")
    measurement = result.get("measurement") or {}
    told += [f"measured in {measurement['where']}"] if measurement.get("where") else []
    return ", ".join(told)


def _changed(result: dict[str, Any]) -> list[str]:
    baseline = result.get("baseline")
    if not baseline:
        return []
    gaps = [f'<p class="soft">{escape(words[0].upper() + words[1:])}.</p>' for words in baseline_gaps(baseline)]
    if not baseline["changed"]:
        same = f"<p>Of {escape(str(baseline['saved_at']))}; no version or setting that it keeps has changed since.</p>"
        return [card("Baseline", same, *gaps)]
    rows = [(change["what"], change["before"], change["after"]) for change in baseline["changed"]]
    return [card(f"Changed since the baseline of {baseline['saved_at']}", table(("What", "Before", "Now"), rows), *gaps)]


def _heat_maps(result: dict[str, Any]) -> list[str]:
    pairs = result["pairs"]
    if not pairs:
        return []
    by_pair = {(pair["src"], pair["dst"]): pair for pair in pairs}
    gpus = sorted({gpu for pair in by_pair for gpu in pair})
    labels = [f"GPU{gpu}" for gpu in gpus]
    cards = []
    for key, heading, higher in _MAPS:
        values = [pair[key] for pair in pairs if pair.get(key)]
        if not values and key != "copy_gbps":
            continue
        best = best_by_path(pairs, key, higher=higher)
        cells = [[_cell(by_pair.get((one, other)), key, best, higher=higher, same=one == other) for other in gpus] for one in gpus]
        cards.append(card(heading, heat(labels, [str(gpu) for gpu in gpus], cells)))
    return cards


def _cell(pair: dict[str, Any] | None, key: str, best: dict[str | None, float], *, higher: bool, same: bool) -> tuple[str, int | None]:
    if same:
        return "·", None
    if pair is None:
        return "?", None
    value = pair.get(key)
    if pair["status"] in _STATUS and (key == "copy_gbps" or value is None):
        return _STATUS[pair["status"]], None if pair["status"] == "skipped" else 0
    if value is None:
        return "–", None
    top = best[pair.get("path")]
    return (f"{value:.1f}", heat_level(value, top)) if higher else (f"{value:.2f}", heat_level(top, value))


def _host_copies(result: dict[str, Any]) -> list[str]:
    entries = (result.get("measurement") or {}).get("host") or []
    rows = [
        (f"GPU{entry.get('gpu')}", *(f"{entry[key]:.1f}" if entry.get(key) else "–" for key in ("to_gpu_gbps", "from_gpu_gbps")))
        for entry in entries
    ]
    return [card("Copies from and to the host, GB/s", table(("GPU", "To it", "From it"), rows))] if rows else []


def _patterns(result: dict[str, Any]) -> list[str]:
    patterns = (result.get("measurement") or {}).get("patterns") or []
    rows = [
        (
            str(pattern.get("name")),
            str(pattern.get("pairs", "")),
            str(pattern.get("status")),
            f"{pattern['total_gbps']:.1f}" if pattern.get("total_gbps") else "",
        )
        for pattern in patterns
    ]
    return [card("Patterns at once", table(("Pattern", "Pairs", "Status", "GB/s in sum"), rows))] if rows else []


def _gpus(result: dict[str, Any]) -> str:
    rows = [
        (
            f"GPU{gpu['index']}" if "index" in gpu else "–",
            gpu.get("bdf", "?"),
            gpu.get("name", "?") if gpu.get("answers", True) else f"{gpu.get('name', '?')}: does not answer",
            f"{gpu['memory_mib']} MiB" if "memory_mib" in gpu else "?",
            f"x{gpu['link_width']}" if "link_width" in gpu else "?",
            gpu.get("driver") or "?",
        )
        for gpu in result["gpus"]
    ]
    return card("GPUs", table(("GPU", "Address", "Name", "Memory", "Lanes", "Driver"), rows) if rows else "<p>None was found.</p>")


def _environment(result: dict[str, Any]) -> list[str]:
    words = dict(ENVIRONMENT)
    rows = [(words.get(key, key), str(value)) for key, value in (result.get("environment") or {}).items()]
    if not rows:
        return []
    lines = [f'<p><span class="soft">{escape(key)}</span> <code>{escape(value)}</code></p>' for key, value in rows]
    return [card("Environment", '<div style="overflow-wrap:anywhere">', *lines, "</div>")]
