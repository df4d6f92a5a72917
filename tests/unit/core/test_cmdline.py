"""The kernel command line: merge and compare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.cmdline import compare, merge, read_grub, split, write_grub

OPTION = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}(=[a-z0-9,:]{0,8})?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "present", "absent", "merged"),
    [
        ("quiet", ["iommu=pt"], [], "quiet iommu=pt"),
        ("quiet iommu=on splash", ["iommu=pt"], [], "quiet iommu=pt splash"),
        ("iommu=on quiet iommu=off", ["iommu=pt"], [], "iommu=pt quiet"),
        ("quiet", [], ["quiet"], ""),
        ("pcie-aspm=off", ["pcie_aspm=off"], [], "pcie_aspm=off"),
        ('dyndbg="file a.c +p" quiet', ["nokaslr"], ["quiet"], 'dyndbg="file a.c +p" nokaslr'),
        ("root=ZFS=rpool/ROOT/pve-1 boot=zfs", ["iommu=pt"], [], "root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt"),
        ("quiet", ["quiet"], ["quiet"], "quiet"),
        ("", ["a=1", "a=2"], [], "a=2"),
    ],
)
def test_merge(text: str, present: list[str], absent: list[str], merged: str) -> None:
    assert merge(text, present, absent) == merged


@given(st.lists(OPTION, max_size=6), st.lists(OPTION, max_size=4), st.lists(OPTION, max_size=4))
def test_merge_is_idempotent_and_keeps_the_others(text: list[str], present: list[str], absent: list[str]) -> None:
    once = merge(" ".join(text), present, absent)
    assert merge(once, present, absent) == once
    named = {option.split("=")[0].replace("-", "_") for option in present + absent}
    kept = [option for option in text if option.split("=")[0].replace("-", "_") not in named]
    assert [option for option in split(once) if option.split("=")[0].replace("-", "_") not in named] == kept


def test_compare_tells_what_waits_for_a_reboot() -> None:
    live = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=on quiet"
    comparison = compare(live, ["iommu=pt", "pcie_aspm=off"], ["quiet", "nomodeset"])
    assert comparison.missing == ("iommu=pt", "pcie_aspm=off")
    assert comparison.leftover == ("quiet",)
    assert comparison.pending
    assert not compare(live, ["iommu=on"], ["nomodeset"]).pending


def test_the_last_option_of_a_key_is_the_live_one() -> None:
    assert not compare("iommu=on iommu=pt", ["iommu=pt"], []).pending


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n', "quiet iommu=pt"),
        ("GRUB_CMDLINE_LINUX_DEFAULT=quiet # said so\n", "quiet"),
        ('#GRUB_CMDLINE_LINUX_DEFAULT="no"\nGRUB_DEFAULT=0\n', ""),
        ("GRUB_CMDLINE_LINUX_DEFAULT='a'\nGRUB_CMDLINE_LINUX_DEFAULT='b'\n", "b"),
        ('GRUB_CMDLINE_LINUX_DEFAULT=""\n', ""),
    ],
)
def test_read_grub(text: str, value: str) -> None:
    assert read_grub(text) == value


def test_read_grub_refuses_a_broken_line() -> None:
    with pytest.raises(ValueError, match="No closing quotation"):
        read_grub('GRUB_CMDLINE_LINUX_DEFAULT="quiet\n')


def test_write_grub_touches_one_line_only() -> None:
    text = '# mine\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="console=ttyS0"\n'
    written = write_grub(text, "quiet iommu=pt")
    assert written == text.replace('"quiet"', '"quiet iommu=pt"')
    assert read_grub(written) == "quiet iommu=pt"


@pytest.mark.parametrize("text", ["", "GRUB_TIMEOUT=5\n", "GRUB_TIMEOUT=5"])
def test_write_grub_adds_a_missing_line(text: str) -> None:
    written = write_grub(text, 'dyndbg="file a.c +p"')
    assert read_grub(written) == 'dyndbg="file a.c +p"'
    assert written.startswith(text)
