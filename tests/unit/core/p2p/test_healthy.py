"""A healthy host raises no alarm: what tools cry wolf about is here as well (idle links, SrcValid+, 'Translated' with the IOMMU off)."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 16])
def test_healthy_node_has_no_finding(make, count):
    judgement = make(count).judge(expect_gpus=count)
    assert [finding.to_dict() for finding in judgement.findings] == []
    assert (judgement.verdict, judgement.exit_code) == ("pass", 0)


def test_result_has_the_contracts_keys(node):
    result = node.judge().to_dict()
    assert result["schema"] == "gpunode.p2p/1"
    assert result["topology"]["matrix"][0][:2] == ["X", "NODE"]
    assert result["topology"]["gpus"][7] == "GPU7"
    assert result["p2p_status"]["r"][0][1] == "OK"
    assert {
        "src",
        "dst",
        "path",
        "can_access",
        "copy_gbps",
        "bidirectional_gbps",
        "sm_read_gbps",
        "read_latency_us",
        "data_ok",
        "status",
    } <= set(result["pairs"][0])
    assert result["pairs"][0]["path"] == "NODE"
    assert len(result["gpus"]) == 8
    assert result["simulated"] is False


def test_gpus_that_only_the_topology_tells(node):
    node.data = {"commands": {"nvidia-smi topo -m": node.commands["nvidia-smi topo -m"]}}
    assert node.judge().to_dict()["gpus"] == [{"index": index} for index in range(8)]


def test_host_that_nobody_measured_is_unknown_not_fine(node):
    node.data.pop("measured")
    judgement = node.judge()
    assert (judgement.verdict, judgement.exit_code) == ("unknown", 3)
    assert node.judge(measured=False).exit_code == 0


def test_empty_snapshot_could_not_tell(make):
    empty = make()
    empty.data = {"schema": "gpunode.snapshot/1"}
    judgement = empty.judge()
    assert judgement.exit_code == 3
    assert {finding.subject for finding in judgement.findings if finding.required} == {"GPU count", "driver", "pairs"}


def test_machine_without_gpus_is_no_failure(make):
    machine = make()
    machine.data = {
        "files": {
            "/proc/driver/nvidia/version": None,
            "/sys/bus/pci/devices/0000:00:02.0/vendor": "0x1a03\n",
            "/sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
        }
    }
    judgement = machine.judge()
    assert (judgement.exit_code, len(judgement.findings)) == (3, 1)
    assert machine.judge(expect_gpus=8).exit_code == 1


def test_translated_in_the_log_alone_says_nothing(node):
    assert "Translated" in node.commands["dmesg"]["stdout"]
    assert "iommu-translated" not in node.found()


def test_simulated_is_labelled(node):
    node.smi("Server Edition", "Server Edition (simulated)", 1)
    assert node.judge().to_dict()["simulated"] is True


def test_h200_sample_is_healthy(samples):
    import json
    import re

    folder = samples / "host-h200-x2"

    def text(name: str) -> str:
        return (folder / f"{name}.txt").read_text()

    commands = {"nvidia-smi topo -m": {"rc": 0, "stdout": text("topo-m")}, "nvidia-smi -q -x": {"rc": 0, "stdout": text("smi-q-xml")}}
    commands |= {f"nvidia-smi topo -p2p {letter}": {"rc": 0, "stdout": text(f"topo-p2p-{letter}")} for letter in "rwnap"}
    commands["nvidia-smi nvlink -s"] = {"rc": 0, "stdout": text("nvlink")}
    files = {match[1]: match[2] + "\n" for match in re.finditer(r"=== (\S+)\n(.*?)(?=\n=== |\n\[exit)", text("proc-nvidia"), re.DOTALL)}
    files |= dict(line.split(": ", 1) for line in text("sys-module").splitlines() if ": " in line)
    pairs = [
        {"src": one, "dst": 1 - one, "can_access": True, "copy_gbps": 394.8, "read_latency_us": 0.849, "data_ok": True, "status": "ok"}
        for one in (0, 1)
    ]
    from gpunode.judge import judge
    from gpunode.snapshot import load

    judgement = judge(load(json.dumps({"commands": commands, "files": files, "measured": pairs})))
    assert {finding.severity for finding in judgement.findings} == {"unknown"}  # lspci, IOMMU and the log were not captured
    assert judgement.exit_code == 0
