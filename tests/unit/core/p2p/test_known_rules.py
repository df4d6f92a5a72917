"""The catalogue of known problems within verify-p2p: remedies of Xids, causes that no rule asks for, nothing said twice."""

from __future__ import annotations

import pytest


def log(node, *lines):
    node.commands["dmesg"]["stdout"] += "".join(f"[ 812.44] {line}\n" for line in lines)


def test_an_xid_comes_with_the_remedy_of_its_number(node):
    log(node, "NVRM: Xid (PCI:0000:41:00): 119, pid=77, Timeout after 45s of waiting for RPC response from GPU2 GSP!")
    finding = node.only("xid")
    assert "firmware" in finding.summary
    assert "NVreg_EnableGpuFirmware" in finding.remedy
    assert node.found() == {"xid": "warning"}  # said once, and the pairs work


def test_an_xid_that_nobody_described(node):
    log(node, "NVRM: Xid (PCI:0000:41:00): 1999, pid=77, something new")
    assert "catalogue" in node.only("xid").remedy


def test_a_cause_that_no_rule_asks_for(node):
    log(node, "INFO: task nvidia-smi:4411 blocked for more than 122 seconds.")
    finding = node.only("known-problem")
    assert (finding.subject, finding.severity) == ("hung-task", "warning")
    assert finding.summary.startswith("since boot: ")
    assert "nvidia-smi:4411" in finding.evidence
    assert finding.remedy
    assert node.judge().exit_code == 0


def test_dma_that_the_iommu_refuses_is_the_iommus_finding(node):
    log(node, "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0xfff0a000 flags=0x0030]")
    assert list(node.found()) == ["iommu-translated"]


def test_what_a_rule_says_of_now_is_not_said_again(node):
    log(node, "NVRM: API mismatch: the client has the version 570.1.1, but\nNVRM: this kernel module has the version 595.71.05.")
    assert "known-problem" not in node.found()


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU 0000:41:00.0 is already bound to nouveau.",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 239",
    ],
)
def test_first_attempts_of_a_boot_are_history_where_the_driver_has_all_gpus(node, line):
    log(node, line)
    assert node.found() == {}


def test_the_same_attempts_explain_a_driver_that_has_not_all_of_them(node):
    log(node, "NVRM: GPU 0000:f1:00.0: RmInitAdapter failed! (0x24:0x72:1568)")
    node.files["/sys/bus/pci/devices/0000:f1:00.0/vendor"] = "0x10de\n"
    node.files["/sys/bus/pci/devices/0000:f1:00.0/class"] = "0x030200\n"
    assert node.only("known-problem").subject == "rm-init-adapter-failed"


def test_consequences_of_an_xid_are_left_to_it(node):
    log(
        node,
        "NVRM: Xid (PCI:0000:41:00): 79, pid=77, GPU has fallen off the bus.",
        "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
    )
    assert "known-problem" not in node.found()
