#!/usr/bin/python
"""Ansible module: GPUs that vfio-pci holds for virtual machines go back to their driver, now and at every boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_release
short_description: Give GPUs that vfio-pci holds back to their driver
description:
  - Takes the GPUs out of what binds them to vfio-pci at boot (options in C(/etc/modprobe.d), overrides of driverctl), rebuilds initial RAM
    disks that hold those files, then unbinds the GPUs and has the kernel ask for their driver.
  - Options of vfio-pci name models of cards, so that other GPUs of the same model are not bound at boot either; Proxmox VE binds those of a
    virtual machine itself when it starts.
  - The kernel command line belongs to M(pve_kernel_cmdline).
options:
  gpus:
    description: Bus addresses such as C(0000:31:00.0).
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Take a GPU back from vfio-pci
  gpu_release:
    gpus: ["0000:31:00.0"]
"""

RETURN = r"""
files: {description: Files that were changed or removed., type: list, elements: str, returned: always}
rebuilt: {description: Kernels whose initial RAM disk was rebuilt., type: list, elements: str, returned: always}
drivers: {description: Driver of each GPU afterwards (null without one)., type: dict, returned: always}
"""

import contextlib
import re
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import kernel_host
from ansible.module_utils.gpunode.modprobe import FOLDERS
from ansible.module_utils.gpunode.pve.vfio import DRIVERCTL, VFIO, binding_lines, id_of, without_ids

BUS = Path("/sys/bus/pci")
MODPROBE = Path("/etc/modprobe.d")
OVERRIDES = Path(DRIVERCTL)
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
BIND_S = 20.0
"""Time for a driver to take its GPU: it may probe beside the write that asks for it, and eight GPUs load their firmware."""


def gpu_at(address: str) -> dict[str, Any]:
    """A GPU as the facts have it, as far as it matters here."""
    place = BUS / "devices" / address
    return {"bus_id": address, "vendor": (place / "vendor").read_text().strip(), "device": (place / "device").read_text().strip()}


def driver_of(address: str) -> str | None:
    """The driver that has a device."""
    link = BUS / "devices" / address / "driver"
    return link.readlink().name if link.is_symlink() else None


def user_of(address: str) -> str:
    """A process that has the device open through vfio, for a person; empty when none has. Unbinding would wait for it for ever."""
    group = BUS / "devices" / address / "iommu_group"
    if not group.is_symlink():
        return ""
    wanted = f"/dev/vfio/{group.readlink().name}"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(handle.readlink()) == wanted for handle in (process / "fd").iterdir()):
                return f"process {process.name} ({kernel_host.text_of(process / 'comm').strip()})"
        except OSError:
            continue
    return ""


def edits(gpus: list[dict[str, Any]]) -> dict[Path, tuple[str, str | None]]:
    """Files that bind these GPUs at boot: text before and after (None: the file goes)."""
    devices = [id_of(gpu) for gpu in gpus]
    found: dict[Path, tuple[str, str | None]] = {}
    for path in sorted(MODPROBE.glob("*.conf")):
        text = path.read_text("utf-8", "surrogateescape")
        after = without_ids(text, devices)
        if after != text:
            found[path] = (text, after)
    for gpu in gpus:
        path = OVERRIDES / gpu["bus_id"]
        if kernel_host.text_of(path).strip() == VFIO:
            found[path] = (path.read_text(), None)
    return found


def others() -> list[Path]:
    """Files of modprobe.d that are not the administrator's; /lib is /usr/lib on a merged system."""
    folders = {Path(folder).resolve() for folder in FOLDERS} - {MODPROBE.resolve()}
    return [path for folder in sorted(folders) for path in sorted(folder.glob("*.conf"))]


def replace(path: Path, text: str | None) -> None:
    """Replace a file at once, or take it away; its mode stays."""
    if text is None:
        path.unlink()
        return
    partial = path.with_name(f".{path.name}.gpunode")
    partial.write_text(text, "utf-8", "surrogateescape")
    partial.chmod(path.stat().st_mode & 0o7777)
    partial.replace(path)


def stale() -> list[str]:
    """Kernels whose initial RAM disk is older than a file of modprobe.d, as an interrupted run leaves them."""
    newest = max((path.stat().st_mtime for path in [MODPROBE, *MODPROBE.glob("*.conf")]), default=0.0)
    images = {release: Path(f"/boot/initrd.img-{release}") for release in kernel_host.installed()}
    return [release for release, image in images.items() if not image.exists() or image.stat().st_mtime < newest]


def bind(gpu: dict[str, Any]) -> None:
    """Let vfio-pci go and the kernel ask again who drives the device.

    vfio-pci has had its ids since it was loaded, whatever the files say now: as long as it has them, it takes the device again.
    """
    driver, device = BUS / "drivers" / VFIO, BUS / "devices" / gpu["bus_id"]
    with contextlib.suppress(OSError):  # it has no such id where something else gave it the device
        (driver / "remove_id").write_text(id_of(gpu).replace(":", " "))
    (driver / "unbind").write_text(gpu["bus_id"])
    (device / "driver_override").write_text("\n")
    (BUS / "drivers_probe").write_text(gpu["bus_id"])


def wait(addresses: list[str], driver: str | None) -> None:
    """Wait until each device has this driver, or any but vfio-pci."""
    end = time.monotonic() + BIND_S
    while time.monotonic() < end:
        found = [driver_of(address) for address in addresses]
        if all(have != VFIO and (driver is None or have == driver) for have in found):
            return
        time.sleep(0.05)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"gpus": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True)
    addresses = list(dict.fromkeys(module.params["gpus"]))
    strange = [address for address in addresses if not ADDRESS.fullmatch(address) or not (BUS / "devices" / address).exists()]
    if strange:
        module.fail_json(
            msg=f"{', '.join(strange)}: not on the PCI bus ({BUS}/devices); nothing was changed. `lspci -D -d 10de:` shows GPUs"
        )
    gpus = [gpu_at(address) for address in addresses]
    bound = [address for address in addresses if driver_of(address) == VFIO]
    for address in bound:
        user = user_of(address)
        if user:
            module.fail_json(msg=f"{address} is in use by {user}; nothing was changed. Shut its virtual machine down and run this again")
    changes = edits(gpus)
    rebuild = stale() if bound else []
    shipped = [str(path) for path in others() if any(binding_lines(kernel_host.text_of(path), id_of(gpu)) for gpu in gpus)]
    if shipped:
        module.warn(f"{', '.join(sorted(shipped))} binds these GPUs to {VFIO} at boot and was left: a package or an image put it there")
    if not module.check_mode:
        for path, (_, after) in changes.items():
            replace(path, after)
        rebuild = stale() if bound or changes else []
        for release in rebuild:
            module.run_command(["update-initramfs", "-u", "-k", release], check_rc=True)
        try:
            for gpu in gpus:
                if gpu["bus_id"] in bound:
                    bind(gpu)
        except OSError as error:
            module.fail_json(
                msg=f"the kernel refused ({error}); files are changed already, so that a reboot gives the GPUs to their driver"
            )
        if bound:
            wait(bound, "nvidia" if Path("/sys/module/nvidia").exists() else None)
            left = [address for address in bound if driver_of(address) == VFIO]
            if left:
                module.fail_json(msg=f"{', '.join(left)}: still bound to {VFIO}. `dmesg | tail` may say why; a reboot takes it off")
    module.exit_json(
        changed=bool(changes or bound),
        files=[str(path) for path in changes],
        rebuilt=rebuild,
        drivers={address: driver_of(address) for address in addresses},
        diff=[
            {"before": before, "after": after or "", "before_header": str(path), "after_header": str(path)}
            for path, (before, after) in changes.items()
        ]
        + [{"before": f"{address}: {VFIO}\n", "after": f"{address}: its driver\n"} for address in bound],
    )


if __name__ == "__main__":
    main()
