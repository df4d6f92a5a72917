#!/usr/bin/python
"""Ansible module: the GPUs of a Proxmox VE host, whose they are, and what their driver says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_facts
short_description: GPUs of a Proxmox VE host, whose they are, and what their driver says
description:
  - Reads sysfs, /proc, /dev and /etc/pve; runs nothing and changes nothing. GPUs are found on the PCI bus, so that one whose driver is not
    loaded, or that belongs to a virtual machine, is seen too.
attributes:
  check_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpu_host_facts:
  register: gpu_host
"""

RETURN = r"""
gpus:
  description:
    - GPUs in bus order, which is nvidia-smi's, with index, bus_id, vendor, device, driver, numa_node, local_cpus, name, minor,
      claimed_by, the virtual machines whose configuration names them, and bound_at_boot, the lines (file and text) that give them to
      vfio-pci. What is unknown is null.
  type: list
  elements: dict
  returned: always
driver:
  description: The loaded driver with loaded_version, open, uvm_disable_hmm and params. What is unknown or not loaded is null.
  type: dict
  returned: always
device_nodes:
  description: NVIDIA's nodes in /dev with path, major, minor, mode, uid and gid.
  type: list
  elements: dict
  returned: always
nvidia_nodes_missing:
  description: Nodes that a container needs and that do not exist, or that have kept the major number of an earlier load of nvidia_uvm.
  type: list
  elements: str
  returned: always
numa:
  description: NUMA nodes with node and cpus.
  type: list
  elements: dict
  returned: always
containers:
  description:
    - Containers of this node with vmid, hostname, status, mechanism, gpus (device nodes), devices, slots (of dev[n]), by_hand (raw lines
      that pass NVIDIA's nodes), notes, unprivileged, and stale_nodes, device nodes whose numbers are no longer the host's.
  type: list
  elements: dict
  returned: always
virtual_machines:
  description: Virtual machines of this node that have PCI devices, with vmid, name, onboot and hostpci.
  type: list
  elements: dict
  returned: always
kernel: {description: Release of the running kernel., type: str, returned: always}
cmdline: {description: Its command line., type: str, returned: always}
"""

import os
import stat
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode.modprobe import FOLDERS
from ansible.module_utils.gpunode.pve import hostgpus
from ansible.module_utils.gpunode.pve.conffile import parse
from ansible.module_utils.gpunode.pve.passthrough import claims, machine, nvidia_majors, passthrough, pci_mappings
from ansible.module_utils.gpunode.pve.vfio import DRIVERCTL, bound_at_boot
from ansible.module_utils.gpunode.pveapi.node import running
from ansible.module_utils.gpunode.pveapi.shells import read_file

PCI = Path("/sys/bus/pci/devices")
DRIVER_FILES = (
    "/sys/module/nvidia/version",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    gpus = hostgpus.gpus(_pci(), _information())
    nodes = _device_nodes()
    machines = [machine(int(path.stem), _text(path), pci_mappings(_text("/etc/pve/mapping/pci.cfg"))) for path in _guests("qemu-server")]
    binders = {str(path): _text(path) for folder in _folders() for path in sorted(folder.glob("*.conf"))}
    binders |= {str(path): _text(path) for path in sorted(Path(DRIVERCTL).glob("*"))}
    for gpu in gpus:
        gpu["claimed_by"] = claims(gpu["bus_id"], machines)
        gpu["bound_at_boot"] = bound_at_boot(gpu, binders, _text("/proc/cmdline"))
    module.exit_json(
        changed=False,
        gpus=gpus,
        driver=hostgpus.driver({path: read_file(path) for path in DRIVER_FILES}),
        device_nodes=nodes,
        nvidia_nodes_missing=hostgpus.missing_nodes(gpus, nodes, _text("/proc/devices")),
        numa=_numa(),
        containers=_containers(nodes),
        virtual_machines=[
            {"vmid": guest.vmid, "name": guest.name, "onboot": guest.onboot, "hostpci": guest.hostpci}
            for guest in machines
            if guest.hostpci
        ],
        kernel=os.uname().release,
        cmdline=_text("/proc/cmdline").strip(),
    )


def _folders() -> list[Path]:
    """Folders of modprobe.d, each once: /lib is /usr/lib on a merged system."""
    return list({Path(folder).resolve(): Path(folder) for folder in reversed(FOLDERS)}.values())


def _text(path: str | Path) -> str:
    try:
        return read_file(str(path)) or ""
    except OSError:
        return ""


def _pci() -> dict[str, dict[str, str]]:
    found = {}
    for device in sorted(PCI.glob("*")):
        files = {name: _text(device / name) for name in ("vendor", "device", "class", "numa_node", "local_cpulist")}
        if (device / "driver").is_symlink():
            files["driver"] = (device / "driver").readlink().name
        found[device.name] = files
    return found


def _information() -> dict[str, str]:
    return {path.parent.name: _text(path) for path in Path("/proc/driver/nvidia/gpus").glob("*/information")}


def _device_nodes() -> list[dict[str, Any]]:
    found = []
    for path in sorted([*Path("/dev").glob("nvidia*"), *Path("/dev").glob("nvidia-caps*/*")]):
        about = path.stat()
        if stat.S_ISCHR(about.st_mode):
            found.append(
                {
                    "path": str(path),
                    "major": os.major(about.st_rdev),
                    "minor": os.minor(about.st_rdev),
                    "mode": f"{stat.S_IMODE(about.st_mode):04o}",
                    "uid": about.st_uid,
                    "gid": about.st_gid,
                }
            )
    return found


def _numa() -> list[dict[str, Any]]:
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    return [{"node": int(path.name[4:]), "cpus": _text(path / "cpulist").strip()} for path in nodes]


def _guests(kind: str) -> list[Path]:
    return sorted(Path(f"/etc/pve/{kind}").glob("[1-9]*.conf"))


def _containers(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sockets, majors = _text("/proc/net/unix"), nvidia_majors(_text("/proc/devices"))
    found = []
    for path in _guests("lxc"):
        vmid = int(path.stem)
        config = parse(_text(path))
        told = passthrough(config, majors)
        runs = running(sockets, vmid)
        found.append(
            {
                "vmid": vmid,
                "hostname": config.live.options.get("hostname", ""),
                "status": "running" if runs else "stopped",
                "mechanism": told.mechanism,
                "gpus": told.gpus,
                "devices": told.devices,
                "slots": told.slots,
                "by_hand": [{"key": key, "value": value} for key, value in told.by_hand],
                "notes": told.notes,
                "unprivileged": told.unprivileged,
                "stale_nodes": _stale(vmid, nodes) if runs and (told.gpus or told.by_hand) else [],
            }
        )
    return found


def _stale(vmid: int, nodes: list[dict[str, Any]]) -> list[str]:
    """Nodes that a running container has with other numbers than the host: its driver was reloaded since it started."""
    root = _root_of(vmid)
    if root is None:
        return []
    stale = []
    for node in nodes:
        try:
            inside = (root / node["path"].lstrip("/")).lstat()
        except OSError:
            continue
        if stat.S_ISCHR(inside.st_mode) and (os.major(inside.st_rdev), os.minor(inside.st_rdev)) != (node["major"], node["minor"]):
            stale.append(node["path"])
    return stale


def _root_of(vmid: int) -> Path | None:
    """Root directory of a running container's first process: the child of its monitor."""
    for proc in Path("/proc").glob("[0-9]*"):
        command = _text(proc / "cmdline")
        if (
            command.startswith("[lxc monitor]") and command.rstrip("\0 ").endswith(f" {vmid}")
        ) or f"lxc-start\0-F\0-n\0{vmid}\0" in command:
            children = _text(proc / "task" / proc.name / "children").split()
            if children:
                return Path("/proc") / children[0] / "root"
    return None


if __name__ == "__main__":
    main()
