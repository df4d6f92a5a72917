"""The NVIDIA stand-in: what a boot leaves, what loading does, and what nvidia-smi prints of it."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

VERSION = "580.159.04"
PARMS = {
    "nvidia": "NVreg_RegistryDwords:charp\nNVreg_EnableResizableBar:int\nNVreg_DeviceFileMode:int",
    "nvidia-uvm": "uvm_disable_hmm:Force-disable HMM functionality in the UVM driver. (bool)\nuvm_ats_mode:int",
    "nvidia-modeset": "disable_hdmi_frl:bool",
}


def boot(world, cmdline="root=/dev/mapper/pve-root ro quiet iommu=pt"):
    world.module("boot").prepare(cmdline)


def load(world, monkeypatch, name, options="", version=VERSION):
    """Insert a module file whose modinfo is given, as if DKMS had built it."""
    kernel = world.module("kernel")
    path = world.root / f"lib/modules/7.0.14-14-pve/updates/dkms/{name}.ko.xz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()

    def modinfo(_path, field):
        return {"version": [version], "parm": PARMS[name].splitlines(), "license": ["Dual MIT/GPL"]}.get(field, [])

    monkeypatch.setattr(kernel, "modinfo", modinfo)
    firmware = world.root / f"lib/firmware/nvidia/{version}/gsp_ga10x.bin"
    firmware.parent.mkdir(parents=True, exist_ok=True)
    firmware.touch()
    kernel.insert(path, options)


def user_space(world, version=VERSION):
    """Install libnvidia-ml and make the nodes, as ordinary files: a test cannot make device nodes everywhere."""
    folder = world.root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "libnvidia-ml.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(f"libnvidia-ml.so.{version}")
    (world.root / "dev").mkdir(exist_ok=True)
    for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(8))):
        (world.root / "dev" / name).touch()


def smi(world, capsys, monkeypatch, *words):
    monkeypatch.setattr(world.module("nodes"), "as_root", lambda: None)
    code = world.module("smi.__main__").main(list(words))
    return code, capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ hardware


def test_boot_puts_eight_gpus_on_two_numa_nodes_below_their_root_ports(nvidia):
    boot(nvidia)
    bus = nvidia.root / "run/lab/nvidia/sys/bus-pci/devices"
    gpus = [entry for entry in bus.iterdir() if entry.name.endswith(":00.0") and ":01.1" in str(entry.readlink())]
    assert len(gpus) == 8
    for gpu in gpus:
        target = str(gpu.readlink())
        assert target.startswith("../../../devices/pci0000:")
        place = nvidia.root / "run/lab/nvidia/sys/devices-pci" / target.removeprefix("../../../devices/")
        assert (place / "class").read_text() == "0x030200\n"
        assert (place / "vendor").read_text() == "0x10de\n"
        assert (place / "resource2").stat().st_size == 128 << 30
        assert not (place / "driver").exists()
    nodes = sorted(
        int((place.parent / "numa_node").read_text()) for place in nvidia.root.glob("run/lab/nvidia/sys/devices-pci/*/*/*/class")
    )
    assert nodes == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("cmdline", "mode", "acs"),
    [
        ("quiet", "on", 0x1D),
        ("quiet amd_iommu=on", "on", 0x1D),
        ("quiet iommu=pt", "pt", 0x1D),
        ("intel_iommu=on iommu=pt", "pt", 0x1D),
        ("amd_iommu=off iommu=off", "off", 0x01),
        ("iommu.passthrough=1", "pt", 0x1D),
    ],
)
def test_command_line_decides_iommu_groups_and_redirection(nvidia, cmdline, mode, acs):
    boot(nvidia, cmdline)
    types = {path.read_text().strip() for path in nvidia.root.glob("run/lab/nvidia/sys/iommu_groups/*/type")}
    assert types == {"on": {"DMA-FQ"}, "pt": {"identity"}, "off": set()}[mode]
    space = (nvidia.root / "run/lab/nvidia/sys/devices-pci/pci0000:10/0000:10:01.1/config").read_bytes()
    offset = nvidia.module("config_space").ACS_OFFSET
    assert struct.unpack_from("<H", space, offset)[0] == 0x000D
    assert struct.unpack_from("<H", space, offset + 6)[0] == acs


def test_extended_capabilities_form_one_chain_that_ends(nvidia):
    space = nvidia.module("config_space")
    for data in (
        space.gpu({0: 1 << 40}, device=0x2BB5, subsystem=0x204E, bus_master=True, gen=5, width=16, bar1_mib=131072, serial=1),
        space.root_port(0x10, 0x11, (1 << 45, (1 << 45) + (1 << 38)), acs=0x1D, gen=5, width=16, port=0),
    ):
        offset, seen = 0x100, []
        while offset:
            header = struct.unpack_from("<I", data, offset)[0]
            assert header & 0xFFFF, f"no capability at {offset:#x}"
            assert offset not in seen
            seen.append(offset)
            offset = header >> 20
        assert len(data) == 4096


def test_a_gpu_that_is_off_the_bus_is_absent_after_a_boot(nvidia):
    nvidia.module("state").save_faults({"gpu-off-bus": [3], "link-width": {"1": 8}})
    boot(nvidia)
    assert len(list(nvidia.root.glob("run/lab/nvidia/sys/devices-pci/*/*/*/class"))) == 7
    assert (nvidia.root / "run/lab/nvidia/sys/devices-pci/pci0000:30/0000:30:01.1/0000:31:00.0/current_link_width").read_text() == "8\n"
    assert "limited by 32.0 GT/s PCIe x8 link" in (nvidia.root / "run/lab/kmsg").read_text()


# ------------------------------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1 b=2", {"a": "1", "b": "2"}),
        ('NVreg_RegistryDwords="ForceP2P=0x11;RMForceP2PType=1" x=1', {"NVreg_RegistryDwords": "ForceP2P=0x11;RMForceP2PType=1", "x": "1"}),
        ('"x=with blank" y', {"x": "with blank", "y": ""}),
        ("a=1 a=0", {"a": "0"}),
    ],
)
def test_parameters_are_split_as_the_kernel_splits_them(nvidia, text, expected):
    assert nvidia.module("kernel").split_parameters(text) == expected


def test_loading_binds_gpus_and_shows_parameters(nvidia, monkeypatch):
    boot(nvidia)
    load(nvidia, monkeypatch, "nvidia", 'NVreg_RegistryDwords="ForceP2P=0x11" NVreg_EnableResizableBar=1 NVreg_Bogus=1')
    run = nvidia.root / "run/lab/nvidia"
    driver = run / "sys/devices-pci/pci0000:10/0000:10:01.1/0000:11:00.0/driver"
    assert str(driver.readlink()) == "../../../../bus/pci/drivers/nvidia"
    params = (run / "proc/driver/nvidia/params").read_text()
    assert 'RegistryDwords: "ForceP2P=0x11"\n' in params
    assert "EnableResizableBar: 1\n" in params
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04 " in (run / "proc/driver/nvidia/version").read_text()
    assert "unknown parameter 'NVreg_Bogus' ignored" in (nvidia.root / "run/lab/kmsg").read_text()
    assert not (run / "sys/module/nvidia/parameters").exists(), "NVreg options have no permissions in sysfs"
    load(nvidia, monkeypatch, "nvidia-uvm", "uvm_disable_hmm=1")
    assert (run / "sys/module/nvidia_uvm/parameters/uvm_disable_hmm").read_text() == "Y\n"
    assert " nvidia-uvm\n" in (run / "proc/devices").read_text()
    assert (run / "proc/modules").read_text().splitlines()[1].startswith("nvidia 16183296 1 nvidia_uvm,")


def test_hmm_stays_on_without_the_option_and_a_wrong_value_is_refused(nvidia, monkeypatch):
    boot(nvidia)
    load(nvidia, monkeypatch, "nvidia")
    kernel = nvidia.module("kernel")
    with pytest.raises(kernel.KernelError, match="Invalid argument"):
        load(nvidia, monkeypatch, "nvidia-uvm", "uvm_disable_hmm=maybe")
    load(nvidia, monkeypatch, "nvidia-uvm", "uvm_ats_mode=1")
    assert (nvidia.root / "run/lab/nvidia/sys/module/nvidia_uvm/parameters/uvm_disable_hmm").read_text() == "N\n"


def test_a_module_in_use_cannot_be_removed(nvidia, monkeypatch):
    boot(nvidia)
    load(nvidia, monkeypatch, "nvidia")
    load(nvidia, monkeypatch, "nvidia-uvm")
    kernel, users = nvidia.module("kernel"), nvidia.module("users")
    with pytest.raises(kernel.KernelError, match="in use by: nvidia_uvm"):
        kernel.remove("nvidia")
    monkeypatch.setattr(users, "computing", lambda: [4711])
    with pytest.raises(kernel.KernelError, match=r"^in use$"):
        kernel.remove("nvidia-uvm")
    monkeypatch.setattr(users, "computing", list)
    kernel.remove("nvidia-uvm")
    kernel.remove("nvidia")
    run = nvidia.root / "run/lab/nvidia"
    assert not (run / "proc/driver/nvidia").exists()
    assert not (run / "sys/module/nvidia").exists()
    assert not list(run.glob("sys/devices-pci/*/*/*/driver"))


def test_foreign_drivers_keep_their_gpus(nvidia, monkeypatch):
    boot(nvidia)
    with nvidia.module("state").change() as now:
        now["gpus"][0]["driver"] = "vfio-pci"
    load(nvidia, monkeypatch, "nvidia")
    assert len(nvidia.module("kernel").bound(nvidia.module("state").read())) == 7
    assert "probe routine was not called for 1 device(s)" in (nvidia.root / "run/lab/kmsg").read_text()


def test_modules_load_files_hide_their_namesakes(nvidia, tmp_path):
    for folder, name, text in (("etc", "a.conf", "nvidia_uvm\n"), ("usr", "a.conf", "hidden\n"), ("usr", "b.conf", "# no\n; no\nnvidia\n")):
        (tmp_path / folder / "modules-load.d").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "modules-load.d" / name).write_text(text)
    folders = (str(tmp_path / "etc/modules-load.d"), str(tmp_path / "usr/modules-load.d"))
    assert nvidia.module("modules_load").wanted(folders) == ["nvidia_uvm", "nvidia"]


# ---------------------------------------------------------------------------------------------------------- nvidia-smi


@pytest.fixture
def ready(nvidia, monkeypatch):
    boot(nvidia)
    load(nvidia, monkeypatch, "nvidia")
    load(nvidia, monkeypatch, "nvidia-uvm", "uvm_disable_hmm=1")
    user_space(nvidia)
    monkeypatch.setattr(nvidia.module("users"), "declared", list)
    return nvidia


def test_xml_and_text_tell_the_same(ready, capsys, monkeypatch):
    code, xml = smi(ready, capsys, monkeypatch, "-q", "-x")
    assert code == 0
    root = ET.fromstring(xml)
    assert root.findtext("attached_gpus") == "8"
    gpus = root.findall("gpu")
    assert {gpu.findtext("product_name") for gpu in gpus} == {"NVIDIA RTX PRO 6000 Blackwell Server Edition (simulated)"}
    assert {gpu.findtext("addressing_mode") for gpu in gpus} == {"None"}
    assert gpus[0].findtext("pci/pci_gpu_link_info/pcie_gen/max_link_gen") == "5"
    code, text = smi(ready, capsys, monkeypatch, "-q")
    assert code == 0
    for gpu in gpus:
        assert f"    GPU UUID                                           : {gpu.findtext('uuid')}\n" in text
    assert "        GPU Link Info\n            PCIe Generation\n                Max                                    : 5\n" in text


def test_text_has_the_sections_of_a_real_one(ready, capsys, monkeypatch, samples):
    """Every label that driver 580.159.04 prints for a real GPU is printed here, at the same depth and in the same order."""
    real = [line.split(" : ")[0].rstrip() for line in (samples / "host-h200-x1/smi-q.txt").read_text().splitlines()]
    real = [line for line in real if line and not line.startswith(("=", "GPU 0", "[exit"))]
    _, text = smi(ready, capsys, monkeypatch, "-q", "-i", "0")
    ours = [line.split(" : ")[0].rstrip() for line in text.splitlines()]
    ours = [line for line in ours if line and not line.startswith(("=", "GPU 0"))]
    assert ours == real


def test_xml_has_the_elements_of_a_real_one(ready, capsys, monkeypatch, samples):
    text = (samples / "host-h200-x1/smi-q-xml.txt").read_text().partition("[exit")[0]
    skip = {"supported_mem_clock", "supported_graphics_clock", "value"}
    real = [node.tag for node in ET.fromstring(text).iter() if node.tag not in skip]
    _, ours = smi(ready, capsys, monkeypatch, "-q", "-x", "-i", "0")
    assert [node.tag for node in ET.fromstring(ours).iter()] == real


def test_topology_matches_the_reference_host(ready, capsys, monkeypatch, samples):
    code, text = smi(ready, capsys, monkeypatch, "topo", "-m")
    assert code == 0
    assert text == (samples / "01-rtxpro6000bw-8x-node-sys-ansi.txt").read_text()


def test_query_gpu(ready, capsys, monkeypatch):
    code, text = smi(
        ready, capsys, monkeypatch, "--query-gpu=index,memory.total,power.limit,pcie.link.width.max", "--format=csv", "-i", "2"
    )
    assert (code, text) == (0, "index, memory.total [MiB], power.limit [W], pcie.link.width.max\n2, 97887 MiB, 600.00 W, 16\n")
    code, text = smi(ready, capsys, monkeypatch, "--query-gpu=index,memory.used", "--format=csv,noheader,nounits", "-i", "0,7")
    assert (code, text) == (0, "0, 0\n7, 0\n")
    code, text = smi(ready, capsys, monkeypatch, "--query-gpu=nonsense", "--format=csv")
    assert code == 2
    assert '"nonsense" is not a valid field' in text


def test_table_lines_are_all_as_wide(ready, capsys, monkeypatch):
    _, text = smi(ready, capsys, monkeypatch)
    assert {len(line) for line in text.splitlines()[1:] if line} == {91}


def test_errors_are_the_real_ones(ready, capsys, monkeypatch):
    user_space(ready, "590.48.01")
    code, text = smi(ready, capsys, monkeypatch)
    assert (code, text) == (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.48\n")
    user_space(ready)
    for minor in range(8):
        (ready.root / f"dev/nvidia{minor}").unlink()
    assert smi(ready, capsys, monkeypatch) == (6, "No devices were found\n")
    (ready.root / "dev/nvidiactl").unlink()
    code, text = smi(ready, capsys, monkeypatch)
    assert code == 9
    assert "couldn't communicate with the NVIDIA driver" in text
    (ready.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    assert smi(ready, capsys, monkeypatch)[0] == 12


def test_a_lost_gpu_is_named(ready, capsys, monkeypatch):
    with ready.module("state").change() as now:
        now["gpus"][2]["lost"] = True
    code, text = smi(ready, capsys, monkeypatch, "-L")
    assert code == 15
    assert len([line for line in text.splitlines() if "UUID" in line]) == 7
    code, text = smi(ready, capsys, monkeypatch, "-q")
    assert code == 15
    assert "GPU2: 0000:51:00.0: GPU is lost" in text


def test_power_limit_and_persistence_are_kept(ready, capsys, monkeypatch):
    assert smi(ready, capsys, monkeypatch, "-pm", "1")[0] == 0
    code, text = smi(ready, capsys, monkeypatch, "-pl", "450", "-i", "1")
    assert code == 0
    assert "was set to 450.00 W from 600.00 W" in text
    assert smi(ready, capsys, monkeypatch, "-pl", "100")[0] == 2
    code, text = smi(ready, capsys, monkeypatch, "--query-gpu=power.limit,persistence_mode", "--format=csv,noheader", "-i", "0,1")
    assert text == "600.00 W, Enabled\n450.00 W, Enabled\n"


# ------------------------------------------------------------------------------------------------------------ packages


def test_real_sources_are_complete(nvidia):
    repository = nvidia.module("repository")
    folder = Path(repository.__file__).parent / "dkms"
    assert {path.name for path in folder.iterdir()} == set(repository._DKMS_SOURCES)
    built = {
        line.partition("=")[2].strip('"')
        for line in (folder / "dkms.conf").read_text().splitlines()
        if line.startswith("BUILT_MODULE_NAME")
    }
    assert built == {path.stem for path in folder.glob("nvidia*.c")}


def test_parameters_of_the_source_are_those_of_proc(nvidia):
    source = (Path(nvidia.module("repository").__file__).parent / "dkms/nvidia.c").read_text()
    kernel = nvidia.module("kernel")
    for name in kernel.PARAMS:
        assert f"({kernel.OPTION_OF.get(name, name)}" in source


# -------------------------------------------------------------------------------------------------------------- faults


def fabric_lines(world):
    return (world.root / "etc/lab/fabric.conf").read_text().splitlines()


def test_fabric_tells_what_host_and_driver_are_set_to(nvidia, monkeypatch):
    boot(nvidia, "quiet iommu=pt")
    load(nvidia, monkeypatch, "nvidia", 'NVreg_RegistryDwords="ForceP2P=0x11;RMForceP2PType=1"')
    lines = fabric_lines(nvidia)
    assert sum(line.startswith("gpu ") for line in lines) == 8
    assert "link near copy=53 both=103 latency=0.75" in lines
    assert not any("sm_read" in line for line in lines)
    boot(nvidia, "quiet")
    load(nvidia, monkeypatch, "nvidia")
    lines = fabric_lines(nvidia)
    assert any("sm_read=3.5" in line for line in lines), "without ForceP2P loads are staged"
    assert "link near copy=46 both=88 latency=0.95" in lines, "a translating IOMMU costs bandwidth"


def test_p2p_faults_reach_fabric_and_topology(ready, capsys, monkeypatch):
    faults = ready.module("faults")
    faults.p2p(["0:1", "no-access"])
    faults.p2p(["2:*", "corrupt"])
    lines = fabric_lines(ready)
    assert "fault 0:1 no-access" in lines
    assert sum(line.endswith(" corrupt") for line in lines) == 7
    _, text = smi(ready, capsys, monkeypatch, "topo", "-p2p", "r")
    assert text.splitlines()[1] == " GPU0\tX\tCNS" + "\tOK" * 6 + "\t"
    assert text.splitlines()[2].startswith(" GPU1\tOK\tX")
    with pytest.raises(faults.FaultError):
        faults.p2p(["0:0", "hang"])
    faults.clear()
    assert not any(line.startswith("fault") for line in fabric_lines(ready))


def test_a_gpu_falls_off_while_driven_and_vanishes_while_not(ready, capsys, monkeypatch):
    faults = ready.module("faults")
    faults.gpu_off_bus(["5"])
    assert "NVRM: Xid (PCI:0000:b1:00): 79, GPU has fallen off the bus." in (ready.root / "run/lab/kmsg").read_text()
    assert smi(ready, capsys, monkeypatch, "-q")[0] == 15
    config = ready.root / "run/lab/nvidia/sys/devices-pci/pci0000:b0/0000:b0:01.1/0000:b1:00.0/config"
    assert set(config.read_bytes()) == {0xFF}
    boot(ready)
    assert len(ready.module("state").read()["gpus"]) == 7
    faults.gpu_off_bus(["0"])
    assert not (ready.root / "run/lab/nvidia/sys/bus-pci/devices/0000:11:00.0").is_symlink()


def test_link_faults_show_in_sysfs_and_configuration_space(ready):
    faults = ready.module("faults")
    faults.link_width(["1", "8"])
    faults.link_speed(["1", "4"])
    place = ready.root / "run/lab/nvidia/sys/devices-pci/pci0000:30/0000:30:01.1/0000:31:00.0"
    assert (place / "current_link_width").read_text() == "8\n"
    assert (place / "current_link_speed").read_text() == "16.0 GT/s PCIe\n"
    status = struct.unpack_from("<H", (place / "config").read_bytes(), 0x60 + 0x12)[0]
    assert (status & 0xF, status >> 4 & 0x3F) == (4, 8)
    assert any("minor=1 " in line and line.endswith("port=14.25") for line in fabric_lines(ready))
    with pytest.raises(ready.module("faults").FaultError):
        faults.link_width(["9", "8"])


def acs_words(world):
    place = world.root / "run/lab/nvidia/sys/devices-pci"
    return {int.from_bytes((path / "config").read_bytes()[0x2A6:0x2A8], "little") for path in place.glob("pci*/0000:*:01.1")}


def test_clearing_gives_back_what_an_administrator_had_set(ready):
    faults, state = ready.module("faults"), ready.module("state")
    for path in (ready.root / "run/lab/nvidia/sys/devices-pci").glob("pci*/0000:*:01.1/config"):
        data = bytearray(path.read_bytes())
        data[0x2A6:0x2A8] = b"\0\0"  # as gpunode-acs.service leaves it
        path.write_bytes(data)
    for _ in range(2):
        faults.acs_on([])
        faults.hmm_on([])
    assert acs_words(ready) == {0x1D}
    faults.link_width(["1", "8"])
    assert faults.clear() == []
    assert acs_words(ready) == {0}
    assert state.read()["loaded"]["nvidia_uvm"]["params"].get("uvm_disable_hmm") != "0"
    faults.link_width(["1", "8"])
    faults.clear()
    assert acs_words(ready) == {0}


def test_clearing_says_what_stays_until_a_boot(ready, monkeypatch):
    faults, state = ready.module("faults"), ready.module("state")
    monkeypatch.setattr(faults.subprocess, "run", lambda argv, **_: ran.append(argv))
    ran = []
    faults.driver_mismatch(["101", "590.48.01"])
    assert [argv[argv.index("apt-get") + 1] for argv in ran] == ["update", "install"], "lists of another day"
    faults.gpu_off_bus(["5"])
    faults.xid(["1", "79"])
    faults.rebar_small(["2"])
    faults.iommu_translated([])
    with state.change() as now:
        now["iommu"] = "on"
        now["gpus"][2]["bar1_mib"] = 256
        now["gpus"][3]["driver"] = "nouveau"
    assert faults.clear() == [
        "until the next boot: GPU 5 stays off the bus",
        "until the next boot: BAR1 of GPU 2 stays small",
        "until the next boot: nouveau keeps GPU 3",
        "until the next boot: the IOMMU translates",
        "until the next boot: the kernel log keeps its lines of gpu-off-bus, xid",
        "until site.yml --tags cuda_userspace: container 101 has driver libraries 590.48.01",
    ]
    assert faults.clear() == ["until the next boot: BAR1 of GPU 2 stays small", "until the next boot: nouveau keeps GPU 3"]


def test_status_knows_what_the_last_clearing_left(tmp_path, monkeypatch, capsys):
    from lab import faults

    monkeypatch.setattr(faults, "ACTIVE", tmp_path / "var/faults.json")
    monkeypatch.setattr(faults, "LEFT", tmp_path / "run/left.json")

    class Part:
        said: tuple[str, ...] | None = ("until the next boot: GPU 5 stays off the bus",)

        @classmethod
        def clear(cls):
            return cls.said

    monkeypatch.setattr(faults, "modules", lambda: [Part])
    assert faults.main(["clear"]) == 0
    Part.said = None
    faults.main(["clear"])
    faults.main(["active"])
    assert capsys.readouterr().out.splitlines() == ["cleared, but until the next boot: GPU 5 stays off the bus"] * 3


def test_every_fault_says_what_it_does(nvidia):
    faults = nvidia.module("faults")
    for name, fault in faults.FAULTS.items():
        assert fault.__doc__, name
        assert "\n" not in fault.__doc__, name


def test_secure_boot_rejects_a_key_until_somebody_enrolls_it(nvidia, monkeypatch):
    boot(nvidia)
    nvidia.module("faults").secure_boot_on([])
    kernel, secure = nvidia.module("kernel"), nvidia.module("secure_boot")
    with pytest.raises(kernel.KernelError, match="Key was rejected by service"):
        load(nvidia, monkeypatch, "nvidia")
    key = {"name": "DKMS module signing key", "fingerprint": "AA"}
    monkeypatch.setattr(secure, "certificate", lambda _path: key)
    assert secure.main(["--test-key", "/var/lib/dkms/mok.pub"]) == 0
    assert secure.main(["--import", "/var/lib/dkms/mok.pub"]) == 0
    secure.power_on()
    assert secure.main(["--test-key", "/var/lib/dkms/mok.pub"]) == 0, "nobody stood at the console"
    nvidia.module("faults").mok_enroll([])
    secure.power_on()
    assert secure.main(["--test-key", "/var/lib/dkms/mok.pub"]) == 1
    monkeypatch.setattr(secure, "trusted", lambda _path: True)
    load(nvidia, monkeypatch, "nvidia")


def test_numa_nodes_agree_with_the_gpus(nvidia, tmp_path):
    numa, model = nvidia.module("numa"), nvidia.module("model")
    numa.build(tmp_path / "node")
    assert {gpu["cpulist"] for gpu in model.gpus()} == {(tmp_path / f"node/node{n}/cpulist").read_text().strip() for n in (0, 1)}
    assert numa.mask("0-3,33", 64) == "00000002,0000000f"


def test_faults_take_the_words_of_the_command_line(nvidia):
    faults = nvidia.module("faults")
    faults.FAULTS["dkms-fails"]("7.0.16-2-pve", "7.0.14-14-pve")
    assert faults._DKMS_FILE.read_text() == "LAB_TOO_NEW := 7.0.16-2-pve 7.0.14-14-pve\n"
    faults.FAULTS["dkms-fails"](["7.0.16-2-pve"])
    assert faults._DKMS_FILE.read_text() == "LAB_TOO_NEW := 7.0.16-2-pve\n"
    faults.FAULTS["dkms-fails"]()
    assert faults._DKMS_FILE.read_text() == "LAB_TOO_NEW := %\n"


# ------------------------------------------------------------------------------------------------- who drives a device


def driver_of(world, slot):
    return world.module("state").read()["gpus"][slot]["driver"]


def place_of(world, slot):
    return world.module("pci").folder(world.module("state").read()["gpus"][slot])


def test_a_device_goes_to_who_is_allowed_to_have_it(nvidia, monkeypatch):
    boot(nvidia)
    load(nvidia, monkeypatch, "nvidia")
    nvidia.module("faults").FAULTS["gpu-vfio"]("2")
    core, bdf = nvidia.module("driver_core"), "0000:51:00.0"
    core.answer("unbind", "nvidia", bdf)  # not nvidia's: refused
    assert driver_of(nvidia, 2) == "vfio-pci"
    core.answer("unbind", "vfio-pci", bdf + "\n")
    assert driver_of(nvidia, 2) is None
    assert not (place_of(nvidia, 2) / "driver").exists()
    (place_of(nvidia, 2) / "driver_override").write_text("vfio-pci\n")
    core.answer("drivers_probe", "", bdf)
    assert driver_of(nvidia, 2) == "vfio-pci"
    core.answer("unbind", "vfio-pci", bdf)
    core.answer("bind", "nvidia", bdf)
    assert driver_of(nvidia, 2) is None
    (place_of(nvidia, 2) / "driver_override").write_text("\n")
    core.answer("drivers_probe", "", bdf)
    assert driver_of(nvidia, 2) == "nvidia"
    assert (place_of(nvidia, 2) / "driver_override").read_text() == "(null)\n"
    assert (place_of(nvidia, 2) / "driver").readlink().name == "nvidia"
    assert nvidia.module("state").read()["gpus"][2]["minor"] == 2  # the one that it left


def test_a_driver_that_is_told_new_ids_takes_what_is_free(nvidia, monkeypatch):
    boot(nvidia)
    core = nvidia.module("driver_core")
    with nvidia.module("state").change() as now:
        now["vfio"] = True
        nvidia.module("kernel").render(now)
    core.answer("new_id", "vfio-pci", "10de 2bb5")
    assert {driver_of(nvidia, slot) for slot in range(8)} == {"vfio-pci"}
    core.answer("remove_id", "vfio-pci", "10de 2bb5")
    core.answer("unbind", "vfio-pci", "0000:11:00.00000:31:00.0")  # two writes without line ends
    core.answer("drivers_probe", "", "0000:11:00.0")
    assert [driver_of(nvidia, slot) for slot in range(3)] == [None, None, "vfio-pci"]


def test_the_files_to_which_one_writes_are_pipes(nvidia):
    boot(nvidia)
    nvidia.module("faults").FAULTS["gpu-vfio"]("0")
    assert (place_of(nvidia, 0) / "driver").readlink().name == "vfio-pci"
    bus = nvidia.root / "run/lab/nvidia/sys/bus-pci"
    assert all(path.is_fifo() for path in (bus / "drivers_probe", bus / "drivers/vfio-pci/unbind", bus / "drivers/vfio-pci/bind"))
