"""What boots: GRUB's menu as its own scripts write it, systemd-boot's entries, one-time choices, broken configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.host import files, loader

DEVICE = "7d5f0a3c"
OLD, NEW = "7.0.12-3-pve", "7.0.14-14-pve"
GRUB = f"""\
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
function gfxmode {{
\tset gfxpayload="${{1}}"
}}
menuentry 'Proxmox VE GNU/Linux' --class proxmox $menuentry_id_option 'gnulinux-simple-{DEVICE}' {{
\tload_video
\tlinux\t/boot/vmlinuz-{NEW} root=/dev/mapper/pve-root ro  quiet
\tinitrd\t/boot/initrd.img-{NEW}
}}
submenu 'Advanced options for Proxmox VE GNU/Linux' $menuentry_id_option 'gnulinux-advanced-{DEVICE}' {{
\tmenuentry 'Proxmox VE GNU/Linux, with Linux {NEW}' $menuentry_id_option 'gnulinux-{NEW}-advanced-{DEVICE}' {{
\t\tif [ x$feature_platform_search_hint = xy ]; then
\t\t  search --no-floppy --fs-uuid --set=root {DEVICE}
\t\tfi
\t\tlinux\t/boot/vmlinuz-{NEW} root=/dev/mapper/pve-root ro  quiet
\t}}
\tmenuentry 'Proxmox VE GNU/Linux, with Linux {NEW} (recovery mode)' $menuentry_id_option 'gnulinux-{NEW}-recovery-{DEVICE}' {{
\t\tlinux\t/boot/vmlinuz-{NEW} root=/dev/mapper/pve-root ro single dis_ucode_ldr
\t}}
\tmenuentry 'Proxmox VE GNU/Linux, with Linux {OLD}' $menuentry_id_option 'gnulinux-{OLD}-advanced-{DEVICE}' {{
\t\tlinux\t/boot/vmlinuz-{OLD} root=/dev/mapper/pve-root ro  quiet
\t}}
}}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {{
\tfwsetup
}}
"""
PINNED_OLD = f"gnulinux-advanced-{DEVICE}>gnulinux-{OLD}-advanced-{DEVICE}"


def grub_host(root: Path, default: str = "0", environment: str = "") -> Path:
    (root / "boot/grub").mkdir(parents=True)
    (root / files.GRUB_CONFIG).write_text(GRUB.replace("DEFAULT", default))
    (root / files.GRUB_ENVIRONMENT).write_text(f"# GRUB Environment Block\n{environment}".ljust(1024, "#"))
    (root / "var/lib/lab").mkdir(parents=True)
    for release in (OLD, NEW):
        (root / f"boot/vmlinuz-{release}").write_text("kernel")
    return root


@pytest.mark.parametrize(
    ("default", "release"),
    [
        ("0", NEW),
        (PINNED_OLD, OLD),
        ("1>2", OLD),
        ("1", NEW),
        (f"Advanced options for Proxmox VE GNU/Linux>Proxmox VE GNU/Linux, with Linux {OLD}", OLD),
        ("${saved_entry}", NEW),
        ("gnulinux-gone", NEW),
    ],
)
def test_grub_default(tmp_path, default, release):
    assert loader.choose(grub_host(tmp_path, default)).release == release


def test_grub_command_line_is_the_entrys_own(tmp_path):
    entry = loader.choose(grub_host(tmp_path, PINNED_OLD))
    assert entry.cmdline == f"BOOT_IMAGE=/boot/vmlinuz-{OLD} root=/dev/mapper/pve-root ro quiet"


def test_grub_saved_entry(tmp_path):
    assert loader.choose(grub_host(tmp_path, "${saved_entry}", f"saved_entry={PINNED_OLD}\n")).release == OLD


def test_grub_next_entry_boots_once(tmp_path):
    root = grub_host(tmp_path, "0", f"next_entry={PINNED_OLD}\nsaved_entry=0\n")
    assert [loader.choose(root).release, loader.choose(root).release] == [OLD, NEW]
    text = (root / files.GRUB_ENVIRONMENT).read_text()
    assert len(text) == 1024
    assert loader.parse_environment(text) == {"saved_entry": "0"}


def test_grub_boots_no_kernel_that_is_gone(tmp_path):
    root = grub_host(tmp_path)
    (root / f"boot/vmlinuz-{NEW}").unlink()
    with pytest.raises(loader.NotBootableError, match=f"vmlinuz-{NEW}"):
        loader.choose(root)


def test_without_grub_cfg_nothing_boots(tmp_path):
    with pytest.raises(loader.NotBootableError, match=r"grub\.cfg"):
        loader.choose(tmp_path)


def test_a_choice_at_the_menu_goes_first_and_is_used_up(tmp_path):
    root = grub_host(tmp_path)
    (root / files.MENU_CHOICE).write_text(f"{OLD}\n")
    assert [loader.choose(root).release, loader.choose(root).release] == [OLD, NEW]


def esp_host(root: Path, default: str = "proxmox-*") -> Path:
    (root / "etc/kernel").mkdir(parents=True)
    (root / files.ESP_LIST).write_text("AAAA-0001\nAAAA-0002\n")
    for name in ("AAAA-0001", "AAAA-0002"):
        esp = root / files.ESPS / name
        (esp / "loader/entries").mkdir(parents=True)
        (esp / "loader/loader.conf").write_text(f"timeout 3\ndefault {default}\n")
        for release in (OLD, NEW):
            (esp / "EFI/proxmox" / release).mkdir(parents=True)
            (esp / f"EFI/proxmox/{release}/vmlinuz-{release}").write_text("kernel")
            (esp / f"loader/entries/proxmox-{release}.conf").write_text(
                f"title    Proxmox Virtual Environment\nversion  {release}\noptions  root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt\n"
                f"linux    /EFI/proxmox/{release}/vmlinuz-{release}\ninitrd   /EFI/proxmox/{release}/initrd.img-{release}\n"
            )
    return root


@pytest.mark.parametrize(("default", "release"), [("proxmox-*", NEW), (f"proxmox-{OLD}.conf", OLD), ("nothing", NEW)])
def test_systemd_boot_default(tmp_path, default, release):
    assert loader.choose(esp_host(tmp_path, default)).release == release


def test_systemd_boot_command_line(tmp_path):
    cmdline = loader.choose(esp_host(tmp_path)).cmdline
    assert cmdline == rf"initrd=\EFI\proxmox\{NEW}\initrd.img-{NEW} root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt"


def test_systemd_boot_skips_entries_without_their_kernel(tmp_path):
    root = esp_host(tmp_path)
    (root / files.ESPS / f"AAAA-0001/EFI/proxmox/{NEW}/vmlinuz-{NEW}").unlink()
    assert loader.choose(root).release == OLD


def test_the_second_esp_boots_when_the_first_is_gone(tmp_path):
    root = esp_host(tmp_path)
    (root / files.ESPS / "AAAA-0001").rename(root / "elsewhere")
    assert loader.choose(root).release == NEW


def test_no_esp_left(tmp_path):
    root = esp_host(tmp_path)
    for name in ("AAAA-0001", "AAAA-0002"):
        (root / files.ESPS / name).rename(root / name)
    with pytest.raises(loader.NotBootableError, match="no ESP"):
        loader.choose(root)
