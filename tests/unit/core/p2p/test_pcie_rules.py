"""The way between GPUs: IOMMU, ACS, links, errors, BAR size."""

from __future__ import annotations

import pytest

GPU1 = "/sys/bus/pci/devices/0000:21:00.0"
ROOT1 = "/sys/bus/pci/devices/0000:20:01.1"


def translate(node, kind="DMA-FQ"):
    for number, bdf in enumerate(("01", "21", "41", "61", "81", "a1", "c1", "e1")):
        node.links[f"/sys/bus/pci/devices/0000:{bdf}:00.0/iommu_group"] = f"../../../kernel/iommu_groups/{number}"
        node.files[f"/sys/kernel/iommu_groups/{number}/type"] = kind + "\n"


@pytest.mark.parametrize("kind", ["DMA", "DMA-FQ"])
def test_iommu_translates_with_good_measurements(node, kind):
    translate(node, kind)
    finding = node.only("iommu-translated")
    assert finding.severity == "warning"
    assert "amd_iommu=off" in finding.evidence
    assert finding.remedy.startswith("boot with iommu=pt, or amd_iommu=off")
    node.files["/proc/cmdline"] = "ro quiet iommu=pt\n"
    assert node.only("iommu-translated").remedy.startswith("iommu=pt is set and does not reach them: boot with amd_iommu=off")


def test_iommu_in_passthrough_is_fine(node):
    translate(node, "identity")
    assert node.found() == {}


def test_iommu_translates_and_data_is_wrong(node):
    translate(node)
    node.pair(0, 1).update(data_ok=False, status="corrupt")
    assert node.found()["iommu-translated"] == "error"


def test_iommu_page_faults(node):
    node.commands["dmesg"]["stdout"] += "[1.0] nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0x1]\n" * 3
    finding = node.only("iommu-translated")
    assert finding.severity == "error"
    assert "3 page faults" in finding.evidence
    del node.files["/proc/cmdline"]
    assert "command line" not in node.only("iommu-translated").evidence
    translate(node)
    assert "DMA-FQ for GPU0" in node.only("iommu-translated").evidence


def test_iommu_of_one_gpu(node):
    node.links[f"{GPU1}/iommu_group"] = "../../../kernel/iommu_groups/7"
    node.files["/sys/kernel/iommu_groups/7/type"] = "DMA\n"
    assert node.only("iommu-translated").subject == "GPU1"


def test_iommu_that_could_not_be_read(node):
    del node.links[f"{GPU1}/iommu_group"]
    finding = node.only("not-readable")
    assert (finding.severity, finding.subject) == ("unknown", "IOMMU")


ON = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"


def test_acs_on_root_ports_of_a_host_that_measures_well_is_a_note(node, texts):
    node.commands["lspci -vvv"]["stdout"] = texts.lspci(8, ON)
    assert node.found() == {"acs-redirect": "info"}


def test_acs_redirect_without_a_measurement_warns(node, texts):
    node.commands["lspci -vvv"]["stdout"] = texts.lspci(8, ON)
    node.data.pop("measured")
    assert node.found(measured=False) == {"acs-redirect": "warning"}


def test_acs_redirect_when_pairs_fail_is_an_error(node, texts):
    node.commands["lspci -vvv"]["stdout"] = texts.lspci(8, ON)
    node.commands["dmesg"]["stdout"] += "Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA\n"
    node.pair(0, 1).update(status="hang")
    finding = node.only("acs-redirect")
    assert finding.severity == "error"
    assert "pcie_acs_override is active" in finding.evidence


def switch(node, texts):
    """GPU0 and GPU1 below the downstream ports of one switch."""
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(
        8, lambda one, other, count: "PIX" if {one, other} == {0, 1} else texts.path(one, other, count)
    )
    for number, bus in ((0, "01"), (1, "21")):
        node.links[f"/sys/bus/pci/devices/0000:{bus}:00.0"] = (
            f"../../../devices/pci0000:00/0000:00:01.1/0000:02:00.0/0000:03:0{number}.0/0000:{bus}:00.0"
        )


def test_acs_redirect_halves_pairs_under_one_switch(node, texts):
    """The signature that only both directions at once show: 52 of 104 GB/s (EfficientMoE/Omni-Infinity)."""
    switch(node, texts)
    node.each(lambda one, other: {one, other} == {0, 1}, copy_gbps=52.1, bidirectional_gbps=52.1)
    finding = node.only("acs-redirect")
    assert (finding.severity, finding.subject) == ("error", "switches")
    node.each(lambda one, other: {one, other} == {0, 1}, bidirectional_gbps=104.3)
    assert node.found() == {}


def test_lower_rate_both_ways_across_sockets_is_no_redirection(node):
    node.each(lambda one, other: (one < 4) != (other < 4), bidirectional_gbps=44.0)
    assert node.found() == {}


def test_switch_port_with_redirection_warns_even_when_measured_well(node, texts):
    switch(node, texts)
    node.commands["lspci -vvv"]["stdout"] += (
        "03:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n"
        "\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00\n"
        f"\t\tACSCtl:\t{ON}\n"
        "82:00.0 PCI bridge: PMC-Sierra Inc. Device 4128\n\tCapabilities: [40] Express (v2) Downstream Port (Slot+), MSI 00\n"
        f"\t\tACSCtl:\t{ON}\n"
    )
    finding = node.only("acs-redirect")
    assert (finding.severity, finding.subject) == ("warning", "0000:03:00.0")  # 82:00.0 has no GPU below


def test_redirecting_bridge_where_no_path_is_known(make):
    bare = make()
    bare.data = {"commands": {"lspci -vvv": {"rc": 0, "stdout": f"82:00.0 PCI bridge: PMC-Sierra\n\t\tACSCtl:\t{ON}\n"}}}
    assert bare.only("acs-redirect").severity == "warning"


def test_paths_from_bus_numbers(node, texts):
    for bdf in list(node.links):
        if bdf.startswith("/sys/bus/pci/devices/") and bdf.count("/") == 5:
            del node.links[bdf]
    node.commands["lspci -vvv"]["stdout"] = texts.lspci(8, ON)
    assert "above GPU7" in node.only("acs-redirect").evidence


@pytest.mark.parametrize(
    "text",
    ["01:00.0 3D controller: NVIDIA Corporation X\n00:01.1 PCI bridge: AMD\n\tCapabilities: <access denied>\n", "unexpected\n"],
)
def test_lspci_without_rights_or_sense_is_unknown(node, text):
    node.commands["lspci -vvv"]["stdout"] = text
    finding = node.only("not-readable")
    assert (finding.severity, finding.subject) == ("unknown", "ACS")


def test_no_lspci_costs_only_what_it_hides(node):
    node.commands["lspci -vvv"] = None
    assert node.found() == {"not-readable": "unknown"}
    assert node.judge().exit_code == 0


def test_lanes_are_missing(node):
    node.files[f"{GPU1}/current_link_width"] = "8\n"
    finding = node.only("pcie-width-reduced")
    assert (finding.severity, finding.subject) == ("error", "GPU1")


def test_lanes_that_the_slot_does_not_have(node):
    node.files[f"{GPU1}/current_link_width"] = "8\n"
    node.files[f"{ROOT1}/max_link_width"] = "8\n"
    node.data.pop("measured")
    assert node.found(measured=False) == {}


def test_lanes_of_a_virtual_machine_say_nothing(node):
    node.files[f"{GPU1}/current_link_width"] = "255\n"
    assert node.found() == {}


def test_lanes_by_lspci_and_by_nvidia_smi(node):
    del node.files[f"{GPU1}/current_link_width"]
    node.commands["lspci -vvv"]["stdout"] = node.commands["lspci -vvv"]["stdout"].replace(
        "Speed 2.5GT/s (downgraded), Width x16", "Speed 2.5GT/s (downgraded), Width x4 (downgraded)"
    )
    assert "lspci" in node.only("pcie-width-reduced").evidence
    del node.commands["lspci -vvv"]
    node.smi("Current                   : 16x", "Current                   : 4x")
    assert "nvidia-smi" in node.only("pcie-width-reduced").evidence


def chain(now, top=32.0):
    return [
        {"bus_id": "0000:21:00.0", "current_link_speed": now, "max_link_speed": 32.0, "current_link_width": 16, "max_link_width": 16},
        {"bus_id": "0000:20:01.1", "current_link_speed": now, "max_link_speed": top, "current_link_width": 16, "max_link_width": 16},
    ]


def test_speed_counts_under_load_only(node):
    node.data["measurement"]["links"] = {"0000:21:00.0": chain(16.0)}
    finding = node.only("pcie-speed-reduced")
    assert (finding.severity, finding.subject) == ("warning", "GPU1")
    node.data["measurement"]["links"] = {"0000:21:00.0": chain(32.0)}
    assert node.found() == {}


def test_speed_that_the_slot_does_not_have(node):
    node.data["measurement"]["links"] = {"0000:21:00.0": chain(16.0, 16.0), "0000:41:00.0": chain(None, None)}
    assert node.found() == {}


def test_speed_of_a_busy_gpu(node):
    node.smi("        GPU                               : 0 %", "        GPU                               : 97 %", 1)
    assert node.only("pcie-speed-reduced").subject == "GPU0"
    node.smi("                Current                   : 1\n", "                Current                   : 5\n", 1)
    assert node.found() == {}


def test_uplink_of_a_switch_is_slow(node, texts):
    switch(node, texts)
    up = "/sys/bus/pci/devices/0000:02:00.0"
    for place, now in ((up, "5.0"), ("/sys/bus/pci/devices/0000:00:01.1", "5.0"), ("/sys/bus/pci/devices/0000:03:00.0", "2.5")):
        node.files.update({f"{place}/current_link_speed": f"{now} GT/s PCIe\n", f"{place}/max_link_speed": "32.0 GT/s PCIe\n"})
        node.files.update({f"{place}/current_link_width": "16\n", f"{place}/max_link_width": "16\n"})
    finding = node.only("pcie-speed-reduced")
    assert finding.subject == "0000:02:00.0"
    assert "GPU0, GPU1" in finding.summary
    node.files[f"{up}/current_link_width"] = "8\n"
    assert node.found()["pcie-width-reduced"] == "warning"


LIMITED = (
    "[1.0] pci 0000:{bus}:00.0: 63.012 Gb/s available PCIe bandwidth, limited by {speed} GT/s PCIe x{width} link at 0000:20:01.1 "
    "(capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
)


def test_kernel_says_what_limits_a_gpu(node):
    node.commands["dmesg"]["stdout"] += LIMITED.format(bus="21", speed="16.0", width=16) + LIMITED.format(bus="41", speed="32.0", width=8)
    node.commands["dmesg"]["stdout"] += LIMITED.format(bus="ff", speed="32.0", width=8)
    assert node.only("pcie-speed-reduced").subject == "GPU1"
    assert node.only("pcie-width-reduced").subject == "GPU2"
    node.files["/sys/bus/pci/devices/0000:41:00.0/current_link_width"] = "8\n"
    assert node.only("pcie-width-reduced").severity == "error"  # told once, by the graver sign


def test_pcie_errors(node):
    node.files[f"{GPU1}/aer_dev_fatal"] = "Undefined 0\nTOTAL_ERR_FATAL 2\n"
    node.files[f"{ROOT1}/aer_dev_correctable"] = "RxErr 4000\nBadTLP 1\n"
    summaries = [finding.summary for finding in node.judge().findings if finding.id == "pcie-errors"]
    assert summaries == [
        "GPU1 counted 2 fatal PCIe errors since boot",
        "0000:20:01.1 (port of GPU1) counted 4001 correctable PCIe errors since boot",
    ]
    assert node.judge().exit_code == 0


def test_few_correctable_errors_are_normal(node):
    node.files[f"{GPU1}/aer_dev_correctable"] = "RxErr 7\nTOTAL_ERR_COR 7\n"
    assert node.found() == {}


def test_uncorrected_errors_in_the_log(node):
    node.commands["dmesg"]["stdout"] += (
        "[5.0] pcieport 0000:20:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
        "[5.0] pcieport 0000:20:01.1: AER: Corrected error received: 0000:21:00.0\n"
    )
    assert "1 uncorrected" in node.only("pcie-errors").summary


def test_resizable_bar_is_lost(node):
    node.smi("Total                             : 131072 MiB", "Total                             : 256 MiB", 2)
    finding = node.only("rebar-small")
    assert (finding.severity, finding.subject) == ("warning", "GPU0, GPU1")
    node.pair(0, 1).update(status="no-access")
    assert node.found()["rebar-small"] == "error"


def test_small_bar_by_lspci(make):
    host = make(1)
    host.smi("        Total                             : 131072 MiB\n", "")
    host.commands["lspci -vvv"]["stdout"] = host.commands["lspci -vvv"]["stdout"].replace("[size=128G]", "[size=256M]")
    assert host.found() == {"rebar-small": "info"}  # one GPU has no peers
    del host.commands["lspci -vvv"]
    assert host.found() == {"not-readable": "unknown"}


def test_small_bar_of_a_virtual_machine_says_nothing(node):
    node.smi("Total                             : 131072 MiB", "Total                             : 256 MiB")
    node.smi("Virtualization Mode               : None", "Virtualization Mode               : Pass-Through")
    assert node.found() == {}
