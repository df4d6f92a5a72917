"""Sweeps that other tools measured, as levels: sglang JSONL, vLLM JSON, guidellm JSON, CSV, and our own results."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from typing import Any, Final

CONCURRENCY_NAMES: Final = ("concurrency", "max_concurrency", "streams", "users", "clients", "batch", "c")
TOTAL_NAMES: Final = ("total_tps", "steady_total_tps", "total_throughput", "total_token_throughput", "total")
OUTPUT_NAMES: Final = (
    "output_tps",
    "steady_output_tps",
    "output_throughput",
    "output_token_throughput",
    "throughput",
    "tps",
    "tok/s",
    "tokens_per_second",
    "output",
)
MEASURES: Final = (("steady_total_tps", "total_tps"), ("steady_output_tps", "output_tps"))
"""Keys of a level that say the same, the better one first: total throughput, and output alone."""
MOST_CONCURRENCY: Final = 1e9


class NotASweep(ValueError):  # noqa: N818 - wrong input
    """The file holds no levels that can be read; the text says what was looked for."""


def read(text: str) -> list[dict[str, Any]]:
    """Return levels with `concurrency` and a throughput each; several runs of a level become their median. NotASweep.

    All levels tell the same measure, total throughput or output alone. A level that served nothing has a throughput of 0.
    """
    levels = _json(text) if text.lstrip()[:1] in {"{", "["} else _csv(text)
    usable = _comparable([checked for level in levels if (checked := _checked(level)) is not None])
    if not usable:
        raise NotASweep(
            "no level with a concurrency and a throughput was found (sglang JSONL, vLLM JSON, guidellm JSON or CSV concurrency,throughput)"
        )
    return merged(usable)


def merged(levels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Levels by concurrency, runs of the same one as their median; a run that served nothing says nothing where another one did."""
    by_level: dict[float, list[dict[str, Any]]] = {}
    for level in levels:
        by_level.setdefault(level["concurrency"], []).append(level)
    found = []
    for concurrency in sorted(by_level):
        runs = by_level[concurrency]
        middle = dict(runs[0])
        for key in (key for measure in MEASURES for key in measure):
            values = [run[key] for run in runs if run.get(key) is not None]
            if values:
                middle[key] = statistics.median([value for value in values if value > 0] or values)
        found.append(middle)
    return found


def _finite(value: Any) -> float | None:
    """A number that can be reckoned with: no truth value, no NaN, nothing infinite or too large for a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _checked(level: dict[str, Any]) -> dict[str, Any] | None:
    """A level as it can be reckoned with, None where its concurrency is none or it tells no throughput."""
    concurrency = _finite(level.get("concurrency"))
    if concurrency is None or not 0 < concurrency <= MOST_CONCURRENCY:
        return None
    found = dict(level)
    for key in (key for measure in MEASURES for key in measure):
        if key in found:
            value = _finite(found[key])
            found[key] = value if value is not None and value >= 0 else None
    return found if any(_tells(found, measure) for measure in MEASURES) else None


def _tells(level: dict[str, Any], measure: tuple[str, ...]) -> bool:
    return any(level.get(key) is not None for key in measure)


def _comparable(levels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Levels that all tell total throughput, or all output alone, whichever more of them tell: a knee between the two would be none."""
    total, output = ([level for level in levels if _tells(level, measure)] for measure in MEASURES)
    if len(total) == len(levels) or len(total) > len(output):
        return total
    return [{key: value for key, value in level.items() if key not in MEASURES[0]} for level in output]


def _json(text: str) -> list[dict[str, Any]]:
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    documents.append(json.loads(line))
                except ValueError as error:
                    raise NotASweep(f"line {number} is no JSON: {error}") from None
    levels: list[dict[str, Any]] = []
    for document in documents:
        levels += _document(document)
    return levels


def _document(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [level for item in document for level in _document(item)]
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("levels"), list):
        return [dict(level) for level in document["levels"] if isinstance(level, dict)]
    if isinstance(document.get("benchmarks"), list):
        return [level for item in document["benchmarks"] if (level := _guidellm(item)) is not None]
    level = _flat(document)
    return [level] if level is not None else []


def _flat(document: dict[str, Any]) -> dict[str, Any] | None:
    """An object of sglang's or vLLM's benchmark: the limit that was set, not the concurrency that came about."""
    concurrency = _first(document, ("max_concurrency", "concurrency"))
    if concurrency is None:
        return None
    total, output = _first(document, TOTAL_NAMES), _first(document, OUTPUT_NAMES[:4])
    if total is None and output is None:
        return None
    found: dict[str, Any] = {"concurrency": concurrency, "total_tps": total, "output_tps": output, "completed": document.get("completed")}
    for ours, names in (("ttft_ms", ("median_ttft_ms", "p99_ttft_ms")), ("itl_ms", ("median_itl_ms", "p99_itl_ms"))):
        middle, high = document.get(names[0]), document.get(names[1])
        if middle is not None:
            found[ours] = {"p50": middle, "p99": high}
    info = document.get("server_info")
    if isinstance(info, dict) and info.get("max_running_requests"):
        found["cap"] = info["max_running_requests"]
    return found


def _guidellm(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict):
        return None
    places = [item.get("config"), item.get("args"), item]
    strategy: dict[str, Any] = next(
        (place["strategy"] for place in places if isinstance(place, dict) and isinstance(place.get("strategy"), dict)), {}
    )
    concurrency = _first(strategy, ("streams", "max_concurrency", "concurrency"))
    metrics = item.get("metrics")
    if not isinstance(metrics, dict):
        return None
    if concurrency is None:
        measured = _mean(metrics.get("request_concurrency"))
        concurrency = float(round(measured)) if measured else None
    total, output = _mean(metrics.get("tokens_per_second")), _mean(metrics.get("output_tokens_per_second"))
    if concurrency is None or (total is None and output is None):
        return None
    return {"concurrency": concurrency, "total_tps": total, "output_tps": output}


def _mean(metric: Any) -> float | None:
    """The mean of guidellm's distribution: of successful requests where they are told apart."""
    if not isinstance(metric, dict):
        return None
    inner = metric.get("successful", metric)
    value = inner.get("mean") if isinstance(inner, dict) else None
    return _finite(value)


def _first(source: dict[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = _finite(source.get(name))
        if value is not None:
            return value
    return None


def _csv(text: str) -> list[dict[str, Any]]:
    """CSV with a header, or two bare columns concurrency,throughput; commas, semicolons or tabs."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise NotASweep("the file is empty")
    delimiter = max(",;\t", key=lines[0].count)
    rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))
    head = [cell.strip().lower() for cell in rows[0]]
    if _number(head[0]) is not None:
        head, rows = ["concurrency", "throughput"], [[], *rows]
    where = next((head.index(name) for name in CONCURRENCY_NAMES if name in head), None)
    total = next((head.index(name) for name in TOTAL_NAMES if name in head), None)
    output = next((head.index(name) for name in OUTPUT_NAMES if name in head), None)
    if where is None or (total is None and output is None):
        raise NotASweep(f"the header {','.join(head)!r} names no concurrency and throughput")
    levels = []
    for row in rows[1:]:
        concurrency = _number(row[where]) if where < len(row) else None
        values = {
            name: _number(row[at]) if at is not None and at < len(row) else None
            for name, at in (("total_tps", total), ("output_tps", output))
        }
        if concurrency and any(value is not None for value in values.values()):
            levels.append({"concurrency": concurrency, **values})
    return levels


def _number(text: str) -> float | None:
    try:
        return _finite(float(text.strip().replace("_", "")))
    except ValueError:
        return None
