"""Rules about measured pairs: did the data arrive, in time, at a plausible rate and latency. Capability flags are no proof."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from ..findings import ERROR, UNKNOWN, WARNING, Finding
from ..parsers.p2p_status import MEANINGS
from .lost import lost_gpus
from .measurement import fatal_of, has_failed, stuck_workers, was_killed
from .naming import list_pairs, name_list, name_pairs, path_words
from .pcie import SPEED_GENERATION, link_widths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from ..entities import Pair
    from ..state import State

STAGED_LATENCY_US: Final = 5.0
"""Dependent reads of a peer take 0.4 to 1.5 us, through host memory 11 to 21 us: anything between tells them apart."""
SM_READ_SHARE: Final = 0.25
"""Loads of kernels through system memory run at a fifteenth of the copy engine's rate; direct ones at 0.8 and more."""
HOST_COPY_SHARE: Final = 0.8
"""Across NUMA nodes good peer copies run at 0.93 of staged ones on some hosts; broken ones at 0.45 (NVIDIA/nccl#814)."""
IMPLAUSIBLE: Final = 1.05
"""Above the link's own limit by more than timing can explain."""
PEER_SHARE: Final = 0.75
"""Pairs of the same path differ by 0.9 on healthy mixed hosts; half a link gives 0.5."""
LINK_SHARE: Final = 0.4
"""Of the link's limit: the slowest healthy path known, across sockets of Genoa, gives 0.6."""
GEN_GBPS_PER_LANE: Final = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Payload-free limit of one lane in one direction, GB/s, by PCIe generation (encoding taken off)."""
NVLINK_GBPS: Final = 53.2
"""The fastest known link (NVLink 5), for a limit where its speed was not told."""


def failing(pairs: Sequence[Pair] | None) -> bool:
    """Say whether any measured pair shows harm, so that likely causes count as errors."""
    return any(pair.status in {"corrupt", "hang", "no-access"} or pair.data_ok is False or is_staged(pair) for pair in pairs or [])


def good(pairs: Sequence[Pair] | None) -> bool:
    """Say whether pairs were measured and every one is ok."""
    return bool(pairs) and all(pair.status == "ok" for pair in pairs or []) and not failing(pairs)


def is_staged(pair: Pair) -> bool:
    """Say whether a pair's traffic goes through host memory although the driver grants access."""
    if pair.status != "ok":
        return False
    latencies = [pair.read_latency_us, pair.extra.get("write_latency_us")]
    slow_read = any(isinstance(latency, int | float) and latency > STAGED_LATENCY_US for latency in latencies)
    slow_loads = bool(pair.sm_read_gbps and pair.copy_gbps and pair.sm_read_gbps < SM_READ_SHARE * pair.copy_gbps)
    return slow_read or slow_loads


def check_pairs(
    state: State, required: bool, min_gbps: float | None, suspects: str, known: AbstractSet[tuple[int, int]] = frozenset()
) -> Iterator[Finding]:
    """Yield findings about peer-to-peer.

    ``suspects``: what changed since the baseline, for the evidence of failures. ``known``: pairs whose rate the baseline knows, which
    are compared with it and not with each other.
    """
    pairs = state.pairs
    if pairs is None or (not pairs and state.count != 1):
        if state.snapshot.measurement.get("waived"):
            yield Finding(
                "p2p-no-access",
                ERROR,
                "all pairs",
                "nvbandwidth waived its copies between GPUs: the peer mapping failed, although it ended with success",
                why_nothing(state),
                "look at nvidia-smi topo -p2p r and w, the driver's parameters and the chipset",
                "NVIDIA/nvbandwidth#13",
            )
        elif state.count != 1 and required:
            yield _unmeasured(state, "no pair was measured", why_nothing(state))
        return
    yield from _harm(state, pairs, suspects)
    yield from _coverage(state, pairs)
    yield from _bandwidth(state, pairs, min_gbps, suspects, known)


def why_nothing(state: State) -> str:
    """Why the measurement brought no pair."""
    return str(fatal_of(state).get("summary") or "nothing was measured")


def _unmeasured(state: State, summary: str, evidence: str) -> Finding:
    remedy = "run verify-p2p with --measure quick while the GPUs are free"
    if has_failed(state):
        remedy = "see cuda-failed first, then measure again"
    elif fatal_of(state).get("where") in ("start", "connection"):
        remedy = "mend what the line above says (a container must run: pct status VMID), then measure again"
    elif stuck_workers(state):
        remedy = "reboot the node: a process that cannot be killed holds these GPUs (see p2p-hang); then measure again"
    return Finding("not-readable", UNKNOWN, "pairs", summary, evidence, remedy, required=True)


def _grouped(state: State, bad: list[Pair], pairs: Sequence[Pair]) -> tuple[str, str, str]:
    tried = [pair for pair in pairs if pair.status != "skipped" or pair in bad]
    subject, meaning = name_pairs(bad, tried, state)
    return subject, meaning, list_pairs(bad)


def _harm(state: State, pairs: Sequence[Pair], suspects: str) -> Iterator[Finding]:
    corrupt = [pair for pair in pairs if pair.status == "corrupt" or (pair.status == "ok" and pair.data_ok is False)]
    kinds = [
        (
            "p2p-corrupt",
            corrupt,
            "data did not arrive as it was sent",
            "do not serve from this node; IOMMU off or iommu=pt, ACS redirection off; until then NCCL_P2P_DISABLE=1",
            "NVIDIA/open-gpu-kernel-modules#1257; pytorch/pytorch#84803",
        ),
        (
            "p2p-hang",
            [pair for pair in pairs if pair.status == "hang"],
            "a peer copy did not end before its deadline",
            "HMM off, IOMMU off or iommu=pt, ACS redirection off; until then NCCL_P2P_DISABLE=1",
            "vllm-project/vllm#33041; NVIDIA/nccl#2079",
        ),
        ("p2p-no-access", [pair for pair in pairs if pair.status == "no-access" or pair.can_access is False], "", "", ""),
        (
            "p2p-error",
            [pair for pair in pairs if pair.status == "error" and not was_killed(pair.extra.get("reason"))],
            "the measurement ended with an error of the driver",
            "look at dmesg for Xid lines, then measure again",
            "",
        ),
        (
            "p2p-error",
            [pair for pair in pairs if pair.status == "ok" and pair.copy_gbps == 0],
            "a rate of 0 GB/s was measured: nothing arrived",
            "look at dmesg for Xid lines, then measure again with verify-p2p, which proves the data",
            "",
        ),
        (
            "p2p-staged",
            [pair for pair in pairs if is_staged(pair) and pair not in corrupt],
            "traffic goes through host memory although the driver grants peer access",
            "NVreg_RegistryDwords=ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2 for GPUs without a switch; IOMMU off or iommu=pt; ACS off",
            "local-inference-lab/rtx6kpro, pcie-oneshot-allreduce",
        ),
    ]
    if gone := _with_lost(state, pairs):
        yield _lost(state, gone, pairs)
    stuck = stuck_workers(state)
    for finding_id, found, what, remedy, source in kinds:
        bad = [pair for pair in found if pair not in gone]
        if not bad:
            continue
        if finding_id == "p2p-no-access":
            yield from _no_access(state, bad, pairs, suspects)
            continue
        subject, meaning, names = _grouped(state, bad, pairs)
        told = "; ".join(_latency(pair) for pair in bad[:4]) if finding_id == "p2p-staged" else _reasons(bad)
        yield Finding(
            finding_id,
            ERROR,
            subject,
            f"{what}: {meaning}",
            "; ".join(part for part in (names, told, suspects) if part),
            f"reboot the node first: {'; '.join(stuck)}. Then {remedy}" if finding_id == "p2p-hang" and stuck else remedy,
            source,
        )


def _with_lost(state: State, pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs that ended with an error and of which one GPU does not answer any more."""
    lost = lost_gpus(state)
    numbers = {gpu.index for gpu in state.gpus if gpu.bdf in lost and gpu.index is not None}
    return [pair for pair in pairs if pair.status == "error" and numbers & {pair.src, pair.dst}]


def _lost(state: State, bad: list[Pair], pairs: Sequence[Pair]) -> Finding:
    """A GPU that is gone fails every copy with it: said as such, not as faults of pairs."""
    lost = lost_gpus(state)
    gone = [gpu for gpu in state.gpus if gpu.bdf in lost and any(gpu.index in {pair.src, pair.dst} for pair in bad)]
    names = ", ".join(f"{gpu.name} ({gpu.bdf})" for gpu in gone)
    _, _, told = _grouped(state, bad, pairs)
    return Finding(
        "p2p-error",
        ERROR,
        ", ".join(gpu.name for gpu in gone),
        f"{names} {'are' if len(gone) > 1 else 'is'} gone, so nothing could be copied from or to {'them' if len(gone) > 1 else 'it'}",
        "; ".join(part for part in (told, _reasons(bad)) if part),
        "bring the GPU back first: see gpu-lost; the other pairs were measured without it",
    )


def _reasons(pairs: Sequence[Pair]) -> str:
    """What the measurement says of its own, each thing once."""
    told = []
    for pair in pairs:
        checks = pair.extra.get("checks")
        seen = [f"{name} {value}" for name, value in checks.items() if value != "ok"] if isinstance(checks, dict) else []
        told += [str(pair.extra["reason"])] if pair.extra.get("reason") else [f"{pair.name}: {', '.join(seen)}"] if seen else []
    return "; ".join(dict.fromkeys(told[:4]))


def _latency(pair: Pair) -> str:
    told = [f"read latency {pair.read_latency_us:.1f} us"] if pair.read_latency_us is not None else []
    told += [f"write latency {pair.extra['write_latency_us']:.1f} us"] if pair.extra.get("write_latency_us") else []
    told += [f"loads {pair.sm_read_gbps:.1f} of {pair.copy_gbps:.1f} GB/s"] if pair.sm_read_gbps and pair.copy_gbps else []
    return f"{pair.name} " + ", ".join(told)


def is_consumer(state: State) -> bool:
    """GeForce cards have no peer-to-peer with NVIDIA's own driver: no fault of the node."""
    names = [gpu.info.name or "" for gpu in state.gpus if gpu.info]
    return bool(names) and all("GeForce" in name for name in names)


def _no_access(state: State, bad: list[Pair], pairs: Sequence[Pair], suspects: str) -> Iterator[Finding]:
    subject, meaning, names = _grouped(state, bad, pairs)
    flags = {pair.name: state.p2p_status["r"].status(pair.src, pair.dst) for pair in bad} if "r" in state.p2p_status else {}
    lying = [name for name, flag in flags.items() if flag == "OK"]
    told = "; ".join(f"topo -p2p r: {flag} ({MEANINGS.get(flag or '', '?')})" for flag in sorted({flag or "?" for flag in flags.values()}))
    sliced = [gpu.name for gpu in state.gpus if gpu.info and gpu.info.mig == "Enabled" and any(gpu.index in {p.src, p.dst} for p in bad)]
    never = is_consumer(state) and bool(flags) and set(flags.values()) <= {"GNS", "NS", "CNS"}
    yield Finding(
        "p2p-no-access",
        WARNING if never else ERROR,
        subject,
        f"CUDA grants no peer access: {meaning}" + (", although nvidia-smi says OK" if lying else ""),
        "; ".join(part for part in (names, told, suspects) if part),
        f"MIG devices have no peer-to-peer: switch it off (nvidia-smi -mig 0) on {', '.join(sliced)}"
        if sliced
        else "mixed architectures cannot be peers; GeForce cards need a patched driver; else look at driver parameters and chipset"
        if never or lying
        else "a driver that supports this card and chipset; NVreg_RegistryDwords=ForceP2P=0x11 on PCIe hosts",
    )


def _coverage(state: State, pairs: Sequence[Pair]) -> Iterator[Finding]:
    skipped = [pair for pair in pairs if pair.status == "skipped" or (pair.status == "error" and was_killed(pair.extra.get("reason")))]
    if skipped:
        why = sorted({str(pair.extra.get("reason") or "no reason told") for pair in skipped})
        subject, _ = name_pairs(skipped, pairs, state)
        yield _unmeasured(state, f"{len(skipped)} of {len(pairs)} pairs were not measured ({subject})", "; ".join(why))
    if state.snapshot.measurement.get("pairs") or state.count is None:
        return
    there = {(pair.src, pair.dst) for pair in pairs}
    numbers = sorted(state.measured_places.values()) or range(state.count)
    absent = [(one, other) for one in numbers for other in numbers if one != other and (one, other) not in there]
    if absent:
        yield _unmeasured(state, f"{len(absent)} pairs are not in the measurement", name_list(absent))


def pair_limit_gbps(state: State, pair: Pair) -> tuple[float, bool]:
    """Return (limit of one direction in GB/s, whether it comes from the links themselves rather than from the fastest known)."""
    if pair.path and (match := re.fullmatch(r"NV(\d+)", pair.path)):
        speeds = [speed for speed in state.nvlinks.get(pair.src, []) if speed is not None]
        return int(match[1]) * (max(speeds) if speeds else NVLINK_GBPS), bool(speeds)
    limits = []
    for gpu in state.gpus:
        if gpu.index not in {pair.src, pair.dst}:
            continue
        generation = gpu.info.gen_max if gpu.info else None
        if generation is None:
            speed = re.match(r"[\d.]+", state.sysfs(gpu.bdf, "max_link_speed") or "")
            generation = SPEED_GENERATION.get(float(speed[0])) if speed else None
        lanes = link_widths(state, gpu)[0]
        if generation in GEN_GBPS_PER_LANE and lanes:
            limits.append(GEN_GBPS_PER_LANE[generation] * lanes)
    if len(limits) < 2 and isinstance(told := pair.extra.get("limit_gbps"), int | float):
        return float(told), True
    if len(limits) == 2:
        return min(limits), True
    return (GEN_GBPS_PER_LANE[6] * 16, False) if pair.path else (math.inf, False)  # of unknown path it may be NVLink


def _bandwidth(
    state: State, pairs: Sequence[Pair], min_gbps: float | None, suspects: str, known: AbstractSet[tuple[int, int]]
) -> Iterator[Finding]:
    measured = [pair for pair in pairs if pair.status == "ok" and pair.copy_gbps and not state.is_light(pair)]
    limits = {pair.name: pair_limit_gbps(state, pair) for pair in measured}
    fast = [pair for pair in measured if (pair.copy_gbps or 0) > IMPLAUSIBLE * limits[pair.name][0]]
    if fast:
        subject, meaning, names = _grouped(state, fast, pairs)
        top = max(fast, key=lambda pair: pair.copy_gbps or 0)
        yield Finding(
            "bandwidth-implausible",
            ERROR,
            subject,
            f"{top.copy_gbps:.1f} GB/s is more than the link carries ({limits[top.name][0]:.1f} GB/s), so the data does not: {meaning}",
            names,
            "do not trust peer-to-peer on these pairs: a patched driver maps the wrong memory; use the released driver",
            "noonghunna/club-3090#873; aikitoria/open-gpu-kernel-modules pull request 34",
        )
    staged = [pair for pair in measured if (host := _host_copy(pair)) and (pair.copy_gbps or 0) < HOST_COPY_SHARE * host]
    if staged:
        subject, meaning, names = _grouped(state, staged, pairs)
        yield Finding(
            "p2p-slower-than-host-copy",
            ERROR,
            subject,
            f"peer copies are slower than copies through host memory: {meaning}",
            names + "; " + "; ".join(f"{pair.name} {pair.copy_gbps:.1f}, staged {_host_copy(pair):.1f} GB/s" for pair in staged[:4]),
            "look at the link under load and at ACS and IOMMU; until then NCCL_P2P_DISABLE=1 is faster",
            "NVIDIA/nccl#814",
        )
    if min_gbps is not None and (below := [pair for pair in measured if (pair.copy_gbps or 0) < min_gbps]):
        subject, meaning, names = _grouped(state, below, pairs)
        slowest = min(below, key=lambda pair: pair.copy_gbps or 0)
        yield Finding(
            "p2p-slower-than-expected",
            ERROR,
            subject,
            f"slower than the {min_gbps:g} GB/s that were asked for: {meaning}",
            f"{names}; slowest {slowest.name} {slowest.copy_gbps:.1f} GB/s" + (f"; {suspects}" if suspects else ""),
            "compare link width and speed under load with the baseline",
        )
        return
    news = [pair for pair in measured if pair not in fast and (pair.src, pair.dst) not in known]
    yield from _uneven(state, pairs, news, limits)


def _host_copy(pair: Pair) -> float:
    value = pair.extra.get("staged_gbps")
    return float(value) if isinstance(value, int | float) else 0.0


def _uneven(state: State, pairs: Sequence[Pair], measured: list[Pair], limits: dict[str, tuple[float, bool]]) -> Iterator[Finding]:
    """Pairs far below others of the same path, or far below what their link can carry."""
    slow = []
    for path in sorted({pair.path or "" for pair in measured}):
        alike = [pair for pair in measured if (pair.path or "") == path]
        usual = sorted(pair.copy_gbps or 0.0 for pair in alike)[len(alike) // 2]
        slow += [pair for pair in alike if (pair.copy_gbps or 0.0) < PEER_SHARE * usual]
    slow += [
        pair
        for pair in measured
        if pair not in slow and limits[pair.name][1] and (pair.copy_gbps or 0.0) < LINK_SHARE * limits[pair.name][0]
    ]
    if not slow:
        return
    subject, meaning, names = _grouped(state, sorted(slow, key=lambda pair: (pair.src, pair.dst)), pairs)
    worst = min(slow, key=lambda pair: pair.copy_gbps or 0.0)
    yield Finding(
        "p2p-slower-than-expected",
        WARNING,
        subject,
        f"slower than pairs of the same kind or than the link allows: {meaning}",
        f"{names}; slowest {worst.name} {worst.copy_gbps:.1f} GB/s, its link allows {limits[worst.name][0]:.1f}, {path_words(worst.path)}",
        "compare link width and speed under load, look for PCIe errors; save a baseline when the board is built so",
    )
