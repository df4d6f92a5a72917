"""Reading and measuring a node as one snapshot: the host, its GPU container, every pair."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.collect.errors import InputError, UnreachableError
from gpunode_tools.collect.machines import gpu_containers, read_container, read_machine, running_containers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpunode_tools.collect.machines import Machine

BUSY_MIB: Final = 2048
"""Memory in use beyond what an idle driver and a persistence daemon hold (636 MiB on a 96 GB card)."""


def choose_container(data: dict[str, Any], machine: Machine, asked: int | None, say: Callable[[str], None]) -> int | None:
    """The container to look into: the one asked for, else the running one with the most GPUs; None for the host itself."""
    if asked is not None:
        return asked
    having = gpu_containers(data)
    if not having:
        return None
    names = ", ".join(map(str, having))
    try:
        up = running_containers(machine)
    except UnreachableError as error:
        say(
            f"whether container {names} runs, which has the GPUs, could not be told ({error}); looking at the host alone: "
            "pct is root's, connect as root or with ansible_become: true"
        )
        return None
    running = {vmid: count for vmid, count in having.items() if vmid in up}
    if not running:
        say(f"container {names} has the GPUs but does not run; looking at the host alone")
        return None
    best = max(sorted(running), key=lambda vmid: running[vmid])
    if len(running) > 1:
        say(f"containers {', '.join(map(str, running))} have GPUs; taking {best} (--container chooses another)")
    return best


def read_node(machine: Machine, container: int | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the snapshot of a node with its GPU container. Raises UnreachableError when the node cannot be read."""
    data = read_machine(machine)
    there = sorted(int(match[1]) for path in data.get("files", {}) if (match := re.fullmatch(r"/etc/pve/lxc/(\d+)\.conf", path)))
    if container is not None and there and container not in there:
        raise InputError(f"there is no container {container} on {machine.name}: it has {', '.join(map(str, there))} (pct list)")
    vmid = choose_container(data, machine, container, say)
    if vmid is not None:
        data["container"] = read_container(machine, vmid)
    return data


def collect(machine: Machine, options: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Return the snapshot of a node, measured unless --no-measure or --measured."""
    data = read_node(machine, options["container"], say)
    if options["no_measure"] or options["measured_file"]:
        return data
    from gpunode_tools.collect.measuring import measure_node

    data.update(measure_node(machine, data, options, say))
    return data


def as_snapshot_keys(result: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The probe's result as a snapshot's ``measured`` and ``measurement``."""
    rest = {key: value for key, value in result.items() if key != "pairs"}
    rest["mode"] = "light" if result.get("pairs") and all(pair.get("light") for pair in result["pairs"]) else result.get("measure")
    if options and options.get("pairs"):
        rest["pairs"] = ",".join(f"{source}:{target}" for source, target in options["pairs"])
    return {"measured": result.get("pairs", []), "measurement": rest}


def measured_from(text: str) -> dict[str, Any]:
    """Read a saved measurement: the probe's result as JSON, its events as lines, or what another program printed.

    Raises UnreachableError for anything else.
    """
    from gpunode_tools.probe.measure import Options, Result

    try:
        first = json.loads(text)
        if isinstance(first, dict) and "pairs" in first:
            return as_snapshot_keys(first)
    except ValueError:
        pass
    result = Result(Options())
    seen = 0
    for line in text.splitlines():
        if line.startswith('{"event":'):
            try:
                result.add(json.loads(line))
            except ValueError:
                break  # the last line may be cut
            seen += 1
    if not seen:
        from gpunode.others import measured_by_others
        from gpunode.parsers.text import NotUnderstoodError

        try:
            return measured_by_others(text)
        except NotUnderstoodError as error:
            raise InputError(f"the measurement is no result of the probe, of nvbandwidth or of p2pBandwidthLatencyTest: {error}") from None
    return as_snapshot_keys(result.finish("the measurement ended early", 0.0))


def now() -> str:
    """This moment, UTC, as snapshots write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
