"""GPUs found in configurations, however they got there."""

from __future__ import annotations

import pytest

from gpunode.pve.conffile import parse
from gpunode.pve.passthrough import claims, machine, nvidia_majors, passthrough, pci_mappings

ENTRY = "lxc.mount.entry: {0} {1} none bind,optional,create=file\n"


@pytest.mark.parametrize(
    ("text", "mechanism", "gpus"),
    [
        ("hostname: a\n", "none", ()),
        ("dev3: /dev/nvidia10,mode=0666\ndev0: /dev/nvidia2\n", "dev", ("/dev/nvidia2", "/dev/nvidia10")),
        (ENTRY.format("/dev/nvidia0", "dev/nvidia0"), "mount_entry", ("/dev/nvidia0",)),
        (ENTRY.format("/srv/nodes/nvidia1", "dev/nvidia1"), "mount_entry", ("/dev/nvidia1",)),
        ("dev0: /dev/nvidia0\n" + ENTRY.format("/dev/nvidia1", "dev/nvidia1"), "both", ("/dev/nvidia0", "/dev/nvidia1")),
        ("dev0: /dev/dri/card0\n" + ENTRY.format("/dev/net/tun", "dev/net/tun"), "dev", ()),
        (ENTRY.format("/dev/snd", "dev/snd"), "none", ()),
        ("lxc.hook.mount: /usr/share/lxc/hooks/nvidia\n", "hook", ()),
        ("#" + ENTRY.format("/dev/nvidia0", "dev/nvidia0"), "none", ()),
        ("[snap]\n" + ENTRY.format("/dev/nvidia0", "dev/nvidia0"), "none", ()),
        (ENTRY.format("/srv/data", "srv/data"), "none", ()),
    ],
)
def test_mechanism_and_gpus_of_the_live_section(text: str, mechanism: str, gpus: tuple[str, ...]) -> None:
    found = passthrough(parse(text))
    assert (found.mechanism, found.gpus) == (mechanism, gpus)


def test_only_lines_that_dev_replaces_are_by_hand() -> None:
    lines = [
        ("lxc.cgroup2.devices.allow", "c 195:* rwm"),
        ("lxc.cgroup2.devices.allow", "c 509:* rwm"),
        ("lxc.cgroup2.devices.allow", "c 10:200 rwm"),
        ("lxc.cgroup2.devices.allow", "a"),
        ("lxc.mount.entry", "/dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file"),
        ("lxc.mount.entry", "/dev/nvram dev/nvram none bind,optional,create=file"),
        ("lxc.environment", "NVIDIA_VISIBLE_DEVICES=all"),
        ("lxc.environment", "TERM=linux"),
        ("lxc.hook.pre-start", "sh -c '/usr/bin/nvidia-modprobe -c0 -u'"),
    ]
    found = passthrough(parse("".join(f"{key}: {value}\n" for key, value in lines)), [195, 509])
    assert found.by_hand == (lines[0], lines[1], lines[4], lines[6], lines[8])


def test_what_a_person_should_know() -> None:
    text = (
        ENTRY.format("/usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
        + ENTRY.format("/dev/nvidia0", "dev/nvidia0")
        + "lxc.environment.runtime: CUDA_VISIBLE_DEVICES=0\nlxc.cgroup2.devices.allow: c 510:* rwm\nlxc.cgroup.devices.allow: a\n"
    )
    notes = " ".join(passthrough(parse(text)).notes)
    for words in (
        "host's libraries over the container's own",
        "CUDA_VISIBLE_DEVICES=0 hides GPUs",
        "c 510:* rwm names a major",
        "cgroup v1 key",
    ):
        assert words in notes


def test_unprivileged_is_unknown_where_the_file_does_not_say() -> None:
    assert [passthrough(parse(text)).unprivileged for text in ("", "unprivileged: 1\n", "unprivileged: 0\n")] == [None, True, False]


def test_majors_of_character_devices_alone() -> None:
    text = "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-nvlink\n241 nvidia-uvm\n\nBlock devices:\n259 nvidiablk\n"
    assert nvidia_majors(text) == [195, 195, 241]


MAPPING = "gpu0\n\tmap id=10de:2bb5,iommugroup=3,node=pve,path=0000:f1:00.0\n\tdescription old card\n"


def test_machines_that_name_a_gpu() -> None:
    text = (
        "name: win\nonboot: 1\nhostpci0: 0000:11:00.0,pcie=1\nhostpci1: 31:00,x-vga=1\nhostpci2: mapping=gpu0\n"
        "hostpci3: host=51:00.0;71:00.0\n#hostpci9: 91:00.0\n\n[snap]\nhostpci4: b1:00.0\n"
    )
    guest = machine(200, text, pci_mappings(MAPPING))
    assert guest.hostpci == {
        "hostpci0": ("0000:11:00.0",),
        "hostpci1": ("0000:31:00",),
        "hostpci2": ("0000:f1:00.0",),
        "hostpci3": ("0000:51:00.0", "0000:71:00.0"),
    }
    assert [claim["option"] for claim in claims("0000:31:00.0", [guest])] == ["hostpci1"]
    assert [claim["option"] for claim in claims("0000:71:00.0", [guest])] == ["hostpci3"]
    assert claims("0000:b1:00.0", [guest]) == []
    assert claims("0000:f1:00.0", [guest])[0] == {"vmid": 200, "name": "win", "option": "hostpci2", "onboot": True}
