"""nvidia-smi -q, lspci, kernel log, dkms, driver files, NVLink, and what others measured."""

from __future__ import annotations

import json

import pytest

from gpunode.parsers import driver_files
from gpunode.parsers.dkms import parse_dkms
from gpunode.parsers.kernel_log import parse_kernel_log
from gpunode.parsers.lspci import parse_lspci
from gpunode.parsers.nvbandwidth import parse_nvbandwidth
from gpunode.parsers.nvlink import parse_nvlink
from gpunode.parsers.p2p_test import parse_p2p_test
from gpunode.parsers.smi_q import parse_smi_q
from gpunode.parsers.text import NotUnderstoodError, bus_id, excerpt, is_cut, plain

Q = """\
==============NVSMI LOG==============

Driver Version                            : 595.58.03
CUDA Version                              : 13.2
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
    Addressing Mode                       : N/A
    Performance State                     : Unknown Error
    Minor Number                          : none
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Name                          : python3
"""


def test_smi_q_text():
    found = parse_smi_q(Q)
    gpu = found.gpus[0]
    assert (gpu.name, gpu.mig, gpu.addressing_mode, gpu.trouble, gpu.process_ids) == (
        "NVIDIA A100",
        "Enabled",
        None,
        "Unknown Error",
        [4711],
    )
    assert found.complete
    assert not gpu.simulated


def test_smi_q_cut():
    found = parse_smi_q(Q[: Q.index("A100") + 2])
    assert found.gpus[0].name is None  # NVIDIA A1 may be the beginning of another name
    assert not found.complete


def test_smi_q_without_gpus():
    text = Q[: Q.index("GPU 0")].replace(": 1", ": 0")
    assert parse_smi_q(text).complete
    assert parse_smi_q(text.replace("595.58.03", "595")).driver_version is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "Failed to initialize NVML\n",
        "<html></html>",
        "<!DOCTYPE x [<!ENTITY a 'b'>]><nvidia_smi_log/>",
        "<",
        Q.replace("00000000:01:00.0", "::::::::::::"),
    ],
)
def test_smi_q_refused(text):
    with pytest.raises(NotUnderstoodError, match="nvidia-smi -q"):
        parse_smi_q(text)


XML = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>595.58.03</driver_version><cuda_version>13.2</cuda_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:01:00.0"><product_name>NVIDIA X (simulated)</product_name><addressing_mode>HMM</addressing_mode>
<pci><pci_gpu_link_info><link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info></pci>
<processes><process_info><pid>12</pid></process_info><process_info><pid>-</pid></process_info></processes></gpu></nvidia_smi_log>
"""


def test_smi_q_xml():
    found = parse_smi_q(XML)
    gpu = found.gpus[0]
    assert (gpu.addressing_mode, gpu.width_current, gpu.process_ids, gpu.simulated, found.complete) == ("HMM", 16, [12], True, True)


def test_smi_q_xml_cut_and_broken():
    found = parse_smi_q(XML[: XML.index("HMM") + 1])
    assert (found.driver_version, found.gpus[0].name, found.gpus[0].addressing_mode, found.complete) == (
        "595.58.03",
        "NVIDIA X (simulated)",
        None,
        False,
    )
    assert parse_smi_q(XML.replace("<attached_gpus>1", "<attached_gpus>?")).attached is None
    with pytest.raises(NotUnderstoodError, match="id"):
        parse_smi_q(XML.replace('id="00000000:01:00.0"', 'id="one"'))


def test_lspci_details():
    device, lost, denied = parse_lspci(
        "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [10de:2204] (rev a1) (prog-if 00)\n"
        "\tNUMA node: 1\n\tNUMA node: ?\n"
        "\t\tACSCap:\tSrcValid+ TransBlk-\n"
        "\tRegion 0: Memory at f0000000 (32-bit) [size=16M]\n\tRegion 1: Memory at 1 [size=512K]\n\tRegion 2: Memory at 2\n"
        "\t\tLnkCap:\tPort #0\n\t\tLnkSta:\tSpeed unknown (downgraded), Width x0 (downgraded)\n\t\t\tRlxdOrd- ExtTag+\n"
        "\n"
        "02:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)\n\t!!! Unknown header type 7f\n"
        "03:00.0 PCI bridge: AMD\n\tBus: primary=02, secondary=03, subordinate=04\n\tCapabilities: <access denied>\n"
    )
    assert device.is_nvidia_gpu
    assert not device.is_bridge
    assert (device.numa_node, device.largest_region_mib, device.link_cap, device.link_now.speed, device.link_now.width) == (
        1,
        16,
        None,
        None,
        0,
    )
    assert device.relaxed_ordering is False
    assert device.acs_cap == {"SrcValid": True, "TransBlk": False}
    assert lost.lost
    assert denied.is_bridge
    assert denied.access_denied
    assert denied.acs_redirect is None


def test_lspci_cut_and_refused():
    assert not parse_lspci("01:00.0 3D controller: NVIDIA\n\tLnkSta: Sp")[0].complete
    with pytest.raises(NotUnderstoodError, match="lspci -vvv"):
        parse_lspci("lspci: command not found\n")


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "[    8.159749] ",
        "[Fri Jun 26 23:21:20 2026] ",
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
        "Jun 26 23:21:20 node1 kernel: ",
        "<4>[ 1.5] ",
        "2026-06-26T23:21:20+0200 node1 kernel: ",
        "Jun 26 23:21:20.123456 node1 kernel: ",
        "Fri 2026-06-26 23:21:20 CEST node1 kernel: ",
        "1782508880.123456 node1 kernel: ",
        "[    8.159749] [  T1234] ",
        "[    8.159749][    C12] ",
        "[  +0.000123] ",
        "[Fri Jun 26 23:21:20 2026 <    0.000123>] ",
    ],
)
def test_kernel_log_stamps(stamp):
    assert parse_kernel_log(f"{stamp}nouveau 0000:04:00.0: NVIDIA GB202\n").other_drivers == {"0000:04:00.0": "nouveau"}
    log = parse_kernel_log(
        f"{stamp}NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.58.03  Release Build\n{stamp}Command line: ro iommu=pt\n"
    )
    assert (log.nvrm_version, log.nvrm_open, log.cmdline) == ("595.58.03", True, "ro iommu=pt")
    assert log.iommu_active is None
    assert parse_kernel_log(f"{stamp}Command line: ro amd_iommu=off\n").iommu_active is False


def test_kernel_log_of_many_things():
    log = parse_kernel_log(
        "Linux version 7.0\n\npci 0000:01:00.0: Adding to iommu group 12\n"
        "DMAR: DRHD: handling fault status reg 2\n"
        "vfio-pci 0000:02:00.0: vgaarb: changed\nnouveau 0000:03:00.0: enabling device\nnouveau 0000:04:00.0: NVIDIA GB202\n"
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:05:00.0)\n"
        "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus.\n"
        "pcieport 0000:00:01.1: AER: Uncorrectable (Fatal) error received: 0000:01:00.0\n"
        "pcieport 0000:00:01.1: AER: Corrected error received: 0000:01:00.0\n"
        "pcieport 0000:00:01.1: AER: enabled with IRQ 34\n"
        "Loading of unsigned module is rejected\n"
        "r8169 0000:05:00.0 eth0: RTL8168h, XID 541, IRQ 59\n"
    )
    assert log.from_boot
    assert log.iommu_active is True
    assert (log.io_page_faults, log.aer_corrected, len(log.aer_uncorrected), len(log.bar_failures)) == (1, 1, 1, 1)
    assert log.other_drivers == {"0000:02:00.0": "vfio-pci", "0000:04:00.0": "nouveau"}
    assert log.fallen == ["0000:06:00.0"]
    assert log.key_rejected
    assert log.xids == []


def test_kernel_log_mismatch_that_never_ends():
    log = parse_kernel_log(
        "NVRM: API mismatch: the client has\n"
        + "NVRM: more and more words that lead nowhere\n" * 30
        + "NVRM: Xid (PCI:0000:01:00): 79, x\n"
    )
    assert log.api_mismatches == []
    assert len(log.xids) == 1
    assert parse_kernel_log("NVRM: API mismatch: the client has the version 1\nusb 1-1: new\n").api_mismatches == []


def test_dkms_of_both_ages():
    entries = parse_dkms(
        "nvidia, 550.54.14, 6.8.12-1-pve, x86_64: installed (WARNING! Diff between built and installed module!)\n"
        "nvidia/595.58.03: added\n\n"
    )
    assert [(entry.module, entry.version, entry.kernel, entry.state) for entry in entries] == [
        ("nvidia", "550.54.14", "6.8.12-1-pve", "installed"),
        ("nvidia", "595.58.03", None, "added"),
    ]
    assert "WARNING" in entries[0].note
    assert entries[1].note == ""


def test_dkms_of_nothing_and_of_nonsense():
    assert parse_dkms("") == []
    assert parse_dkms("Deprecated feature: REMAKE_INITRD\n") == []
    with pytest.raises(NotUnderstoodError, match="dkms status"):
        parse_dkms("bash: dkms: command not found\n")


def test_driver_files():
    assert not driver_files.parse_driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n").open
    assert driver_files.parse_params('A: 1\nRegistryDwords: "x=1"\n') == {"A": "1", "RegistryDwords": "x=1"}
    assert driver_files.parse_gpu_information("Model: \t NVIDIA H200\nIRQ:\nnonsense\n") == {"Model": "NVIDIA H200"}
    assert driver_files.parse_registry("ForceP2P=0x11;;RMForceP2PType=1, X=2") == {"ForceP2P": "0x11", "RMForceP2PType": "1", "X": "2"}
    assert driver_files.parse_speed("Unknown") is None
    assert driver_files.parse_speed("32.0 GT/s PCIe") == 32.0
    for parse in (driver_files.parse_driver_version, driver_files.parse_params, driver_files.parse_majors):
        with pytest.raises(NotUnderstoodError):
            parse("?\n")


def test_modprobe_reads_files_in_modprobes_order():
    found = driver_files.parse_modprobe(
        {
            "/etc/modprobe.d/zz.conf": "options nvidia-uvm uvm_disable_hmm=0\n",
            "/etc/modprobe.d/aa.conf": 'options nvidia \\\n NVreg_RegistryDwords="A=1;B=2 C" # note\n# options x y=1\n'
            "blacklist nouveau\nalias a b\noptions\n",
            "/etc/modprobe.d/none.conf": None,
            "/etc/modprobe.d/mm.conf": "options nvidia_uvm uvm_disable_hmm=1\n",
        }
    )
    assert found.get("nvidia_uvm", "uvm_disable_hmm") == ("0", "/etc/modprobe.d/zz.conf")
    assert found.get("nvidia", "NVreg_RegistryDwords") == ("A=1;B=2 C", "/etc/modprobe.d/aa.conf")
    assert found.get("nvidia", "none") is None
    assert found.blacklisted == {"nouveau"}


def test_nvlink():
    assert parse_nvlink("") == {}
    assert parse_nvlink("GPU 0: A\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n\nGPU 1: B\n") == {0: [25.0, None], 1: []}
    with pytest.raises(NotUnderstoodError):
        parse_nvlink("Unable to\n")


UNI = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n     0 1008.06   6.34\n     1   6.34 926.75\n"


def test_p2p_test_parts():
    found = parse_p2p_test(
        "Device: 0, NVIDIA X, pciBusID: 4, pciDeviceID: 0, pciDomainID:0\n"
        "Device=0 CANNOT Access Peer Device=1\nDevice=1 CAN Access Peer Device=0\n" + UNI
    )
    assert found.devices == ["NVIDIA X"]
    assert found.access == {(0, 1): False, (1, 0): True}
    assert found.matrices["uni_p2p_on"].rows == [[1008.06, 6.34], [6.34, 926.75]]
    assert not found.complete


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (UNI[:-3], 1),  # the last value lost a decimal
        (UNI.replace("     1   6.34", "     2   6.34"), 1),
        (UNI.replace("926.75", "fast"), 1),
        (UNI + "     1   1.00   2.00\n", 2),
        ("   D\\D     0      1\n     0 1.00 2.00\n" + UNI, 2),
    ],
)
def test_p2p_test_rows_that_do_not_fit(text, rows):
    assert len(parse_p2p_test(text).matrices["uni_p2p_on"].rows) == rows


def test_p2p_test_refused():
    with pytest.raises(NotUnderstoodError, match="p2pBandwidthLatencyTest"):
        parse_p2p_test("Unidirectional P2P enabled\nP2P is disabled\nnothing follows\n")


def test_p2p_test_of_every_section():
    rows = "     0   1.00   2.00\n     1   3.00   4.00\n"
    text = "P2P Connectivity Matrix\n     D\\D     0     1\n     0\t     1     1\n     1\t     1     1\n"
    for kind in ("Unidirectional", "Bidirectional"):
        for state in ("Disabled", "Enabled"):
            text += f"{kind} P2P={state} Bandwidth Matrix (GB/s)\n   D\\D     0      1\n{rows}"
    for state in ("Disabled", "Enabled"):
        text += f"P2P={state} Latency Matrix (us)\n   GPU     0      1\n{rows}\n   CPU     0      1\n{rows}"
    found = parse_p2p_test(text)
    assert found.complete
    assert found.matrices["cpu_latency_p2p_on"].rows == [[1.0, 2.0], [3.0, 4.0]]


def test_p2p_test_cpu_rows_need_a_latency():
    assert "cpu_latency_p2p_on" not in parse_p2p_test(UNI + "   CPU     0      1\n     0 1.00 2.00\n").matrices


NVB = """\
nvbandwidth Version: v0.8
Driver Version: 595.58.03
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     53.10
 1     53.20       N/A

SUM device_to_device_memcpy_read_ce 106.30
Waived:
Waiving device_to_device_latency_sm.
"""


def test_nvbandwidth_text():
    run = parse_nvbandwidth(NVB)
    case = run.tests["device_to_device_memcpy_read_ce"]
    assert (run.version, run.driver) == ("v0.8", "595.58.03")
    assert (case.status, case.matrix, case.total, case.arrow) == ("Passed", [[None, 53.1], [53.2, None]], 106.3, "->")
    assert run.tests["device_to_device_latency_sm"].status == "Waived"
    assert run.complete


def test_nvbandwidth_text_that_ends_early():
    run = parse_nvbandwidth(NVB[: NVB.index("53.20") + 3] + "\nCUDA_ERROR_LAUNCH_FAILED in expression\n")
    assert run.tests["device_to_device_memcpy_read_ce"].status == "Running"
    assert (run.complete, run.error) == (False, "CUDA_ERROR_LAUNCH_FAILED in expression")
    odd = parse_nvbandwidth(
        "Running a_test.\nmemcpy CE CPU(row) -> GPU(column)\n 3 4\n0 1.00 2.00\n 0 1\n2 1.00 2.00\n0 1.0 2.00\n0 1.00 2.00\n"
    )
    assert odd.tests["a_test"].matrix == [[1.0, 2.0]]


def test_nvbandwidth_json():
    entry = {
        "name": "a",
        "status": "Passed",
        "bandwidth_description": "GPU(row) <- GPU(column)",
        "bandwidth_matrix": [["N/A", "1.5"], 3],
        "sum": 3.5,
    }
    broken = {
        "nvbandwidth": {"version": "v0.8", "error": "x", "testcases": [entry, "?", {"status": "Passed"}]},
        "testcases": [{"name": "a", "status": "Error"}, {"name": "a", "status": "Passed"}],
    }
    run = parse_nvbandwidth("noise\n" + json.dumps(broken))
    assert run.tests["a"].status == "Error"
    assert run.error == "x"
    assert parse_nvbandwidth(json.dumps({"nvbandwidth": {"testcases": [entry]}})).tests["a"].matrix == [[None, 1.5], []]
    assert parse_nvbandwidth(json.dumps({"nvbandwidth": {"testcases": [{"name": "b"}]}})).tests["b"].arrow is None


@pytest.mark.parametrize("text", ["", '{"nvbandwidth": {"testcases": [', '{"nvbandwidth": 3}', "nothing\n"])
def test_nvbandwidth_refused(text):
    with pytest.raises(NotUnderstoodError, match="nvbandwidth"):
        parse_nvbandwidth(text)


def test_text_helpers():
    assert plain("\x1b[4mGPU0\x1b[0m\x1b(B\r\n\u200b\u00a0x") == "GPU0(B\n x" or plain("\x1b[4mA\x1b[0m\r\n\u200b\u00a0x") == "A\n x"
    assert [bus_id(raw) for raw in ("00000000:01:00.0", "01:00.0", "PCI:0000:C1:00", "x")] == [
        "0000:01:00.0",
        "0000:01:00.0",
        "0000:c1:00.0",
        "",
    ]
    assert (is_cut(""), is_cut("a"), is_cut("a\n")) == (False, True, False)
    assert excerpt("\n  " + "x" * 300) == "x" * 159 + "…"
    assert excerpt("\n\n") == "(empty)"


MIG = """\
==============NVSMI LOG==============

Driver Version                            : 535.161.08
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 9
        Device Attributes
            Shared
                Multiprocessor count      : 14
        FB Memory Usage
            Total                         : 9728 MiB
            Used                          : 12 MiB
        BAR1 Memory Usage
            Total                         : 16383 MiB
    MIG Device
        Index                             : 1
        FB Memory Usage
            Total                         : 9728 MiB
    Accounting Mode                       : Disabled
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 87 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    GPU Power Readings
        Current Power Limit               : 400.00 W
    Module Power Readings
        Current Power Limit               : N/A
    Processes                             : None
"""


@pytest.mark.parametrize("text", [MIG, "\n".join(line.strip() for line in MIG.split("\n")), MIG.replace("\n", "\r\n")])
def test_slices_of_a_gpu_are_not_the_gpu(text):
    gpu = parse_smi_q(text).gpus[0]
    assert (gpu.fb_total_mib, gpu.fb_used_mib, gpu.bar1_total_mib, gpu.power_limit_w, gpu.mig) == (81920, 87, 131072, 400, "Enabled")


def test_power_limit_by_its_older_name():
    text = MIG.replace("GPU Power Readings", "Power Readings").replace("Current Power Limit               : 400.00", "Power Limit : 400.00")
    assert parse_smi_q(text).gpus[0].power_limit_w == 400
    xml = '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:07:00.0"><{0}><{1}>400.00 W</{1}></{0}></gpu></nvidia_smi_log>'
    for names in (("gpu_power_readings", "current_power_limit"), ("power_readings", "power_limit")):
        assert parse_smi_q(xml.format(*names)).gpus[0].power_limit_w == 400


def test_errors_of_a_gpu_begin_with_its_drivers_name():
    log = parse_kernel_log(
        "[1.0] nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)\n"
        "[1.0] nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "[1.0] nvidia 0000:01:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:00:01.2 "
        "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
    )
    assert (len(log.aer_uncorrected), log.aer_corrected, log.limited[0].bus_id) == (1, 1, "0000:01:00.0")


def test_older_words_of_the_driver():
    log = parse_kernel_log("NVRM: Xid (0000:03:00): 31, Ch 1\nNVRM: GPU at PCI:0000:04:00 has fallen off the bus.\n")
    assert (log.xids[0].bus_id, log.xids[0].number, log.fallen) == ("0000:03:00.0", 31, ["0000:04:00.0"])
