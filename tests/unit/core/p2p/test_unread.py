"""What could not be read is unknown with the reason: never fine, never a failure by itself."""

from __future__ import annotations

import pytest


def unknowns(judgement):
    return {finding.subject: finding for finding in judgement.findings if finding.severity == "unknown"}


def test_hanging_nvidia_smi_costs_what_it_hides(node):
    for line in list(node.commands):
        if line.startswith("nvidia-smi"):
            node.commands[line] = {"rc": None, "stdout": "", "stderr": "ended after 20 s without an answer"}
    told = unknowns(node.judge())
    assert {"GPU count", "topology", "GPU settings", "peer read status", "peer write status"} <= set(told)
    assert "overran its deadline" in told["GPU count"].evidence
    assert "driver" not in told  # /proc told it
    assert node.judge().exit_code == 3


def test_output_that_is_not_nvidia_smis_is_named(node):
    node.commands["nvidia-smi topo -m"]["stdout"] = "Segmentation fault\n"
    node.commands["nvidia-smi topo -p2p n"] = {"rc": 0, "stdout": "Invalid option\n"}
    told = unknowns(node.judge())
    assert "not understood" in told["topology"].evidence
    assert "Invalid option" in told["topo -p2p n"].evidence
    assert node.judge().exit_code == 0


def test_cut_outputs_are_used_and_marked(node, texts):
    text = node.commands["nvidia-smi topo -m"]["stdout"]
    node.commands["nvidia-smi topo -m"]["stdout"] = text[: text.index("\nGPU6") + 1]
    text = texts.status(8)
    node.commands["nvidia-smi topo -p2p r"]["stdout"] = text[: text.index("\n GPU6") + 1]
    node.smi("Attached GPUs   : 8", "Attached GPUs   : 9")
    judgement = node.judge()
    told = unknowns(judgement)
    assert "no row for GPU6, GPU7" in told["output of nvidia-smi topo -m"].evidence
    assert {"output of nvidia-smi topo -p2p r", "output of nvidia-smi -q"} <= set(told)
    result = judgement.to_dict()
    assert result["topology"]["complete"] is False
    assert result["topology"]["rows"] == result["p2p_status_rows"]["r"] == [f"GPU{number}" for number in range(6)]


def test_driver_and_kernel_log_that_nobody_read(node):
    for path in ("/proc/driver/nvidia/version", "/sys/module/nvidia/version"):
        del node.files[path]
    node.smi("Driver Version  : 595.58.03", "Driver Version  : N/A")
    node.commands["dmesg"] = {"rc": 1, "stdout": "", "stderr": "dmesg: read kernel buffer failed: Operation not permitted\n"}
    told = unknowns(node.judge())
    assert told["driver"].required
    assert "Operation not permitted" in told["kernel log"].evidence
    node.commands["dmesg"] = {"rc": 0, "stdout": "\n"}
    assert "empty" in unknowns(node.judge())["kernel log"].evidence


def test_driver_version_file_that_is_not_understood(node):
    node.files["/proc/driver/nvidia/version"] = "?\n"
    for path in ("/sys/module/nvidia/version", "/sys/module/nvidia_uvm/version"):
        node.files[path] = "\n"
    del node.commands["nvidia-smi -q"]
    assert "not understood" in unknowns(node.judge())["driver"].evidence


@pytest.mark.parametrize(
    ("commands", "count"),
    [
        ({"nvidia-smi -L": {"rc": 0, "stdout": "GPU 0: A\nGPU 1: A\n"}}, 2),
        ({"nvidia-smi topo -p2p r": {"rc": 0, "stdout": " GPU0 GPU1 GPU2\nGPU0 X OK OK\nGPU1 OK X OK\nGPU2 OK OK X\n"}}, 3),
        ({"nvidia-smi -L": {"rc": 127, "stdout": "", "stderr": "not found"}}, None),
    ],
)
def test_other_ways_to_count(make, commands, count):
    host = make()
    host.data = {"commands": commands}
    assert host.judge().state.count == count


def test_count_by_proc(make):
    host = make()
    host.data = {"files": {f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": "Model: NVIDIA X\n" for bus in ("01", "21")}}
    state = host.judge().state
    assert state.count == 2
    assert [gpu.name for gpu in state.gpus] == ["GPU0", "GPU1"]


def test_xml_that_is_refused_and_text_that_is_not(node):
    node.commands["nvidia-smi -q -x"] = {"rc": 0, "stdout": "<html/>"}
    assert node.judge().state.count == 8


def test_kernel_release_by_file(node):
    node.commands["uname -r"] = None
    node.files["/proc/sys/kernel/osrelease"] = "7.0.14-14-pve\n"
    assert node.judge().state.kernel == "7.0.14-14-pve"


def test_gpu_that_only_proc_tells(node):
    node.files["/proc/driver/nvidia/gpus/0000:f1:00.0/information"] = "Model: NVIDIA X\n"
    assert node.judge().state.gpus[-1].name == "0000:f1:00.0"


def test_gpus_by_lspci_alone(make, texts):
    host = make()
    host.data = {"commands": {"lspci -vvv": {"rc": 0, "stdout": texts.lspci(2)}}}
    state = host.judge().state
    assert state.pci_gpus == ["0000:01:00.0", "0000:21:00.0"]
    assert state.gpus[0].driver == "nvidia"
    assert state.gpus[1].path == ["0000:20:01.1"]


def test_bus_of_a_bare_snapshot_is_unknown(make):
    host = make()
    host.data = {}
    state = host.judge().state
    assert (state.pci_gpus, state.command_line, state.modprobe, state.kernel) == (None, None, None, None)


def test_command_line_by_the_log(node):
    del node.files["/proc/cmdline"]
    node.commands["dmesg"]["stdout"] += "[0.0] Command line: ro iommu=pt\n"
    assert node.judge().state.command_line == ["ro", "iommu=pt"]


@pytest.mark.parametrize(
    ("subject", "hide"),
    [
        ("kernel", lambda node: node.commands.pop("uname -r")),
        ("kernel command line", lambda node: node.files.pop("/proc/cmdline")),
        ("kernel command line", lambda node: node.files.update({"/proc/cmdline": None})),
        ("module parameters", lambda node: node.files.pop("/proc/driver/nvidia/params")),
        ("module parameters", lambda node: node.files.update({"/proc/driver/nvidia/params": "?"})),
        ("kind of kernel module", lambda node: node.files.pop("/proc/driver/nvidia/version")),
        ("kind of kernel module", lambda node: node.files.update({"/proc/driver/nvidia/version": "?"})),
        ("module options", lambda node: node.files.pop("/etc/modprobe.d/gpunode.conf")),
        ("DKMS", lambda node: node.commands.pop("dkms status")),
        ("DKMS", lambda node: node.commands.update({"dkms status": {"rc": 0, "stdout": "Segmentation fault\n"}})),
        ("kernel headers", lambda node: node.links.pop("/lib/modules/7.0.14-14-pve/build")),
        ("owner of the GPUs", lambda node: (node.links.pop("/sys/bus/pci/devices/0000:21:00.0/driver"), cut_lspci(node))),
        ("bridges", lambda node: (node.links.pop("/sys/bus/pci/devices/0000:21:00.0"), cut_lspci(node))),
        ("device nodes", lambda node: node.nodes.clear()),
        ("major numbers", lambda node: node.files.pop("/proc/devices")),
        ("major numbers", lambda node: node.files.update({"/proc/devices": "?"})),
        ("container 101", lambda node: node.files.update({"/etc/pve/lxc/101.conf": "dev0: /dev/nvidia0\n"})),
        ("container 102", lambda node: node.data["measurement"].update(where="container 102")),
    ],
)
def test_each_thing_that_was_not_read_is_named_and_costs_no_verdict(node, subject, hide):
    hide(node)
    judgement = node.judge()
    told = unknowns(judgement)
    assert subject in told
    assert told[subject].evidence
    assert told[subject].remedy
    assert (judgement.verdict, judgement.exit_code) == ("pass", 0)


def cut_lspci(node):
    """Leave of lspci's output what an ordinary user's output has of the second GPU: nothing."""
    text = node.commands["lspci -vvv"]["stdout"]
    node.commands["lspci -vvv"]["stdout"] = text[: text.index("20:01.1 ")]


@pytest.mark.parametrize(
    ("kind", "subjects"),
    [
        ("files", {"kernel command line", "module parameters", "module options", "PCIe errors", "major numbers", "kind of kernel module"}),
        ("links", {"owner of the GPUs", "bridges", "IOMMU", "kernel headers"}),
        ("nodes", {"device nodes"}),
    ],
)
def test_a_kind_that_is_empty_leaves_nothing_unsaid(node, kind, subjects):
    del node.commands["lspci -vvv"]
    node.data[kind] = {}
    assert subjects <= set(unknowns(node.judge()))
    del node.data[kind]
    assert subjects <= set(unknowns(node.judge()))


def test_gpus_of_which_no_address_is_known(node):
    node.data = {"commands": {"nvidia-smi topo -m": node.commands["nvidia-smi topo -m"]}}
    assert "IOMMU, ACS, links and PCIe errors are not judged" in unknowns(node.judge())["PCI addresses"].summary


def test_links_that_nothing_tells(node):
    node.smi("Link Width\n                Max                       : 16x\n", "Link Width\n", 1)
    node.commands.pop("lspci -vvv")
    node.files.pop("/sys/bus/pci/devices/0000:01:00.0/max_link_width")
    assert "GPU0 have" in unknowns(node.judge())["PCIe links"].summary


def test_nvlinks_that_were_not_read(node, texts):
    node.commands["nvidia-smi topo -m"]["stdout"] = texts.topo(8, lambda one, other, _: "X" if one == other else "NV18")
    assert "was not run" in unknowns(node.judge())["NVLink"].evidence
    node.commands["nvidia-smi nvlink -s"] = {"rc": 0, "stdout": "?"}
    assert "not understood" in unknowns(node.judge())["NVLink"].evidence
    node.commands["nvidia-smi nvlink -s"] = {"rc": 0, "stdout": "\n"}
    assert "empty" in unknowns(node.judge())["NVLink"].evidence


def test_a_container_of_which_nothing_is_known(node):
    node.data["container"] = {"vmid": 101, "commands": {}}
    told = unknowns(node.judge())
    assert set(told) == {"container 101"}
    assert "pct start 101" in told["container 101"].remedy
    node.data["container"]["commands"]["nvidia-smi -L"] = {"rc": 0, "stdout": "GPU 0: A\n"}
    assert set(unknowns(node.judge())) == {"driver in container 101", "device nodes in container 101"}


def test_a_measurement_that_did_not_start_says_so(node):
    node.data["measured"] = []
    node.data["measurement"]["fatal"] = {"where": "start", "code": None, "summary": "container '101' not running!"}
    assert node.only("not-readable").remedy.startswith("mend what the line above says")


def test_an_unloaded_driver_hides_no_parameters(node):
    for path in ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/sys/module/nvidia/version"):
        node.files[path] = None
    for line in list(node.commands):
        if line.startswith("nvidia-smi"):
            node.commands[line] = {"rc": 9, "stdout": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"}
    assert not {"module parameters", "kind of kernel module", "device nodes"} & set(unknowns(node.judge()))


def test_a_hanging_nvidia_smi_that_cannot_be_killed_is_named(node):
    for line in list(node.commands):
        if line.startswith("nvidia-smi"):
            node.commands[line] = {"rc": None, "stdout": "", "stderr": "ended after 20 s without an answer; process 812 cannot be killed"}
    told = unknowns(node.judge())["GPU count"]
    assert "reboot" in unknowns(node.judge())["GPU settings"].remedy
    assert "process 812 cannot be killed" in told.evidence
    assert "reboot" in told.remedy
