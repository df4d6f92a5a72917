"""Texts of the host's stand-in packages: hooks, units, maintainer scripts, configuration files."""

from __future__ import annotations

_ENVIRONMENT = "PYTHONPATH=/usr/lib/gpunode-lab PYTHONPYCACHEPREFIX=/run/lab/pycache"


def shim(module: str, *words: str) -> str:
    """Return an executable that runs a module of the lab inside the node."""
    return f'#!/bin/sh\nexec env {_ENVIRONMENT} LAB_HOOK="$0" /usr/bin/python3 -m {" ".join([module, *words])} "$@"\n'


CLEANUP_UNIT = """\
[Unit]
Description=Clean up bootloader next-boot setting
After=systemd-remount-fs.service
ConditionPathExists=/etc/kernel/next-boot-pin

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/proxmox-boot-tool kernel unpin --next-boot
ExecStart=/usr/sbin/proxmox-boot-tool refresh

[Install]
WantedBy=multi-user.target
"""

# On hosts with ESPs, update-grub alone would change a file that nothing boots from.
GRUB_HEADER = """\
#!/bin/sh
set -e
proxmox-boot-tool status --quiet || exit 0
cat <<'EOF'
#
# This system is booted via proxmox-boot-tool! The grub-config used when
# booting from the disks configured with proxmox-boot-tool resides on the vfat
# partitions with UUIDs listed in /etc/kernel/proxmox-boot-uuids.
# /boot/grub/grub.cfg is NOT read when booting from those disk!
EOF
if [ -z "$DPKG_RUNNING_VERSION" ]; then
    {
        echo "W: This system is booted via proxmox-boot-tool:"
        echo "W: Executing 'update-grub' directly does not update the correct configs!"
        echo "W: Running: 'proxmox-boot-tool refresh'"
        echo
        proxmox-boot-tool refresh
    } >&2
fi
"""

INITRAMFS_HOOK = """\
#!/bin/sh
set -e
# Called after every update-initramfs: the new initrd has to reach the ESPs.
exec /etc/kernel/postinst.d/zz-proxmox-boot
"""

# The lab's root is an overlay on the machine; GRUB's scripts ask what it is, and hear of the installer's LVM layout.
GRUB_PROBE = """\
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --target=*) target=${1#--target=} ;;
        -t | --target) shift; target=$1 ;;
    esac
    shift
done
case ${target:-fs} in
    device) echo /dev/mapper/pve-root ;;
    fs_uuid) echo 7d5f0a3c-4b1e-4c62-9d2a-0f6e8b1c9a57 ;;
    fs) echo ext2 ;;
    abstraction) echo lvm ;;
    drive) echo "(lvmid/pve/root)" ;;
    partmap) ;;
    compatibility_hint | hints_string) echo "lvmid/pve/root" ;;
    *) exit 1 ;;
esac
"""

# The ESPs are folders; `mount -t vfat` of one shows it, read-only when asked.
MOUNT_VFAT = """\
#!/bin/sh
set -e
source=$1
target=$2
shift 2
options=
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && { options=,$2; shift; }
    shift
done
[ -d "$source" ] || { echo "mount: $target: special device $source does not exist." >&2; exit 32; }
mount --bind "$source/" "$target"
case $options, in *,ro,*) mount -o remount,bind,ro "$target" ;; esac
"""

# A Proxmox host runs on metal. systemd itself does not ask this program, people's scripts and kernel hooks do.
DETECT_VIRT = """\
#!/bin/sh
for word in "$@"; do
    case $word in
        -q | --quiet) quiet=1 ;;
        -h | --help | --version | --list) exec /usr/bin/systemd-detect-virt.distrib "$@" ;;
    esac
done
[ -n "$quiet" ] || echo none
exit 1
"""

GRUB_DEFAULTS = """\
# If you change this file, run 'update-grub' afterwards to update
# /boot/grub/grub.cfg.

GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
"""

GRUB_PROXMOX = 'GRUB_DISTRIBUTOR="Proxmox VE"\nGRUB_DISABLE_OS_PROBER=true\n'

# As after a fresh installation: both ask for a subscription. In the lab the address names nothing, and `apt update` fails likewise.
ENTERPRISE = {
    "/etc/apt/sources.list.d/pve-enterprise.sources": """\
Types: deb
URIs: file:/usr/lib/gpunode-lab-apt/enterprise.proxmox.com/debian/pve
Suites: trixie
Components: pve-enterprise
Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg
""",
    "/etc/apt/sources.list.d/ceph.sources": """\
Types: deb
URIs: file:/usr/lib/gpunode-lab-apt/enterprise.proxmox.com/debian/ceph-squid
Suites: trixie
Components: enterprise
Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg
""",
}


def _run_hooks(folder: str, release: str, *, image: bool = True) -> str:
    words = f"--arg={release}" + (f" --arg=/boot/vmlinuz-{release}" if image else "")
    return (
        f"if [ -d /etc/kernel/{folder} ]; then\n"
        f'    DEB_MAINT_PARAMS="$*" run-parts --verbose --exit-on-error {words} /etc/kernel/{folder}\n'
        f"fi\n"
    )


def kernel_scripts(release: str) -> dict[str, str]:
    """Return the maintainer scripts of a kernel package: the hooks in /etc/kernel, and depmod."""
    head = "#!/bin/sh\nset -e\n"
    return {
        "preinst": head + _run_hooks("preinst.d", release),
        "postinst": f'{head}[ "$1" = configure ] || exit 0\ndepmod {release}\n{_run_hooks("postinst.d", release)}',
        "prerm": head + _run_hooks("prerm.d", release),
        "postrm": (
            f"{head}{_run_hooks('postrm.d', release)}"
            f'if [ "$1" = purge ] || [ "$1" = remove ]; then rm -f /lib/modules/{release}/modules.*; '
            f"rmdir /lib/modules/{release} 2>/dev/null || true; fi\n"
        ),
    }


def headers_scripts(release: str) -> dict[str, str]:
    """Return the maintainer script of a headers package: DKMS builds what the kernel could not have built for it."""
    return {"postinst": f'#!/bin/sh\nset -e\n[ "$1" = configure ] || exit 0\n{_run_hooks("header_postinst.d", release, image=False)}'}
