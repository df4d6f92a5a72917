"""Baselines: what a node was like when it was healthy, and what around it has changed since: the suspects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ..cmdline import split
from ..snapshot import SCHEMA as SNAPSHOT_SCHEMA
from ..snapshot import Snapshot
from ..state import State
from .isolation import iommu_type
from .pcie import link_widths

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "gpunode.baseline/1"
ENVIRONMENT: Final = (
    ("kernel", "kernel"),
    ("driver", "driver"),
    ("container_driver", "driver in the container"),
    ("cmdline", "kernel command line"),
    ("bios", "BIOS"),
    ("iommu", "IOMMU"),
    ("hmm_disabled", "uvm_disable_hmm"),
    ("registry_dwords", "RegistryDwords of the module"),
    ("module_options", "options in modprobe.d"),
    ("vbios", "VBIOS"),
    ("gsp_firmware", "GSP firmware"),
)
"""What can explain a change, in the order in which it usually does."""


class BaselineError(ValueError):
    """Raised for data that is no baseline."""


def build(state: State, saved_at: str) -> dict[str, Any]:
    """Return the baseline of a node as it is now, plain data."""
    topology = state.topology
    log = state.kernel_log
    limited = {limit.bus_id: limit.speed * limit.width for limit in log.limited} if log else {}
    gpus: list[dict[str, Any]] = []
    for gpu in state.gpus:
        width, _, _ = link_widths(state, gpu)
        entry = {
            "index": gpu.index,
            "bdf": gpu.bdf,
            "uuid": gpu.info.uuid if gpu.info else None,
            "name": gpu.info.name if gpu.info else None,
            "link_width": width,
            "bar1_total_mib": gpu.info.bar1_total_mib if gpu.info else None,
            "limited_gtps_lanes": limited.get(gpu.bdf),
        }
        gpus.append({key: value for key, value in entry.items() if value is not None})
    return {
        "schema": SCHEMA,
        "host": state.snapshot.data.get("host"),
        "saved_at": saved_at,
        "environment": environment(state),
        "gpu_count": state.count,
        "gpus": gpus,
        "topology": {"gpus": topology.gpus, "rows": topology.rows, "matrix": topology.matrix} if topology else None,
        "measurement": {key: state.snapshot.measurement[key] for key in ("mode", "patterns", "host") if key in state.snapshot.measurement},
        "pairs": [pair.to_dict() for pair in state.pairs or []],
        "simulated": state.simulated,
    }


def environment(state: State) -> dict[str, str]:
    """Versions and settings that can change the picture; what was not read is left out."""

    def joined(values: set[str | None]) -> str | None:
        told = sorted(value for value in values if value)
        return ", ".join(told) if told else None

    bios = [state.host.file(f"/sys/class/dmi/id/{name}") for name in ("bios_vendor", "bios_version", "bios_date")]
    hmm = state.host.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    options = state.modprobe.options if state.modprobe else {}
    container = state.container
    libraries = [container.link(match[0]).text for match in container.paths("links", r".*/libcuda\.so\.1")] if container else []
    found = {
        "kernel": state.kernel,
        "driver": state.driver_version,
        "container_driver": joined({text.partition(".so.")[2] for text in libraries}),
        "cmdline": " ".join(state.command_line) if state.command_line is not None else None,
        "bios": " ".join(reading.text.strip() for reading in bios if reading.ok) or None,
        "iommu": joined({iommu_type(state, gpu.bdf) for gpu in state.gpus}),
        "hmm_disabled": hmm.text.strip() if hmm.ok else None,
        "registry_dwords": (state.params or {}).get("RegistryDwords"),
        "module_options": joined(
            {
                f"{module} {name}={value}"
                for module, pairs in options.items()
                if module.startswith("nvidia")
                for name, (value, _) in pairs.items()
            }
        ),
        "vbios": joined({gpu.info.vbios for gpu in state.gpus if gpu.info}),
        "gsp_firmware": joined({gpu.info.gsp_firmware for gpu in state.gpus if gpu.info}),
    }
    return {key: value for key, value in found.items() if value is not None}


def load(text: str) -> dict[str, Any]:
    """Read a baseline file; a saved snapshot serves as one too. Raises BaselineError for anything else."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BaselineError(f"not JSON: {error}") from None
    if isinstance(data, dict) and data.get("schema") == SNAPSHOT_SCHEMA:
        return build(State(Snapshot(data)), str(data.get("collected_at", "")))
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BaselineError(f"schema is {data.get('schema')!r}" if isinstance(data, dict) else "not a JSON object")
    for key, kind in (("environment", dict), ("gpus", list), ("pairs", list)):
        if not isinstance(data.get(key), kind):
            raise BaselineError(f"{key} is {type(data.get(key)).__name__}, expected {kind.__name__}")
    return data


def is_foreign(state: State, baseline: Mapping[str, Any]) -> bool:
    """Whether none of the baseline's GPUs is one of this node's; False where either does not know its GPUs' UUIDs."""
    theirs = {gpu.get("uuid") for gpu in baseline["gpus"] if isinstance(gpu, dict)} - {None}
    ours = {gpu.info.uuid for gpu in state.gpus if gpu.info} - {None}
    return bool(theirs and ours and not theirs & ours)


def known_links(baseline: Mapping[str, Any] | None) -> dict[str, dict[str, int | float | None]]:
    """Address to link width, BAR1 and boot-time limit of the baseline."""
    return {gpu["bdf"]: gpu for gpu in (baseline or {}).get("gpus", []) if isinstance(gpu, dict) and "bdf" in gpu}


def known_pairs(baseline: Mapping[str, Any] | None) -> set[tuple[int, int]]:
    """Pairs whose rate the baseline knows: what is slow by design there is no news."""
    return {(pair["src"], pair["dst"]) for pair in (baseline or {}).get("pairs", []) if pair.get("copy_gbps") and not pair.get("light")}


def changes(state: State, baseline: Mapping[str, Any]) -> list[dict[str, str]]:
    """What can explain a change: [{"what", "before", "after"}], in the order in which it usually does; unread things are left out."""
    before, after = baseline["environment"], environment(state)
    found = []
    for key, what in ENVIRONMENT:
        if key not in before or key not in after or before[key] == after[key]:
            continue
        if key == "cmdline":
            old, new = split(before[key]), split(after[key])
            gone = [word for word in old if word not in new and not word.startswith("BOOT_IMAGE=")]
            added = [word for word in new if word not in old and not word.startswith("BOOT_IMAGE=")]
            if gone or added:
                found.append({"what": what, "before": " ".join(gone) or "(nothing removed)", "after": " ".join(added) or "(nothing added)"})
        else:
            found.append({"what": what, "before": str(before[key]) or "(empty)", "after": str(after[key]) or "(empty)"})
    return found


def suspects(changed: list[dict[str, str]]) -> str:
    """The changes in one line, for the evidence of failures; '' without any."""
    if not changed:
        return ""
    return "changed since the baseline: " + "; ".join(f"{entry['what']} {entry['before']} -> {entry['after']}" for entry in changed)
