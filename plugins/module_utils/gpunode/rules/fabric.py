"""Rules about NVLink: links that are down, GPUs that left the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import ERROR, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..state import State


def check_fabric(state: State) -> Iterator[Finding]:
    """Yield findings about NVLink that need no baseline: differences between equal GPUs, a fabric that did not come up."""
    told: dict[str, list[str]] = {}
    _inactive(state, told)
    _outside(state, told)
    for gpu in state.gpus:
        if gpu.info and gpu.info.fabric_state not in {None, "Completed"}:
            told.setdefault(gpu.name, []).append(f"nvidia-smi -q: fabric state {gpu.info.fabric_state}")
        elif gpu.info and gpu.info.fabric_status not in {None, "Success"}:
            told.setdefault(gpu.name, []).append(f"nvidia-smi -q: fabric status {gpu.info.fabric_status}")
    status = state.p2p_status.get("n")
    if status is not None and state.has_nvlink and not any("OK" in row for row in status.matrix):
        told.setdefault("all pairs", []).append("topo -m shows NVLinks, topo -p2p n offers none of them")
    for name, evidence in sorted(told.items()):
        yield Finding(
            "nvlink-lost",
            ERROR,
            name,
            f"NVLink of {name} is not whole",
            "; ".join(evidence),
            "systemctl status nvidia-fabricmanager; nvidia-smi nvlink -s; reset the GPUs together or reboot; reseat bridges",
            "vllm-project/vllm#16336",
        )


def _inactive(state: State, told: dict[str, list[str]]) -> None:
    """Fewer active links than the best GPU of the same name."""
    names = {gpu.index: gpu.info.name for gpu in state.gpus if gpu.index is not None and gpu.info}
    active = {index: sum(1 for speed in links if speed is not None) for index, links in state.nvlinks.items()}
    for index, count in active.items():
        best = max(other for number, other in active.items() if names.get(number) == names.get(index))
        if count < best:
            told.setdefault(f"GPU{index}", []).append(f"nvidia-smi nvlink -s: {count} of {best} links are active")


def _outside(state: State, told: dict[str, list[str]]) -> None:
    """A GPU without any NVLink while all others are joined with each other."""
    topology = state.topology
    if topology is None or len(topology.rows) < 3 or not topology.complete:
        return
    joined = [[cell.startswith("NV") for cell in row] for row in topology.matrix]
    alone = [index for index, row in enumerate(joined) if not any(row)]
    rest = [index for index in range(len(joined)) if index not in alone]
    if len(rest) > 1 and all(joined[one][other] for one in rest for other in rest if one != other):
        for index in alone:
            told.setdefault(topology.rows[index], []).append("nvidia-smi topo -m: no NVLink, while all other GPUs have some")
