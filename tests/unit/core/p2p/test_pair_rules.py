"""Measured pairs: harm is an error and named by what its pairs have in common; flags are no proof."""

from __future__ import annotations

import json

import pytest


def across(one, other):
    return (one < 4) != (other < 4)


def test_one_pair_corrupt(node):
    node.pair(2, 5).update(status="corrupt", data_ok=False, checks={"copy": "zeros", "sm_read": "ok"})
    finding = node.only("p2p-corrupt")
    assert (finding.severity, finding.subject) == ("error", "GPU2->GPU5")
    assert "copy zeros" in finding.evidence
    assert node.judge().exit_code == 1


def test_data_wrong_although_the_status_says_ok(node):
    node.pair(2, 5).update(data_ok=False)
    assert node.found() == {"p2p-corrupt": "error"}


def test_both_directions_hang(node):
    node.each(lambda one, other: {one, other} == {0, 1}, status="hang", reason="killed after 20 s in step copy")
    finding = node.only("p2p-hang")
    assert finding.subject == "GPU0<->GPU1"
    assert finding.evidence.count("killed after 20 s") == 1


@pytest.mark.parametrize(
    ("chosen", "subject", "words"),
    [
        (lambda one, other: True, "all pairs", "a cause that all share"),
        (lambda one, other: 3 in {one, other}, "GPU3", "this GPU's link or the GPU itself"),
        (lambda one, other: {one, other} & {3, 6}, "GPU3, GPU6", "every pair of GPU3, GPU6"),
        (lambda one, other: one == 3, "GPU3", "every pair from GPU3"),
        (lambda one, other: other == 3, "GPU3", "every pair to GPU3"),
        (across, "all pairs across NUMA nodes (SYS)", "the link between the sockets"),
        (lambda one, other: not across(one, other), "all pairs within a NUMA node (NODE)", "all 24 pairs"),
        (lambda one, other: one < 4 and other < 4, "NUMA node 0", "every pair within NUMA node 0"),
        (lambda one, other: one < 4 <= other, "NUMA node 0", "one direction of the link between the sockets"),
        (lambda one, other: one != other and one < 7 and other < 4, "GPU0->GPU1, GPU0->GPU2", "no common cause"),
    ],
)
def test_names_of_sets_of_pairs(node, chosen, subject, words):
    node.each(chosen, status="no-access", can_access=False)
    finding = node.only("p2p-no-access")
    assert finding.subject.startswith(subject)
    assert words in finding.summary


def test_every_pair_of_a_gpu_needs_others_to_compare_with(make):
    two = make(2)
    two.each(lambda one, other: True, status="hang")
    assert two.only("p2p-hang").subject == "GPU0<->GPU1"


def test_switch_by_paths_of_sysfs(node):
    for bus in ("01", "21"):
        node.links[f"/sys/bus/pci/devices/0000:{bus}:00.0"] = f"../../../devices/pci0000:00/0000:00:01.1/0000:02:00.0/0000:{bus}:00.0"
    node.each(lambda one, other: len({one, other} & {0, 1}) == 1, status="hang")
    assert node.only("p2p-hang").subject == "switch 0000:02:00.0"
    node.each(lambda one, other: len({one, other} & {0, 1}) == 1, status="ok")
    node.each(lambda one, other: {one, other} == {0, 1}, status="hang")
    assert node.only("p2p-hang").subject == "GPU0<->GPU1"


@pytest.mark.parametrize("by", ["sysfs", "topo"])
def test_switch_of_four(node, texts, by):
    members = {0, 1, 2, 3}
    cell = lambda one, other, count: "X" if one == other else "PIX" if {one, other} <= {4, 5} else "PHB"  # noqa: E731
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(8, cell)
    if by == "sysfs":
        for bus in ("01", "21", "41", "61"):
            node.links[f"/sys/bus/pci/devices/0000:{bus}:00.0"] = f"../../../devices/pci0000:00/0000:00:01.1/0000:{bus}:00.0"
        node.each(lambda one, other: {one, other} <= members, status="hang")
        assert node.only("p2p-hang").subject == "switch 0000:00:01.1"
        node.each(lambda one, other: True, status="ok")
        node.each(lambda one, other: len({one, other} & members) == 1, status="hang")
        assert "uplink of the switch 0000:00:01.1" in node.only("p2p-hang").summary
    else:
        for bdf in list(node.links):
            if bdf.count("/") == 5:
                del node.links[bdf]
        node.each(lambda one, other: len({one, other} & {4, 5}) == 1, status="hang")
        node.pair(0, 1).update(status="hang")
        assert "no common cause" in node.only("p2p-hang").summary
        node.pair(0, 1).update(status="ok")
        assert node.only("p2p-hang").subject == "switch of GPU4, GPU5"


def test_numa_nodes_by_sysfs(node):
    node.commands["nvidia-smi topo -m"] = None
    node.files["/sys/bus/pci/devices/0000:e1:00.0/numa_node"] = "-1\n"
    node.each(lambda one, other: one < 4 and other < 4, status="hang")
    assert node.only("p2p-hang").subject == "NUMA node 0"


def test_staged_by_latency(node):
    node.each(lambda one, other: True, read_latency_us=14.3)
    finding = node.only("p2p-staged")
    assert finding.severity == "error"
    assert "14.3 us" in finding.evidence


def test_staged_by_loads_of_kernels_alone(node):
    """Copies stay fine without ForceP2P on direct-attached hosts; kernels' loads go through memory at a fifteenth."""
    node.each(lambda one, other: True, sm_read_gbps=3.5)
    assert "loads 3.5 of 53.0 GB/s" in node.only("p2p-staged").evidence


def test_no_access_although_the_driver_says_ok(node):
    node.pair(0, 1).update(status="no-access", can_access=False)
    finding = node.only("p2p-no-access")
    assert "although nvidia-smi says OK" in finding.summary
    del node.commands["nvidia-smi topo -p2p r"]
    assert "although" not in node.only("p2p-no-access").summary


def geforce(make, texts, cell="GNS"):
    host = make(2)
    host.commands["nvidia-smi -q"]["stdout"] = texts.smi(2, "NVIDIA GeForce RTX 5090")
    for letter in "rw":
        host.commands[f"nvidia-smi topo -p2p {letter}"]["stdout"] = texts.status(2, cell)
    host.each(lambda one, other: True, status="no-access", can_access=False, copy_gbps=22.0)
    return host


def test_geforce_without_peer_access_is_no_failure(make, texts):
    host = geforce(make, texts)
    found = host.found()
    assert (found["p2p-no-access"], found["p2p-not-supported"]) == ("warning", "warning")
    assert host.judge().exit_code == 0


def test_geforce_that_a_regkey_disabled_is(make, texts):
    assert geforce(make, texts, "DR").judge().exit_code == 1


def test_status_refused_for_cards_that_can(node, texts):
    node.commands["nvidia-smi topo -p2p r"]["stdout"] = texts.status(8, "CNS")
    node.data.pop("measured")
    finding = node.only("p2p-not-supported", measured=False)
    assert (finding.severity, finding.subject) == ("error", "all pairs")
    assert "chipset" in finding.summary


def test_status_of_some_pairs(node, texts):
    text = texts.status(8)
    node.commands["nvidia-smi topo -p2p w"]["stdout"] = text.replace("GPU0\tX\tOK\tOK", "GPU0\tX\tTNS\tTNS")
    node.data.pop("measured")
    assert node.only("p2p-not-supported", measured=False).subject == "GPU0->GPU1, GPU0->GPU2"
    node.commands["nvidia-smi topo -p2p w"]["stdout"] = text.replace("GPU0\tX\tOK\tOK\tOK\tOK\tOK\tOK\tOK", "GPU0\tX" + "\tNS" * 7)
    assert node.only("p2p-not-supported", measured=False).subject.endswith("and 1 more")


def test_status_disproved_by_data_that_arrived(node, texts):
    node.commands["nvidia-smi topo -p2p r"]["stdout"] = texts.status(8, "CNS")
    assert node.found() == {"p2p-not-supported": "info"}


def test_error_of_the_driver(node):
    node.pair(0, 1).update(status="error", reason="CUDA_ERROR_ILLEGAL_ADDRESS in step copy", error={"code": 700})
    assert "ILLEGAL_ADDRESS" in node.only("p2p-error").evidence


def test_skipped_pairs_are_a_required_unknown(node):
    node.pair(0, 1).update(status="skipped", reason="out of memory")
    judgement = node.judge()
    assert (judgement.verdict, judgement.exit_code) == ("unknown", 3)
    node.pair(0, 1).pop("reason")
    assert node.only("not-readable").evidence == "no reason told"


def test_pairs_that_are_not_in_the_measurement(node):
    del node.pairs[10:]
    finding = node.only("not-readable")
    assert "46 pairs" in finding.summary
    assert finding.evidence.startswith("46, GPU1 -> GPU4-7; GPU2 -> GPU0-1,3-7; ")
    node.data["measurement"]["pairs"] = "0:1,0:2"  # these were asked for
    assert node.judge().exit_code == 0


def test_a_few_missing_pairs_are_named(node):
    del node.pairs[0]
    assert node.only("not-readable").evidence == "GPU0->GPU1"


def test_nothing_measured_says_why(node):
    node.pairs.clear()
    node.data["measurement"]["fatal"] = {
        "where": "python3",
        "code": None,
        "name": "",
        "summary": "Python 3.9 or later is needed, this is 3.6",
    }
    finding = node.only("not-readable")
    assert (finding.required, finding.evidence) == (True, "Python 3.9 or later is needed, this is 3.6")
    assert node.judge(measured=False).exit_code == 0


def test_one_gpu_has_no_pairs(make):
    host = make(1)
    host.data.pop("measured")
    assert host.judge().exit_code == 0


def test_more_than_the_link_carries(node):
    node.pair(0, 1).update(copy_gbps=128.0)
    finding = node.only("bandwidth-implausible")
    assert finding.severity == "error"
    assert "63.0 GB/s" in finding.summary


def test_more_than_any_link_carries_where_links_are_unknown(make):
    host = make()
    host.data = {"measured": [{"src": 0, "dst": 1, "copy_gbps": 128.0, "status": "ok"}], "measurement": {"pairs": "0:1"}}
    assert "bandwidth-implausible" not in host.found()  # of unknown path: NVLink carries that
    host.data["measured"][0]["path"] = "PHB"
    assert "bandwidth-implausible" in host.found()
    host.data["measured"][0]["copy_gbps"] = 56.0
    assert "bandwidth-implausible" not in host.found()
    host.data["measured"][0]["limit_gbps"] = 32.0
    assert "bandwidth-implausible" in host.found()


def test_link_limit_by_sysfs(node):
    node.smi("                Max                       : 5\n", "                Max                       : N/A\n")
    node.pair(0, 1).update(copy_gbps=90.0)
    assert "63.0 GB/s" in node.only("bandwidth-implausible").summary
    for bdf in list(node.files):
        if bdf.endswith("max_link_speed"):
            node.files[bdf] = "Unknown\n"
    assert "bandwidth-implausible" not in node.found()


def nvlink(node, texts, count=18):
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(8, lambda one, other, _: "X" if one == other else f"NV{count}")
    lines = [
        f"GPU {gpu}: NVIDIA H200 (UUID: GPU-{gpu})\n" + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(count))
        for gpu in range(8)
    ]
    node.commands["nvidia-smi nvlink -s"] = texts.run("".join(lines))
    node.each(lambda one, other: True, copy_gbps=395.0)


def test_nvlink_limits(node, texts):
    nvlink(node, texts)
    assert node.found() == {}
    node.pair(0, 1).update(copy_gbps=520.0)
    assert "478.1 GB/s" in node.only("bandwidth-implausible").summary
    del node.commands["nvidia-smi nvlink -s"]
    assert "bandwidth-implausible" not in node.found()


def test_slower_than_through_host_memory(node):
    node.each(across, copy_gbps=9.9, staged_gbps=22.0)
    finding = node.only("p2p-slower-than-host-copy")
    assert (finding.severity, finding.subject) == ("error", "all pairs across NUMA nodes (SYS)")


def test_staged_copies_as_quick_as_peer_copies_across_sockets_are_normal(node):
    node.each(across, staged_gbps=42.0)
    assert node.found() == {}


def test_below_the_rate_asked_for(node):
    finding = node.only("p2p-slower-than-expected", min_gbps=45.0)
    assert (finding.severity, finding.subject) == ("error", "all pairs across NUMA nodes (SYS)")
    assert node.found(min_gbps=39.0) == {}


def test_one_gpu_slower_than_its_peers(node):
    node.each(lambda one, other: 3 in {one, other}, copy_gbps=13.0)
    finding = node.only("p2p-slower-than-expected")
    assert (finding.severity, finding.subject) == ("warning", "GPU3")


def test_all_pairs_far_below_their_links(node):
    node.each(lambda one, other: True, copy_gbps=14.0)
    assert node.only("p2p-slower-than-expected").subject == "all pairs"


def test_busy_gpus_are_judged_by_data_and_latency_alone(node):
    node.data["measurement"]["mode"] = "light"
    node.each(lambda one, other: True, copy_gbps=3.0)
    assert node.found(min_gbps=50.0) == {}
    node.pair(0, 1).update(data_ok=False, light=True)
    assert "p2p-corrupt" in node.found()


def test_cache_of_peer_access_contradicts(node):
    place = "/root/.cache/sglang/gpu_p2p_access_cache_for_0,1,2,3,4,5,6,7.json"
    node.data["container"] = {"vmid": 101, "files": {place: json.dumps({"0->0": True, "0->1": False, "1->0": True, "0->9": True})}}
    finding = node.only("p2p-cache-stale")
    assert (finding.severity, finding.subject) == ("warning", "container 101")
    assert f"rm {place}" in finding.remedy
    assert "GPU0->GPU1 cached no, measured ok" in finding.evidence


@pytest.mark.parametrize("text", ["{", "[]", '{"0->1": true}', '{"x": true}'])
def test_cache_that_agrees_or_is_none(node, text):
    node.files["/root/.cache/vllm/gpu_p2p_access_cache_for_0,1.json"] = text
    assert node.found() == {}


def test_cache_that_says_yes_where_data_is_lost(node):
    node.files["/root/.cache/vllm/gpu_p2p_access_cache_for_4,5.json"] = '{"0->1": true}'
    node.pair(4, 5).update(status="corrupt", data_ok=False)
    assert "GPU4->GPU5 cached yes, measured corrupt" in node.only("p2p-cache-stale").evidence


def test_numbers_of_a_container_that_has_only_some(node):
    node.data["measurement"]["gpus"] = [{"index": 0, "bus_id": "0000:81:00.0"}, {"index": 1, "bus_id": "0000:A1:00.0"}, {"index": 2}]
    node.data["measured"] = [
        {"src": 0, "dst": 1, "status": "ok", "copy_gbps": 53.0, "data_ok": True},
        {"src": 1, "dst": 0, "status": "hang"},
    ]
    assert node.only("p2p-hang").subject == "GPU5->GPU4"
    assert "not-readable" not in node.found()


def test_cuda_does_not_start(node):
    node.pairs.clear()
    summary = "cuInit: CUDA_ERROR_NOT_INITIALIZED (3)"
    node.data["measurement"] = {"mode": "quick", "where": "container 101", "fatal": {"where": "cuInit", "code": 3, "summary": summary}}
    finding = node.only("cuda-failed")
    assert (finding.severity, finding.subject) == ("error", "container 101")
    assert "uvm_disable_hmm" in finding.remedy
    assert next(found for found in node.judge().findings if found.subject == "pairs").remedy == "see cuda-failed first, then measure again"
    for code, word in ((803, "exactly the host's driver version"), (802, "fabricmanager"), (100, "device nodes"), ([], "uvm_disable_hmm")):
        node.data["measurement"]["fatal"]["code"] = code
        assert word in node.only("cuda-failed").remedy
    del node.data["measurement"]["where"]
    assert node.judge().exit_code == 1
    assert (node.only("cuda-failed").subject, node.only("cuda-failed").summary) == ("host", "CUDA does not start")


def test_worker_that_cannot_be_killed(node):
    node.data["measurement"]["stuck"] = [{"pid": 4711, "gpus": [2], "step": "copy", "state": "D"}, {"pid": 4712}]
    findings = [finding for finding in node.judge().findings if finding.id == "p2p-hang"]
    assert [finding.subject for finding in findings] == ["GPU2", "host"]
    assert "process 4711 of the measurement cannot be killed and holds GPU2" in findings[0].summary
    assert "reboot" in findings[0].remedy
    node.data["measurement"]["where"] = "container 101"
    node.pair(2, 3).update(status="hang")
    node.pair(2, 4).update(status="skipped", reason="GPU2 is left alone")
    assert next(found for found in node.judge().findings if found.subject == "pairs").remedy.startswith("reboot the node: a process")
    hung = next(finding for finding in node.judge().findings if finding.subject == "GPU2->GPU3")
    assert hung.remedy.startswith("reboot the node first: process 4711 (its number in container 101) of the measurement cannot be killed")


def test_rates_are_drawn_together_where_they_are_many(node):
    node.each(lambda one, other: True, read_latency_us=14.0)
    assert "pairs: 56, GPU0-7 with each other;" in node.only("p2p-staged").evidence
    node.each(lambda one, other: (one < 4) == (other < 4), read_latency_us=0.7)
    assert "pairs: 32, GPU0-3 -> GPU4-7; GPU4-7 -> GPU0-3;" in node.only("p2p-staged").evidence


def test_pairs_of_a_gpu_that_is_gone_are_not_blamed(node):
    node.smi("Performance State                     : P8", "Performance State                     : GPU is lost", 1)
    node.each(lambda one, other: 0 in {one, other}, status="error", reason="cuCtxCreate: GPU is lost")
    node.pair(3, 4).update(status="error", reason="cuMemcpy: unspecified")
    gone, other = (finding for finding in node.judge().findings if finding.id == "p2p-error")
    assert (gone.subject, other.subject) == ("GPU0", "GPU3->GPU4")
    assert gone.summary == "GPU0 (0000:01:00.0) is gone, so nothing could be copied from or to it"
    assert "see gpu-lost" in gone.remedy
    assert [gpu.get("answers", True) for gpu in node.judge().to_dict()["gpus"]] == [False, *[True] * 7]
    node.smi("Performance State                     : P8", "Performance State                     : GPU is lost", 1)
    node.each(lambda one, other: 1 in {one, other}, status="error", reason="cuCtxCreate: GPU is lost")
    gone = next(finding for finding in node.judge().findings if finding.id == "p2p-error")
    assert gone.summary.endswith("are gone, so nothing could be copied from or to them")


def test_container_that_does_not_see_all_it_was_given(node):
    node.data["container"] = {
        "vmid": 101,
        "nodes": {f"/dev/nvidia{number}": {"major": 195} for number in range(8)} | {"/dev/nvidiactl": {"major": 195}},
    }
    node.data["measurement"]["gpus"] = [{"index": number} for number in range(7)]
    finding = node.only("gpu-missing")
    assert (finding.severity, finding.subject) == ("error", "container 101")
    node.data["measurement"]["gpus"].append({"index": 7})
    assert "gpu-missing" not in node.found()


def test_patterns_at_once(node):
    node.data["measurement"]["patterns"] = [
        {"name": "all-pairs", "status": "ok", "data_ok": True, "total_gbps": 2.7},
        {"name": "ring", "status": "ok", "data_ok": False, "wrong": ["GPU0->GPU1"]},
        {"name": "star", "status": "hang", "reason": "killed"},
        {"name": "fine", "status": "ok", "data_ok": True, "total_gbps": 300.0},
        {"name": "none", "status": "skipped"},
    ]
    found = {(finding.id, finding.subject, finding.severity) for finding in node.judge().findings}
    assert found == {
        ("p2p-slower-than-expected", "pattern all-pairs", "warning"),
        ("p2p-corrupt", "pattern ring", "error"),
        ("p2p-hang", "pattern star", "error"),
    }


def test_nvlinks_that_are_down(node, texts):
    nvlink(node, texts)
    text = node.commands["nvidia-smi nvlink -s"]["stdout"]
    node.commands["nvidia-smi nvlink -s"]["stdout"] = text.replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1)
    finding = node.only("nvlink-lost")
    assert (finding.severity, finding.subject) == ("error", "GPU0")
    assert "17 of 18" in finding.evidence


def test_gpu_that_left_the_fabric(node, texts):
    nvlink(node, texts)
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(
        8, lambda one, other, _: "X" if one == other else "SYS" if 5 in {one, other} else "NV18"
    )
    node.each(lambda one, other: 5 in {one, other}, copy_gbps=40.0)
    assert node.only("nvlink-lost").subject == "GPU5"


def test_pairs_joined_by_bridges_are_no_loss(node, texts):
    nvlink(node, texts, 4)
    cell = lambda one, other, count: "NV4" if one // 2 == other // 2 and one != other else texts.path(one, other, count)  # noqa: E731
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(8, cell)
    node.each(lambda one, other: one // 2 != other // 2, copy_gbps=50.0)
    node.each(lambda one, other: one // 2 == other // 2, copy_gbps=90.0)
    assert node.found() == {}


@pytest.mark.parametrize(
    ("field", "value", "bad"), [("State", "In Progress", True), ("Status", "Failure", True), ("Status", "Success", False)]
)
def test_fabric_that_did_not_come_up(node, texts, field, value, bad):
    nvlink(node, texts)
    node.smi(
        "    Processes",
        f"    Fabric\n        {'State : Completed' if field == 'Status' else ''}\n        {field} : {value}\n    Processes",
        1,
    )
    assert ("nvlink-lost" in node.found()) == bad


def test_nvlinks_that_offer_nothing(node, texts):
    nvlink(node, texts)
    node.commands["nvidia-smi topo -p2p n"] = texts.run(texts.status(8, "NS"))
    assert node.only("nvlink-lost").subject == "all pairs"
    node.commands["nvidia-smi topo -p2p n"] = texts.run(texts.status(8))
    assert node.found() == {}


def host_copies(node, **changes):
    node.data["measurement"]["host"] = [{"gpu": number, "to_gpu_gbps": 54.7, "from_gpu_gbps": 54.7, "data_ok": True} for number in range(8)]
    node.data["measurement"]["host"][3].update(changes)


def test_host_copies(node):
    host_copies(node)
    assert node.found() == {}
    host_copies(node, from_gpu_gbps=13.0)
    finding = node.only("p2p-slower-than-expected")
    assert (finding.severity, finding.subject) == ("warning", "GPU3")
    host_copies(node, data_ok=False)
    assert node.only("p2p-corrupt").subject == "GPU3"
    node.data["measurement"]["host"] = [{"gpu": 0, "status": "skipped"}]
    assert node.found() == {}


def test_measuring_process_that_was_killed_proves_nothing(node):
    """The kernel ends processes of a container that is short of memory."""
    killed = "the worker died in step copy (signal 9)"
    node.data["measurement"]["patterns"] = [{"name": "all-to-all", "status": "error", "reason": killed}]
    assert node.found() == {"not-readable": "unknown"}
    assert node.judge().exit_code == 0
    node.pair(0, 1).update(status="error", reason=killed)
    assert node.judge().exit_code == 3


def test_name_of_hangs_when_the_rest_was_skipped(node):
    """After three hangs the rest is left alone: what was tried still tells the cause."""
    tried = [(0, 4), (1, 4), (2, 4)]
    node.each(across, status="skipped", reason="three pairs hung before")
    for one, other in tried:
        node.pair(one, other).update(status="hang")
    assert node.only("p2p-hang").subject == "all pairs across NUMA nodes (SYS)"
    assert "29 of 56 pairs were not measured" in node.only("not-readable").summary


def test_a_rate_of_zero_is_no_healthy_pair(node):
    node.pair(0, 1).update(copy_gbps=0.0)
    finding = node.only("p2p-error")
    assert (finding.severity, finding.subject) == ("error", "GPU0->GPU1")
    assert "a rate of 0 GB/s" in finding.summary


def test_mig_is_why_there_is_no_access(node):
    node.smi(
        "MIG Mode\n        Current                           : Disabled", "MIG Mode\n        Current                           : Enabled", 1
    )
    node.pair(0, 1).update(status="no-access", can_access=False)
    assert node.only("p2p-no-access").remedy == "MIG devices have no peer-to-peer: switch it off (nvidia-smi -mig 0) on GPU0"
