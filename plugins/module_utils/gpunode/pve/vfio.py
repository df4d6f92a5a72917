"""What gives GPUs to virtual machines: configurations that bind them to vfio-pci at boot, and the way back. Pure: texts in, texts out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..cmdline import key_of, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VFIO: Final = "vfio-pci"
CMDLINE: Final = "/proc/cmdline"
DRIVERCTL: Final = "/etc/driverctl.d"
"""Folder of driverctl(8): a file by bus address, in it the driver that alone may have the device."""

_OPTIONS: Final = re.compile(r"\s*options\s+vfio[-_]pci\s")
_IDS: Final = re.compile(r'(?<!\S)(ids=)("?)([^\s"]*)\2')


def id_of(gpu: Mapping[str, Any]) -> str:
    """Vendor and device of a GPU of the host's facts as vfio-pci spells them: ``10de:2bb5``."""
    return f"{str(gpu['vendor']).removeprefix('0x')}:{str(gpu['device']).removeprefix('0x')}".lower()


def _kept(ids: str, gone: Sequence[str]) -> list[str]:
    """Ids of a list without those of these devices, whatever subsystem or class follows them."""
    return [item for item in ids.split(",") if item and ":".join(item.split(":")[:2]).lower() not in gone]


def _logical(text: str) -> list[str]:
    """Lines as kmod reads them, continued ones in one piece, with their line ends."""
    return re.findall(r"(?:[^\n\\]|\\.|\\\n|\\)*\n|(?:[^\n\\]|\\.|\\\n|\\)+$", text)


def binding_lines(text: str, device: str) -> list[str]:
    """Lines of a modprobe.d file that bind this device (``10de:2bb5``) to vfio-pci."""
    return [line.strip() for line in _logical(text) if without_ids(line, [device]) != line]


def without_ids(text: str, devices: Sequence[str]) -> str:
    """A modprobe.d file whose options of vfio-pci do not name these devices; a line that is left without options goes."""
    out = []
    for line in _logical(text):
        if not _OPTIONS.match(line):
            out.append(line)
            continue
        changed = _IDS.sub(lambda match: _list(match, devices), line)
        if changed == line:
            out.append(line)
        elif re.sub(r"\\\n", " ", changed).split()[2:]:
            out.append(re.sub(r"[ \t]+(?=\n|$)", "", changed))
    return "".join(out)


def _list(match: re.Match[str], devices: Sequence[str]) -> str:
    kept = _kept(match[3], devices)
    if len(kept) == len([item for item in match[3].split(",") if item]):
        return match[0]
    return f"{match[1]}{match[2]}{','.join(kept)}{match[2]}" if kept else ""


def cmdline_change(cmdline: str, devices: Sequence[str]) -> dict[str, list[str]]:
    """What the kernel command line must have (``present``) and lose (``absent``) so that it does not bind these devices."""
    for option in split(cmdline):
        if key_of(option) == "vfio_pci.ids":
            key, _, ids = option.partition("=")
            kept = _kept(ids, devices)
            if len(kept) != len(ids.split(",")):
                return {"present": [f"{key}={','.join(kept)}"], "absent": []} if kept else {"present": [], "absent": [key]}
    return {"present": [], "absent": []}


def bound_at_boot(gpu: Mapping[str, Any], files: Mapping[str, str], cmdline: str) -> list[dict[str, str]]:
    """Where it is written that vfio-pci gets this GPU, each with ``file`` and ``text``.

    ``files`` maps paths of modprobe.d and of driverctl's folder to their texts.
    """
    found = []
    for path, text in sorted(files.items()):
        if path.startswith(f"{DRIVERCTL}/"):
            if path.rpartition("/")[2] == gpu["bus_id"] and text.strip() == VFIO:
                found.append({"file": path, "text": VFIO})
        else:
            found += [{"file": path, "text": line} for line in binding_lines(text, id_of(gpu))]
    change = cmdline_change(cmdline, [id_of(gpu)])
    if change["present"] or change["absent"]:
        found += [{"file": CMDLINE, "text": option} for option in split(cmdline) if key_of(option) == "vfio_pci.ids"]
    return found


def told(gpus: Sequence[Mapping[str, Any]]) -> str:
    """What was found and the exact steps to release these GPUs of the host's facts by hand; empty when nobody has them."""
    found = [
        f"{_named([gpu])} is {claim['option']} of virtual machine {claim['vmid']} ({claim['name'] or 'unnamed'})"
        for gpu in gpus
        for claim in gpu["claimed_by"]
    ]
    bound = [gpu for gpu in gpus if gpu["driver"] == VFIO]
    if bound:
        found.append(f"{_named(bound)} {'is' if len(bound) == 1 else 'are'} bound to {VFIO}")
    taken = [gpu for gpu in gpus if gpu["driver"] == VFIO or gpu["claimed_by"]]
    places = [(place["file"], place["text"]) for gpu in taken for place in gpu.get("bound_at_boot", [])]
    found += [f'"{text}" in {file} does so at each boot' for file, text in dict.fromkeys(places)]
    return f"{'; '.join(found)}. Release by hand: {'; '.join(_steps(taken))}" if found else ""


def _named(gpus: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(f"{gpu['index']} ({gpu['bus_id']})" for gpu in gpus)
    return f"GPU{'s' if len(gpus) > 1 else ''} {names}"


def _steps(taken: Sequence[Mapping[str, Any]]) -> list[str]:
    steps = []
    for gpu in taken:
        for claim in gpu["claimed_by"]:
            steps += [f"`qm shutdown {claim['vmid']}`", f"`qm set {claim['vmid']} --delete {claim['option']}`"]
    rebuild = False
    for gpu in taken:
        for place in gpu.get("bound_at_boot", []):
            if place["file"] == CMDLINE:
                steps.append(
                    f"take {id_of(gpu)} out of vfio-pci.ids in /etc/kernel/cmdline (then `proxmox-boot-tool refresh`) or /etc/default/grub"
                    " (then `update-grub`)"
                )
            elif place["file"].startswith(DRIVERCTL):
                steps.append(f"`driverctl unset-override {gpu['bus_id']}`")
            else:
                rebuild = True
                steps.append(f"take {id_of(gpu)} out of {place['file']}")
    if rebuild:
        steps.append("`update-initramfs -u -k all`")
    bound = " ".join(gpu["bus_id"] for gpu in taken if gpu["driver"] == VFIO)
    if bound:
        ids = dict.fromkeys(id_of(gpu).replace(":", " ") for gpu in taken if gpu["driver"] == VFIO)
        steps += [f"`echo {device} > /sys/bus/pci/drivers/{VFIO}/remove_id`" for device in ids]
        steps.append(
            f"`for a in {bound}; do echo $a > /sys/bus/pci/drivers/{VFIO}/unbind; echo > /sys/bus/pci/devices/$a/driver_override;"
            " echo $a > /sys/bus/pci/drivers_probe; done`"
        )
    return list(dict.fromkeys(steps))
