"""Every fault of a link is found, on the pair that has it and on no other."""

from __future__ import annotations

import pytest
from tests.unit.probe.conftest import statuses


@pytest.mark.parametrize(
    ("fault", "copy", "sm_read", "sm_write"),
    [
        ("corrupt", "differs in", "wrong data read", "differs in"),
        ("zeros", "zeros", "wrong data read", "zeros"),
        ("lost", "unchanged", "ok", "unchanged"),
        ("mirror", "mirrored", "wrong data read", "unchanged"),
    ],
)
def test_wrong_data_at_the_destination(lab, fault, copy, sm_read, sm_write):
    lab.fabric(f"fault 1:2 {fault}", gpus=3)
    result = lab.measure(pairs=((1, 2), (2, 1), (0, 2)))
    assert statuses(result) == {(0, 2): "ok", (1, 2): "corrupt", (2, 1): "ok"}
    pair = result["pairs"][1]
    assert pair["data_ok"] is False
    assert pair["checks"]["copy"].startswith(copy)
    assert pair["checks"]["sm_read"] == sm_read
    assert pair["checks"]["sm_write"].startswith(sm_write)
    assert copy in pair["reason"]


def test_corruption_is_located(lab):
    """The stand-in flips one bit a MiB, from a third of each copy on."""
    lab.fabric("fault 0:1 corrupt")
    pair = lab.measure(pairs=((0, 1),))["pairs"][0]
    assert pair["checks"]["copy"].startswith("differs in 6 of 2048 blocks of 4 KiB, first at offset ")


def test_a_copy_that_works_and_kernels_that_do_not_see_each_other(lab):
    """Copy-then-read tests pass here; only kernels that are both alive show it."""
    lab.fabric("fault 0:1 late")
    quick = lab.measure()
    assert statuses(quick) == {(0, 1): "ok", (1, 0): "ok"}
    full = lab.measure(measure="full")
    assert statuses(full) == {(0, 1): "corrupt", (1, 0): "ok"}
    pair = full["pairs"][0]
    assert pair["resident_ok"] is False
    assert "of 400 rounds, then nothing for 2 s" in pair["resident_detail"]


def test_no_access(lab):
    lab.fabric("fault 0:1 no-access")
    result = lab.measure(measure="full")
    assert statuses(result) == {(0, 1): "no-access", (1, 0): "ok"}
    pair = result["pairs"][0]
    assert pair["can_access"] is False
    assert pair["data_ok"] is True
    assert pair["read_latency_us"] is None
    assert pair["copy_gbps"] > 15  # bandwidth alone does not show the loss


def test_staged_shows_in_latency_alone(lab):
    lab.fabric("fault 0:1 staged")
    pair, healthy = lab.measure(light=False)["pairs"]
    assert pair["status"] == "ok"
    assert pair["read_latency_us"] == pytest.approx(17, rel=0.05)
    assert pair["copy_gbps"] == pytest.approx(healthy["copy_gbps"], rel=0.1)


def test_a_slow_link(lab):
    lab.fabric("fault 0:1 slow")
    pair, healthy = lab.measure(light=False)["pairs"]
    assert pair["copy_gbps"] == pytest.approx(healthy["copy_gbps"] / 4, rel=0.05)


def test_a_rate_that_is_not_possible_is_reported_as_measured(lab):
    lab.fabric("fault 0:1 impossible")
    assert lab.measure(light=False)["pairs"][0]["copy_gbps"] == pytest.approx(128, rel=0.02)


def test_patterns_leave_bad_pairs_out_and_prove_the_data_of_the_others(lab):
    lab.fabric("fault 0:1 corrupt", gpus=3)
    result = lab.measure(measure="full")
    everything = next(pattern for pattern in result["patterns"] if pattern["name"] == "all-to-all")
    assert everything["left_out"] == [[0, 1]]
    assert everything["pairs"] == 5
    assert everything["status"] == "ok"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("fault init 3", 3, "HMM"),
        ("fault init 802", 802, "nvidia-fabricmanager"),
        ("fault init 803", 803, "different versions"),
        ("fault init 999", 999, "/dev/nvidia-uvm"),
        ("fault init 100", 100, "device nodes"),
        ("set hmm on", 3, "HMM"),
        ("set nodes required", 100, "device nodes"),
    ],
)
def test_the_driver_does_not_start(lab, line, code, words):
    lab.fabric(line)
    result = lab.measure()
    assert result["pairs"] == []
    assert result["fatal"]["code"] == code
    assert f"({code})" in result["fatal"]["summary"]
    assert words in result["fatal"]["summary"]
    assert result["complete"] is False


def test_no_driver_at_all(lab, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    result = lab.measure(pairs=((0, 1),))
    assert "libcuda.so.1" in result["fatal"]["summary"]
    assert statuses(result) == {(0, 1): "skipped"}
