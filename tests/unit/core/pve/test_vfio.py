"""GPUs that virtual machines had: what binds them, and files edited without harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.pve.vfio import binding_lines, bound_at_boot, cmdline_change, told, without_ids

CARD = "10de:2bb5"


def gpu(**given: Any) -> dict[str, Any]:
    return {"index": 1, "bus_id": "0000:31:00.0", "vendor": "0x10de", "device": "0x2bb5", "driver": "nvidia", "claimed_by": []} | given


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("options vfio-pci ids=10de:2bb5\n", ""),
        ("options vfio-pci ids=10de:2bb5,10de:22e8\n", "options vfio-pci ids=10de:22e8\n"),
        ("options vfio-pci ids=10de:22e8,10DE:2BB5,8086:1\n", "options vfio-pci ids=10de:22e8,8086:1\n"),
        ("options vfio_pci disable_vga=1 ids=10de:2bb5\n", "options vfio_pci disable_vga=1\n"),
        ("options vfio-pci ids=10de:2bb5 disable_vga=1\n", "options vfio-pci  disable_vga=1\n"),
        ("options vfio-pci ids=10de:2bb5:10de:204e,10de:2bb50\n", "options vfio-pci ids=10de:2bb50\n"),
        ('options vfio-pci ids="10de:2bb5,10de:22e8"\n', 'options vfio-pci ids="10de:22e8"\n'),
        ("options vfio-pci \\\n  ids=10de:2bb5,10de:22e8\n", "options vfio-pci \\\n  ids=10de:22e8\n"),
        ("options vfio-pci ids=10de:2bb5", ""),
        ("a\noptions vfio-pci ids=10de:2bb5\n\n# b\\\n", "a\n\n# b\\\n"),
    ],
)
def test_ids_are_taken_out_and_nothing_else(before: str, after: str) -> None:
    assert without_ids(before, [CARD]) == after
    assert binding_lines(after, CARD) == []
    assert len(binding_lines(before, CARD)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#options vfio-pci ids=10de:2bb5\n",
        "options vfio-pci ids=10de:22e8\n",
        "options vfio-pci xids=10de:2bb5\n",
        "options kvm ids=10de:2bb5\n",
        "softdep nvidia pre: vfio-pci\n",
    ],
)
def test_other_lines_stay(text: str) -> None:
    assert without_ids(text, [CARD]) == text


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.text(alphabet='optins vf-c=10de:2b5,\\\n"#', max_size=80))
def test_any_text_is_left_whole_without_such_a_line(text: str) -> None:
    assert without_ids(text, ["ffff:ffff"]) == text
    again = without_ids(text, [CARD])
    assert without_ids(again, [CARD]) == again


@pytest.mark.parametrize(
    ("cmdline", "present", "absent"),
    [
        ("quiet", [], []),
        ("quiet vfio-pci.ids=10de:22e8", [], []),
        ("vfio-pci.ids=10de:2bb5 quiet", [], ["vfio-pci.ids"]),
        ("vfio_pci.ids=10de:2bb5,10de:22e8", ["vfio_pci.ids=10de:22e8"], []),
    ],
)
def test_the_kernel_command_line(cmdline: str, present: list[str], absent: list[str]) -> None:
    assert cmdline_change(cmdline, [CARD]) == {"present": present, "absent": absent}


def test_every_place_is_found() -> None:
    files = {
        "/etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:22e8,10de:2bb5\n",
        "/etc/modprobe.d/kvm.conf": "options kvm ignore_msrs=1\n",
        "/etc/driverctl.d/0000:31:00.0": "vfio-pci\n",
        "/etc/driverctl.d/0000:51:00.0": "vfio-pci\n",
    }
    assert bound_at_boot(gpu(), files, "ro vfio-pci.ids=10de:2bb5 quiet") == [
        {"file": "/etc/driverctl.d/0000:31:00.0", "text": "vfio-pci"},
        {"file": "/etc/modprobe.d/vfio.conf", "text": "options vfio-pci ids=10de:22e8,10de:2bb5"},
        {"file": "/proc/cmdline", "text": "vfio-pci.ids=10de:2bb5"},
    ]
    assert bound_at_boot(gpu(device="0x1234", bus_id="0000:71:00.0"), files, "") == []


def test_the_steps_are_exact_and_each_is_said_once() -> None:
    place = {"file": "/etc/modprobe.d/vfio.conf", "text": "options vfio-pci ids=10de:2bb5"}
    claim = {"vmid": 201, "name": "old", "option": "hostpci0", "onboot": True}
    text = told(
        [
            gpu(index=0, bus_id="0000:11:00.0"),
            gpu(driver="vfio-pci", claimed_by=[claim], bound_at_boot=[place]),
            gpu(index=2, bus_id="0000:51:00.0", driver="vfio-pci", bound_at_boot=[place, {"file": "/proc/cmdline", "text": "x"}]),
        ]
    )
    assert text.startswith(
        "GPU 1 (0000:31:00.0) is hostpci0 of virtual machine 201 (old);"
        " GPUs 1 (0000:31:00.0), 2 (0000:51:00.0) are bound to vfio-pci;"
        ' "options vfio-pci ids=10de:2bb5" in /etc/modprobe.d/vfio.conf does so at each boot; '
    )
    for step in (
        "`qm shutdown 201`; `qm set 201 --delete hostpci0`",
        "take 10de:2bb5 out of /etc/modprobe.d/vfio.conf",
        "`proxmox-boot-tool refresh`",
        "`update-initramfs -u -k all`; `echo 10de 2bb5 > /sys/bus/pci/drivers/vfio-pci/remove_id`",
        "`for a in 0000:31:00.0 0000:51:00.0; do echo $a > /sys/bus/pci/drivers/vfio-pci/unbind;",
    ):
        assert text.count(step) == 1, step
    assert told([gpu()]) == ""
