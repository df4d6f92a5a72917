"""A driver as a .run file: ``python3 -m lab.nvidia.runfile VERSION FILE`` writes a script that carries its own archive, as NVIDIA's do.

It knows the options of NVIDIA's installer that its README documents and that one needs without a terminal (``--silent``, ``--dkms``,
``--kernel-module-type``, ``--uninstall``...), refuses others and loaded modules in the installer's words, keeps
/var/log/nvidia-installer.log and leaves nvidia-uninstall. What is inside are the files of the lab's packages.
"""

from __future__ import annotations

import io
import stat
import sys
import tarfile
from pathlib import Path

from . import repository

_MARKER = "#END-OF-STUB#"
_STUB = r"""#!/bin/sh
# NVIDIA-Linux-x86_64-@VERSION@.run, a stand-in made by the gpunode lab.
set -u
export LC_ALL=C
version=@VERSION@
log=/var/log/nvidia-installer.log
list=/var/lib/nvidia/log
silent= dkms= uninstall= only=
for option in "$@"; do
	case "$option" in
	--info|--lsm) echo "Identification: NVIDIA Accelerated Graphics Driver for Linux-x86_64 $version (stand-in)"; exit 0 ;;
	-v|--version) echo "nvidia-installer:  version $version  (stand-in)"; exit 0 ;;
	-x|--extract-only) only=yes ;;
	-s|--silent|-a|--accept-license|-q|--no-questions|--ui=none) silent=yes ;;
	--dkms) dkms=yes ;;
	--uninstall) uninstall=yes ;;
	--kernel-module-type=open|-M=open|-m=kernel-open) ;;
	--kernel-module-type=*) echo "ERROR: Blackwell GPUs need the open kernel modules." >&2; exit 1 ;;
	--no-x-check|--no-nouveau-check|--no-install-compat32-libs|--no-questions) ;;
	*)
		echo "nvidia-installer: unrecognized option: '$option'" >&2
		echo "ERROR: Invalid commandline, please run \`$0 --help\` for usage information." >&2
		exit 1
		;;
	esac
done
say() { echo "$*" >>"$log"; [ -n "$silent" ] || echo "$*"; }
fail() { echo "ERROR: $*" | tee -a "$log" >&2; exit 1; }
remove() {
	[ -e "$list" ] || { say "There is no NVIDIA driver currently installed."; return 0; }
	read -r old <"$list"
	[ -z "$(dkms status -m nvidia -v "$old" 2>/dev/null)" ] || dkms remove -m nvidia -v "$old" --all >>"$log" 2>&1
	sed 1d "$list" | while read -r file; do rm -f "/$file"; done
	rm -rf "/usr/src/nvidia-$old" "$list"
	rmdir /var/lib/nvidia
	ldconfig
	say "Uninstallation of existing driver: NVIDIA Accelerated Graphics Driver for Linux-x86_64 ($old) is complete."
}
if [ -n "$only" ]; then
	mkdir -p "NVIDIA-Linux-x86_64-$version"
	sed -e '1,/^@MARKER@$/d' "$0" | tar -xz -C "NVIDIA-Linux-x86_64-$version"
	exit 0
fi
[ "$(id -u)" = 0 ] || fail "nvidia-installer must be run as root"
[ -n "$silent" ] || [ -t 0 ] || fail "Unable to load: nvidia-installer ncurses user interface; without a terminal it needs --silent."
echo "nvidia-installer log file '$log'" >"$log"
say "nvidia-installer command line: $*"
if [ -n "$uninstall" ]; then remove; exit 0; fi
if [ -e /sys/module/nvidia ]; then
	fail "An NVIDIA kernel module 'nvidia' appears to be already loaded in your kernel."
fi
remove
mkdir -p /var/lib/nvidia
echo "$version" >"$list"
sed -e '1,/^@MARKER@$/d' "$0" | tar -xzv -C / >>"$list" 2>>"$log" || fail "The archive cannot be unpacked."
cp "$0" /usr/bin/nvidia-installer
printf '#!/bin/sh\nexec /usr/bin/nvidia-installer --uninstall "$@"\n' >/usr/bin/nvidia-uninstall
chmod 755 /usr/bin/nvidia-installer /usr/bin/nvidia-uninstall
printf 'usr/bin/nvidia-installer\nusr/bin/nvidia-uninstall\n' >>"$list"
ldconfig
if [ -n "$dkms" ]; then
	if ! dkms install -m nvidia -v "$version" -k "$(uname -r)" >>"$log" 2>&1; then
		remove
		fail "Failed to install the kernel module through DKMS. No kernel module was installed; see $log."
	fi
fi
depmod
say "Installation of the NVIDIA Accelerated Graphics Driver for Linux-x86_64 (version: $version) is now complete."
exit 0
@MARKER@
"""
# The installer brings no unit: it leaves the daemon to whoever runs it.
_LEFT_OUT = ("/usr/lib/systemd/", "/usr/lib/sysusers.d/", "/usr/lib/modprobe.d/")


def write(version: str, target: Path) -> None:
    """Write the .run file of a driver version."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for package in repository.driver(version):
            for name, entry in package.files.items():
                if name.startswith(_LEFT_OUT):
                    continue
                source = None if isinstance(entry, str) else entry.source
                text = entry if isinstance(entry, str) else entry.text
                content = source.read_bytes() if source else (text or "").encode()
                member = tarfile.TarInfo(name.lstrip("/"))
                member.size, member.mode = len(content), 0o644 if isinstance(entry, str) else stat.S_IMODE(entry.mode)
                archive.addfile(member, io.BytesIO(content))
            for name, destination in package.links.items():
                member = tarfile.TarInfo(name.lstrip("/"))
                member.type, member.linkname = tarfile.SYMTYPE, destination
                archive.addfile(member)
    stub = _STUB.replace("@VERSION@", version).replace("@MARKER@", _MARKER)
    target.write_bytes(stub.encode() + packed.getvalue())
    target.chmod(0o755)


def main(arguments: list[str]) -> int:
    """Write one from the command line."""
    if len(arguments) != 2 or arguments[0] not in repository.VERSIONS:
        print(f"usage: python3 -m lab.nvidia.runfile VERSION FILE, VERSION one of {', '.join(repository.VERSIONS)}", file=sys.stderr)
        return 2
    write(arguments[0], Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
