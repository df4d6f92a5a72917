"""Snapshots: what is one and what is not, what is left out when names must not go along."""

from __future__ import annotations

import json

import pytest

from gpunode.snapshot import Snapshot, SnapshotError, dump, load, redact


def test_saves_and_loads(node):
    text = dump(node.data)
    assert load(text).data == node.data
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "a snapshot is a JSON object, this is list"),
        (None, "this is null"),
        ({"schema": "gpunode.snapshot/2"}, "schema is 'gpunode.snapshot/2'"),
        ({"host": 3}, "host is int, expected str"),
        ({"commands": []}, "commands is list, expected dict"),
        ({"commands": {"uname -r": "7.0"}}, "commands['uname -r'] is str, expected dict or null"),
        ({"commands": {"uname -r": {"rc": "0"}}}, "commands['uname -r'].rc is str, expected int"),
        ({"files": {"/proc/cmdline": 1}}, "files['/proc/cmdline'] is int"),
        ({"container": []}, "container is list"),
        ({"container": {"links": {"/a": {}}}}, "container.links['/a'] is dict"),
        ({"measured": {}}, "measured is dict, expected list"),
        ({"measured": [3]}, "measured[0] is int"),
        ({"measured": [{"src": -1, "dst": 0}]}, "measured[0].src is -1, expected the index of a GPU"),
        ({"measured": [{"src": 0, "dst": True}]}, "measured[0].dst is True"),
        ({"measured": [{"src": 0, "dst": 1, "copy_gbps": "53"}]}, "measured[0].copy_gbps is '53', expected a number or null"),
        ({"measured": [{"src": 0, "dst": 1, "data_ok": "yes"}]}, "measured[0].data_ok is 'yes'"),
        ({"measured": [{"src": 0, "dst": 1, "status": "fine"}]}, "expected one of ok, corrupt"),
    ],
)
def test_refused_by_name(data, why):
    with pytest.raises(SnapshotError) as refusal:
        Snapshot(data)
    assert why in str(refusal.value)


@pytest.mark.parametrize("text", ["{}", '{"host": "node1"}'])
def test_an_object_without_anything_of_a_snapshot_is_none(text):
    with pytest.raises(SnapshotError, match="no schema and none of"):
        load(text)


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-1.0"])
def test_rates_that_no_measurement_gives(rate):
    with pytest.raises(SnapshotError, match=r"measured\[0\].staged_gbps is .*: no measurement gives that"):
        load(f'{{"measured": [{{"src": 0, "dst": 1, "staged_gbps": {rate}}}]}}')


@pytest.mark.parametrize(
    ("measurement", "why"),
    [
        ({"patterns": ["?"]}, "measurement.patterns[0] is str, expected dict"),
        ({"host": 5}, "measurement.host is int, expected list"),
        ({"host": [None]}, "measurement.host[0] is null"),
        ({"links": {"0000:01:00.0": "?"}}, "measurement.links['0000:01:00.0'] is str, expected list"),
        ({"links": {"0000:01:00.0": [{"max_link_speed": "fast"}]}}, "max_link_speed is str, expected int or float"),
        ({"stuck": [{"gpus": [[1]]}]}, "measurement.stuck[0].gpus[0] is list, expected int"),
        ({"gpus": [{"index": True}]}, "measurement.gpus[0].index is bool, expected int"),
        ({"fatal": "x"}, "measurement.fatal is str, expected dict"),
    ],
)
def test_a_measurement_of_another_shape_is_refused_by_its_place(measurement, why):
    with pytest.raises(SnapshotError) as caught:
        Snapshot({"measurement": measurement})
    assert why in str(caught.value)


def test_a_pair_of_another_shape():
    with pytest.raises(SnapshotError, match=r"measured\[0\].path is list, expected str"):
        Snapshot({"measured": [{"src": 0, "dst": 1, "path": []}]})
    Snapshot({"measured": [{"src": 0, "dst": 1, "path": None}]})


def test_not_json():
    with pytest.raises(SnapshotError, match="not JSON"):
        load("{")


def test_states_of_readings():
    part = Snapshot(
        {
            "commands": {
                "a": {"rc": 0, "stdout": "x"},
                "b": None,
                "c": {"rc": 127, "stdout": ""},
                "d": {"rc": 124, "stdout": "part"},
                "e": {"rc": 3, "stdout": "out", "stderr": "said this\nand that"},
                "f": {"rc": 4},
                "g": {"stdout": "no code told"},
            },
            "files": {"/a": "text", "/b": None},
            "links": {"/a": "target"},
            "nodes": {"/dev/nvidia0": {"major": 195}, "/dev/nvidia1": None},
        }
    ).host
    states = {name: (part.command(name).state, part.command(name).why) for name in "abcdefgh"}
    assert states == {
        "a": ("value", ""),
        "b": ("missing", "the program does not exist"),
        "c": ("missing", "the program does not exist"),
        "d": ("not-read", "overran its deadline and was ended"),
        "e": ("not-read", "ended with 3: said this"),
        "f": ("not-read", "ended with 4"),
        "g": ("value", ""),
        "h": ("not-read", "was not run"),
    }
    assert [part.file(path).state for path in ("/a", "/b", "/c")] == ["value", "missing", "not-read"]
    assert part.link("/a").text == "target"
    assert part.node("/dev/nvidia0") == {"major": 195}
    assert part.node("/dev/nvidia1") is None
    assert part.has_nodes()


def test_redact_leaves_no_names():
    data = {
        "schema": "gpunode.snapshot/1",
        "host": "gpu7.example.org",
        "collected_at": "2026-11-30T12:00:00Z",
        "commands": {
            "nvidia-smi -q": {
                "rc": 0,
                "stdout": "    Serial Number                          : 1650000000001\n"
                "    GPU UUID : GPU-20adaf29-d256-518a-af56-597e4ed39cc2\n",
            },
            "nvidia-smi -q -x": {"rc": 0, "stdout": "<serial>1650000000001</serial><uuid>GPU-20ADAF29-d256-518a-af56-597e4ed39cc2</uuid>"},
            "dmesg": {
                "rc": 0,
                "stdout": "gpu7 kernel: mlx5 04:3f:72:aa:bb:cc at 10.1.2.3 and fe80::1 driver 595.58.03, gpu7.example.org, gpu77\n"
                "pci 0000:01:00.0: GPU-00000000-1111-4000-8000-000000000001\n",
            },
        },
        "files": {"/proc/cmdline": "root=UUID=11111111-2222-3333-4444-555555555555 ip=10.1.2.3"},
        "measured": [{"src": 0, "dst": 1}],
    }
    text = json.dumps(redact(data))
    for secret in ("1650000000001", "20adaf29", "20ADAF29", "04:3f:72", "10.1.2.3", "fe80::1", "gpu7.example", "11111111-2222", "gpu7 "):
        assert secret not in text
    for kept in ("0000:01:00.0", "595.58.03", "gpu77", "2026-11-30T12:00:00Z", "gpunode.snapshot/1"):
        assert kept in text
    cleaned = redact(data)
    assert cleaned["host"] == "host"
    assert cleaned["commands"]["nvidia-smi -q"]["stdout"].count("GPU-00000000-0000-4000-8000-000000000001") == 1
    assert "GPU-00000000-0000-4000-8000-000000000001" in cleaned["commands"]["nvidia-smi -q -x"]["stdout"]  # the same GPU
    assert data["host"] == "gpu7.example.org"


def test_redacted_snapshot_is_judged_the_same(node):
    before = [finding.id for finding in node.judge().findings]
    node.data = redact(node.data)
    assert [finding.id for finding in node.judge().findings] == before


def test_redact_needs_no_host():
    assert redact({}) == {}
