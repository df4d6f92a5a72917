"""What kmod hands to modules, and what somebody else installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpunode import foreign, modprobe

if TYPE_CHECKING:
    from pathlib import Path

OURS = "/etc/modprobe.d/gpunode-nvidia.conf"
TEXT = (
    'blacklist nouveau\noptions nvidia_uvm uvm_disable_hmm=1\noptions nvidia NVreg_RegistryDwords="A=0x11;B=1" NVreg_EnableResizableBar=1\n'
)
WANTED = {"nvidia_uvm": {"uvm_disable_hmm": 1}, "nvidia": {"NVreg_RegistryDwords": "A=0x11;B=1", "NVreg_EnableResizableBar": 1}}


def wrong(files: dict[str, str], cmdline: str = "") -> list[tuple[str, str | None, str]]:
    found = modprobe.effective({OURS: TEXT, **files}, cmdline)
    return [(item.option, item.value, item.file) for item in modprobe.overridden(found, WANTED)]


@pytest.mark.parametrize(
    ("files", "cmdline", "overridden"),
    [
        ({}, "quiet iommu=pt", []),
        ({"/etc/modprobe.d/zz.conf": "options nvidia-uvm uvm_disable_hmm=0\n"}, "", [("uvm_disable_hmm", "0", "/etc/modprobe.d/zz.conf")]),
        ({"/etc/modprobe.d/aa.conf": "options nvidia_uvm uvm_disable_hmm=0\n"}, "", []),  # ours is read after it
        ({"/etc/modprobe.d/zz.conf": "options nvidia_uvm uvm_disable_hmm=Y\n"}, "", []),  # the same value
        ({"/etc/modprobe.d/zz.txt": "options nvidia_uvm uvm_disable_hmm=0\n"}, "", []),  # not read
        ({"/usr/lib/modprobe.d/zz.conf": "options nvidia_uvm uvm_disable_hmm=0\n", "/etc/modprobe.d/zz.conf": ""}, "", []),  # hidden
        (
            {"/usr/lib/modprobe.d/zz.conf": "options nvidia \\\n NVreg_EnableResizableBar=0\n"},
            "",
            [("NVreg_EnableResizableBar", "0", "/usr/lib/modprobe.d/zz.conf")],
        ),
        ({}, "nvidia_uvm.uvm_disable_hmm=0", [("uvm_disable_hmm", "0", "/proc/cmdline")]),
        (
            {OURS: "blacklist nouveau\n"},
            "",
            [("uvm_disable_hmm", None, ""), ("NVreg_RegistryDwords", None, ""), ("NVreg_EnableResizableBar", None, "")],
        ),
    ],
)
def test_the_last_value_that_kmod_reads_counts(files: dict[str, str], cmdline: str, overridden: list[tuple[str, str | None, str]]) -> None:
    assert wrong(files, cmdline) == overridden


@pytest.mark.parametrize(
    ("files", "cmdline", "says"),
    [
        ({"/etc/modprobe.d/no.conf": "blacklist nvidia\n"}, "", "/etc/modprobe.d/no.conf blacklists nvidia"),
        ({"/etc/modprobe.d/no.conf": "install nvidia-uvm /bin/false\n"}, "", "install nvidia_uvm /bin/false"),
        ({}, "modprobe.blacklist=nvidia,nouveau", "/proc/cmdline blacklists nvidia"),
    ],
)
def test_what_keeps_the_driver_out_is_named(files: dict[str, str], cmdline: str, says: str) -> None:
    (line,) = modprobe.kept_out(modprobe.effective(files, cmdline))
    assert says in line


def test_nothing_keeps_the_driver_out() -> None:
    files = {OURS: TEXT, "/etc/modprobe.d/x.conf": "install nvidia /sbin/modprobe -i nvidia; echo\nblacklist nvidiafb\n"}
    assert modprobe.kept_out(modprobe.effective(files)) == []


@pytest.mark.skipif(not shutil.which("modprobe"), reason="no kmod here")
def test_the_same_as_kmod_says(tmp_path: Path) -> None:
    texts = {
        "b.conf": "options nvidia_uvm uvm_disable_hmm=1\n",
        "a.conf": "options nvidia-uvm uvm_disable_hmm=0 x=1\n",
        "c.conf": "options nvidia_uvm \\\n x=2\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    said = subprocess.run(["modprobe", "-C", str(tmp_path), "--showconfig"], capture_output=True, text=True, check=True).stdout
    last: dict[str, str] = {}
    for line in said.splitlines():
        words = line.split()
        if words[:2] == ["options", "nvidia_uvm"]:
            last |= dict(word.partition("=")[::2] for word in words[2:])
    found = modprobe.effective({f"/etc/modprobe.d/{name}": text for name, text in texts.items()}).options["nvidia_uvm"]
    assert {name: value for name, (value, _) in found.items()} == last


@pytest.mark.parametrize(
    ("packages", "names"),
    [
        ({"nvidia-kernel-open-dkms": "580.159.04-1", "nvidia-driver-cuda": "580.159.04-1", "nvidia-persistenced": "580"}, []),
        (
            {"nvidia-open-kernel-dkms": "550.163.01-2", "nvidia-alternative": "550", "bash": "5"},
            ["nvidia-alternative", "nvidia-open-kernel-dkms"],
        ),
        ({"nvidia-kernel-dkms": "580.159.04-1"}, ["nvidia-kernel-dkms"]),
        ({"nvidia-tesla-470-kernel-dkms": "470"}, ["nvidia-tesla-470-kernel-dkms"]),
    ],
)
def test_packages_of_another_driver(packages: dict[str, str], names: list[str]) -> None:
    assert [name for item in foreign.foreign_packages(packages) for name in item.packages] == names


def test_a_run_file_and_stray_modules() -> None:
    assert foreign.foreign_runfile(uninstaller=False, log=True) == []
    assert foreign.foreign_runfile(uninstaller=True, log=True)[0].remedy == "nvidia-uninstall --silent"
    stray = "/lib/modules/x/kernel/drivers/video/nvidia.ko"
    assert foreign.foreign_modules(["/lib/modules/x/updates/dkms/nvidia.ko.xz"], []) == []
    assert foreign.foreign_modules([stray], [stray]) == []
    assert foreign.foreign_modules([stray], [])[0].files == [stray]
