"""The GPUs of a host from what sysfs and /proc say, and what a container needs to have them. Pure: texts in, data out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NVIDIA: Final = "0x10de"
GPU_CLASSES: Final = ("0x0300", "0x0302")
"""VGA controllers and 3D controllers; the audio and USB functions of a card are none."""

CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""Nodes that every CUDA process opens, beside those of its GPUs. nvidia-modeset is for displays."""

OPTIONAL_NODES: Final = re.compile(r"/dev/(?:nvidia-caps/nvidia-cap\d+|nvidia-caps-imex-channels/channel\d+)")
"""Nodes that exist on some hosts (MIG, multi-node NVLink) and are passed where they do."""


def gpus(devices: Mapping[str, Mapping[str, str]], information: Mapping[str, str]) -> list[dict[str, Any]]:
    """NVIDIA's GPUs on the PCI bus in bus order, which is nvidia-smi's.

    ``devices`` maps a bus address to the texts of its sysfs files (vendor, device, class, numa_node, local_cpulist) and its ``driver``.
    ``information`` maps a bus address to /proc/driver/nvidia/gpus/ADDRESS/information. Unknown values are None.
    """
    found: list[dict[str, Any]] = []
    for address in sorted(devices):
        files = devices[address]
        if files.get("vendor", "").strip() != NVIDIA or not files.get("class", "").strip().startswith(GPU_CLASSES):
            continue
        told = dict(re.findall(r"^([\w ./-]+?):\s*(.*?)\s*$", information.get(address, ""), re.MULTILINE))
        numa = files.get("numa_node", "").strip()
        minor = told.get("Device Minor", "")
        found.append(
            {
                "index": len(found),
                "bus_id": address,
                "vendor": files["vendor"].strip(),
                "device": files.get("device", "").strip(),
                "driver": files.get("driver") or None,
                # -1 is the kernel's word for "the firmware does not say".
                "numa_node": int(numa) if numa.lstrip("-").isdigit() and int(numa) >= 0 else None,
                "local_cpus": files.get("local_cpulist", "").strip(),
                "name": told.get("Model") or None,
                "minor": int(minor) if minor.isdigit() else None,
            }
        )
    return found


def driver(files: Mapping[str, str | None]) -> dict[str, Any]:
    """The loaded driver from texts by path; None where nothing is loaded or the file does not exist."""
    version = (files.get("/sys/module/nvidia/version") or "").strip() or None
    told = files.get("/proc/driver/nvidia/version") or ""
    if version is None:
        match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", told)
        version = match[1] if match else None
    params = dict(re.findall(r"^(\w+):\s*(.*?)\s*$", files.get("/proc/driver/nvidia/params") or "", re.MULTILINE))
    return {
        "loaded_version": version,
        "open": "Open Kernel Module" in told if told else None,
        "uvm_disable_hmm": (files.get("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm") or "").strip() or None,
        "params": {key: value.strip('"') for key, value in params.items()},
    }


def chosen(found: Sequence[Mapping[str, Any]], wanted: Any) -> list[Mapping[str, Any]]:
    """The GPUs that a container shall have: ``all``, or a list of indices. Raises ``ValueError`` for one that is not there."""
    if wanted in (None, "all"):
        return list(found)
    by_index = {gpu["index"]: gpu for gpu in found}
    missing = [index for index in wanted if int(index) not in by_index]
    if missing:
        raise ValueError(
            f"GPU {', '.join(map(str, missing))} is wanted, but the PCI bus shows GPUs 0 to {len(found) - 1}"
            if found
            else "GPUs are wanted, but the PCI bus shows no NVIDIA GPU"
        )
    return [by_index[int(index)] for index in dict.fromkeys(wanted)]


def node_of(gpu: Mapping[str, Any]) -> str:
    """Device node of a GPU; before the driver is loaded its place on the bus is the best guess at its minor number."""
    return f"/dev/nvidia{gpu['index'] if gpu.get('minor') is None else gpu['minor']}"


def missing_nodes(found: Sequence[Mapping[str, Any]], present: Sequence[Mapping[str, Any]], proc_devices: str = "") -> list[str]:
    """Nodes that containers need and that do not exist, of the GPUs that NVIDIA's driver has.

    ``present`` are nodes with path and major, ``proc_devices`` is the text of /proc/devices. nvidia_uvm may get another major at every
    load, and its nodes stay behind with the old one: such a node leads to nothing, or to another driver, and is as good as missing.
    """
    wanted = [node_of(gpu) for gpu in found if gpu.get("driver") == "nvidia"]
    uvm = re.search(r"^\s*(\d+) nvidia-uvm$", proc_devices.partition("Block devices:")[0], re.MULTILINE)
    stale = {node["path"] for node in present if uvm and node["path"].startswith("/dev/nvidia-uvm") and node["major"] != int(uvm[1])}
    good = {node["path"] for node in present} - stale
    return [path for path in (*wanted, *(CONTROL_NODES if wanted else ())) if path not in good]


def devices_for(host: Mapping[str, Any], wanted: Any, mode: str = "0666") -> list[dict[str, str]]:
    """The ``dev`` list of a container that shall have these GPUs of the host's facts.

    Capability nodes keep the host's mode, which is their whole point; the others get ``mode``, 0666 as NVIDIA's own.
    """
    listed = [{"path": node_of(gpu), "mode": mode} for gpu in chosen(host["gpus"], wanted)]
    listed += [{"path": path, "mode": mode} for path in CONTROL_NODES]
    for node in host.get("device_nodes", []):
        if OPTIONAL_NODES.fullmatch(node["path"]):
            listed.append({"path": node["path"], "mode": f"0{int(str(node['mode']), 8) & 0o777:03o}"})
    return listed


def stale_slots(slots: Mapping[str, str], wanted: Sequence[Mapping[str, str]]) -> list[str]:
    """Slots of a container that pass a node of NVIDIA's which is not wanted (any more); other devices are nobody's business here."""
    keep = {item["path"] for item in wanted}
    return sorted(name for name, path in slots.items() if path.startswith("/dev/nvidia") and path not in keep)


def numa_lines(host: Mapping[str, Any], wanted: Any) -> list[dict[str, str]]:
    """Raw lines that bind a container to the CPUs and the memory of its GPUs' NUMA nodes; none where a GPU's node is unknown.

    The API's ``cores`` picks CPUs at random and moves them; only a raw line keeps Proxmox from doing so.
    """
    found = chosen(host["gpus"], wanted)
    nodes = {gpu["numa_node"] for gpu in found}
    if not nodes or None in nodes:
        return []
    of_node = {node["node"]: node["cpus"] for node in host.get("numa", [])}
    cpus: set[int] = set()
    for gpu in found:
        near = cpu_numbers(gpu.get("local_cpus") or of_node.get(gpu["numa_node"], ""))
        if not near:
            return []
        cpus |= near
    return [
        {"key": "lxc.cgroup2.cpuset.cpus", "value": cpu_list(cpus)},
        {"key": "lxc.cgroup2.cpuset.mems", "value": cpu_list(nodes)},
    ]


def cpu_numbers(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it (``0-95,192-287``); empty for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            return set()
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def cpu_list(numbers: set[int]) -> str:
    """Numbers as the kernel writes them, ranges joined."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
