"""Rules about the baseline: what is gone, what became slower, which paths are others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..findings import ERROR, INFO, UNKNOWN, WARNING, Finding
from .baseline import known_pairs
from .environment import suspects
from .naming import list_pairs, name_list, name_pairs
from .pairs import is_staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..entities import Pair
    from ..state import State

LATENCY_FACTOR: Final = 1.5
"""Read latency repeats within 5 %; half as much again is another path."""
COMPARED: Final = (("copy_gbps", "copies"), ("bidirectional_gbps", "both directions at once"), ("sm_read_gbps", "loads of kernels"))


def check_baseline(state: State, baseline: Mapping[str, Any], tolerance_pct: float, changed: list[dict[str, str]]) -> Iterator[Finding]:
    """Yield findings about what is different from the baseline."""
    told = suspects(changed)
    yield from _gpus(state, baseline)
    yield from _topology(state, baseline, told)
    yield from _lost_pairs(state, baseline, told)
    yield from _slower(state, baseline, tolerance_pct, told)
    yield from _patterns(state, baseline, tolerance_pct, told)
    yield from _host_copies(state, baseline, tolerance_pct, told)
    yield from _without(state, baseline)
    if changed:
        things = "thing has" if len(changed) == 1 else "things have"
        yield Finding("environment-changed", INFO, "host", f"{len(changed)} {things} changed since the baseline", told, "", "")


def _gpus(state: State, baseline: Mapping[str, Any]) -> Iterator[Finding]:
    before = [gpu for gpu in baseline["gpus"] if gpu.get("index") is not None]
    count = baseline.get("gpu_count") or len(before)
    if state.count is not None and state.count < count:
        here = {gpu.bdf for gpu in state.gpus if gpu.index is not None}
        uuids = {gpu.info.uuid for gpu in state.gpus if gpu.info and gpu.info.uuid}
        gone = [gpu for gpu in before if here and gpu.get("bdf") not in here and gpu.get("uuid") not in uuids]
        names = ", ".join(f"{gpu.get('name', 'GPU')} at {gpu['bdf']}" for gpu in gone)
        yield Finding(
            "gpu-missing",
            ERROR,
            ", ".join(gpu["bdf"] for gpu in gone) or "host",
            f"{state.count} of {count} GPUs of the baseline are there" + (f"; gone: {names}" if names else ""),
            f"the driver offers {state.count}, the baseline of {baseline.get('saved_at')} had {count}",
            "lspci -d 10de: -k tells whether the card is on the bus; when it is not: power, riser, slot; when it is: its driver",
        )
    moved = []
    places = {gpu.get("uuid"): gpu.get("bdf") for gpu in before if gpu.get("uuid")}
    for gpu in state.gpus:
        uuid = gpu.info.uuid if gpu.info else None
        if uuid in places and places[uuid] != gpu.bdf:
            moved.append(f"{uuid} moved from {places[uuid]} to {gpu.bdf}")
    if moved and len(places) == len([gpu for gpu in before if gpu.get("uuid")]):
        yield Finding(
            "topology-changed",
            WARNING,
            "host",
            f"{len(moved)} GPUs have another PCI address than in the baseline",
            "; ".join(moved),
            "when cards were moved on purpose, save a new baseline",
        )


def _topology(state: State, baseline: Mapping[str, Any], told: str) -> Iterator[Finding]:
    before = baseline.get("topology")
    if not before or not before.get("matrix") or state.topology is None:
        return
    fewer: dict[str, list[tuple[int, int]]] = {}
    other: dict[str, list[tuple[int, int]]] = {}
    for label, row in zip(before["rows"], before["matrix"], strict=True):
        for target, cell in zip(before["gpus"], row, strict=True):
            ends = int(label[3:]), int(target[3:])
            now = state.topology.path(*ends)
            if now is None or now == cell:
                continue
            (fewer if cell.startswith("NV") and _links(now) < _links(cell) else other).setdefault(f"{cell} -> {now}", []).append(ends)
    if fewer:
        yield Finding(
            "nvlink-lost",
            ERROR,
            "host",
            f"{_sum(fewer)} ordered pairs have fewer NVLinks than in the baseline",
            _paths(fewer, told),
            "systemctl status nvidia-fabricmanager; nvidia-smi nvlink -s; reset the GPUs together or reboot; reseat bridges",
        )
    if other:
        yield Finding(
            "topology-changed",
            WARNING,
            "host",
            f"the path of {_sum(other)} ordered pairs is another than in the baseline",
            _paths(other, told),
            "BIOS settings (NPS, bifurcation) and slots decide it; when it is meant, save a new baseline",
        )


def _sum(paths: dict[str, list[tuple[int, int]]]) -> int:
    return sum(map(len, paths.values()))


def _paths(paths: dict[str, list[tuple[int, int]]], told: str) -> str:
    """Each change of path with its pairs, and what else changed."""
    return "; ".join([*(f"{change}: {name_list(ends)}" for change, ends in paths.items()), *([told] if told else [])])


def _links(path: str) -> int:
    return int(path[2:]) if path.startswith("NV") and path[2:].isdecimal() else 0


def _lost_pairs(state: State, baseline: Mapping[str, Any], told: str) -> Iterator[Finding]:
    """Pairs that the driver refuses now and that carried data then: an error even where the flags alone would be a warning."""
    worked = {(pair["src"], pair["dst"]) for pair in baseline["pairs"] if pair.get("status") == "ok"}
    gone = [pair for pair in state.pairs or [] if (pair.src, pair.dst) in worked and pair.status == "no-access"]
    if gone:
        subject, meaning = name_pairs(gone, state.pairs or [], state)
        yield Finding(
            "p2p-no-access",
            ERROR,
            subject,
            f"peer access that the baseline had is gone: {meaning}",
            "; ".join(part for part in (list_pairs(gone), told) if part),
            "look at what changed first: driver, kernel command line, module options",
        )


def _slower(state: State, baseline: Mapping[str, Any], tolerance_pct: float, told: str) -> Iterator[Finding]:
    before = {(pair["src"], pair["dst"]): pair for pair in baseline["pairs"] if pair.get("status") == "ok"}
    pairs = state.pairs or []
    compared = [pair for pair in pairs if (pair.src, pair.dst) in before and pair.status == "ok" and not is_staged(pair)]
    for key, what in COMPARED:
        heavy = [pair for pair in compared if not state.is_light(pair) and not before[pair.src, pair.dst].get("light")]
        slower = [pair for pair in heavy if _less(getattr(pair, key), before[pair.src, pair.dst].get(key), tolerance_pct)]
        if slower:
            worst = min(slower, key=lambda pair: getattr(pair, key) / before[pair.src, pair.dst][key])
            then = before[worst.src, worst.dst][key]
            change = 100 * (1 - getattr(worst, key) / then)
            yield _slower_finding(
                state,
                slower,
                f"{what} are slower than in the baseline",
                f"{worst.name} {then:.1f} -> {getattr(worst, key):.1f} GB/s, -{change:.0f} %",
                told,
            )
    late = [pair for pair in compared if _more(pair.read_latency_us, before[pair.src, pair.dst].get("read_latency_us"))]
    if late:
        worst = max(late, key=lambda pair: pair.read_latency_us or 0.0)
        then = before[worst.src, worst.dst]["read_latency_us"]
        yield _slower_finding(
            state, late, "read latency is higher than in the baseline", f"{worst.name} {then:.2f} -> {worst.read_latency_us:.2f} us", told
        )


def _patterns(state: State, baseline: Mapping[str, Any], tolerance_pct: float, told: str) -> Iterator[Finding]:
    """Patterns at once: some faults show only when many pairs copy together."""
    before = {pattern.get("name"): pattern for pattern in (baseline.get("measurement") or {}).get("patterns") or []}
    for pattern in state.patterns:
        then = before.get(pattern.get("name"), {}).get("total_gbps")
        now = pattern.get("total_gbps")
        if _less(now, then, tolerance_pct):
            yield Finding(
                "p2p-slower-than-baseline",
                ERROR,
                f"pattern {pattern.get('name')}",
                f"the pattern {pattern.get('name')} is slower than in the baseline",
                "; ".join(part for part in (f"{then:.1f} -> {now:.1f} GB/s in sum", told) if part),
                "look at what changed first; then at uplinks of switches and the link between the sockets",
            )


def _host_copies(state: State, baseline: Mapping[str, Any], tolerance_pct: float, told: str) -> Iterator[Finding]:
    before = {entry.get("gpu"): entry for entry in (baseline.get("measurement") or {}).get("host") or []}
    for entry in state.host_copies:
        then = before.get(entry.get("gpu"), {})
        worse = [
            f"{words} {then[key]:.1f} -> {entry[key]:.1f} GB/s"
            for key, words in (("to_gpu_gbps", "to it"), ("from_gpu_gbps", "from it"))
            if not entry.get("light") and not then.get("light") and _less(entry.get(key), then.get(key), tolerance_pct)
        ]
        if worse:
            yield Finding(
                "p2p-slower-than-baseline",
                ERROR,
                entry["name"],
                f"copies between {entry['name']} and the host's memory are slower than in the baseline: this GPU's link",
                "; ".join([*worse, *([told] if told else [])]),
                "look at what changed first; then link width and speed under load",
            )


def _without(state: State, baseline: Mapping[str, Any]) -> Iterator[Finding]:
    """What was measured now and compared with nothing, because the baseline does not have it: silence would read as 'no slower'."""
    before = {(pair["src"], pair["dst"]): pair for pair in baseline["pairs"] if pair.get("status") == "ok"}
    known = known_pairs(baseline) & before.keys()
    pairs = [pair for pair in state.pairs or [] if pair.status == "ok"]
    alone = [pair for pair in pairs if (pair.src, pair.dst) not in (before if state.is_light(pair) or not pair.copy_gbps else known)]
    if alone:
        subject, _ = name_pairs(alone, pairs, state)
        yield Finding(
            "baseline-incomplete",
            UNKNOWN,
            subject,
            f"{len(alone)} of {len(pairs)} measured pairs have no rate in the baseline: whether they became slower is not known",
            f"the baseline of {baseline.get('saved_at')} has rates of {len(known)} pairs; without: "
            + name_list([(pair.src, pair.dst) for pair in alone]),
            "when this run is healthy: verify-p2p --save-baseline, with all pairs and the GPUs free",
        )
    also = [
        f"{what} of {len(lacking)} pairs"
        for key, what in COMPARED[1:]
        if (lacking := [pair for pair in pairs if pair not in alone and getattr(pair, key) and not before[pair.src, pair.dst].get(key)])
    ]
    measurement = baseline.get("measurement") or {}
    patterns = {pattern.get("name") for pattern in measurement.get("patterns") or []}
    new = [str(pattern.get("name")) for pattern in state.patterns if pattern.get("total_gbps") and pattern.get("name") not in patterns]
    also += (
        [f"pattern{'s' if len(new) > 1 else ''} {', '.join(new[:2])}" + (f" and {len(new) - 2} more" if len(new) > 2 else "")]
        if new
        else []
    )
    if also:
        yield Finding(
            "baseline-incomplete",
            INFO,
            "host",
            "measured now and not in the baseline, so compared with nothing: " + ", ".join(also),
            f"the baseline of {baseline.get('saved_at')} was measured as {measurement.get('mode') or 'nothing'}",
            "when this run is healthy: verify-p2p --measure full --save-baseline",
        )


def _slower_finding(state: State, bad: list[Pair], what: str, worst: str, told: str) -> Finding:
    subject, meaning = name_pairs(bad, state.pairs or [], state)
    return Finding(
        "p2p-slower-than-baseline",
        ERROR,
        subject,
        f"{what}: {meaning}",
        "; ".join(part for part in (f"worst {worst}", list_pairs(bad), told) if part),
        "look at what changed first; then link width and speed under load, ACS and IOMMU",
    )


def _less(now: float | None, then: float | None, tolerance_pct: float) -> bool:
    return bool(now and then) and (now or 0.0) < (then or 0.0) * (1 - tolerance_pct / 100)


def _more(now: float | None, then: float | None) -> bool:
    return bool(now and then) and (now or 0.0) > (then or 0.0) * LATENCY_FACTOR
