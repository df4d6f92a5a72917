"""The hardware: which GPUs a node has, on which root port and NUMA node each one sits."""

from __future__ import annotations

import json
import platform
import uuid
from typing import Any

from . import paths

NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
SIMULATED = " (simulated)"  # what tells every report that no GPU spoke
DEVICE_ID = 0x2BB5
SUBSYSTEM_ID = 0x204E
VENDOR_ID = 0x10DE
MEMORY_MIB = 97887
RESERVED_MIB = 636
BAR1_MIB = 131072
VBIOS = "98.02.81.00.01"
POWER_MIN_W, POWER_MAX_W = 300.0, 600.0
MAX_GEN, MAX_WIDTH = 5, 16

# Root buses of a two-socket EPYC host: each GPU has a host bridge of its own, so that GPUs of one socket are NODE to one another.
ROOT_BUSES = (0x10, 0x30, 0x50, 0x70, 0x90, 0xB0, 0xD0, 0xF0)
NODE_CPULISTS = ("0-95,192-287", "96-191,288-383")

_NAMESPACE = uuid.UUID("6f1d2c0e-5d0b-4f43-9a55-1f2d3c4b5a69")


def config() -> dict[str, Any]:
    """The node's own description, /etc/lab/nvidia/hardware.json; every key is optional: gpus, name, memory_mib, iommu_default."""
    try:
        loaded: dict[str, Any] = json.loads((paths.ETC / "hardware.json").read_text())
    except (OSError, ValueError):
        return {}
    return loaded


def host_name() -> str:
    """The node's name: part of what makes its GPUs' UUIDs its own."""
    try:
        return (paths.ROOT / "etc/hostname").read_text().strip() or platform.node()
    except OSError:
        return platform.node()


def gpus() -> list[dict[str, Any]]:
    """All GPUs that are plugged in, in bus order, with their values at power-on."""
    described = config()
    count = int(described.get("gpus", len(ROOT_BUSES)))
    found = []
    for index in range(min(count, len(ROOT_BUSES))):
        root = ROOT_BUSES[index]
        numa = 0 if index < (count + 1) // 2 else 1
        unique = uuid.uuid5(_NAMESPACE, f"{host_name()}/{index}")
        found.append(
            {
                "slot": index,
                "bdf": f"0000:{root + 1:02x}:00.0",
                "port": f"0000:{root:02x}:01.1",
                "root": f"0000:{root:02x}",
                "numa": numa,
                "cpulist": NODE_CPULISTS[numa],
                "uuid": f"GPU-{unique}",
                "serial": f"17924{unique.int % 10**8:08d}",
                "pdi": f"0x{unique.int & (1 << 64) - 1:016x}",
                "irq": 480 + index,
                "name": described.get("name", NAME),
                "memory_mib": int(described.get("memory_mib", MEMORY_MIB)),
                "gen": MAX_GEN,
                "width": MAX_WIDTH,
                "bar1_mib": BAR1_MIB,
                "driver": None,
                "lost": False,
                "persistence": False,
                "power_limit": POWER_MAX_W,
                "replays": 0,
                "aer_correctable": 0,
            }
        )
    return found
