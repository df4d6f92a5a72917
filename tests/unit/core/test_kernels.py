"""Kernels: order, what the boot loader starts, pins, the proof."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode import kernels

OLD, NEW = "7.0.14-14-pve", "7.0.16-2-pve"
GRUB = """
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
else
   set default="0"
fi
menuentry 'Proxmox VE GNU/Linux' --class proxmox $menuentry_id_option 'gnulinux-simple-UUID' {
\tif [ x$grub_platform = xxen ]; then insmod xzio; fi
\tlinux\t/boot/vmlinuz-7.0.16-2-pve root=/dev/mapper/pve-root ro quiet
}
submenu 'Advanced options for Proxmox VE GNU/Linux' $menuentry_id_option 'gnulinux-advanced-UUID' {
\tmenuentry 'Proxmox VE GNU/Linux, with Linux 7.0.16-2-pve' $menuentry_id_option 'gnulinux-7.0.16-2-pve-advanced-UUID' {
\t\tlinux\t/boot/vmlinuz-7.0.16-2-pve root=/dev/mapper/pve-root ro quiet
\t}
\tmenuentry 'Proxmox VE GNU/Linux, with Linux 7.0.16-2-pve (recovery mode)' $menuentry_id_option 'gnulinux-7.0.16-2-pve-recovery-UUID' {
\t\tlinux\t/boot/vmlinuz-7.0.16-2-pve root=/dev/mapper/pve-root ro single
\t}
\tmenuentry 'Proxmox VE GNU/Linux, with Linux 7.0.14-14-pve' $menuentry_id_option 'gnulinux-7.0.14-14-pve-advanced-UUID' {
\t\tlinux\t/boot/vmlinuz-7.0.14-14-pve root=/dev/mapper/pve-root ro quiet
\t}
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
\tfwsetup
}
"""
PINNED = GRUB.replace('default="0"', 'default="gnulinux-advanced-UUID>gnulinux-7.0.14-14-pve-advanced-UUID"')


@pytest.mark.parametrize(
    ("config", "environment", "boots"),
    [
        (GRUB, "", NEW),
        (PINNED, "", OLD),
        (PINNED, "# GRUB Environment Block\nnext_entry=gnulinux-advanced-UUID>1\n####", NEW),
        (GRUB, "next_entry=1>2\n", OLD),
        (GRUB.replace('default="0"', 'default="${saved_entry}"'), "saved_entry=1>2\n", OLD),
        (PINNED.replace("14-14-pve-advanced-UUID' {", "gone' {"), "", NEW),  # GRUB falls back to the first entry
        (GRUB.replace('default="0"', 'default="Advanced options for Proxmox VE GNU/Linux"'), "", NEW),
        ("", "", ""),
        ("menuentry 'Firmware' {\n\tfwsetup\n}\n", "", ""),
    ],
)
def test_grub_boots(config: str, environment: str, boots: str) -> None:
    assert kernels.grub_boots(config, environment) == boots


def test_grub_titles_name_the_advanced_entry_and_no_recovery() -> None:
    titles = kernels.grub_titles(GRUB)
    assert titles == {
        NEW: "Advanced options for Proxmox VE GNU/Linux > Proxmox VE GNU/Linux, with Linux 7.0.16-2-pve",
        OLD: "Advanced options for Proxmox VE GNU/Linux > Proxmox VE GNU/Linux, with Linux 7.0.14-14-pve",
    }


ENTRIES = {
    f"proxmox-{release}.conf": f"title    Proxmox Virtual Environment\nversion  {release}\noptions  root=ZFS=rpool/ROOT/pve-1\n"
    f"linux    /EFI/proxmox/{release}/vmlinuz-{release}\ninitrd   /EFI/proxmox/{release}/initrd.img-{release}\n"
    for release in (OLD, NEW, "7.0.9-3-pve")
}


@pytest.mark.parametrize(
    ("conf", "boots"),
    [
        ("timeout 3\ndefault proxmox-*\n", NEW),
        ("default proxmox-7.0.14-14-pve.conf\n", OLD),
        ("default proxmox-7.0.14-14-pve\n", OLD),
        ("default proxmox-6.*\n", NEW),
        ("", NEW),
    ],
)
def test_systemd_boots(conf: str, boots: str) -> None:
    assert kernels.systemd_boots(conf, {**ENTRIES, "memtest.conf": "title memtest\nefi /memtest.efi\n"}) == boots


def test_systemd_boots_nothing_without_entries() -> None:
    assert not kernels.systemd_boots("default proxmox-*\n", {})


RELEASE = st.builds(lambda a, b, c, d: f"{a}.{b}.{c}-{d}-pve", *[st.integers(0, 99)] * 4)


@given(RELEASE, RELEASE)
def test_order_is_that_of_the_numbers(one: str, two: str) -> None:
    numbers = [tuple(int(part) for part in release.removesuffix("-pve").replace("-", ".").split(".")) for release in (one, two)]
    assert (kernels.release_key(one) < kernels.release_key(two)) == (numbers[0] < numbers[1])


def test_metapackages_lead_to_a_kernel() -> None:
    text = "Package: proxmox-kernel-7.0\nVersion: 7.0.16-2\nDepends: pve-firmware, proxmox-kernel-7.0.16-2-pve-signed\n"
    assert kernels.parse_depends(text) == NEW
    assert not kernels.parse_depends("Package: proxmox-default-kernel\nDepends: proxmox-kernel-7.0\n")
    assert not kernels.parse_depends("")


@pytest.mark.parametrize(
    ("text", "candidate"),
    [("x:\n  Installed: (none)\n  Candidate: 7.0.16-2\n", "7.0.16-2"), ("x:\n  Candidate: (none)\n", ""), ("", "")],
)
def test_candidate(text: str, candidate: str) -> None:
    assert kernels.parse_candidate(text) == candidate


def whole(release: str = NEW) -> dict:
    module = {"version": "580.159.04", "vermagic": f"{release} SMP preempt", "filename": f"/lib/modules/{release}/x.ko", "parm": []}
    return {
        "release": release,
        "image": True,
        "initrd": True,
        "headers": True,
        "dkms": {"nvidia": "580.159.04"},
        "modules": {"nvidia": module, "nvidia_uvm": {**module, "parm": ["uvm_disable_hmm"]}},
    }


def test_a_whole_kernel_is_proved() -> None:
    assert kernels.prove(NEW, whole(), whole(OLD)) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("image",), False, "not installed"),
        (("initrd",), False, "update-initramfs -c -k"),
        (("headers",), False, f"proxmox-headers-{NEW}"),
        (("dkms",), {}, "make.log"),
        (("dkms",), {"nvidia": "570.1"}, "only 570.1"),
        (("modules", "nvidia"), None, "finds no module"),
        (("modules", "nvidia", "version"), "550.1", "finds version 550.1"),
        (("modules", "nvidia_uvm", "vermagic"), f"{OLD} SMP", f"built for {OLD}"),
        (("modules", "nvidia_uvm", "parm"), ["uvm_debug"], "HMM could not be switched off"),
    ],
)
def test_what_is_missing_is_named(path: tuple[str, ...], value: object, says: str) -> None:
    kernel = copy.deepcopy(whole())
    place = kernel
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (problem,) = kernels.prove(NEW, kernel, whole(OLD))
    assert says in problem


def test_every_module_of_dkms_counts() -> None:
    reference = whole(OLD) | {"dkms": {"nvidia": "580.159.04", "r8125": "9.0"}}
    (problem,) = kernels.prove(NEW, whole(), reference)
    assert "r8125/9.0" in problem


def test_secure_boot_wants_signatures() -> None:
    assert len(kernels.prove(NEW, whole(), whole(OLD), secure_boot=True)) == 2
    signed = whole()
    for module in signed["modules"].values():
        module["signer"] = "DKMS module signing key"
    assert kernels.prove(NEW, signed, whole(OLD), secure_boot=True) == []


def test_modinfo() -> None:
    text = "filename: /lib/modules/x/nvidia-uvm.ko\nparm:     uvm_disable_hmm:Force-disable HMM (bool)\nparm:   uvm_b:x\nsigner: key\n"
    found = kernels.parse_modinfo(text)
    assert found["parm"] == ["uvm_disable_hmm", "uvm_b"]
    assert found["signer"] == "key"
