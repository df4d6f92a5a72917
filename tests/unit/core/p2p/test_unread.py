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
