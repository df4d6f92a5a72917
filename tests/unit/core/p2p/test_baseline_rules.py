"""Against the baseline: suspects that changed first, names for what became slower, differences of topology."""

from __future__ import annotations

import json

import pytest

from gpunode.rules.baseline import BaselineError, build, is_foreign, load
from gpunode.snapshot import Snapshot
from gpunode.state import State


@pytest.fixture
def before(make):
    return json.loads(json.dumps(build(State(Snapshot(make().data)), "2026-11-01T00:00:00Z")))


def across(one, other):
    return (one < 4) != (other < 4)


def test_nothing_changed(node, before):
    judgement = node.judge(before)
    assert judgement.findings == []
    assert judgement.to_dict()["baseline"] == {
        "saved_at": "2026-11-01T00:00:00Z",
        "host": "node1",
        "changed": [],
        "not_kept": [],
        "not_read": [],
    }


def test_within_tolerance(node, before):
    node.each(across, copy_gbps=37.0)
    assert node.found(before) == {}
    assert node.found(before, tolerance_pct=5.0) == {"p2p-slower-than-baseline": "error"}


def test_all_pairs_across_numa_nodes_after_a_kernel_update(node, before):
    node.commands["uname -r"]["stdout"] = "7.0.16-2-pve\n"
    node.links["/lib/modules/7.0.16-2-pve/build"] = "/usr/src/linux-headers-7.0.16-2-pve"
    node.commands["dkms status"]["stdout"] += "nvidia/595.58.03, 7.0.16-2-pve, x86_64: installed\n"
    node.files["/proc/cmdline"] = "BOOT_IMAGE=/boot/vmlinuz-7.0.16-2-pve root=/dev/mapper/pve-root ro quiet nokaslr\n"
    node.files["/sys/class/dmi/id/bios_version"] = "1.8\n"
    node.each(across, copy_gbps=20.0)
    judgement = node.judge(before)
    assert [change["what"] for change in judgement.changed] == ["kernel", "kernel command line", "BIOS"]
    assert judgement.changed[1] == {"what": "kernel command line", "before": "amd_iommu=off iommu=off", "after": "nokaslr"}
    finding = node.only("p2p-slower-than-baseline", before)
    assert finding.subject == "all pairs across NUMA nodes (SYS)"
    assert "kernel 7.0.14-14-pve -> 7.0.16-2-pve" in finding.evidence
    assert "40.0 -> 20.0 GB/s, -50 %" in finding.evidence
    assert node.found(before)["environment-changed"] == "info"


@pytest.mark.parametrize(("key", "value"), [("bidirectional_gbps", 100.0), ("sm_read_gbps", 50.0)])
def test_other_rates(node, before, key, value):
    for pair in before["pairs"]:
        pair[key] = value
    node.each(lambda one, other: 3 in {one, other}, **{key: value / 2})
    assert node.only("p2p-slower-than-baseline", before).subject == "GPU3"


def test_latency_that_grew(node, before):
    node.each(lambda one, other: one == 3, read_latency_us=2.4)
    finding = node.only("p2p-slower-than-baseline", before)
    assert "read latency is higher" in finding.summary
    assert "1.30 -> 2.40 us" not in finding.evidence  # the worst one is within the node
    assert "0.75 -> 2.40 us" in finding.evidence


def test_slow_by_design_is_no_news(node):
    """A board with a narrow slot: uneven without a baseline, as ever with one."""
    node.each(lambda one, other: 3 in {one, other}, copy_gbps=13.0)
    assert node.found() == {"p2p-slower-than-expected": "warning"}
    assert node.found(build(State(Snapshot(node.data)), "then")) == {}


def test_rates_of_busy_gpus_are_not_compared(node, before):
    node.data["measurement"]["mode"] = "light"
    node.each(lambda one, other: True, copy_gbps=2.0)
    assert node.found(before) == {}


def test_rates_of_a_light_baseline_are_not_compared(node, before):
    for pair in before["pairs"]:
        pair.update(light=True, copy_gbps=500.0)
    finding = node.only("baseline-incomplete", before)
    assert (finding.severity, finding.subject, finding.required) == ("unknown", "all pairs", False)
    assert node.judge(before).verdict == "pass"


def test_patterns(node, before):
    before["measurement"]["patterns"] = [{"name": "ring", "total_gbps": 300.0}, {"name": "gone"}]
    node.data["measurement"]["patterns"] = [{"name": "ring", "status": "ok", "total_gbps": 200.0}, {"name": "new"}]
    assert node.only("p2p-slower-than-baseline", before).subject == "pattern ring"


def test_gpu_of_the_baseline_is_gone(make, before):
    seven = make(7)
    finding = seven.only("gpu-missing", before)
    assert (finding.severity, finding.subject) == ("error", "0000:e1:00.0")
    assert "7 of 8" in finding.summary


def test_gpu_gone_and_no_addresses(node, before, texts):
    del node.commands["nvidia-smi -q"]
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(7)
    node.files.clear()
    node.files["/sys/module/nvidia/version"] = "595.58.03"
    before["gpus"] = before["gpus"][:3]
    assert node.found(before)["gpu-missing"] == "error"


def test_gpu_at_another_address(node, before):
    before["gpus"][0]["bdf"] = "0000:99:00.0"
    finding = node.only("topology-changed", before)
    assert "moved from 0000:99:00.0 to 0000:01:00.0" in finding.evidence
    before["gpus"][0].pop("uuid")
    assert node.found(before) == {}


def test_uuids_that_are_redacted_to_one_tell_nothing(node, before):
    for gpu in before["gpus"]:
        gpu["uuid"] = before["gpus"][0]["uuid"]
    assert node.found(before) == {}


def test_path_changed(node, before):
    for row in before["topology"]["matrix"]:
        row[:] = ["PIX" if cell == "NODE" else cell for cell in row]
    finding = node.only("topology-changed", before)
    assert finding.severity == "warning"
    assert finding.evidence == "PIX -> NODE: 24, GPU0-3 with each other; GPU4-7 with each other"


def test_fewer_nvlinks(node, before, texts):
    before["topology"]["matrix"] = [["X" if one == other else "NV18" for other in range(8)] for one in range(8)]
    before["environment"]["driver"] = "580.159.04"
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(8, lambda one, other, _: "X" if one == other else "NV17")
    finding = node.only("nvlink-lost", before)
    assert finding.severity == "error"
    assert "driver 580.159.04 -> 595.58.03" in finding.evidence


def test_topology_that_is_missing_on_either_side(node, before):
    before["topology"] = None
    assert node.found(before) == {}
    node.commands["nvidia-smi topo -m"] = None
    assert node.found(before) == {"not-readable": "unknown"}


def test_topology_with_fewer_gpus_compares_those_that_are_there(make, before, texts):
    four = make(4)
    four.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(4, lambda one, other, _: "X" if one == other else "NODE")
    assert "topology-changed" not in four.found(before)


def test_access_that_is_gone(make, before, texts):
    for gpu in before["gpus"]:
        gpu["name"] = "NVIDIA GeForce RTX 5090"
    host = make()
    host.commands["nvidia-smi -q"]["stdout"] = texts.smi(8, "NVIDIA GeForce RTX 5090")
    host.commands["nvidia-smi topo -p2p r"]["stdout"] = texts.status(8, "GNS")
    host.each(lambda one, other: True, status="no-access", can_access=False)
    severities = {finding.severity for finding in host.judge(before).findings if finding.id == "p2p-no-access"}
    assert severities == {"error", "warning"}  # a warning without a baseline, an error against it


def test_access_that_is_gone_is_told_once(node, before):
    node.pair(0, 1).update(status="no-access", can_access=False)
    assert node.only("p2p-no-access", before).severity == "error"


def test_narrow_links_of_the_baseline_are_no_news(node, before):
    node.files["/sys/bus/pci/devices/0000:21:00.0/current_link_width"] = "8\n"
    node.data.pop("measured")
    before["gpus"][1]["link_width"] = 8
    before["environment"]["link_width"] = (
        "x16 (" + ", ".join(gpu["bdf"] for gpu in before["gpus"] if gpu["index"] != 1) + "); x8 (0000:21:00.0)"
    )
    assert node.found(before, measured=False) == {"pcie-width-reduced": "info"}


def test_boot_time_limits_and_bars_of_the_baseline_are_no_news(make):
    host = make()
    host.commands["dmesg"]["stdout"] += (
        "pci 0000:21:00.0: 31.5 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:20:01.1 "
        "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
    )
    host.smi("Total                             : 131072 MiB", "Total                             : 256 MiB")
    known = build(State(Snapshot(host.data)), "then")
    assert set(host.found()) == {"pcie-width-reduced", "rebar-small"}
    assert host.found(known) == {"pcie-width-reduced": "info"}


def test_bar_that_shrank(node, before):
    node.smi("Total                             : 131072 MiB", "Total                             : 65536 MiB", 1)
    assert "baseline 131072 MiB" in node.only("rebar-small", before).evidence


def test_container_driver_and_settings_are_suspects(node, before):
    node.data["container"] = {"vmid": 101, "links": {"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.595.58.03"}}
    before["environment"].update(container_driver="590.48.01", registry_dwords="", module_options="nvidia a=1", hmm_disabled="N")
    judgement = node.judge(before)
    assert [change["what"] for change in judgement.changed] == [
        "driver in the container",
        "uvm_disable_hmm",
        "RegistryDwords of the module",
        "options in modprobe.d",
    ]
    assert judgement.changed[2]["before"] == "(empty)"


def test_boot_image_alone_is_no_change_of_the_command_line(node, before):
    before["environment"]["cmdline"] = before["environment"]["cmdline"].replace("7.0.14-14-pve", "6.8.12-43-pve")
    assert node.judge(before).changed == []
    before["environment"]["cmdline"] += " nokaslr"
    assert node.judge(before).changed == [{"what": "kernel command line", "before": "nokaslr", "after": "(nothing added)"}]
    before["environment"]["cmdline"] = "BOOT_IMAGE=x root=/dev/mapper/pve-root ro quiet amd_iommu=off"
    assert node.judge(before).changed[0]["before"] == "(nothing removed)"


def test_load_takes_baselines_and_snapshots(node, before):
    assert load(json.dumps(before)) == before
    assert load(json.dumps(node.data))["pairs"] == before["pairs"]
    assert load(json.dumps(before | {"topology": None}))["topology"] is None


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"schema": "gpunode.p2p/1"}', '{"schema": "gpunode.baseline/1", "environment": {}, "gpus": []}']
)
def test_load_refuses_by_name(text):
    with pytest.raises(BaselineError):
        load(text)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpus": None}, "it has no gpus"),
        ({"gpus": [5]}, "gpus[0] is int, expected dict"),
        ({"gpus": [{"uuid": {}}]}, "gpus[0].uuid is dict, expected str"),
        ({"environment": {"kernel": 7}}, "environment['kernel'] is int, expected str"),
        ({"pairs": [5]}, "pairs[0] is int, expected dict"),
        ({"pairs": [{"src": "a", "dst": 1}]}, "pairs[0].src is 'a'"),
        ({"pairs": [{"src": 0, "dst": 1, "copy_gbps": -1}]}, "pairs[0].copy_gbps is -1: no measurement gives that"),
        ({"measurement": {"patterns": [{"total_gbps": float("nan")}]}}, "measurement.patterns[0].total_gbps is nan"),
        ({"topology": {"gpus": ["GPU0"], "rows": ["GPU0"], "matrix": [[]]}}, "topology.matrix does not fit its labels"),
        ({"topology": {"gpus": ["NIC0"], "rows": ["GPU0"], "matrix": [["X"]]}}, "topology.matrix does not fit its labels"),
        ({"topology": {"matrix": [["X"]]}}, "topology.matrix does not fit its labels"),
    ],
)
def test_a_baseline_of_another_shape_is_refused_by_its_place(before, change, why):
    with pytest.raises(BaselineError) as caught:
        load(json.dumps(before | change))
    assert why in str(caught.value)


def test_a_snapshot_that_is_none_is_no_baseline():
    with pytest.raises(BaselineError, match="measured is int"):
        load('{"schema": "gpunode.snapshot/1", "measured": 5}')


def test_pairs_that_were_not_ok_are_no_baseline(node, before):
    before["pairs"][0]["status"] = "error"
    assert node.only("baseline-incomplete", before).subject == "GPU0->GPU1"
    before["topology"] = {}
    assert "topology-changed" not in node.found(load(json.dumps(before)))


def test_baseline_of_nothing(make):
    bare = make()
    bare.data = {}
    data = build(State(Snapshot(bare.data)), "now")
    assert (data["gpus"], data["topology"], data["environment"], data["pairs"]) == ([], None, {}, [])


def test_host_copies(node, before):
    before["measurement"]["host"] = [{"gpu": 0, "to_gpu_gbps": 54.7, "from_gpu_gbps": 54.7}, {"gpu": 1, "to_gpu_gbps": 54.7, "light": True}]
    node.data["measurement"]["host"] = [
        {"gpu": 0, "to_gpu_gbps": 54.0, "from_gpu_gbps": 42.0},
        {"gpu": 1, "to_gpu_gbps": 42.0},
        {"gpu": 2, "to_gpu_gbps": 54.0},
    ]
    finding = node.only("p2p-slower-than-baseline", before)
    assert finding.subject == "GPU0"
    assert finding.evidence == "from it 54.7 -> 42.0 GB/s"
    before["environment"]["kernel"] = "6.8.12"
    assert "kernel 6.8.12 -> 7.0.14-14-pve" in node.only("p2p-slower-than-baseline", before).evidence


def test_staged_pairs_are_told_once(node, before):
    node.each(lambda one, other: one == 3, read_latency_us=14.0, copy_gbps=37.0)
    assert set(node.found(before)) == {"p2p-staged"}


def test_a_baseline_of_some_pairs_says_which_it_does_not_have(node, before):
    before["pairs"] = [pair for pair in before["pairs"] if {pair["src"], pair["dst"]} == {0, 1}]
    finding = node.only("baseline-incomplete", before)
    assert finding.severity == "unknown"
    assert finding.summary.startswith("54 of 56 measured pairs have no rate in the baseline")
    assert finding.evidence.endswith("has rates of 2 pairs; without: 54, GPU0-7 with each other, except GPU0->GPU1, GPU1->GPU0")
    node.data["measurement"]["mode"] = "light"  # latencies are compared then
    assert node.only("baseline-incomplete", before).summary.startswith("54 of 56")
    before["pairs"] = []
    assert node.only("baseline-incomplete", before).subject == "all pairs"


def test_what_a_quick_baseline_does_not_have(node, before):
    node.each(lambda one, other: True, bidirectional_gbps=100.0, sm_read_gbps=45.0)
    node.data["measurement"]["patterns"] = [{"name": "ring", "status": "ok", "total_gbps": 300.0}, {"name": "other"}]
    finding = node.only("baseline-incomplete", before)
    assert finding.severity == "info"
    assert finding.summary.endswith("both directions at once of 56 pairs, loads of kernels of 56 pairs, pattern ring")
    node.data["measurement"]["patterns"] = [{"name": f"from {number}", "total_gbps": 300.0} for number in range(5)]
    assert node.only("baseline-incomplete", before).summary.endswith(", patterns from 0, from 1 and 3 more")
    node.data["measurement"]["patterns"] = before["measurement"]["patterns"] = [{"name": "ring", "total_gbps": 300.0}]
    for pair in before["pairs"]:
        pair.update(bidirectional_gbps=100.0, sm_read_gbps=45.0)
    assert node.found(before) == {}


RICH = {
    "Performance State                     : P8": "Performance State                     : P8\n"
    "    GPU Power Readings\n        Current Power Limit               : 600.00 W",
    "    MIG Mode\n": "    ECC Mode\n        Current                           : Enabled\n    MIG Mode\n",
}


def rich(make):
    """A node that tells every setting that a baseline keeps."""
    host = make()
    for old, new in RICH.items():
        host.smi(old, new)
    host.commands["mokutil --sb-state"] = {"rc": 0, "stdout": "SecureBoot disabled\n"}
    host.data["container"] = {
        "vmid": 101,
        "commands": {"nvidia-smi -L": {"rc": 0, "stdout": "GPU 0: A\n"}},
        "links": {"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.595.58.03"},
        "nodes": {"/dev/nvidiactl": {"major": 195, "minor": 255}},
    }
    return host


def acs(host):
    lspci = host.commands["lspci -vvv"]
    lspci["stdout"] = lspci["stdout"].replace("ReqRedir- CmpltRedir-", "ReqRedir+ CmpltRedir+", 1)


def smi(old, new):
    return lambda host: host.smi(old, new, 1)


def file(path, text):
    return lambda host: host.files.update({path: text})


def link(path, text):
    return lambda host: (host.links.update({path: text}), host.files.update({"/sys/kernel/iommu_groups/7/type": "DMA-FQ\n"}))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("kernel", lambda host: host.commands["uname -r"].update(stdout="7.0.16-2-pve\n")),
        ("kernel command line", file("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-7.0.14-14-pve root=/dev/mapper/pve-root ro quiet\n")),
        ("kind of kernel module", file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.58.03  Mon\n")),
        ("BIOS", file("/sys/class/dmi/id/bios_version", "1.8\n")),
        ("Secure Boot", lambda host: host.commands["mokutil --sb-state"].update(stdout="SecureBoot enabled\n")),
        ("IOMMU", link("/sys/bus/pci/devices/0000:01:00.0/iommu_group", "../../../../kernel/iommu_groups/7")),
        ("ACS redirection", acs),
        ("uvm_disable_hmm", file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")),
        ("addressing mode", smi("Addressing Mode                       : None", "Addressing Mode                       : HMM")),
        ("RegistryDwords of the module", file("/proc/driver/nvidia/params", 'EnableResizableBar: 1\nRegistryDwords: ""\n')),
        (
            "parameters of the module",
            file("/proc/driver/nvidia/params", 'EnableResizableBar: 0\nNew: 1\nRegistryDwords: "ForceP2P=0x11;RMForceP2PType=1"\n'),
        ),
        ("options in modprobe.d", file("/etc/modprobe.d/zz.conf", "options nvidia_uvm uvm_disable_hmm=0\n")),
        ("BAR1 size", smi("Total                             : 131072 MiB", "Total                             : 256 MiB")),
        ("PCIe link width", file("/sys/bus/pci/devices/0000:21:00.0/current_link_width", "8\n")),
        ("possible PCIe link", file("/sys/bus/pci/devices/0000:20:01.1/max_link_speed", "16.0 GT/s PCIe\n")),
        ("possible PCIe generation", smi("Max                       : 5", "Max                       : 4")),
        ("power limit", smi("Current Power Limit               : 600.00 W", "Current Power Limit               : 450.00 W")),
        ("persistence mode", smi("Persistence Mode                      : Enabled", "Persistence Mode                      : Disabled")),
        (
            "MIG mode",
            smi(
                "MIG Mode\n        Current                           : Disabled",
                "MIG Mode\n        Current                           : Enabled",
            ),
        ),
        (
            "ECC mode",
            smi(
                "ECC Mode\n        Current                           : Enabled",
                "ECC Mode\n        Current                           : Disabled",
            ),
        ),
        ("VBIOS", smi("98.02.81.00.01", "98.02.81.00.07")),
        ("GSP firmware", smi("GSP Firmware Version                  : 595.58.03", "GSP Firmware Version                  : 595.58.04")),
    ],
)
def test_every_setting_that_changed_is_a_suspect(make, what, change):
    before = build(State(Snapshot(rich(make).data)), "then")
    host = rich(make)
    assert host.judge(before).findings == []
    change(host)
    judgement = host.judge(before)
    assert [entry["what"] for entry in judgement.changed] == [what]
    assert f"{what} " in next(finding for finding in judgement.findings if finding.id == "environment-changed").evidence
    assert host.only("environment-changed", before).summary == "1 thing has changed since the baseline"


def test_acs_that_came_on_is_named_before_its_warning(make):
    before = build(State(Snapshot(rich(make).data)), "then")
    host = rich(make)
    acs(host)
    judgement = host.judge(before)
    assert judgement.changed == [{"what": "ACS redirection", "before": "off", "after": "0000:00:01.1"}]
    finding = host.only("acs-redirect", before)
    assert (finding.severity, host.only("acs-redirect").severity) == ("warning", "info")
    assert finding.evidence.endswith("; off in the baseline")
    assert "gpunode-acs.service" in finding.remedy


def test_gpus_that_differ_are_named_with_their_values(make):
    host = rich(make)
    smi("Current Power Limit               : 600.00 W", "Current Power Limit               : 450.00 W")(host)
    told = build(State(Snapshot(host.data)), "then")["environment"]["power_limit"]
    assert told.startswith("450 W (0000:01:00.0); 600 W (0000:21:00.0, ")


def test_an_older_baseline_compares_and_says_what_it_did_not_keep(make):
    before = build(State(Snapshot(rich(make).data)), "then")
    for key in ("acs", "power_limit", "module_params"):
        del before["environment"][key]
    host = rich(make)
    acs(host)
    host.commands["uname -r"]["stdout"] = "7.0.16-2-pve\n"
    del host.files["/sys/class/dmi/id/bios_version"]
    told = host.judge(before).to_dict()["baseline"]
    assert [change["what"] for change in told["changed"]] == ["kernel"]
    assert told["not_kept"] == ["ACS redirection", "parameters of the module", "power limit"]
    assert told["not_read"] == ["BIOS"]


@pytest.mark.parametrize(
    "text",
    [
        "01:00.0 3D controller: NVIDIA Corporation Device 2bb5\n",
        "00:01.1 PCI bridge: AMD Root Port\n\tBus: primary=00, secondary=01, subordinate=01\n\tCapabilities: <access denied>\n",
    ],
)
def test_acs_that_could_not_be_read_is_not_kept_as_off(make, text):
    host = rich(make)
    host.commands["lspci -vvv"]["stdout"] = text
    assert "acs" not in build(State(Snapshot(host.data)), "then")["environment"]


def test_a_baseline_without_any_gpu_of_this_node_is_foreign(make):
    host = make(2)
    before = build(State(Snapshot(host.data)), "then")
    assert not is_foreign(State(Snapshot(host.data)), before)
    for gpu in before["gpus"]:
        gpu["uuid"] = gpu["uuid"].replace("GPU-", "GPU-f")
    assert is_foreign(State(Snapshot(host.data)), before)
    before["gpus"] = []
    assert not is_foreign(State(Snapshot(host.data)), before)
