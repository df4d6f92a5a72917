"""The driver: there, right, of one version, and built for the next kernel."""

from __future__ import annotations

import pytest

KERNEL = "7.0.14-14-pve"


def unload(node):
    node.files["/proc/driver/nvidia/version"] = None
    node.files["/sys/module/nvidia/version"] = None
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running.\n"
    for line in list(node.commands):
        if line.startswith("nvidia-smi"):
            node.commands[line] = {"rc": 9, "stdout": failed, "stderr": ""}
    node.data.pop("measured")


def test_driver_not_loaded(node):
    unload(node)
    found = node.found()
    assert found["driver-not-loaded"] == "error"
    assert "device-node-missing" not in found
    assert node.judge().exit_code == 1


@pytest.mark.parametrize("told", ["smi", "module"])
def test_driver_not_loaded_by_other_words(node, told):
    unload(node)
    del node.files["/proc/driver/nvidia/version"]
    if told == "smi":
        del node.files["/sys/module/nvidia/version"]
    else:
        node.commands.clear()
    finding = node.only("driver-not-loaded")
    assert finding.evidence == (
        "nvidia-smi: couldn't communicate with the NVIDIA driver" if told == "smi" else "/sys/module/nvidia does not exist"
    )


def test_dkms_not_built_for_the_running_kernel_explains_the_missing_driver(node):
    unload(node)
    node.commands["dkms status"]["stdout"] = "nvidia/595.58.03, 6.17.13-21-pve, x86_64: installed\nnvidia/590.48.01: added\n"
    ids = [finding.id for finding in node.judge().findings]
    assert ids.index("dkms-not-built") < ids.index("driver-not-loaded")
    assert node.found()["dkms-not-built"] == "error"


def test_dkms_not_built_for_a_newer_kernel_warns_before_the_reboot(node):
    node.links["/lib/modules/7.0.16-2-pve/build"] = None
    found = node.found()
    assert found["dkms-not-built"] == "warning"
    assert found["headers-missing"] == "warning"
    assert node.only("dkms-not-built").subject == "kernel 7.0.16-2-pve"


def test_what_is_built_beside_the_driver_is_not_the_driver(node):
    node.commands["dkms status"]["stdout"] = "nvidia-fs/2.26.6, 7.0.14-14-pve, x86_64: installed\nnvidia/595.58.03: added\n"
    unload(node)
    assert node.found()["dkms-not-built"] == "error"


def test_older_kernels_and_foreign_modules_do_not_matter(node):
    node.links["/lib/modules/6.17.13-21-pve/build"] = None
    node.commands["dkms status"]["stdout"] = "r8168/8.1, 7.0.14-14-pve, x86_64: installed\n"
    assert node.found() == {}


def test_driver_from_elsewhere_than_dkms_is_fine(node):
    node.commands["dkms status"]["stdout"] = "nvidia/590.48.01, 6.17.13-21-pve, x86_64: installed\n"
    assert node.found() == {}


def test_headers_missing_for_the_running_kernel(node):
    node.links[f"/lib/modules/{KERNEL}/build"] = None
    assert node.found() == {"headers-missing": "warning"}
    unload(node)
    assert node.found()["headers-missing"] == "error"


def test_driver_that_was_not_built_here_needs_no_headers(node):
    node.links[f"/lib/modules/{KERNEL}/build"] = None
    node.commands["dkms status"] = None
    assert node.found() == {}
    del node.commands["dkms status"]
    assert node.found() == {"headers-missing": "warning", "not-readable": "unknown"}


def test_headers_that_are_an_empty_folder(node):
    node.files[f"/lib/modules/{KERNEL}/build/include/config/kernel.release"] = None
    assert "empty" in node.only("headers-missing").evidence


def test_headers_without_a_kernel_to_compare_with(node):
    del node.commands["uname -r"]
    assert node.only("not-readable").subject == "kernel"


def test_secure_boot_refuses_the_key(node):
    unload(node)
    node.commands["dmesg"]["stdout"] += "[   8.0] Loading of module with unavailable key is rejected\n"
    node.commands["mokutil --sb-state"] = {"rc": 0, "stdout": "SecureBoot enabled\n"}
    finding = node.only("secure-boot-key")
    assert finding.severity == "error"
    assert "SecureBoot enabled" in finding.evidence
    del node.commands["mokutil --sb-state"]
    assert "mokutil" not in node.only("secure-boot-key").evidence


def test_rejected_key_of_a_driver_that_runs_is_old_news(node):
    node.commands["dmesg"]["stdout"] += "[   8.0] modprobe: Key was rejected by service\n"
    assert node.found() == {}


@pytest.mark.parametrize("driver", ["nouveau", "nova_core"])
def test_nouveau_owns_a_gpu(node, driver):
    node.links["/sys/bus/pci/devices/0000:21:00.0/driver"] = f"../../../bus/pci/drivers/{driver}"
    finding = node.only("nouveau-loaded")
    assert (finding.severity, finding.subject) == ("error", "GPU1")


def test_nouveau_is_loaded_and_owns_nothing(node):
    node.files["/sys/module/nouveau/initstate"] = "live\n"
    assert node.found() == {"nouveau-loaded": "warning"}
    node.files["/sys/module/nouveau/initstate"] = None
    assert node.found() == {}


def test_vfio_has_a_gpu(node):
    node.links["/sys/bus/pci/devices/0000:21:00.0/driver"] = "../../../bus/pci/drivers/vfio-pci"
    finding = node.only("gpu-wrong-driver")
    assert (finding.severity, finding.subject) == ("error", "GPU1")
    assert "vfio-pci" in finding.remedy
    node.links["/sys/bus/pci/devices/0000:21:00.0/driver"] = "../../../bus/pci/drivers/snd"
    assert "unbind" in node.only("gpu-wrong-driver").remedy


def test_no_driver_has_a_gpu(node):
    node.links["/sys/bus/pci/devices/0000:21:00.0/driver"] = None
    assert "no driver owns GPU1" in node.only("gpu-wrong-driver").summary


def test_kernel_says_that_another_driver_has_the_cards(node):
    node.commands["dmesg"]["stdout"] += "[188549.9] NVRM: The NVIDIA probe routine was not called for 3 device(s).\n"
    assert "3" in node.only("gpu-wrong-driver").summary
    node.links["/sys/bus/pci/devices/0000:21:00.0/driver"] = "../drivers/vfio-pci"
    assert node.only("gpu-wrong-driver").subject == "GPU1"


@pytest.mark.parametrize(
    ("name", "architecture", "severity"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell", "error"),
        ("NVIDIA H100", "Hopper", "info"),
        ("NVIDIA X", "N/A", "warning"),
    ],
)
def test_proprietary_module(node, texts, name, architecture, severity):
    node.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.58.03  Tue Mar 17\n"
    node.commands["nvidia-smi -q"]["stdout"] = texts.smi(8, name, architecture)
    assert node.found()["driver-proprietary"] == severity


def test_user_space_of_another_version(node):
    failed = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 595.71\n"
    for line in list(node.commands):
        if line.startswith("nvidia-smi"):
            node.commands[line] = {"rc": 18, "stdout": failed, "stderr": ""}
    node.commands["dmesg"]["stdout"] += (
        "[ 9.4] NVRM: API mismatch: the client 'nvidia-smi' (pid 1005)\n       NVRM: has the version 595.71, but this kernel module has\n"
        "       NVRM: the version 595.58.03.  Please make sure that this\n"
    )
    finding = node.only("driver-version-mismatch")
    assert finding.severity == "error"
    assert "client 595.71, module 595.58.03" in finding.evidence


def test_modules_of_two_versions(node):
    node.files["/sys/module/nvidia_uvm/version"] = "590.48.01\n"
    assert node.found()["driver-version-mismatch"] == "error"


def test_library_of_another_version_than_the_module(node):
    node.links["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] = "/usr/lib/x86_64-linux-gnu/libcuda.so.590.48.01"
    node.links["/usr/lib/libcuda.so.1"] = None
    assert "libcuda.so.1 590.48.01" in node.only("driver-version-mismatch").evidence


def test_next_load_brings_another_version(node):
    node.commands["modinfo -F version nvidia"] = {"rc": 0, "stdout": "610.43.02\n"}
    assert node.found() == {"driver-version-mismatch": "warning"}
    node.commands["modinfo -F version nvidia"] = {"rc": 0, "stdout": "595.58.03\n"}
    assert node.found() == {}


@pytest.fixture
def guest(node):
    node.data["container"] = {
        "vmid": 101,
        "commands": {"nvidia-smi -L": {"rc": 0, "stdout": "GPU 0: NVIDIA\n"}},
        "links": {"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.595.58.03"},
        "nodes": {f"/dev/nvidia{number}": {"major": 195, "minor": number} for number in range(8)},
    }
    return node.data["container"]


def test_container_of_the_hosts_version(node, guest):
    assert guest
    assert node.found() == {}


def test_container_of_another_version(node, guest):
    guest["links"]["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] = "libcuda.so.590.48.01"
    finding = node.only("container-driver-mismatch")
    assert (finding.severity, finding.subject) == ("error", "container 101")
    assert "595.58.03" in finding.remedy


def test_container_whose_nvidia_smi_refuses(node, guest):
    guest["commands"]["nvidia-smi -L"] = {"rc": 18, "stdout": "Failed to initialize NVML: Driver/library version mismatch\n"}
    node.commands["dmesg"]["stdout"] += (
        "[8957.0] NVRM: API mismatch: the client has the version 570.148.08, but\n"
        "[8957.0] NVRM: this kernel module has the version 595.58.03.  Please\n"
    )
    assert "client 570.148.08" in node.only("container-driver-mismatch").evidence


def test_container_that_cannot_be_entered_is_unknown(node, guest):
    guest["commands"]["nvidia-smi -L"] = {"rc": 255, "stdout": "", "stderr": "python3: not found"}
    finding = node.only("not-readable")
    assert (finding.severity, finding.required) == ("unknown", False)
    guest["commands"]["nvidia-smi -L"] = None
    assert "does not exist" in node.only("not-readable").evidence
    guest["commands"].clear()
    assert "was not run" in node.only("not-readable").evidence
