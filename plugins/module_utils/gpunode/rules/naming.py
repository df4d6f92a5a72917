"""Names for sets of pairs: not fifty-six findings but 'GPU3's link', 'all pairs across NUMA nodes', 'one switch'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..entities import Pair
    from ..state import State

_SHOWN: Final = 6
_PATH_WORDS: Final = {
    "PIX": "under one switch (PIX)",
    "PXB": "across switches below one root (PXB)",
    "PHB": "through one host bridge (PHB)",
    "NODE": "within a NUMA node (NODE)",
    "SYS": "across NUMA nodes (SYS)",
}


def path_words(path: str | None) -> str:
    """A path of `topo -m` in words."""
    if path and path.startswith("NV"):
        return f"over {path[2:]} NVLinks ({path})"
    return _PATH_WORDS.get(path or "", "of unknown path")


def name_gpus(numbers: Iterable[int]) -> str:
    """GPUs with neighbours drawn together: 'GPU0-3,6'."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "GPU" + ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def name_list(ends: Sequence[tuple[int, int]]) -> str:
    """All of some ordered pairs, one by one where they are few, else with sources drawn together that have the same targets."""
    if len(ends) <= _SHOWN:
        return ", ".join(f"GPU{source}->GPU{target}" for source, target in ends)
    gpus = {gpu for pair in ends for gpu in pair}
    others = [(source, target) for source in sorted(gpus) for target in sorted(gpus) if source != target and (source, target) not in ends]
    if 0 < len(others) <= _SHOWN:
        return f"{len(ends)}, {name_gpus(gpus)} with each other, except {name_list(others)}"
    targets: dict[int, set[int]] = {}
    for source, target in ends:
        targets.setdefault(source, set()).add(target)
    circles: dict[frozenset[int], set[int]] = {}
    for source, reached in targets.items():
        circles.setdefault(frozenset({source, *reached}), set()).add(source)
    closed = [circle for circle, sources in circles.items() if circle == sources]
    told = [f"{name_gpus(circle)} with each other" for circle in closed]
    fans: dict[frozenset[int], set[int]] = {}
    for source, reached in targets.items():
        if not any(source in circle for circle in closed):
            fans.setdefault(frozenset(reached), set()).add(source)
    told += [f"{name_gpus(sources)} -> {name_gpus(reached)}" for reached, sources in fans.items()]
    return f"{len(ends)}, " + "; ".join(told)


def name_pairs(bad: Sequence[Pair], measured: Sequence[Pair], state: State) -> tuple[str, str]:
    """Return (subject, what it means) for the pairs in ``bad`` out of all ``measured`` ones, the narrowest cause that fits them all."""
    wanted = {(pair.src, pair.dst) for pair in bad}
    every = {(pair.src, pair.dst) for pair in measured}
    gpus = {gpu for pair in every for gpu in pair}
    if len(wanted) == 1:
        return bad[0].name, path_words(bad[0].path)
    both = {frozenset(pair) for pair in wanted}
    if len(both) == 1:
        one, other = sorted(next(iter(both)))
        return f"GPU{one}<->GPU{other}", f"both directions, {path_words(bad[0].path)}"
    if wanted == every:
        return "all pairs", "every measured pair: a cause that all share (driver, IOMMU, module options, ACS)"
    if len(gpus) > 2 and (named := _by_gpu(wanted, every, gpus)):
        return named
    return _by_group(wanted, every, measured, state) or (
        few_of(bad),
        f"{len(bad)} of {len(measured)} pairs, no common cause in the topology",
    )


def _by_gpu(wanted: set[tuple[int, int]], every: set[tuple[int, int]], gpus: set[int]) -> tuple[str, str] | None:
    """Pairs that are exactly all pairs of some GPUs: their links or the GPUs themselves."""
    whole = sorted(gpu for gpu in gpus if {pair for pair in every if gpu in pair} <= wanted)
    if whole and len(whole) < len(gpus) - 1 and wanted == {pair for pair in every if set(pair) & set(whole)}:
        names = ", ".join(f"GPU{gpu}" for gpu in whole)
        return names, f"every pair of {names}: this GPU's link or the GPU itself" if len(whole) == 1 else f"every pair of {names}"
    for gpu in sorted(gpus):
        if wanted == {pair for pair in every if pair[0] == gpu}:
            return f"GPU{gpu}", f"every pair from GPU{gpu}: what it sends, its link"
        if wanted == {pair for pair in every if pair[1] == gpu}:
            return f"GPU{gpu}", f"every pair to GPU{gpu}: what it receives, its link"
    return None


def _by_group(wanted: set[tuple[int, int]], every: set[tuple[int, int]], measured: Sequence[Pair], state: State) -> tuple[str, str] | None:
    for path in sorted({pair.path for pair in measured if pair.path}):
        if wanted == {(pair.src, pair.dst) for pair in measured if pair.path == path}:
            cause = ": the link between the sockets" if path == "SYS" else ""
            return f"all pairs {path_words(path)}", f"all {len(wanted)} pairs {path_words(path)}{cause}"
    for bridge, members in _switches(state).items():
        names = ", ".join(f"GPU{gpu}" for gpu in sorted(members))
        if wanted == {pair for pair in every if len(members & set(pair)) == 1}:
            return f"switch {bridge}", f"every pair across the uplink of the switch {bridge} ({names})"
        if wanted == {pair for pair in every if members >= set(pair)}:
            return f"switch {bridge}", f"every pair under the switch {bridge} ({names})"
    nodes = numa_nodes(state)
    for node in sorted(set(nodes.values())):
        inside = {gpu for gpu, where in nodes.items() if where == node}
        if wanted == {pair for pair in every if inside >= set(pair)}:
            return f"NUMA node {node}", f"every pair within NUMA node {node}"
        if wanted == {pair for pair in every if pair[0] in inside and pair[1] not in inside}:
            return f"NUMA node {node}", f"every pair from NUMA node {node} to another: one direction of the link between the sockets"
    return None


def list_pairs(pairs: Sequence[Pair]) -> str:
    """The evidence 'pairs: …' for measured pairs."""
    return "pairs: " + name_list([(pair.src, pair.dst) for pair in pairs])


def few_of(pairs: Sequence[Pair]) -> str:
    """The first few pairs and how many more there are."""
    return ", ".join(pair.name for pair in pairs[:_SHOWN]) + (f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else "")


def numa_nodes(state: State) -> dict[int, str]:
    """GPU index to its NUMA node, as `topo -m` or sysfs tells it."""
    topology = state.topology
    if topology is not None and any(topology.numa_affinity):
        return {int(label[3:]): node for label, node in zip(topology.rows, topology.numa_affinity, strict=False) if node and node != "N/A"}
    found = {gpu.index: state.sysfs(gpu.bdf, "numa_node") for gpu in state.gpus if gpu.index is not None}
    return {index: node for index, node in found.items() if node and node != "-1"}


def _switches(state: State) -> dict[str, set[int]]:
    """Switches by their names to the indices of the GPUs below: bridges of sysfs, the nearest of those that share their GPUs.

    Where no bridge is known to have several GPUs below, groups that `topo -m` joins by PIX.
    """
    indexed = {gpu.index: gpu for gpu in state.gpus if gpu.index is not None}
    nearest: dict[frozenset[int], str] = {}
    for gpu in indexed.values():
        for bridge in gpu.path:  # root port first, so that the nearest bridge stays
            nearest[frozenset(index for index, other in indexed.items() if bridge in other.path)] = bridge
    groups = {bridge: set(members) for members, bridge in nearest.items() if len(members) > 1}
    if not groups and state.topology is not None:
        for label, row in zip(state.topology.rows, state.topology.matrix, strict=True):
            members = {int(label[3:])} | {int(other[3:]) for other, cell in zip(state.topology.gpus, row, strict=True) if cell == "PIX"}
            if len(members) > 1:
                groups["of " + ", ".join(f"GPU{gpu}" for gpu in sorted(members))] = members
    return groups
