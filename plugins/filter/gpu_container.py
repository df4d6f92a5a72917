"""Filters of the role gpu_container, over ``gpunode.pve.hostgpus``: host facts in, parts of a container's description out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from ansible.errors import AnsibleFilterError

from gpunode.pve import hostgpus, vfio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def gpus(host: Mapping[str, Any], wanted: Any = "all") -> list[Mapping[str, Any]]:
    """The chosen GPUs of the host's facts."""
    return _said(hostgpus.chosen, host["gpus"], wanted)


def devices(host: Mapping[str, Any], wanted: Any = "all", mode: str = "0666") -> list[dict[str, str]]:
    """The ``dev`` list for these GPUs."""
    return _said(hostgpus.devices_for, host, wanted, mode)


def numa(host: Mapping[str, Any], wanted: Any = "all") -> list[dict[str, str]]:
    """Raw lines that bind to the NUMA nodes of these GPUs."""
    return _said(hostgpus.numa_lines, host, wanted)


def stale(container: Mapping[str, Any], wanted: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of ``dev[n]`` that pass a node of NVIDIA's which is not wanted."""
    return hostgpus.stale_slots(container.get("slots", {}), wanted)


def mounts(wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ``mp`` list for mounts of the role: what backups leave out unless a mount says otherwise."""
    ours = {"source", "target", "owner", "group", "mode"}
    return [
        {
            "volume": mount["source"],
            "mp": mount["target"],
            "backup": mount.get("backup", False),
            **{key: value for key, value in mount.items() if key not in ours},
        }
        for mount in wanted
    ]


def taken(host: Mapping[str, Any], wanted: Any = "all") -> str:
    """What virtual machines have of these GPUs, and the steps that release them; empty when nothing."""
    return vfio.told(_said(hostgpus.chosen, host["gpus"], wanted))


def vfio_cmdline(host: Mapping[str, Any], wanted: Any = "all") -> dict[str, list[str]]:
    """What the kernel command line must have and lose so that it gives none of these GPUs to vfio-pci."""
    return vfio.cmdline_change(host["cmdline"], [vfio.id_of(gpu) for gpu in _said(hostgpus.chosen, host["gpus"], wanted)])


def _said(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Names as playbooks use them."""
        return {
            "gpu_container_gpus": gpus,
            "gpu_container_devices": devices,
            "gpu_container_numa": numa,
            "gpu_container_stale": stale,
            "gpu_container_mp": mounts,
            "gpu_container_taken": taken,
            "gpu_container_vfio_cmdline": vfio_cmdline,
        }
