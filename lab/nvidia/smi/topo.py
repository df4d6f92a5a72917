"""`nvidia-smi topo` and `nvlink`: paths from the PCI tree, P2P status from the fabric."""

from __future__ import annotations

import json
import sys
from typing import Any

from lab.nvidia import paths

from . import nvml

_PATHS = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
_STATUSES = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""
# What a healthy host of these cards answers per capability: they have no NVLink, and no atomics to a peer.
_HEALTHY = {"r": "OK", "w": "OK", "n": "NS", "a": "NS", "p": "OK"}
_UNDERLINE, _PLAIN = "\x1b[4m", "\x1b[0m"


def path(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The kind of path between two GPUs."""
    if one["numa"] != other["numa"]:
        return "SYS"
    if one["root"] != other["root"]:
        return "NODE"
    return "PHB" if one["port"] != other["port"] else "PIX"


def matrix(gpus: list[dict[str, Any]]) -> str:
    """Topo -m: the matrix with CPU and NUMA affinity."""
    head = "\t" + _UNDERLINE + "\t".join([*(f"GPU{gpu['index']}" for gpu in gpus), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + _PLAIN
    lines = [head]
    for gpu in gpus:
        cells = [" X " if other is gpu else path(gpu, other) for other in gpus]
        lines.append("\t".join([f"GPU{gpu['index']}", *cells, gpu["cpulist"], str(gpu["numa"]), "", "N/A"]))
    return "\n".join(lines) + "\n" + _PATHS


def status(one: dict[str, Any], other: dict[str, Any], capability: str) -> str:
    """The P2P status of an ordered pair: the fabric's own word for it, else what is healthy."""
    try:
        said = json.loads((paths.channel() / "p2p-status.json").read_text())
    except (OSError, ValueError):
        said = {}
    pair = f"{one['slot']}:{other['slot']}"
    return str(said.get(pair, said.get("*", {})).get(capability, _HEALTHY[capability]))


def p2p(gpus: list[dict[str, Any]], capability: str) -> str:
    """Topo -p2p: the status matrix of one capability."""
    lines = [" \t" + _UNDERLINE + "".join(f"GPU{gpu['index']}\t" for gpu in gpus) + _PLAIN]
    for gpu in gpus:
        cells = ["X" if other is gpu else status(gpu, other, capability) for other in gpus]
        lines.append(f" GPU{gpu['index']}\t" + "".join(cell + "\t" for cell in cells))
    return "\n".join(lines) + "\n" + _STATUSES


def nvlink(arguments: list[str]) -> int:
    """The nvlink command: these cards have none, so status prints nothing."""
    session = nvml.Session()
    session.select(arguments[arguments.index("-i") + 1] if "-i" in arguments else None)
    if not arguments or set(arguments) & {"-h", "--help"}:
        print("\n    nvlink -- Display NvLink information.\n\n    Usage: nvidia-smi nvlink [options]\n")
    return 0


def main(arguments: list[str]) -> int:
    """The topo command."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print("\n    topo -- Display topological information about the system.\n\n    Usage: nvidia-smi topo [options]\n")
        return 0
    session = nvml.Session()
    for gpu in session.gpus:
        session.refuse_lost(gpu)
    if arguments[0] in {"-m", "--matrix", "-mp", "--matrix_pci"}:
        sys.stdout.write(matrix(session.gpus))
        return 0
    if arguments[0] in {"-p2p", "--p2pstatus"} and len(arguments) > 1 and arguments[1] in _HEALTHY:
        sys.stdout.write(p2p(session.gpus, arguments[1]))
        return 0
    if arguments[0] in {"-C", "--get-numa-id-of-nearby-cpu", "-M"} and "-i" in arguments:
        chosen = session.select(arguments[arguments.index("-i") + 1])
        print(f"NUMA IDs of closest CPU: {chosen[0]['numa']}")
        return 0
    print("Invalid combination of input arguments. Please run 'nvidia-smi topo -h' for help.\n", file=sys.stdout)
    return 2
