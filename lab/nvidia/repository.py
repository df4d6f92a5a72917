"""NVIDIA's package repository for Debian 13, as far as a compute node needs it: names, splits and dependencies of the real one.

What the real index has (public installation logs and scripts, 2026): nvidia-driver-cuda carries nvidia-smi, provides and conflicts with the
package of that name, and depends on no kernel module; libcuda1 recommends the DKMS package; nvidia-open drags the desktop parts in;
nvidia-driver-pinning-BRANCH holds a branch or a version through apt preferences. The archive is flat.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.console import locked, run
from lab.instance import cache_home
from lab.node.units import shim

if TYPE_CHECKING:
    from lab.apt import Package, Repository

HERE = Path(__file__).resolve().parent
VERSIONS = ("580.159.04", "590.48.01", "595.58.03")
DEFAULT_VERSION = VERSIONS[0]
NAME = "nvidia"
PLACE = f"/usr/lib/gpunode-lab-apt/{NAME}"
_KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_DKMS_SOURCES = ("Makefile", "dkms.conf", "lab.h", "nvidia.c", "nvidia-uvm.c", "nvidia-modeset.c", "nvidia-drm.c", "nvidia-peermem.c")
# Everything that is published once per driver version, for pins.
_PINNED = "*nvidia* libcuda* libnv* firmware-nvidia-gsp cuda-drivers*"

_DKMS_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ] || [ "$1" = abort-upgrade ] || [ "$1" = abort-deconfigure ] || [ "$1" = abort-remove ]; then
	if [ -f /usr/lib/dkms/common.postinst ]; then
		/usr/lib/dkms/common.postinst nvidia @VERSION@ /usr/share/nvidia-kernel-open-dkms "" "$2"
	else
		echo "WARNING: /usr/lib/dkms/common.postinst does not exist." >&2
		exit 1
	fi
fi
"""
_DKMS_PRERM = """#!/bin/sh
set -e
case "$1" in
remove|upgrade|deconfigure)
	if [ "$(dkms status -m nvidia -v @VERSION@)" ]; then
		dkms remove -m nvidia -v @VERSION@ --all || true
	fi
	;;
esac
"""
_MODPROBE_CONF = """\
# Another driver must not take the GPUs before this one.
blacklist nouveau
blacklist nova_core
blacklist nova_drm
alias nvidiafb off
"""
_INITRAMFS_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ] && command -v update-initramfs >/dev/null; then
	update-initramfs -u
fi
"""
_PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=always
ExecStart=/usr/bin/nvidia-persistenced --verbose
ExecStopPost=/bin/rm -rf /run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
_PERSISTENCED_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
	deb-systemd-helper unmask nvidia-persistenced.service >/dev/null || true
	if deb-systemd-helper --quiet was-enabled nvidia-persistenced.service; then
		deb-systemd-helper enable nvidia-persistenced.service >/dev/null || true
	fi
	# Not started here: without a loaded driver it would only fail five times and give up.
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload >/dev/null || true
	fi
fi
"""
_PERSISTENCED_POSTRM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then
	deb-systemd-helper purge nvidia-persistenced.service >/dev/null || true
fi
"""
_PERSISTENCED_PRERM = """#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then
	deb-systemd-invoke stop nvidia-persistenced.service >/dev/null || true
fi
"""


_WARNINGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread")


def library(objects: list[tuple[Path, tuple[str, ...]]], soname: str, version: str) -> Path:
    """Build C sources, each with its flags, into a shared library of a driver version; kept in the cache by content; returns the file."""
    common = [*_WARNINGS, f'-DLIBRARY_VERSION="{version}"']
    content = hashlib.sha256(f"{soname} {common}".encode())
    for source, flags in objects:
        headers = sorted(source.parent.glob("*.h"))
        content.update(b"".join(path.read_bytes() for path in (source, *headers)) + " ".join(flags).encode())
    target = cache_home() / "lab-libraries" / content.hexdigest()[:16] / f"{soname.rsplit('.', 1)[0]}.{version}"
    if target.exists():
        return target
    with locked(cache_home() / "locks" / f"library-{content.hexdigest()[:16]}", f"another build of {soname}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            built = []
            for source, flags in objects:
                built.append(f"{folder}/{source.parent.name}-{source.stem}.o")
                run(["gcc", *common, *flags, "-c", "-o", built[-1], source])
            part = f"{folder}/{target.name}"
            run(["gcc", "-shared", "-pthread", f"-Wl,-soname,{soname}", "-o", part, *built])
            shutil.copyfile(part, target.with_suffix(".part"))
        target.with_suffix(".part").replace(target)
    return target


def _with_version(name: str, version: str) -> str:
    return (HERE / "dkms" / name).read_text(encoding="utf-8").replace("@VERSION@", version)


def _libraries() -> dict[str, tuple[list[tuple[Path, tuple[str, ...]]], str]]:
    """Package -> (sources with their flags, soname) of each library package."""
    hidden = ("-std=gnu11", "-fvisibility=hidden")
    cuda = [(source, hidden) for source in sorted((HERE / "libcuda").glob("*.c"))]
    # NVML's start and its handles have answers of their own; memory comes from the same fabric.
    names = ("-DnvmlInit_v2=lab_fabric_init", "-DnvmlDeviceGetMemoryInfo=lab_fabric_memory")
    renamed = [(source, (*hidden, *names)) for source, _ in cuda]
    empty = [(HERE / "lib/empty.c", ())]
    return {
        "libnvidia-ml1": ([(HERE / "lib/nvml.c", ()), *renamed], "libnvidia-ml.so.1"),
        "libcuda1": (cuda, "libcuda.so.1"),
        "libnvidia-ptxjitcompiler1": (empty, "libnvidia-ptxjitcompiler.so.1"),
        "libnvidia-nvvm4": (empty, "libnvidia-nvvm.so.4"),
        "libnvidia-cfg1": (empty, "libnvidia-cfg.so.1"),
        "libcudadebugger1": (empty, "libcudadebugger.so.1"),
    }


def _tool(module: str, version: str) -> str:
    """A command of the driver: the lab's shim, which also knows the version it came with."""
    return shim(module).replace("exec env ", f"exec env LAB_NVIDIA_VERSION={version} ")


def driver(version: str) -> list[Package]:
    """All packages of one driver version."""
    from lab.apt import File, Package

    full = f"{version}-1"
    same = f"(= {full})"
    libraries = _libraries()

    def package(name: str, description: str, **rest: object) -> Package:
        return Package(name=name, version=full, description=description, **rest)  # type: ignore[arg-type]

    def shared(name: str, depends: str = "", recommends: str = "") -> Package:
        sources, soname = libraries[name]
        built = library(sources, soname, version)
        fields = {"Depends": ", ".join(filter(None, ["libc6 (>= 2.34)", depends])), "Multi-Arch": "same"}
        if recommends:
            fields["Recommends"] = recommends
        links = {f"{_LIBRARIES}/{soname}": built.name}
        if name == "libcuda1":
            links[f"{_LIBRARIES}/libcuda.so"] = soname
        return package(
            name,
            f"NVIDIA driver library {soname}",
            fields=fields,
            files={f"{_LIBRARIES}/{built.name}": File(source=built)},
            links=links,
            scripts={"triggers": "activate-noawait ldconfig\n"},
        )

    return [
        package(
            "nvidia-kernel-open-dkms",
            "NVIDIA driver - open kernel modules",
            fields={
                "Depends": f"dkms (>= 3.0.3), nvidia-kernel-support {same}, firmware-nvidia-gsp {same}",
                "Provides": f"nvidia-kernel-open-{version}, nvidia-kernel-module",
                "Conflicts": "nvidia-kernel-module, nvidia-open-kernel-dkms, nvidia-kernel-dkms",
                "Replaces": "nvidia-kernel-module",
            },
            files={f"/usr/src/nvidia-{version}/{name}": _with_version(name, version) for name in _DKMS_SOURCES},
            scripts={"postinst": _DKMS_POSTINST.replace("@VERSION@", version), "prerm": _DKMS_PRERM.replace("@VERSION@", version)},
        ),
        package(
            "nvidia-kernel-support",
            "NVIDIA driver - configuration of the kernel modules",
            fields={"Depends": f"nvidia-modprobe {same}"},
            files={"/usr/lib/modprobe.d/nvidia.conf": _MODPROBE_CONF},
            scripts={"postinst": _INITRAMFS_POSTINST},
        ),
        package(
            "firmware-nvidia-gsp",
            "NVIDIA driver - firmware for the GPU system processor",
            files={f"/usr/lib/firmware/nvidia/{version}/{name}": f"stand-in for {name}\n" for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")},
        ),
        package(
            "nvidia-modprobe",
            "Loads NVIDIA kernel modules and creates device nodes",
            files={"/usr/bin/nvidia-modprobe": File(text=_tool("lab.nvidia.nodes", version), mode=0o4755)},
        ),
        package(
            "nvidia-persistenced",
            "NVIDIA persistence daemon",
            fields={"Depends": f"libnvidia-cfg1 {same}"},
            files={
                "/usr/bin/nvidia-persistenced": File(text=_tool("lab.nvidia.persistenced", version), mode=0o755),
                "/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED_UNIT,
                "/usr/lib/sysusers.d/nvidia-persistenced.conf": 'u nvidia-persistenced - "NVIDIA Persistence Daemon" /\n',
            },
            scripts={"postinst": _PERSISTENCED_POSTINST, "prerm": _PERSISTENCED_PRERM, "postrm": _PERSISTENCED_POSTRM},
        ),
        shared("libnvidia-ml1"),
        shared("libnvidia-cfg1"),
        shared("libnvidia-nvvm4"),
        shared("libnvidia-ptxjitcompiler1"),
        shared("libcudadebugger1"),
        shared(
            "libcuda1",
            f"libnvidia-ptxjitcompiler1 {same}, libnvidia-nvvm4 {same}",
            f"nvidia-kernel-open-dkms {same} | nvidia-kernel-dkms {same}",
        ),
        package(
            "nvidia-driver-cuda",
            "NVIDIA driver - compute and management",
            fields={
                "Depends": f"libcuda1 {same}, libcudadebugger1 {same}, libnvidia-ml1 {same}, libnvidia-ptxjitcompiler1 {same}",
                "Recommends": f"nvidia-persistenced {same}",
                "Provides": f"nvidia-smi {same}",
                "Conflicts": "nvidia-smi",
                "Replaces": "nvidia-smi",
            },
            files={"/usr/bin/nvidia-smi": File(text=_tool("lab.nvidia.smi", version), mode=0o755)},
        ),
        package("nvidia-driver", "NVIDIA driver - desktop", fields={"Depends": f"libnvidia-cfg1 {same}"}),
        package(
            "nvidia-open",
            "NVIDIA driver with open kernel modules (everything)",
            fields={
                "Depends": f"nvidia-kernel-open-dkms {same}, nvidia-driver {same}, nvidia-driver-cuda {same}, nvidia-persistenced {same}"
            },
        ),
    ]


def pinning(word: str, pattern: str) -> Package:
    """A package that pins the driver to a branch or a version."""
    from lab.apt import Package

    return Package(
        name=f"nvidia-driver-pinning-{word}",
        version=f"{word}-1",
        description=f"Holds the NVIDIA driver at {word}",
        fields={"Provides": "nvidia-driver-pinning", "Conflicts": "nvidia-driver-pinning", "Replaces": "nvidia-driver-pinning"},
        files={"/etc/apt/preferences.d/nvidia-driver-pinning": f"Package: {_PINNED}\nPin: version {pattern}\nPin-Priority: 1001\n"},
        architecture="all",
    )


def keyring() -> Package:
    """cuda-keyring: the key and the source of this very repository."""
    from lab.apt import KEYRING, File, Package
    from lab.apt import keyring as public

    public()  # make sure that the exported key exists
    return Package(
        name="cuda-keyring",
        version="1.1-1",
        description="GPG keyring for the CUDA repository",
        files={
            _KEYRING: File(source=cache_home() / "lab-key" / KEYRING),
            "/etc/apt/sources.list.d/cuda-debian13-x86_64.list": f"deb [signed-by={_KEYRING}] file:{PLACE} /\n",
            "/etc/apt/preferences.d/cuda-repository-pin-600": "Package: nsight-compute*\nPin: origin *ubuntu.com*\nPin-Priority: -1\n",
        },
        architecture="all",
    )


def repository() -> Repository:
    """The repository as lab.apt publishes it."""
    from lab.apt import Repository

    packages = [keyring()]
    for version in VERSIONS:
        branch = version.partition(".")[0]
        packages += [*driver(version), pinning(branch, f"{branch}.*"), pinning(version, f"{version}-*")]
    return Repository(name=NAME, origin="NVIDIA", label="NVIDIA CUDA", suite="debian13", components={"main": packages}, flat=True)
