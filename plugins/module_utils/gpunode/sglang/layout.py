"""How a model is laid out over GPUs: tensor parallelism within what is close, pipeline stages between what is far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS: Final = ("auto", "tp", "node", "numa")


class LayoutError(ValueError):
    """A layout that these nodes cannot have."""


@dataclass(frozen=True)
class Layout:
    """``tp`` GPUs share each layer, ``pp`` stages share the layers, over ``nodes`` nodes; empty flags leave the profile's alone."""

    tp: int
    pp: int
    nodes: int
    reason: str

    def flags(self) -> dict[str, Any]:
        """The flags of sglang that say so."""
        return {"tp-size": self.tp, "pp-size": self.pp} if self.tp else {}


def layout(kind: str, gpus: Mapping[str, int], numa: Sequence[int] = ()) -> Layout:
    """Lay a model out over nodes, given how many GPUs each has (by name, in order of rank).

    ``auto``: one node keeps its profile's layout; several nodes are laid out as ``node``. ``tp``: every GPU shares every layer. ``node``:
    the GPUs of a node share its layers, each node is a stage. ``numa``: the same by NUMA node, for which ``numa`` gives the NUMA node of
    each GPU of a node (-1 unknown). Every layer's all-reduce crosses what TP spans, a stage hands on its activations once: so TP stays
    where the links are short. Raises LayoutError with the node or figure that does not fit.
    """
    if kind not in KINDS:
        raise LayoutError(f"{kind} is no layout: one of {', '.join(KINDS)}")
    nodes = len(gpus)
    if kind == "auto" and nodes == 1:
        return Layout(0, 0, 1, "one node: the profile's own layout")
    lacking = [name for name, count in gpus.items() if count < 1]
    if lacking:
        raise LayoutError(f"no GPU was found on {', '.join(lacking)}")
    if len(set(gpus.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in gpus.items())
        raise LayoutError(f"the nodes of a server need the same number of GPUs: {told}")
    each = next(iter(gpus.values()))
    if kind == "tp":
        return Layout(each * nodes, 1, nodes, f"every one of {each * nodes} GPUs shares every layer")
    if kind in {"auto", "node"}:
        return Layout(each, nodes, nodes, f"the {each} GPUs of a node share its layers, {nodes} nodes are {nodes} stages")
    groups = sorted(set(numa))
    if len(numa) != each or -1 in groups:
        raise LayoutError(f"the NUMA nodes of {each} GPUs are not all known ({', '.join(map(str, numa)) or 'none read'})")
    counts = {number: list(numa).count(number) for number in groups}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} on node {number}" for number, count in counts.items())
        raise LayoutError(f"stages need the same number of GPUs, the NUMA nodes have {told}")
    share = each // len(groups)
    stages = len(groups) * nodes
    return Layout(share, stages, nodes, f"the {share} GPUs of a NUMA node share its layers, {stages} NUMA nodes are {stages} stages")


def group_flags(names: Sequence[str], name: str, address: str, port: int) -> dict[str, Any]:
    """The flags that make one node a rank of a server: none for a node that is a server by itself."""
    if len(names) < 2:
        return {}
    return {"nnodes": len(names), "node-rank": list(names).index(name), "dist-init-addr": f"{address}:{port}"}
