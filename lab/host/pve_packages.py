"""The packages of Proxmox VE 9.2 with their versions."""

from __future__ import annotations

# What `pveversion -v` lists on Proxmox VE 9.2, in its order, with the version that goes with pve-manager 9.2.11.
PVE_PACKAGES = {
    "pve-manager": "9.2.11",
    "ceph-fuse": "19.2.3-pve4",
    "corosync": "3.1.10-pve1",
    "criu": "4.1.1-1",
    "libpve-access-control": "9.1.1",
    "libpve-apiclient-perl": "3.4.2",
    "libpve-cluster-api-perl": "9.1.6",
    "libpve-cluster-perl": "9.1.6",
    "libpve-common-perl": "9.2.1",
    "libpve-guest-common-perl": "6.0.2",
    "libpve-http-server-perl": "6.0.5",
    "libpve-network-perl": "1.2.3",
    "libpve-rs-perl": "0.11.3",
    "libpve-storage-perl": "9.1.7",
    "lxc-pve": "6.0.5-1",
    "lxcfs": "6.0.4-pve1",
    "proxmox-mini-journalreader": "1.6",
    "proxmox-widget-toolkit": "5.1.2",
    "pve-cluster": "9.1.6",
    "pve-container": "6.1.10",
    "pve-docs": "9.1.3",
    "pve-edk2-firmware": "4.2025.05-2",
    "pve-firewall": "6.0.4",
    "pve-firmware": "3.17-2",
    "pve-ha-manager": "5.0.8",
    "pve-i18n": "3.6.6",
    "pve-qemu-kvm": "10.1.2-5",
    "pve-xtermjs": "5.5.0-3",
    "qemu-server": "9.1.4",
    "spiceterm": "3.4.1",
    "swtpm": "0.8.0+pve3",
    "vncterm": "1.9.1",
    "zfsutils-linux": "2.3.4-pve1",
}
# Their names exist in Debian with other content; the stand-ins must not take the real ones' place.
NOT_PACKAGED = {"criu", "corosync", "ceph-fuse", "lxcfs", "swtpm", "spiceterm", "vncterm", "zfsutils-linux"}
