"""proxmox-boot-tool over a host in a temporary folder."""

from __future__ import annotations

import subprocess

import pytest

from lab.host import boot_tool, esp, files, kernels

OLD, NEW = "7.0.12-3-pve", "7.0.14-14-pve"


@pytest.fixture
def host(tmp_path, monkeypatch):
    (tmp_path / "etc/kernel").mkdir(parents=True)
    (tmp_path / "boot/grub").mkdir(parents=True)
    for release in (OLD, NEW):
        (tmp_path / f"boot/vmlinuz-{release}").write_text("kernel")
        (tmp_path / f"boot/initrd.img-{release}").write_text("initrd")
    (tmp_path / files.GRUB_CONFIG).write_text("submenu 'x' $menuentry_id_option 'gnulinux-advanced-abcd' {\n}\n")
    monkeypatch.setattr(kernels, "installed", lambda: [NEW, OLD, "7.0"])
    monkeypatch.setattr(esp, "update_grub", lambda: print("update-grub"))
    return tmp_path


@pytest.fixture
def esp_host(host):
    (host / files.CMDLINE).write_text("root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet\n")
    for uuid in esp.UUIDS:
        esp.initialise(host, uuid)
    assert esp.sync(host) == 0
    return host


def run(root, *words):
    return boot_tool.run(list(words), boot_tool.Tool(root))


def test_pin_on_a_grub_host_is_in_force_at_once(host, capsys):
    assert run(host, "kernel", "pin", OLD) == 0
    assert (host / files.GRUB_PIN).read_text() == f'GRUB_DEFAULT="gnulinux-advanced-abcd>gnulinux-{OLD}-advanced-abcd"\n'
    assert capsys.readouterr().out.splitlines() == [f"Setting '{OLD}' as grub default entry and running update-grub.", "update-grub"]


def test_next_boot_pin_goes_before_the_pin_and_leaves_it(host, capsys):
    run(host, "kernel", "pin", OLD)
    run(host, "kernel", "pin", NEW, "--next-boot")
    assert f"gnulinux-{NEW}-advanced" in (host / files.GRUB_PIN).read_text()
    assert capsys.readouterr().out.splitlines()[-1] == "Pinned for next boot only."
    run(host, "kernel", "unpin", "--next-boot")
    assert f"gnulinux-{OLD}-advanced" in (host / files.GRUB_PIN).read_text()
    run(host, "kernel", "unpin")
    assert not (host / files.GRUB_PIN).exists()
    assert not (host / files.PIN).exists()


def test_another_pin_says_what_it_replaces(host, capsys):
    run(host, "kernel", "pin", OLD)
    capsys.readouterr()
    run(host, "kernel", "pin", NEW)
    assert capsys.readouterr().out.startswith(f"Overriding previously pinned version '{OLD}' with '{NEW}'\n")


def test_a_kernel_that_is_not_there_is_not_pinned(host):
    with pytest.raises(boot_tool.ToolError, match=f"no kernel image found in /boot for '7.9', not setting default(.|\n)*{NEW}"):
        run(host, "kernel", "pin", "7.9")
    assert not (host / files.PIN).exists()


def test_list(host, capsys):
    run(host, "kernel", "add", OLD)
    run(host, "kernel", "pin", OLD)
    capsys.readouterr()
    run(host, "kernel", "list")
    assert capsys.readouterr().out == (
        f"Manually selected kernels:\n{OLD}\n\nAutomatically selected kernels:\n{NEW}\n\nPinned kernel:\n{OLD}\n"
    )


def test_status_without_esps(host, capsys):
    assert run(host, "status") == 2
    assert "proxmox-boot-uuids does not exist" in capsys.readouterr().err
    assert run(host, "status", "--quiet") == 2


def test_status_with_esps(esp_host, capsys):
    assert run(esp_host, "status") == 0
    assert f"5A1B-C2D3 is configured with: uefi (versions: {OLD}, {NEW})" in capsys.readouterr().out


def defaults(root):
    return {
        line
        for uuid in esp.UUIDS
        for line in (root / files.ESPS / uuid / "loader/loader.conf").read_text().splitlines()
        if line.startswith("default")
    }


def test_a_pin_reaches_the_esps_only_with_refresh(esp_host, capsys):
    run(esp_host, "kernel", "pin", OLD, "--next-boot")
    assert "Use the 'refresh' command to update the ESPs." in capsys.readouterr().out
    assert defaults(esp_host) == {"default proxmox-*"}
    esp.sync(esp_host)
    assert defaults(esp_host) == {f"default proxmox-{OLD}.conf"}


def test_refresh_runs_the_hooks_in_place(host, capfd):
    hooks = host / "etc/kernel/postinst.d"
    hooks.mkdir()
    script = hooks / "zz-proxmox-boot"
    script.write_text("#!/bin/sh\necho the hook\n")
    script.chmod(0o755)
    run(host, "refresh")
    out, err = capfd.readouterr()
    assert out.splitlines() == ["Running hook script 'proxmox-auto-removal'..", "Running hook script 'zz-proxmox-boot'..", "the hook"]
    assert "Hook script 'proxmox-auto-removal' not found" in err


def test_a_failing_hook_fails_the_refresh(host):
    hooks = host / "etc/kernel/postinst.d"
    hooks.mkdir()
    script = hooks / "zz-proxmox-boot"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(boot_tool.ToolError):
        run(host, "refresh", "--hook", "zz-proxmox-boot")
    assert subprocess.run([script], check=False).returncode == 1


def test_cmdline_reaches_the_entries(esp_host):
    (esp_host / files.CMDLINE).write_text("root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt\n")
    esp.sync(esp_host)
    entry = (esp_host / files.ESPS / esp.UUIDS[1] / f"loader/entries/proxmox-{NEW}.conf").read_text()
    assert "options  root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt\n" in entry


def test_cmdline_without_a_root_is_refused(esp_host, capsys):
    (esp_host / files.CMDLINE).write_text("quiet\n")
    assert esp.sync(esp_host) == 1
    assert "No root= parameter" in capsys.readouterr().err


def test_old_kernels_leave_the_esps(esp_host, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "installed", lambda: [NEW, "7.0"])
    esp.sync(esp_host)
    assert f"Removing old version {OLD}" in capsys.readouterr().err
    assert not (esp_host / files.ESPS / esp.UUIDS[0] / f"loader/entries/proxmox-{OLD}.conf").exists()


def test_clean_drops_esps_that_are_gone(esp_host, capsys):
    (esp_host / files.ESPS / esp.UUIDS[1]).rename(esp_host / "elsewhere")
    run(esp_host, "clean", "--dry-run")
    assert len(esp.listed(esp_host)) == 2
    run(esp_host, "clean")
    assert esp.listed(esp_host) == [esp.UUIDS[0]]
    assert f"Checking whether ESP '{esp.UUIDS[1]}' exists.. Not found!" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("kernel",), ("kernel", "explode"), ("kernel", "pin", OLD, "--sometimes"), ("explode",), ("status", "-v")]
)
def test_wrong_usage(host, words, capsys):
    assert run(host, *words) == 1
    assert "proxmox-boot-tool" in capsys.readouterr().err
