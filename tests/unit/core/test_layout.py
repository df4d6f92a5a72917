"""Layouts over nodes and NUMA nodes, and what cannot be laid out."""

from __future__ import annotations

import pytest

from gpunode.sglang.layout import LayoutError, group_flags, layout

TWO = {"a": 8, "b": 8}
NUMA = [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "gpus", "numa", "flags"),
    [
        ("auto", {"a": 8}, [], {}),
        ("auto", {"a": 0}, [], {}),
        ("auto", TWO, [], {"tp-size": 8, "pp-size": 2}),
        ("node", TWO, [], {"tp-size": 8, "pp-size": 2}),
        ("node", {"a": 8}, [], {"tp-size": 8, "pp-size": 1}),
        ("tp", {"a": 8}, [], {"tp-size": 8, "pp-size": 1}),
        ("tp", TWO, [], {"tp-size": 16, "pp-size": 1}),
        ("numa", {"a": 8}, NUMA, {"tp-size": 4, "pp-size": 2}),
        ("numa", TWO, NUMA, {"tp-size": 4, "pp-size": 4}),
        ("numa", {"a": 4}, [1, 1, 1, 1], {"tp-size": 4, "pp-size": 1}),
    ],
)
def test_layouts(kind, gpus, numa, flags):
    assert layout(kind, gpus, numa).flags() == flags


@pytest.mark.parametrize(
    ("kind", "gpus", "numa", "says"),
    [
        ("ring", {"a": 8}, [], "ring is no layout"),
        ("node", {"a": 8, "b": 7}, [], "b has 7"),
        ("tp", {"a": 8, "b": 0}, [], "no GPU was found on b"),
        ("numa", {"a": 8}, [], "none read"),
        ("numa", {"a": 2}, [0, -1], "not all known"),
        ("numa", {"a": 3}, [0, 0, 1], "2 on node 0, 1 on node 1"),
    ],
)
def test_what_cannot_be_laid_out(kind, gpus, numa, says):
    with pytest.raises(LayoutError, match=says):
        layout(kind, gpus, numa)


def test_ranks_follow_the_order_of_the_nodes():
    assert group_flags(["a", "b"], "b", "192.0.2.1", 20000) == {"nnodes": 2, "node-rank": 1, "dist-init-addr": "192.0.2.1:20000"}
    assert group_flags(["a"], "a", "192.0.2.1", 20000) == {}
    assert group_flags([], "a", "", 20000) == {}
