"""The Proxmox repository: stand-in packages of kernels, headers, boot tool and Proxmox VE itself, named and split as the real ones are."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from lab import apt
from lab.host import content, headers
from lab.host.pve_packages import NOT_PACKAGED, PVE_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "proxmox"
COMPONENT = "pve-no-subscription"
TEST_COMPONENT = "pve-test"
# Release -> component. A fresh node has the first two installed and runs the second; the third is the other series, the last one is newer.
KERNELS = {"7.0.12-3": COMPONENT, "7.0.14-14": COMPONENT, "6.17.13-21": COMPONENT, "7.0.16-2": TEST_COMPONENT}
CURRENT = "7.0.14-14"
# In a fresh node; the shared headers are there because unpacking them takes longest.
INSTALLED = ("proxmox-ve", "proxmox-kernel-7.0.12-3-pve-signed", f"proxmox-kernel-{CURRENT}-pve-signed", "lab-kernel-headers")
INSTALLED_COMPONENT = COMPONENT
DEFAULT_SERIES = "7.0"


def series(release: str) -> str:
    """Return a release's series: ``7.0`` of ``7.0.14-14``."""
    return ".".join(release.split(".")[:2])


def _conffiles(files: Mapping[str, object]) -> dict[str, str]:
    names = [path for path in files if path.startswith("/etc/")]
    return {"conffiles": "".join(f"{name}\n" for name in names)} if names else {}


def _meta(name: str, version: str, depends: str, description: str, **fields: str) -> apt.Package:
    return apt.Package(name, version, description, {"Depends": depends, **fields}, architecture="all")


def kernel(release: str, config: str) -> apt.Package:
    """Return a kernel: image, configuration, an empty module tree, and the maintainer scripts that run the hooks."""
    name = f"{release}-pve"
    modules = f"/lib/modules/{name}"
    files: dict[str, apt.File | str] = {
        f"/boot/vmlinuz-{name}": f"gpunode lab: stand-in for the kernel image {name}\n",
        f"/boot/config-{name}": config,
        f"/boot/System.map-{name}": "ffffffff81000000 T _text\n",
        f"{modules}/modules.order": "",
        f"{modules}/modules.builtin": "",
        f"{modules}/modules.builtin.modinfo": "",
    }
    provides = f"linux-image, linux-image-{name}-amd64, proxmox-kernel-{name}, wireguard-modules (= 1.0.0), zfs-modules (= 2.3.4)"
    fields = {"Depends": "kmod, initramfs-tools", "Recommends": "grub2-common", "Provides": provides, "Section": "kernel"}
    return apt.Package(
        f"proxmox-kernel-{name}-signed", release, "Proxmox Kernel Image (signed)", fields, files, scripts=content.kernel_scripts(name)
    )


def kernel_headers(release: str, source: headers.Headers) -> apt.Package:
    """Return the headers of a kernel, with the links where DKMS looks; ``source`` since Debian's headers are split in two trees."""
    name = f"{release}-pve"
    tree = f"/usr/src/linux-headers-{name}"
    files: dict[str, apt.File | str] = {f"{tree}/{path}": text for path, text in headers.renamed(source, name).items()}
    fields = {
        "Depends": "lab-kernel-headers",
        "Provides": f"linux-headers-{name}-amd64, linux-headers-generic, pve-headers-{name}",
        "Section": "devel",
    }
    return apt.Package(
        f"proxmox-headers-{name}", release, "Proxmox Kernel Headers", fields, files,
        links={f"/lib/modules/{name}/build": tree, f"/lib/modules/{name}/source": f"/{headers.SHARED}/common"},
        trees={tree: source.own}, trees_key=source.key, scripts=content.headers_scripts(name),
    )  # fmt: skip


def _shared_headers(source: headers.Headers) -> apt.Package:
    fields = {"Depends": "gcc-14, libelf1t64, libssl3t64, make, zlib1g", "Section": "devel"}
    return apt.Package(
        "lab-kernel-headers", "1.0", "Debian's kernel headers, shared by the stand-ins for Proxmox's", fields,
        trees={f"/{headers.SHARED}": source.shared}, trees_key=source.key,
    )  # fmt: skip


def _helper() -> apt.Package:
    files: dict[str, apt.File | str] = {
        "/usr/sbin/proxmox-boot-tool": apt.File(content.shim("lab.host.boot_tool"), mode=0o755),
        "/etc/kernel/postinst.d/proxmox-auto-removal": apt.File(content.shim("lab.host.esp", "proxmox-auto-removal"), mode=0o755),
        "/etc/kernel/postinst.d/zz-proxmox-boot": apt.File(content.shim("lab.host.esp", "zz-proxmox-boot"), mode=0o755),
        "/etc/kernel/postrm.d/zz-proxmox-boot": apt.File(content.shim("lab.host.esp", "zz-proxmox-boot"), mode=0o755),
        "/etc/initramfs/post-update.d/proxmox-boot-sync": apt.File(content.INITRAMFS_HOOK, mode=0o755),
        "/etc/grub.d/000_proxmox_boot_header": apt.File(content.GRUB_HEADER, mode=0o755),
        "/usr/lib/systemd/system/proxmox-boot-cleanup.service": content.CLEANUP_UNIT,
    }
    links = {
        "/etc/systemd/system/multi-user.target.wants/proxmox-boot-cleanup.service": "/usr/lib/systemd/system/proxmox-boot-cleanup.service"
    }
    return apt.Package(
        "proxmox-kernel-helper", "9.0.4", "Function for various kernel maintenance tasks", {"Depends": "python3"}, files, links,
        scripts=_conffiles(files), architecture="all",
    )  # fmt: skip


def _divert(action: str, paths: list[str]) -> str:
    lines = [f"dpkg-divert --package lab-host --{action} --rename --divert {path}.distrib {path}\n" for path in paths]
    return "#!/bin/sh\nset -e\n" + "".join(lines)


def _host() -> apt.Package:
    """Return what makes the container look like an installed machine: answers about disks and virtualisation, GRUB's defaults."""
    replaced = {"/usr/sbin/grub-probe": content.GRUB_PROBE, "/usr/bin/systemd-detect-virt": content.DETECT_VIRT}
    files: dict[str, apt.File | str] = {path: apt.File(text, mode=0o755) for path, text in replaced.items()}
    files["/usr/sbin/mount.vfat"] = apt.File(content.MOUNT_VFAT, mode=0o755)
    files |= {"/etc/default/grub": content.GRUB_DEFAULTS, "/etc/default/grub.d/proxmox-ve.cfg": content.GRUB_PROXMOX}
    files["/boot/grub/grubenv"] = "# GRUB Environment Block\n".ljust(1024, "#")
    scripts = {"preinst": _divert("add", list(replaced)), "postrm": _divert("remove", list(replaced))}
    fields = {"Depends": "grub2-common, systemd"}
    return apt.Package("lab-host", "1.1", "Parts of an installed Proxmox host", fields, files, scripts=scripts | _conffiles(files))


def _pve() -> list[apt.Package]:
    packages = [
        apt.Package(name, version, f"Proxmox VE component {name}", {"Section": "admin"}, architecture="all")
        for name, version in PVE_PACKAGES.items()
        if name not in NOT_PACKAGED and name != "pve-manager"
    ]
    files: dict[str, apt.File | str] = {"/usr/bin/pveversion": apt.File(content.shim("lab.host.pveversion"), mode=0o755)}
    files |= content.ENTERPRISE
    packages.append(
        apt.Package(
            "pve-manager", PVE_PACKAGES["pve-manager"], "Proxmox Virtual Environment Management Tools", {}, files, scripts=_conffiles(files)
        )
    )
    parts = ", ".join(sorted(package.name for package in packages))
    depends = f"lab-host, proxmox-archive-keyring, proxmox-default-kernel, proxmox-kernel-helper, {parts}"
    packages.append(_meta("proxmox-ve", "9.2.0", depends, "Proxmox Virtual Environment"))
    return packages


def _kernel_metas(release: str) -> list[apt.Package]:
    name, line = f"{release}-pve", series(release)
    return [
        _meta(f"proxmox-kernel-{line}", release, f"proxmox-kernel-{name}-signed", f"Latest Proxmox Kernel Image {line}"),
        _meta(
            f"proxmox-headers-{line}", release, f"proxmox-headers-{name}", f"Latest Proxmox Kernel Headers {line}",
            Provides="linux-headers-amd64, linux-headers-generic, pve-headers",
        ),
    ]  # fmt: skip


@functools.cache
def repository() -> apt.Repository:
    """Return the repository with components ``pve-no-subscription`` and ``pve-test`` (the newer kernel)."""
    source = headers.debian()
    config = headers.kernel_config(source)
    keyring = {"/usr/share/keyrings/proxmox-archive-keyring.gpg": apt.File(source=apt.keyring_file())}
    components: dict[str, list[apt.Package]] = {
        COMPONENT: [
            apt.Package("proxmox-archive-keyring", "4.0", "Proxmox Release Keyring", {}, dict(keyring), architecture="all"),
            _shared_headers(source), _helper(), _host(), *_pve(),
            _meta("proxmox-default-kernel", "2.0.2", f"proxmox-kernel-{DEFAULT_SERIES}", "Default Proxmox Kernel Image"),
            _meta("proxmox-default-headers", "2.0.2", f"proxmox-headers-{DEFAULT_SERIES}", "Default Proxmox Kernel Headers"),
        ],
        TEST_COMPONENT: [],
    }  # fmt: skip
    for release, component in KERNELS.items():
        components[component] += [kernel(release, config), kernel_headers(release, source)]
    # A metapackage points at the newest kernel of its series, per component.
    for component in components:
        newest = {series(release): release for release, place in KERNELS.items() if place == component}
        for release in newest.values():
            components[component] += _kernel_metas(release)
    return apt.Repository(NAME, "Proxmox", "Proxmox Debian Repository", "trixie", components)
