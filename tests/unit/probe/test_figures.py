"""What the probe measures is what the fabric does, and what cannot be measured is said so."""

from __future__ import annotations

import pytest
from tests.unit.probe.conftest import BUS_IDS, statuses

from gpunode_tools.probe import Options
from gpunode_tools.probe.measure import PAIR_KEYS


def test_quick_on_a_whole_fabric(lab):
    lab.fabric("link near latency=0.75", "link far latency=1.3", gpus=4)
    result = lab.measure(light=False)
    assert statuses(result) == {(a, b): "ok" for a in range(4) for b in range(4) if a != b}
    for pair in result["pairs"]:
        near = pair["src"] // 2 == pair["dst"] // 2
        assert pair["copy_gbps"] == pytest.approx(53 if near else 40, rel=0.015)
        assert pair["read_latency_us"] == pytest.approx(0.75 if near else 1.3, rel=0.05)
        assert pair["checks"] == {"copy": "ok", "sm_read": "ok", "sm_write": "ok"}
        assert pair["data_ok"] is True
        assert set(PAIR_KEYS) <= set(pair)
        assert pair["bidirectional_gbps"] is None
    assert [gpu["bus_id"] for gpu in result["gpus"]] == BUS_IDS[:4]
    assert result["gpus"][0]["buffer_mib"] == 256
    assert result["simulated"] is True
    assert result["complete"] is True
    assert (result["fatal"], result["workers"], result["stuck"], result["interrupted"]) == (None, [], [], False)
    for copies in result["host"]:
        assert (copies["status"], copies["data_ok"]) == ("ok", True)
        assert copies["to_gpu_gbps"] == pytest.approx(55, rel=0.02)
        assert copies["from_gpu_gbps"] == pytest.approx(55, rel=0.02)
    assert [copies["gpu"] for copies in result["host"]] == [0, 1, 2, 3]
    pairs = [event for event in lab.events if event["event"] == "pair"]
    assert [event["done"] for event in pairs] == list(range(1, 13))


def test_full_adds_both_directions_kernels_and_patterns(lab):
    lab.fabric("link all sm_read=45 sm_write=47 both=64 staged=30", gpus=3)
    result = lab.measure(measure="full", light=False)
    pair = result["pairs"][0]
    assert pair["bidirectional_gbps"] == pytest.approx(64, rel=0.1)  # concurrent streams of the stand-in start one after the other
    assert pair["sm_read_gbps"] == pytest.approx(45, rel=0.02)
    assert pair["sm_write_gbps"] == pytest.approx(47, rel=0.02)
    assert pair["staged_gbps"] == pytest.approx(30, rel=0.02)
    assert pair["resident_ok"] is True
    assert pair["resident_round_us"] == pytest.approx(1.5, rel=0.1)
    names = [pattern["name"] for pattern in result["patterns"]]
    assert names[0] == "all-to-all"
    assert {"one-to-all from GPU0", "all-to-one to GPU2"} <= set(names)
    assert all(pattern["status"] == "ok" and pattern["data_ok"] for pattern in result["patterns"])
    one_to_all = next(pattern for pattern in result["patterns"] if pattern["name"] == "one-to-all from GPU0")
    assert one_to_all["total_gbps"] == pytest.approx(57, rel=0.1)  # the port of one GPU


@pytest.mark.parametrize("late", [0, 40])
def test_nothing_begins_before_the_time_does(lab, late):
    """A GPU comes back to a waiting stream when it likes: on real ones a total of three times the port's rate was seen."""
    lab.fabric(f"set gate_late_ms {late}", "link all both=100", gpus=3)
    result = lab.measure(measure="full", light=False)
    assert all(pair["bidirectional_gbps"] <= 100 * 1.02 for pair in result["pairs"])
    totals = {pattern["name"]: pattern["total_gbps"] for pattern in result["patterns"]}
    assert totals["all-to-all"] <= 3 * 57 * 1.02  # a port of 57 GB/s each way
    assert all(total <= 57 * 1.02 for name, total in totals.items() if name != "all-to-all")
    assert all(total >= 57 * 0.8 for name, total in totals.items() if name != "all-to-all")


def test_only_the_pairs_that_were_asked_for(lab):
    lab.fabric(gpus=3)
    assert statuses(lab.measure(pairs=((2, 0), (0, 1)))) == {(2, 0): "ok", (0, 1): "ok"}


def test_a_pair_that_does_not_exist(lab):
    lab.fabric()
    result = lab.measure(pairs=((0, 7),))
    assert result["pairs"][0]["status"] == "error"
    assert "there is no GPU7: the driver lists 2" in result["pairs"][0]["reason"]


@pytest.mark.parametrize("gpus", [1, 10, 16])
def test_from_one_gpu_to_sixteen(lab, gpus):
    """CUDA allows eight peer connections a device: with more GPUs the probe must let go of old ones."""
    lab.fabric(gpus=gpus)
    pairs = None if gpus == 1 else (*tuple((0, b) for b in range(1, gpus)), (9, 8), (8, 9))
    result = lab.measure(pairs=pairs)
    assert set(statuses(result).values()) <= {"ok"}
    assert len(result["pairs"]) == (0 if gpus == 1 else gpus + 1)
    assert len(result["host"]) == gpus
    assert {copies["status"] for copies in result["host"]} == {"ok"}
    assert result["complete"] is True


def test_all_pairs_at_once_stays_within_the_peer_limit(lab):
    lab.fabric(gpus=11)
    result = lab.measure(measure="full", pairs=tuple((a, b) for a in range(11) for b in range(11) if (b - a) % 11 in {1, 4, 5}))
    assert {pattern["status"] for pattern in result["patterns"]} == {"ok"}
    assert [p["name"] for p in result["patterns"] if "all-to-all" in p["name"]] == ["all-to-all 1/2", "all-to-all 2/2"]
    assert set(statuses(result).values()) == {"ok"}


def test_gpus_in_use_are_measured_lightly(lab):
    lab.fabric(gpu="memory_mib=97887 used_mib=90000")
    result = lab.measure(light="auto")
    assert statuses(result) == {(0, 1): "ok", (1, 0): "ok"}
    assert all(pair["light"] for pair in result["pairs"])
    assert {gpu["buffer_mib"] for gpu in result["gpus"]} == {8}


def test_free_gpus_are_not(lab):
    lab.fabric()
    result = lab.measure(light="auto", pairs=((0, 1),))
    assert result["pairs"][0]["light"] is False


def test_below_700_mib_free_nothing_is_touched(lab):
    lab.fabric(gpu="memory_mib=97887 used_mib=97288")
    result = lab.measure(light="auto")
    assert statuses(result) == {(0, 1): "skipped", (1, 0): "skipped"}
    assert "599 MiB free" in result["pairs"][0]["reason"]
    assert "700 MiB" in result["pairs"][0]["reason"]


def test_filled_to_the_last_100_mib(lab):
    """Without the courtesy of NVML the driver's own out-of-memory must end in a clean report, too."""
    lab.fabric(gpu="memory_mib=97887 used_mib=97787")
    result = lab.measure(light=False)
    assert statuses(result) == {(0, 1): "skipped", (1, 0): "skipped"}
    assert result["pairs"][0]["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert result["complete"] is True


def test_memory_for_a_context_but_not_for_buffers(lab):
    lab.fabric(gpu="memory_mib=97887 used_mib=97307")
    result = lab.measure(light=False)
    assert statuses(result) == {(0, 1): "skipped", (1, 0): "skipped"}
    assert "out of memory" in result["pairs"][0]["reason"]


def test_buffers_shrink_with_the_room(lab):
    lab.fabric(gpu="memory_mib=97887 used_mib=97187")
    result = lab.measure(light=False)
    assert statuses(result) == {(0, 1): "ok", (1, 0): "ok"}
    assert 8 <= result["gpus"][0]["buffer_mib"] < 64


def test_without_the_ptx_compiler_copies_and_data_are_still_measured(lab):
    lab.fabric("set jit missing")
    result = lab.measure(measure="full")
    for pair in result["pairs"]:
        assert pair["status"] == "ok"
        assert pair["read_latency_us"] is None
        assert pair["sm_read_gbps"] is None
        assert pair["copy_gbps"] > 15
        assert pair["bidirectional_gbps"] > 15
        assert "libnvidia-ptxjitcompiler.so.1" in pair["no_kernels"]
        assert "221" in pair["no_kernels"]


def test_without_stream_wait_values(lab):
    lab.fabric("set wait_value missing")
    result = lab.measure(light=False, pairs=((0, 1),))
    assert result["pairs"][0]["copy_gbps"] == pytest.approx(40, rel=0.1)


def test_hidden_gpus(lab, monkeypatch):
    lab.fabric(gpus=3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    result = lab.measure()
    assert [gpu["bus_id"] for gpu in result["gpus"]] == [BUS_IDS[2], BUS_IDS[0]]
    assert result["visible_devices"] == "2,0"
    assert statuses(result) == {(0, 1): "ok", (1, 0): "ok"}


def test_all_gpus_hidden(lab, monkeypatch):
    lab.fabric()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = lab.measure()
    assert result["fatal"]["code"] == 100
    assert "CUDA_VISIBLE_DEVICES" in result["fatal"]["summary"]


def test_mig_slices_are_named_and_have_no_access(lab):
    lab.fabric("link all access=0", gpu='name="NVIDIA H200 MIG 1g.18gb"')
    result = lab.measure()
    assert result["gpus"][0]["mig"] is True
    assert result["gpus"][0]["uuid"].startswith("MIG-")
    assert statuses(result) == {(0, 1): "no-access", (1, 0): "no-access"}


def test_the_program_carries_its_options_and_is_python_39():
    import ast

    program = Options(pairs=((3, 4),), pair_timeout_s=7.5).program().decode()
    assert "[[3, 4]]" in program
    assert "7.5" in program
    tree = ast.parse(program, feature_version=(3, 9))
    sources = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 5000
    ]
    assert len(sources) == 2
    for source in sources:
        ast.parse(source, feature_version=(3, 9))
