"""GPUs go back to their driver: files edited without harm, and what is written to the kernel in which order."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
BDF = "0000:31:00.0"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with a host below a temporary folder: one GPU that vfio-pci has, and files that say so."""
    import ansible.module_utils

    ansible.module_utils.__path__.append(str(ROOT / "plugins/module_utils"))
    try:
        spec = importlib.util.spec_from_file_location("gpu_release", ROOT / "plugins/modules/gpu_release.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        ansible.module_utils.__path__.pop()
        for name in [name for name in sys.modules if name.startswith("ansible.module_utils.gpunode")]:
            del sys.modules[name]
    bus = tmp_path / "bus"
    device = bus / "devices" / BDF
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "device").write_text("0x2bb5\n")
    (device / "driver_override").write_text("vfio-pci\n")
    (bus / "drivers/vfio-pci").mkdir(parents=True)
    (device / "driver").symlink_to(bus / "drivers/vfio-pci")
    (tmp_path / "modprobe.d").mkdir()
    (tmp_path / "driverctl.d").mkdir()
    for name, place in (("BUS", bus), ("MODPROBE", tmp_path / "modprobe.d"), ("OVERRIDES", tmp_path / "driverctl.d")):
        monkeypatch.setattr(module, name, place)
    return module


def test_only_what_binds_this_gpu_is_changed(release: Any, tmp_path: Path) -> None:
    vfio = tmp_path / "modprobe.d/vfio.conf"
    vfio.write_text("options vfio-pci ids=10de:2bb5,10de:22e8\n")
    vfio.chmod(0o600)
    (tmp_path / "modprobe.d/kvm.conf").write_text("options kvm ignore_msrs=1\n")
    (tmp_path / "driverctl.d" / BDF).write_text("vfio-pci\n")
    (tmp_path / "driverctl.d/0000:51:00.0").write_text("vfio-pci\n")
    found = release.edits([release.gpu_at(BDF)])
    assert {path.name: after for path, (_, after) in found.items()} == {"vfio.conf": "options vfio-pci ids=10de:22e8\n", BDF: None}
    for path, (_, after) in found.items():
        release.replace(path, after)
    assert vfio.read_text() == "options vfio-pci ids=10de:22e8\n"
    assert vfio.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*.d/*")) == ["0000:51:00.0", "kvm.conf", "vfio.conf"]
    assert release.edits([release.gpu_at(BDF)]) == {}


def test_the_kernel_forgets_the_id_before_it_is_asked_again(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str]] = []

    def write(path: Path, text: str, *_: Any) -> int:
        written.append((path.name, text))
        if path.name == "remove_id":
            raise OSError(19, "No such device")
        return len(text)

    monkeypatch.setattr(Path, "write_text", write)
    release.bind({"bus_id": BDF, "vendor": "0x10de", "device": "0x2bb5"})
    assert written == [("remove_id", "10de 2bb5"), ("unbind", BDF), ("driver_override", "\n"), ("drivers_probe", BDF)]


def test_a_device_that_a_process_has_open_is_in_use(release: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert release.user_of(BDF) == ""
    (tmp_path / "bus/devices" / BDF / "iommu_group").symlink_to("/sys/kernel/iommu_groups/7")
    assert release.user_of(BDF) == ""
    readlink = Path.readlink
    mine = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(
        Path, "readlink", lambda path: Path("/dev/vfio/7") if path.name == str(mine) and path.parent.name == "fd" else readlink(path)
    )
    try:
        assert release.user_of(BDF).startswith("process ")
    finally:
        os.close(mine)
