"""`nvidia-smi --query-gpu` and --query-compute-apps: the fields, their headings and units."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lab.nvidia import model

from . import nvml

if TYPE_CHECKING:
    from collections.abc import Callable

NA = "[N/A]"


def _na(_session: nvml.Session, _gpu: dict[str, Any]) -> str:
    return NA


def _of(key: str) -> Callable[[nvml.Session, dict[str, Any]], Any]:
    return lambda _session, gpu: gpu[key]


def _fixed(value: Any) -> Callable[[nvml.Session, dict[str, Any]], Any]:
    return lambda _session, _gpu: value


def _watt(key: str) -> Callable[[nvml.Session, dict[str, Any]], Any]:
    return lambda _session, gpu: f"{gpu[key]:.2f}"


# name -> (unit, getter)
FIELDS: dict[str, tuple[str, Callable[[nvml.Session, dict[str, Any]], Any]]] = {
    "timestamp": ("", lambda _s, _g: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    "driver_version": ("", lambda session, _g: session.driver),
    "count": ("", lambda session, _g: len(session.gpus)),
    "name": ("", lambda _s, gpu: nvml.product(gpu)),
    "index": ("", _of("index")),
    "serial": ("", _of("serial")),
    "uuid": ("", _of("uuid")),
    "pci.bus_id": ("", lambda _s, gpu: nvml.bus_id(gpu)),
    "pci.domain": ("", lambda _s, gpu: "0x" + gpu["bdf"][:4]),
    "pci.bus": ("", lambda _s, gpu: "0x" + gpu["bdf"][5:7].upper()),
    "pci.device": ("", lambda _s, gpu: "0x" + gpu["bdf"][8:10].upper()),
    "pci.device_id": ("", _fixed(f"0x{model.DEVICE_ID:04X}{model.VENDOR_ID:04X}")),
    "pci.sub_device_id": ("", _fixed(f"0x{model.SUBSYSTEM_ID:04X}{model.VENDOR_ID:04X}")),
    "vbios_version": ("", _fixed(model.VBIOS)),
    "pcie.link.gen.current": ("", _of("gen")),
    "pcie.link.gen.gpucurrent": ("", _of("gen")),
    "pcie.link.gen.max": ("", _fixed(model.MAX_GEN)),
    "pcie.link.gen.gpumax": ("", _fixed(model.MAX_GEN)),
    "pcie.link.gen.hostmax": ("", _fixed(model.MAX_GEN)),
    "pcie.link.width.current": ("", _of("width")),
    "pcie.link.width.max": ("", _fixed(model.MAX_WIDTH)),
    "display_mode": ("", _fixed("[Requested functionality has been deprecated]")),
    "display_active": ("", _fixed("Disabled")),
    "display_attached": ("", _fixed("Yes")),
    "persistence_mode": ("", lambda _s, gpu: "Enabled" if gpu["persistence"] else "Disabled"),
    "addressing_mode": ("", lambda session, _g: "HMM" if session.hmm else "None"),
    "accounting.mode": ("", _fixed("Disabled")),
    "driver_model.current": ("", _na),
    "inforom.img": ("", _fixed("G153.0210.00.02")),
    "inforom.ecc": ("", _fixed("7.16")),
    "fan.speed": (" [%]", _na),
    "pstate": ("", _fixed("P0")),
    "clocks_event_reasons.active": ("", lambda _s, gpu: f"0x{0 if gpu['utilisation'] else 1:016x}"),
    "memory.total": (" [MiB]", _of("memory_mib")),
    "memory.reserved": (" [MiB]", _fixed(model.RESERVED_MIB)),
    "memory.used": (" [MiB]", _of("used_mib")),
    "memory.free": (" [MiB]", lambda _s, gpu: gpu["memory_mib"] - model.RESERVED_MIB - gpu["used_mib"] + 1),
    "compute_mode": ("", _fixed("Default")),
    "compute_cap": ("", _fixed("12.0")),
    "utilization.gpu": (" [%]", _of("utilisation")),
    "utilization.memory": (" [%]", lambda _s, gpu: gpu["utilisation"] // 2),
    "ecc.mode.current": ("", _fixed("Enabled")),
    "ecc.mode.pending": ("", _fixed("Enabled")),
    "ecc.errors.corrected.volatile.total": ("", _fixed(0)),
    "ecc.errors.uncorrected.volatile.total": ("", _fixed(0)),
    "ecc.errors.corrected.aggregate.total": ("", _fixed(0)),
    "ecc.errors.uncorrected.aggregate.total": ("", _fixed(0)),
    "temperature.gpu": ("", _of("temperature")),
    "temperature.gpu.tlimit": ("", lambda _s, gpu: 87 - gpu["temperature"]),
    "temperature.memory": ("", _fixed("N/A")),
    "power.management": ("", _fixed("[N/A]")),
    "power.draw": (" [W]", _watt("power_w")),
    "power.draw.average": (" [W]", _watt("power_w")),
    "power.draw.instant": (" [W]", _watt("power_w")),
    "power.limit": (" [W]", _watt("power_limit")),
    "enforced.power.limit": (" [W]", _watt("power_limit")),
    "power.default_limit": (" [W]", _fixed(f"{model.POWER_MAX_W:.2f}")),
    "power.min_limit": (" [W]", _fixed(f"{model.POWER_MIN_W:.2f}")),
    "power.max_limit": (" [W]", _fixed(f"{model.POWER_MAX_W:.2f}")),
    "clocks.current.graphics": (" [MHz]", lambda _s, gpu: 2370 if gpu["utilisation"] else 180),
    "clocks.current.sm": (" [MHz]", lambda _s, gpu: 2370 if gpu["utilisation"] else 180),
    "clocks.current.memory": (" [MHz]", lambda _s, gpu: 12481 if gpu["utilisation"] else 405),
    "clocks.max.graphics": (" [MHz]", _fixed(2430)),
    "clocks.max.sm": (" [MHz]", _fixed(2430)),
    "clocks.max.memory": (" [MHz]", _fixed(12481)),
    "mig.mode.current": ("", _fixed("Disabled")),
    "mig.mode.pending": ("", _fixed("Disabled")),
    "gsp.mode.current": ("", _fixed("Enabled")),
    "fabric.state": ("", _fixed("N/A")),
    "fabric.status": ("", _fixed("N/A")),
}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "driver_model": "driver_model.current",
}
APPS = {
    "pid": ("", lambda _s, _g, process: process["pid"]),
    "process_name": ("", lambda _s, _g, process: process["name"]),
    "name": ("", lambda _s, _g, process: process["name"]),
    "used_memory": (" [MiB]", lambda _s, _g, process: process["used_mib"]),
    "used_gpu_memory": (" [MiB]", lambda _s, _g, process: process["used_mib"]),
    "gpu_uuid": ("", lambda _s, gpu, _p: gpu["uuid"]),
    "gpu_name": ("", lambda _s, gpu, _p: nvml.product(gpu)),
    "gpu_bus_id": ("", lambda _s, gpu, _p: nvml.bus_id(gpu)),
    "gpu_serial": ("", lambda _s, gpu, _p: gpu["serial"]),
}


class FieldError(Exception):
    """A field that nvidia-smi does not know."""


def _table(rows: list[list[tuple[str, str]]], headings: list[str], formats: set[str]) -> str:
    lines = [] if "noheader" in formats else [", ".join(headings)]
    for row in rows:
        cells = []
        for unit, value in row:
            bare = unit.strip(" []")
            cells.append(value if not bare or value == NA or "nounits" in formats else f"{value} {bare}")
        lines.append(", ".join(cells))
    return "\n".join(lines) + "\n" if lines else ""


def _known(names: list[str], table: dict[str, Any]) -> list[str]:
    found = []
    for name in names:
        key = ALIASES.get(name, name) if table is FIELDS else name
        if key not in table:
            raise FieldError(f'Field "{name}" is not a valid field to query.\n')
        found.append(key)
    return found


def gpus(session: nvml.Session, chosen: list[dict[str, Any]], names: list[str], formats: set[str]) -> str:
    """The CSV of --query-gpu; raises FieldError."""
    keys = _known(names, FIELDS)
    rows = [[(FIELDS[key][0], str(FIELDS[key][1](session, gpu))) for key in keys] for gpu in chosen]
    return _table(rows, [given + FIELDS[key][0] for given, key in zip(names, keys, strict=True)], formats)


def apps(session: nvml.Session, chosen: list[dict[str, Any]], names: list[str], formats: set[str]) -> str:
    """The CSV of --query-compute-apps; raises FieldError."""
    keys = _known(names, APPS)
    rows = [[(APPS[key][0], str(APPS[key][1](session, gpu, process))) for key in keys] for gpu in chosen for process in gpu["processes"]]
    return _table(rows, [name + APPS[name][0] for name in keys], formats)
