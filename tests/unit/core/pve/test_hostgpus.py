"""GPUs of a host and what a container needs to have them."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.pve.hostgpus import chosen, cpu_list, cpu_numbers, devices_for, driver, gpus, missing_nodes, numa_lines, stale_slots

CARD = {
    "vendor": "0x10de\n",
    "device": "0x2bb5\n",
    "class": "0x030200\n",
    "numa_node": "0\n",
    "local_cpulist": "0-3,8-11\n",
    "driver": "nvidia",
}
DEVICES = {
    "0000:f1:00.0": CARD | {"numa_node": "1\n", "local_cpulist": "4-7,12-15\n", "driver": "vfio-pci"},
    "0000:11:00.0": CARD,
    "0000:11:00.1": CARD | {"class": "0x040300\n"},
    "0000:02:00.0": CARD | {"vendor": "0x1002\n"},
    "0000:31:00.0": CARD | {"class": "0x030000\n", "numa_node": "-1\n", "driver": ""},
}
INFORMATION = {"0000:11:00.0": "Model: \t\t NVIDIA RTX PRO 6000\nIRQ:   \t 90\nDevice Minor: \t 3\n"}


def host(**given: Any) -> dict[str, Any]:
    return {"gpus": gpus(DEVICES, INFORMATION), "device_nodes": [], "numa": []} | given


def test_gpus_in_bus_order_without_audio_and_other_vendors() -> None:
    found = gpus(DEVICES, INFORMATION)
    assert [(gpu["index"], gpu["bus_id"], gpu["driver"], gpu["numa_node"], gpu["minor"]) for gpu in found] == [
        (0, "0000:11:00.0", "nvidia", 0, 3),
        (1, "0000:31:00.0", None, None, None),
        (2, "0000:f1:00.0", "vfio-pci", 1, None),
    ]
    assert found[0]["name"] == "NVIDIA RTX PRO 6000"


def test_chosen() -> None:
    found = gpus(DEVICES, INFORMATION)
    assert chosen(found, "all") == found
    assert [gpu["index"] for gpu in chosen(found, [2, 0, 2])] == [2, 0]
    with pytest.raises(ValueError, match="GPU 7 is wanted, but the PCI bus shows GPUs 0 to 2"):
        chosen(found, [0, 7])
    with pytest.raises(ValueError, match="shows no NVIDIA GPU"):
        chosen([], [0])


def test_devices_are_named_by_minor_number_and_capabilities_keep_their_mode() -> None:
    nodes = [{"path": path, "mode": mode} for path, mode in (("/dev/nvidia-caps/nvidia-cap1", "0400"), ("/dev/nvidia-modeset", "0666"))]
    assert devices_for(host(device_nodes=nodes), [0]) == [
        {"path": "/dev/nvidia3", "mode": "0666"},
        {"path": "/dev/nvidiactl", "mode": "0666"},
        {"path": "/dev/nvidia-uvm", "mode": "0666"},
        {"path": "/dev/nvidia-uvm-tools", "mode": "0666"},
        {"path": "/dev/nvidia-caps/nvidia-cap1", "mode": "0400"},
    ]


def test_only_nodes_of_nvidias_driver_are_missed() -> None:
    found = gpus(DEVICES, INFORMATION)
    assert missing_nodes(found, [{"path": "/dev/nvidiactl", "major": 195}]) == ["/dev/nvidia3", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert missing_nodes(found[1:], []) == []


def test_nodes_of_an_earlier_load_are_missed() -> None:
    majors = {"/dev/nvidia3": 195, "/dev/nvidiactl": 195, "/dev/nvidia-uvm": 238, "/dev/nvidia-uvm-tools": 238}
    nodes = [{"path": path, "major": major} for path, major in majors.items()]
    devices = "Character devices:\n195 nvidia\n238 nvidia-caps-imex-channels\n239 nvidia-uvm\n\nBlock devices:\n238 nvidia-uvm\n"
    found = gpus(DEVICES, INFORMATION)
    assert missing_nodes(found, nodes, devices) == ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    assert missing_nodes(found, nodes, devices.replace("239 nvidia-uvm", "238 nvidia-uvm")) == []
    # nvidia_uvm is not loaded: which number it will get is not known.
    assert missing_nodes(found, nodes, devices.replace("239 nvidia-uvm\n", "")) == []


def test_only_nvidias_slots_are_stale() -> None:
    slots = {"dev0": "/dev/dri/card0", "dev1": "/dev/nvidia0", "dev2": "/dev/nvidia1", "dev9": "/dev/nvidiactl"}
    assert stale_slots(slots, [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}]) == ["dev2"]


def test_numa_lines_join_the_gpus_own_nodes() -> None:
    assert numa_lines(host(), [0, 2]) == [
        {"key": "lxc.cgroup2.cpuset.cpus", "value": "0-15"},
        {"key": "lxc.cgroup2.cpuset.mems", "value": "0-1"},
    ]
    assert numa_lines(host(), [0])[0]["value"] == "0-3,8-11"


def test_no_numa_lines_where_a_node_is_unknown() -> None:
    assert numa_lines(host(), "all") == []
    assert numa_lines({"gpus": []}, "all") == []


def test_numa_lines_from_the_node_where_the_gpu_does_not_say() -> None:
    found = gpus({"0000:11:00.0": CARD | {"local_cpulist": ""}}, {})
    assert numa_lines({"gpus": found, "numa": [{"node": 0, "cpus": "0-7"}]}, "all")[0]["value"] == "0-7"
    assert numa_lines({"gpus": found, "numa": []}, "all") == []


def test_cpu_lists() -> None:
    assert cpu_numbers("0-2,5") == {0, 1, 2, 5}
    assert cpu_numbers("all") == set()
    assert cpu_list({5, 0, 2, 1}) == "0-2,5"


def test_driver_live_values() -> None:
    files = {
        "/sys/module/nvidia/version": "580.159.04\n",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
        "/proc/driver/nvidia/params": 'EnableResizableBar: 1\nRegistryDwords: "ForceP2P=0x11"\n',
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "Y\n",
    }
    found = driver(files)
    assert found == {
        "loaded_version": "580.159.04",
        "open": True,
        "uvm_disable_hmm": "Y",
        "params": {"EnableResizableBar": "1", "RegistryDwords": "ForceP2P=0x11"},
    }
    closed = {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\n"}
    assert (driver(closed)["loaded_version"], driver(closed)["open"]) == ("550.163.01", False)
    assert driver({}) == {"loaded_version": None, "open": None, "uvm_disable_hmm": None, "params": {}}
