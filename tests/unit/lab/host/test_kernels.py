"""Versions, and which kernels a host keeps."""

from __future__ import annotations

import pytest

from lab.host import kernels, pveversion, sysfs, versions

LISTING = """\
ii  proxmox-kernel-7.0                   7.0.14-14   all    Latest Proxmox Kernel Image
ii  proxmox-kernel-7.0.14-14-pve-signed  7.0.14-14   amd64  Proxmox Kernel Image (signed)
ii  proxmox-kernel-7.0.9-1-pve-signed    7.0.9-1     amd64  Proxmox Kernel Image (signed)
hi  proxmox-kernel-6.17                  6.17.13-21  all    Latest Proxmox Kernel Image
ii  proxmox-kernel-6.17.13-21-pve-signed 6.17.13-21  amd64  Proxmox Kernel Image (signed)
rc  proxmox-kernel-6.14.8-2-pve-signed   6.14.8-2    amd64  Proxmox Kernel Image (signed)
un  proxmox-kernel-6.8                   <none>      all    (no description available)
ii  proxmox-kernel-helper                9.0.4       all    Function for various kernel maintenance tasks
"""
FOUND = ["7.0.14-14-pve", "7.0.9-1-pve", "7.0", "6.17.13-21-pve", "6.17"]


def test_versions_sort_by_their_numbers():
    assert versions.newest_first(["7.0.9-1-pve", "7.0.14-14-pve", "6.17.13-21-pve", "7.0.14-2-pve", "7.0.9-1-pve"]) == [
        "7.0.14-14-pve",
        "7.0.14-2-pve",
        "7.0.9-1-pve",
        "6.17.13-21-pve",
    ]


def test_installed_packages_are_versions_and_series():
    assert kernels.parse_installed(LISTING) == FOUND


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {"7.0.14-14-pve", "7.0.9-1-pve", "6.17.13-21-pve"}),
        ({"running": "7.0.2-1-pve"}, {"7.0.14-14-pve", "7.0.9-1-pve", "6.17.13-21-pve", "7.0.2-1-pve"}),
        ({"installing": "7.0.16-2-pve"}, {"7.0.14-14-pve", "7.0.9-1-pve", "6.17.13-21-pve", "7.0.16-2-pve"}),
        ({"pins": ["6.14.8-2-pve", ""]}, {"7.0.14-14-pve", "7.0.9-1-pve", "6.17.13-21-pve", "6.14.8-2-pve"}),
        ({"manual": ["6.14.8-2-pve"]}, {"7.0.14-14-pve", "7.0.9-1-pve", "6.17.13-21-pve", "6.14.8-2-pve"}),
    ],
)
def test_kept_kernels(given, kept):
    result = kernels.keep(FOUND, **{"running": "", "installing": "", "manual": [], "pins": [], **given})
    assert {version for version in result if version.endswith("-pve")} == kept
    assert {"7.0", "6.17"} <= set(result)


def test_apt_rules_quote_dots():
    assert r'"^proxmox-kernel-7\.0\.9-1-pve(-signed)?$";' in kernels.apt_rules(["7.0.9-1-pve"], "hook")


def test_pveversion():
    packages = {
        "pve-manager": "9.2.11",
        "proxmox-ve": "9.2.0",
        "proxmox-kernel-helper": "9.0.4",
        "proxmox-kernel-7.0": "7.0.14-14",
        "qemu-server": "9.1.4",
    }
    assert (
        pveversion.text(packages, "7.0.14-14-pve", verbose=False)
        == f"pve-manager/9.2.11/{pveversion.STAMP} (running kernel: 7.0.14-14-pve)\n"
    )
    lines = pveversion.text(packages, "7.0.14-14-pve", verbose=True).splitlines()
    assert lines[0] == "proxmox-ve: 9.2.0 (running kernel: 7.0.14-14-pve)"
    assert lines[-2:] == ["proxmox-kernel-7.0: 7.0.14-14", "qemu-server: 9.1.4"]


def test_frequency_scaling_of_every_cpu(tmp_path):
    real = tmp_path / "real"
    for cpu in ("cpu0", "cpu1"):
        (real / cpu / "topology").mkdir(parents=True)
        (real / cpu / "topology/core_id").write_text("0\n")
    (real / "cpuidle").mkdir()
    (real / "online").write_text("0-1\n")
    sysfs.build(real, tmp_path / "copy")
    assert (tmp_path / "copy/online").read_text() == "0-1\n"
    assert [path.read_text() for path in sorted((tmp_path / "copy").glob("cpu*/cpufreq/scaling_governor"))] == ["schedutil\n"] * 2
    assert (tmp_path / "copy/cpu1/topology/core_id").read_text() == "0\n"
