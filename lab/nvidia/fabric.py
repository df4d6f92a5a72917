"""The fabric file of the stand-in libcuda: GPUs from the driver's state, links from what host and driver are set to, and the faults.

Its language is described in libcuda/reference.conf.
"""

from __future__ import annotations

import json
from typing import Any

from . import paths, state

# Direct attach on a two-socket Gen5 host as published: 53 GB/s within a socket, 40 across, and half of it both ways at once.
NEAR = "copy=53 both=103 latency=0.75"
FAR = "copy=40 both=64 latency=1.30"
# A translating IOMMU costs a single flow about 15 percent.
NEAR_TRANSLATED = "copy=46 both=88 latency=0.95"
FAR_TRANSLATED = "copy=35 both=55 latency=1.55"
# Without ForceP2P the copy engines still go direct, but kernels' loads are staged through the host's memory.
STAGED_LOADS = "sm_read=3.5 sm_write=20 latency=14"
_PCIE_SHARE = {1: 1 / 16, 2: 1 / 8, 3: 1 / 4, 4: 1 / 2, 5: 1.0}
_FULL_PORT = 57.0


def port_gbps(gpu: dict[str, Any]) -> float:
    """What a GPU's own link carries."""
    return float(_FULL_PORT * _PCIE_SHARE[gpu["gen"]] * gpu["width"] / 16)


def force_p2p(now: dict[str, Any]) -> bool:
    """Whether nvidia.ko was loaded with reads and writes between GPUs forced on."""
    words = now["loaded"].get("nvidia", {}).get("params", {}).get("NVreg_RegistryDwords", "")
    for word in words.split(";"):
        name, _, value = word.partition("=")
        if name.strip() == "ForceP2P":
            try:
                return int(value, 0) & 0x11 == 0x11
            except ValueError:
                return False
    return False


def text(now: dict[str, Any], faults: dict[str, Any]) -> str:
    """The file for a state: GPUs in bus order, as CUDA numbers equal ones."""
    shown = [gpu for gpu in now["gpus"] if gpu["driver"] in {None, "nvidia"}]
    lines = ["# Written by the lab's driver at every change; `python -m lab fault NODE p2p ...` adds faults."]
    lines += [
        f'gpu {gpu["bdf"]} name="{gpu["name"]}" uuid={gpu["uuid"]} numa={gpu["numa"]} minor={gpu.get("minor", index)} '
        f"memory_mib={gpu['memory_mib']} port={port_gbps(gpu):g}"
        for index, gpu in enumerate(shown)
    ]
    translated = now["iommu"] == "on"
    lines += [f"link near {NEAR_TRANSLATED if translated else NEAR}", f"link far {FAR_TRANSLATED if translated else FAR}"]
    if "nvidia" in now["loaded"] and not force_p2p(now):
        lines.append(f"link all {STAGED_LOADS}")
    lines += ["set nodes required", f"set cuda {_cuda(now)}"]
    ordinals = {gpu["slot"]: ordinal for ordinal, gpu in enumerate(shown)}
    lines += [f"fault gpu {ordinals[gpu['slot']]} gone after=0 then=unavailable" for gpu in shown if gpu["lost"]]
    for pair, name in faults.get("p2p", {}).items():
        one, other = (int(slot) for slot in pair.split(":"))
        if one in ordinals and other in ordinals:
            lines.append(f"fault {ordinals[one]}:{ordinals[other]} {name}")
    if faults.get("cuda-init"):
        lines.append(f"fault init {faults['cuda-init']}")
    return "\n".join(lines) + "\n"


def _cuda(now: dict[str, Any]) -> int:
    branch = now["loaded"].get("nvidia", {}).get("version", "580").partition(".")[0]
    return {"590": 13010, "595": 13020, "610": 13030}.get(branch, 13000)


def statuses(faults: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What topo -p2p says beyond the healthy answer: only a refused peer access shows there."""
    return {pair: {"r": "CNS", "w": "CNS", "p": "CNS"} for pair, name in faults.get("p2p", {}).items() if name == "no-access"}


def write(now: dict[str, Any]) -> None:
    """Write both files from the state and the persistent faults."""
    faults = state.faults()
    state.write(paths.FABRIC, text(now, faults))
    state.write(paths.PROC_DRIVER / paths.PRIVATE / "p2p-status.json", json.dumps(statuses(faults)))
