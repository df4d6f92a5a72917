"""GPUs: their number, their loss, Xid errors, device nodes, HMM, options of the module."""

from __future__ import annotations

import pytest

from gpunode.rules.devices import xid_severity


def test_fewer_gpus_than_expected(node):
    finding = node.only("gpu-missing", expect_gpus=9)
    assert (finding.severity, finding.subject) == ("error", "host")
    assert "8 of 9" in finding.summary


def test_more_gpus_than_expected_is_a_change(node):
    assert node.found(expect_gpus=7) == {"topology-changed": "warning"}


def test_gpu_on_the_bus_that_the_driver_does_not_offer(node):
    node.files["/sys/bus/pci/devices/0000:f1:00.0/vendor"] = "0x10de\n"
    node.files["/sys/bus/pci/devices/0000:f1:00.0/class"] = "0x030200\n"
    assert "0000:f1:00.0" in node.only("gpu-missing").evidence


def test_gpu_on_the_bus_and_a_count_without_addresses(node):
    del node.commands["nvidia-smi -q"]
    node.commands["nvidia-smi topo -m"]["stdout"] = node.commands["nvidia-smi topo -m"]["stdout"]
    node.files["/sys/bus/pci/devices/0000:f1:00.0/vendor"] = "0x10de\n"
    node.files["/sys/bus/pci/devices/0000:f1:00.0/class"] = "0x030000\n"
    assert node.only("gpu-missing").evidence == "nvidia-smi names no addresses"


def test_audio_functions_and_other_vendors_are_no_gpus(node):
    for bdf, vendor, kind in (("0000:01:00.1", "0x10de", "0x040300"), ("0000:02:00.0", "0x1a03", "0x030000")):
        node.files[f"/sys/bus/pci/devices/{bdf}/vendor"] = vendor + "\n"
        node.files[f"/sys/bus/pci/devices/{bdf}/class"] = kind + "\n"
    assert node.found(expect_gpus=8) == {}


def test_fallen_off_the_bus_with_xid(node):
    node.commands["dmesg"]["stdout"] += "[9.1] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    node.each(lambda one, other: 2 in {one, other}, status="error", reason="CUDA_ERROR_UNKNOWN")
    assert node.found() == {"gpu-lost": "error", "xid": "error", "p2p-error": "error"}
    assert node.only("gpu-lost").subject == "GPU2"


def test_trouble_of_a_gpu_that_works_again_is_a_warning(node):
    node.commands["dmesg"]["stdout"] += "[9.1] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    assert node.found() == {"gpu-lost": "warning", "xid": "warning"}
    assert "works again" in node.only("gpu-lost").summary
    node.data.pop("measured")
    assert node.found(measured=False) == {"gpu-lost": "error", "xid": "error"}


def test_fallen_off_the_bus_in_three_lines(node):
    node.commands["dmesg"]["stdout"] += (
        "NVRM: The NVIDIA GPU 0000:41:00.0\nNVRM: (PCI ID: 10de:2bb5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.\n"
    )
    node.data.pop("measured")
    assert node.found(measured=False) == {"gpu-lost": "error"}
    assert node.only("gpu-lost", measured=False).subject == "GPU2"


def test_lost_gpu_in_nvidia_smi(node):
    node.smi("    Performance State                     : P8", "    Performance State                     : GPU is lost", 1)
    assert node.only("gpu-lost").subject == "GPU0"


def test_lost_gpu_in_lspci(node):
    node.commands["lspci -vvv"]["stdout"] = node.commands["lspci -vvv"]["stdout"].replace("2bb5 (rev a1)", "2bb5 (rev ff)", 1)
    assert "rev ff" in node.only("gpu-lost").evidence


def test_nvidia_smi_cannot_get_a_handle(node):
    node.commands["nvidia-smi -q"] = {
        "rc": 255,
        "stdout": "Unable to determine the device handle for GPU5: 0000:C1:00.0: Unknown Error\n",
        "stderr": "",
    }
    node.commands["nvidia-smi -q"]["stdout"] = "Unable to determine the device handle for GPU 00000000:C1:00.0: Unknown Error\n"
    assert node.only("gpu-lost").subject == "0000:c1:00.0"


@pytest.mark.parametrize(
    ("number", "text", "severity"),
    [
        (13, "Graphics Exception", "info"),
        (43, "Ch 00000008", "info"),
        (63, "Row Remapper", "warning"),
        (74, "NVLink", "error"),
        (119, "Timeout waiting for RPC", "error"),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "info"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "error"),
        (154, "GPU recovery action: Node Reboot Required", "error"),
        (154, "something new", "warning"),
    ],
)
def test_xid_by_consequence(number, text, severity):
    assert xid_severity(number, text) == severity


def test_many_equal_xids_are_one_finding(node):
    node.commands["dmesg"]["stdout"] += "[9.1] NVRM: Xid (PCI:0000:21:00): 13, Graphics SM Exception\n" * 17
    finding = node.only("xid")
    assert (finding.severity, finding.subject) == ("info", "GPU1")
    assert "17 times" in finding.summary
    assert node.judge().exit_code == 0


def test_device_nodes_missing_on_the_host(node):
    node.nodes["/dev/nvidia3"] = None
    node.nodes["/dev/nvidia-uvm"] = None
    finding = node.only("device-node-missing")
    assert "/dev/nvidia3, /dev/nvidia-uvm do not exist" in finding.summary
    assert finding.severity == "error"


def test_nodes_that_the_first_cuda_program_makes(node):
    node.nodes["/dev/nvidia-uvm"] = None
    assert node.found() == {"device-node-missing": "warning"}
    node.files["/etc/pve/lxc/101.conf"] = "dev0: /dev/nvidia0\n"
    assert node.found()["device-node-missing"] == "error"


def test_device_node_with_a_major_of_an_earlier_boot(node):
    node.data["container"] = {"vmid": 101, "nodes": {"/dev/nvidia-uvm": {"major": 510, "minor": 0}, "/dev/nvidia0": None}}
    summaries = [finding.summary for finding in node.judge().findings if finding.id == "device-node-missing"]
    assert len(summaries) == 2
    assert "does not exist in container 101" in summaries[0]
    assert "earlier boot" in summaries[1]


def test_node_that_nobody_looked_at_is_not_missing(node):
    del node.nodes["/dev/nvidia3"]
    node.nodes["/dev/nvidia-caps"] = None
    node.data["container"] = {"vmid": 101}
    assert set(node.found()) == {"not-readable"}


def test_minors_that_are_not_numbered_through(node):
    node.smi("Minor Number                          : 7", "Minor Number                          : 9")
    node.nodes["/dev/nvidia9"] = None
    assert "/dev/nvidia9" in node.only("device-node-missing").summary
    node.smi("Minor Number                          : 9", "Minor Number                          : N/A")
    del node.nodes["/dev/nvidia9"]
    assert node.found() == {}


def test_devices_file_that_is_not_understood(node):
    node.files["/proc/devices"] = "what?\n"
    assert node.judge().state.refusals["/proc/devices"].startswith("not understood")


def test_hmm_is_on(node):
    node.smi("Addressing Mode                       : None", "Addressing Mode                       : HMM")
    node.files["/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"] = "N\n"
    assert node.found() == {"hmm-enabled": "warning"}  # the option is there and not live
    node.files["/etc/modprobe.d/gpunode.conf"] = "# options nvidia_uvm uvm_disable_hmm=1\n"
    assert node.found() == {"hmm-enabled": "warning", "hmm-option-missing": "warning"}


def test_hmm_is_an_error_when_pairs_fail(node):
    node.smi("Addressing Mode                       : None", "Addressing Mode                       : HMM")
    node.pair(0, 1).update(status="hang")
    assert node.found()["hmm-enabled"] == "error"


def test_hmm_failed_in_the_kernel(node):
    node.commands["dmesg"]["stdout"] += "nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] request_free_mem_region() err -34\n"
    assert node.found()["hmm-enabled"] == "error"


def test_hmm_option_is_lost_at_the_next_load(node):
    node.files["/etc/modprobe.d/gpunode.conf"] = "options nvidia_uvm uvm_disable_hmm=0\n"
    finding = node.only("hmm-option-missing")
    assert finding.severity == "warning"
    assert "uvm_disable_hmm=0" in finding.evidence
    assert finding.summary.startswith("/etc/modprobe.d/gpunode.conf switches HMM on")
    assert "take uvm_disable_hmm=0 out of /etc/modprobe.d/gpunode.conf" in finding.remedy


def test_hmm_that_the_kernel_does_not_offer(node):
    """H200 machines: uvm_disable_hmm N, addressing mode None, no option anywhere: nothing to say."""
    node.files["/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"] = "N\n"
    node.files["/etc/modprobe.d/gpunode.conf"] = "\n"
    assert node.found() == {}


def test_hmm_by_the_parameter_alone(node):
    node.smi("    Addressing Mode                       : None\n", "")
    node.files["/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"] = "N\n"
    assert node.found()["hmm-enabled"] == "warning"
    del node.files["/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"]
    finding = node.only("not-readable")
    assert finding.subject == "HMM"


def test_module_options_that_are_not_live(node):
    node.files["/proc/driver/nvidia/params"] = 'EnableResizableBar: 0\nRegistryDwords: ""\n'
    finding = node.only("nvreg-not-active")
    assert finding.severity == "warning"
    assert "EnableResizableBar, RegistryDwords" in finding.summary
    node.pair(0, 1).update(read_latency_us=17.0)
    assert node.found()["nvreg-not-active"] == "error"


def test_module_options_are_compared_by_value(node):
    node.files["/etc/modprobe.d/zz.conf"] = (
        'options nvidia NVreg_EnableResizableBar=0x1 NVreg_RegistryDwords="RMForceP2PType=1; ForceP2P=0x11" NVreg_Unknown=1 modeset=1\n'
        "options nvidia NVreg_TemporaryFilePath=/var/tmp\n"
    )
    node.files["/proc/driver/nvidia/params"] += 'TemporaryFilePath: "/var/tmp"\n'
    assert node.found() == {}
    del node.files["/proc/driver/nvidia/params"]
    assert set(node.found()) == {"not-readable"}


@pytest.mark.parametrize("word", ["nvidia_uvm.uvm_disable_hmm=1", "nvidia-uvm.uvm_disable_hmm", "nvidia_uvm.uvm_disable_hmm=Y"])
def test_the_kernel_command_line_switches_hmm_off_too(node, word):
    node.files["/etc/modprobe.d/gpunode.conf"] = "options nvidia_uvm uvm_disable_hmm=0\n"
    assert node.found()["hmm-option-missing"] == "warning"
    node.files["/proc/cmdline"] = node.files["/proc/cmdline"].rstrip() + f" {word}\n"
    assert node.found() == {}
    node.files["/proc/cmdline"] = node.files["/proc/cmdline"].replace(word, "nvidia_uvm.uvm_disable_hmm=0")
    assert "the kernel command line switches HMM on" in node.only("hmm-option-missing").summary


def test_a_parameter_without_a_value_is_true(node):
    node.files["/etc/modprobe.d/gpunode.conf"] = "options nvidia-uvm uvm_disable_hmm\n"
    assert "hmm-option-missing" not in node.found()
