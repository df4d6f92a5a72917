"""GPUs in containers and virtual machines: found in configurations however they got there, and turned into ``dev[n]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .propstring import FAMILIES, PropertyError, family_of, is_on, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .conffile import ConfigFile

DEV: Final = "dev"
MOUNT_ENTRY: Final = "mount_entry"
BOTH: Final = "both"
HOOK: Final = "hook"
NONE: Final = "none"

NVIDIA_MAJOR: Final = 195
"""Fixed major of /dev/nvidia0 and on; those of nvidia-uvm and nvidia-caps are dynamic. Source: NVIDIA/open-gpu-kernel-modules."""

_GPU_NODE: Final = re.compile(r"/dev/nvidia\d+")
_GRAPHICS: Final = re.compile(r"/dev/(?:nvidia|dri(?:/|$)|kfd$)")
_HOOK: Final = re.compile(r"/hooks/nvidia\b")
_LIBRARIES: Final = re.compile(r"(?:usr/)?lib(?:64)?(?:/[\w.-]+-linux-gnu)?/?")


@dataclass(frozen=True)
class Passthrough:
    """How a container gets devices. ``mechanism`` says how it gets graphics devices: dev, mount_entry, both, hook or none.

    ``gpus`` are NVIDIA's GPU nodes as the container sees them, ``devices`` everything else of the host's /dev.
    ``slots`` maps ``dev3`` to its path. ``by_hand`` are the raw lines that pass NVIDIA's nodes and that ``dev[n]`` replaces.
    ``unprivileged`` is None when the file does not say. ``notes`` are for a person.
    """

    mechanism: str
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    by_hand: tuple[tuple[str, str], ...] = ()
    unprivileged: bool | None = None
    notes: tuple[str, ...] = ()


def passthrough(config: ConfigFile, majors: Sequence[int] = (NVIDIA_MAJOR,)) -> Passthrough:
    """Read the live section of a container's file. ``majors`` are those that NVIDIA's drivers have on this host now."""
    slots = {}
    for name, value in config.live.options.items():
        family = family_of(name)
        if family is not None and family.name == DEV:
            try:
                slots[name] = parse(FAMILIES[DEV], value).get("path", "")
            except PropertyError:
                slots[name] = value.partition(",")[0]
    mounted = [entry for key, value in config.live.raw if key == "lxc.mount.entry" and (entry := _mount_entry(value))]
    hooked = any(key.startswith("lxc.hook.") and _HOOK.search(value) for key, value in config.live.raw)
    paths = [*slots.values(), *(target if _GPU_NODE.fullmatch(target) else source for source, target in mounted)]
    gpus = sorted({path for path in paths if _GPU_NODE.fullmatch(path)}, key=lambda path: int(path[len("/dev/nvidia") :]))
    by_dev = any(_GRAPHICS.match(path) for path in slots.values())
    by_entry = any(_GRAPHICS.match(source) or _GRAPHICS.match(target) for source, target in mounted)
    privileged = config.live.options.get("unprivileged")
    return Passthrough(
        mechanism=BOTH if by_dev and by_entry else DEV if by_dev else MOUNT_ENTRY if by_entry else HOOK if hooked else NONE,
        gpus=tuple(gpus),
        devices=tuple(dict.fromkeys(path for path in paths if path not in gpus)),
        slots=slots,
        by_hand=tuple(_by_hand(config, majors)),
        unprivileged=None if privileged is None else is_on(privileged),
        notes=tuple(_notes(config, majors)),
    )


def _mount_entry(value: str) -> tuple[str, str] | None:
    """Source and target of a device's mount entry, both as paths of the host and of the container; None for anything else."""
    fields = value.split()
    if len(fields) < 2:
        return None
    source, target = fields[0], "/" + fields[1].lstrip("/")
    if not (source.startswith("/dev/") or (target.startswith("/dev/") and source.startswith("/"))):
        return None
    return (source if source.startswith("/dev/") else target), target


def _by_hand(config: ConfigFile, majors: Sequence[int]) -> list[tuple[str, str]]:
    lines = []
    for key, value in config.live.raw:
        entry = _mount_entry(value) if key == "lxc.mount.entry" else None
        rule = re.match(r"c\s+(\d+):", value) if re.fullmatch(r"lxc\.cgroup2?\.devices\.allow", key) else None
        if (
            (entry is not None and entry[1].startswith("/dev/nvidia"))
            or (rule is not None and int(rule[1]) in {NVIDIA_MAJOR, *majors})
            or (key.startswith("lxc.hook.") and (_HOOK.search(value) or "nvidia-modprobe" in value))
            or (key.startswith("lxc.environment") and re.match(r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES)=", value))
        ):
            lines.append((key, value))
    return lines


def _notes(config: ConfigFile, majors: Sequence[int]) -> list[str]:
    notes = []
    for key, value in config.live.raw:
        if key == "lxc.mount.entry":
            fields = value.split()
            if len(fields) > 1 and _LIBRARIES.fullmatch(fields[1]):
                notes.append(f"{value!r} lays the host's libraries over the container's own")
        if key == "lxc.environment.runtime" and value.startswith("CUDA_VISIBLE_DEVICES="):
            notes.append(f"{value} hides GPUs from what runs in the container")
        rule = re.match(r"c\s+(\d+):", value) if re.fullmatch(r"lxc\.cgroup2?\.devices\.allow", key) else None
        if rule is not None and _is_dynamic(int(rule[1])) and int(rule[1]) not in majors and _passes_nvidia(config):
            notes.append(f"{key}: {value} names a major that no NVIDIA driver has now; it was left")
        if key.startswith("lxc.cgroup.devices."):
            notes.append(f"{key} is a cgroup v1 key, without effect on cgroup v2")
    return notes


def _passes_nvidia(config: ConfigFile) -> bool:
    return any(key == "lxc.mount.entry" and "dev/nvidia" in value for key, value in config.live.raw)


def _is_dynamic(major: int) -> bool:
    """Whether the kernel gives this character major to whoever asks, as it does to nvidia-uvm. Source: Linux, fs/char_dev.c."""
    return 234 <= major <= 254 or 384 <= major <= 511


def nvidia_majors(proc_devices: str) -> list[int]:
    """Character majors of NVIDIA's drivers in /proc/devices."""
    characters = proc_devices.partition("Block devices:")[0]
    return [int(match[1]) for match in re.finditer(r"^\s*(\d+) nvidia", characters, re.MULTILINE)]


@dataclass(frozen=True)
class Machine:
    """A virtual machine that has PCI devices: ``hostpci`` maps ``hostpci0`` to the bus addresses that it names."""

    vmid: int
    name: str
    onboot: bool
    hostpci: Mapping[str, tuple[str, ...]]


def machine(vmid: int, text: str, mappings: Mapping[str, Sequence[str]]) -> Machine:
    """Read a virtual machine's file (live section). ``mappings`` are the resource mappings, see ``pci_mappings``."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            break
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            options[key.strip()] = value.strip()
    found = {key: tuple(_addresses(value, mappings)) for key, value in options.items() if re.fullmatch(r"hostpci\d+", key)}
    return Machine(vmid, options.get("name", ""), is_on(options.get("onboot")), found)


def _addresses(value: str, mappings: Mapping[str, Sequence[str]]) -> list[str]:
    addresses: list[str] = []
    for part in value.split(","):
        key, equals, item = part.partition("=")
        if equals and key == "mapping":
            addresses += mappings.get(item, ())
        elif not equals or key == "host":
            addresses += [_full_address(address) for address in (item if equals else key).split(";") if address]
    return addresses


def _full_address(address: str) -> str:
    """``01:00`` and ``0000:01:00.0`` in one spelling; without a function the device's all functions are meant."""
    address = address.strip().lower()
    return address if address.count(":") == 2 else f"0000:{address}"


def pci_mappings(text: str) -> dict[str, list[str]]:
    """Resource mappings of /etc/pve/mapping/pci.cfg: name to bus addresses."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            name = line.strip()
        elif name:
            for path in re.findall(r"\bpath=([0-9a-fA-F:.;]+)", line):
                found.setdefault(name, []).extend(_full_address(address) for address in path.split(";") if address)
    return found


def claims(bus_id: str, machines: Sequence[Machine]) -> list[dict[str, object]]:
    """Virtual machines that name this PCI device, with the option to delete."""
    device = bus_id.lower().rpartition(".")[0]
    return [
        {"vmid": guest.vmid, "name": guest.name, "option": option, "onboot": guest.onboot}
        for guest in machines
        for option, addresses in sorted(guest.hostpci.items())
        if any(address == bus_id.lower() or address == device for address in addresses)
    ]
