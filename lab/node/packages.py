"""What is installed in a lab node and in the guest template beyond Debian's minimal base."""

from __future__ import annotations

# About what a Debian "standard" container template brings: an init, a network, a shell that a person can work in.
GUEST = (
    "bash-completion", "ca-certificates", "cron", "dbus", "gnupg", "ifupdown", "iproute2", "iputils-ping", "kmod", "less",
    "libpam-systemd", "logrotate", "nano", "netbase", "procps", "python3", "systemd", "systemd-sysv", "tzdata", "udev", "xz-utils",
)  # fmt: skip
# What a Proxmox host has and the roles rely on; the toolchain is there because building DKMS modules is part of most tests.
NODE = (
    "acl", "bridge-utils", "busybox", "cpio", "curl", "dkms", "dosfstools", "e2fsprogs", "ethtool", "gcc", "gcc-14", "grub2-common",
    "initramfs-tools", "iptables", "libc6-dev", "lsof", "lxc", "make", "mokutil", "nftables", "numactl",
    "openssh-server", "openssl", "patch", "pciutils", "psmisc", "python3-apt", "rsync", "squashfs-tools", "uidmap", "wget", "zstd",
)  # fmt: skip
# They would take apt's locks or disks' time at moments of their own.
MASKED_IN_NODE = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "lxc-net.service", "lxc.service", "lxc-monitord.service", "getty@tty1.service", "console-getty.service", "container-getty@.service",
)  # fmt: skip
