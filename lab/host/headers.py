"""Kernel headers: Debian's real ones, laid out as Proxmox lays out its own and carrying a Proxmox release, so that DKMS really builds.

The interfaces in them are those of Debian's kernel; only the name that modules are built for is the stand-in's.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.console import LabError, locked, timed
from lab.instance import cache_home
from lab.node import image

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "usr/src/lab-kernel-headers"
# Other architectures' headers take a third of the space and nobody builds for them.
_ARCHITECTURES = {"x86"}
_DOWNLOAD = """
mkdir "$TREE"
mkdir -p "$BASE/tmp/headers"
mount -t tmpfs tmp "$BASE/tmp"
mkdir "$BASE/tmp/headers"
mount -t proc proc "$BASE/proc"
cp /etc/resolv.conf "$BASE/tmp/resolv.conf"
touch "$BASE/etc/resolv.conf"
mount --bind "$BASE/tmp/resolv.conf" "$BASE/etc/resolv.conf"
release=$(chroot "$BASE" apt-cache depends linux-headers-amd64 | sed -n 's/.*Depends: linux-headers-\\(.*\\)-amd64$/\\1/p')
chroot "$BASE" sh -ec "cd /tmp/headers; apt-get -qq -o APT::Sandbox::User=root download \
    linux-headers-$release-amd64 linux-headers-$release-common linux-kbuild-$release"
for deb in "$BASE"/tmp/headers/*.deb; do dpkg-deb -x "$deb" "$TREE"; done
"""


@dataclass(frozen=True)
class Headers:
    """Debian's headers in the cache: what all kernels share, what one kernel has of its own, and a key of both."""

    shared: Path
    own: Path
    key: str


def debian() -> Headers:
    """Return Debian's current headers, fetched once for each base system."""
    guest = image.guest_recipe(image.NODE_SUITE)
    folder = cache_home() / "kernel-headers" / guest.key
    if not folder.is_dir():
        with locked(cache_home() / "locks" / f"kernel-headers-{guest.key}", "another fetch of kernel headers"):
            if not folder.is_dir():
                _fetch(guest, folder)
    os.utime(folder)
    return Headers(folder / "shared", folder / "own", guest.key)


def _fetch(guest: image.Recipe, folder: Path) -> None:
    image.build(guest)
    work = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with timed("fetching kernel headers"):
        image.run_script(_DOWNLOAD, work / "raw", guest, guest.folder)
    source = work / "raw/usr/src"
    common = next(source.glob("linux-headers-*-common"), None)
    own = next(source.glob("linux-headers-*-amd64"), None)
    kbuild = next((work / "raw/usr/lib").glob("linux-kbuild-*"), None)
    if common is None or own is None or kbuild is None:
        raise LabError(f"Debian's header packages hold no common, amd64 or kbuild folder: see {work}/raw")
    for path in (common / "arch").iterdir():
        if path.is_dir() and path.name not in _ARCHITECTURES:
            shutil.rmtree(path)
    (own / "vmlinux").unlink(missing_ok=True)
    for tree in (common, own):
        for name in ("scripts", "tools"):
            (tree / name).unlink(missing_ok=True)
            (tree / name).symlink_to(f"/{SHARED}/kbuild/{name}")
    (work / "shared").mkdir()
    common.rename(work / "shared/common")
    kbuild.rename(work / "shared/kbuild")
    own.rename(work / "own")
    shutil.rmtree(work / "raw")
    work.rename(folder)


def renamed(headers: Headers, release: str) -> dict[str, str]:
    """Return the files of a kernel's own headers that carry its release, path -> text: they go over the copied tree."""
    makefile = f"include /{SHARED}/common/Makefile\n"
    variables = (headers.own / ".kernelvariables").read_text(encoding="utf-8")
    return {
        "Makefile": makefile,
        ".kernelvariables": re.sub(r"KERNELRELEASE = .*", f"KERNELRELEASE = {release}", variables),
        "include/generated/utsrelease.h": f'#define UTS_RELEASE "{release}"\n',
        "include/config/kernel.release": f"{release}\n",
    }


def kernel_config(headers: Headers) -> str:
    """Return the kernel's configuration, for /boot."""
    return (headers.own / ".config").read_text(encoding="utf-8")
