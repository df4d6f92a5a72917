"""Rules about the links of GPUs: lanes, speed, errors, BAR size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..findings import ERROR, INFO, WARNING, Finding
from ..parsers.driver_files import parse_aer, parse_speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..entities import Gpu
    from ..state import State

CORRECTABLE_LIMIT: Final = 100
"""Correctable errors since boot that are worth a warning: a few at link training are normal, a bad riser makes thousands."""
SMALL_BAR_MIB: Final = 256
"""The BAR1 that a GPU gets without Resizable BAR."""
SPEED_GENERATION: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
MAX_LANES: Final = 32


def check_pcie(state: State, pairs_failing: bool, known: dict[str, dict[str, int | float | None]]) -> Iterator[Finding]:
    """Yield findings about links. ``known``: address to link_width, BAR1 and boot-time limit of the baseline, which are no news."""
    yield from _links(state, known)
    yield from _errors(state)
    yield from _bar(state, pairs_failing, known)


def _number(text: str | None) -> int | None:
    """A number of lanes; None for what sysfs says where there is no link, 0 or 255."""
    return int(text) if text is not None and text.isdecimal() and 0 < int(text) <= MAX_LANES else None


def link_widths(state: State, gpu: Gpu) -> tuple[int | None, int | None, str]:
    """Return (current, possible, where it was read): what card and slot above it can both do. The width is the same idle and busy."""
    current, top = _number(state.sysfs(gpu.bdf, "current_link_width")), _number(state.sysfs(gpu.bdf, "max_link_width"))
    where = f"/sys/bus/pci/devices/{gpu.bdf}/current_link_width"
    if gpu.path and (slot := _number(state.sysfs(gpu.path[-1], "max_link_width"))) is not None and top is not None:
        top = min(top, slot)
    if (current is None or top is None) and gpu.pci and gpu.pci.link_now and gpu.pci.link_cap:
        current, top, where = gpu.pci.link_now.width, gpu.pci.link_cap.width, "lspci LnkSta and LnkCap"
    if (current is None or top is None) and gpu.info:
        current, top, where = gpu.info.width_current, gpu.info.width_max, "nvidia-smi -q, Link Width"
    return current, top, where


def _links(state: State, known: dict[str, dict[str, int | float | None]]) -> Iterator[Finding]:
    slow: set[str] = set()
    for gpu in state.gpus:
        current, top, where = link_widths(state, gpu)
        before = known.get(gpu.bdf, {}).get("link_width")
        if current is not None and top is not None and current < top:
            slow.add(gpu.bdf)
            same = before == current
            yield Finding(
                "pcie-width-reduced",
                INFO if same else ERROR,
                gpu.name,
                f"{gpu.name} has {current} of {top} PCIe lanes" + (", as in the baseline" if same else ""),
                f"{where}: x{current}, possible x{top}" + (f"; baseline x{before}" if before else ""),
                "reseat card and riser, clean the contacts, look at the slot's bifurcation in the BIOS; when the slot has no more lanes, "
                "save a baseline",
            )
        yield from _speed(state, gpu)
    yield from _uplinks(state)
    yield from _limited(state, slow, known)


def loaded_links(state: State, gpu: Gpu) -> list[dict[str, Any]]:
    """Links from a GPU up to its root port as they were while it copied: bus_id, current and max speed (GT/s) and width; maybe none."""
    told = state.snapshot.measurement.get("links")
    chain = told.get(gpu.bdf) if isinstance(told, dict) else None
    return [row for row in chain if isinstance(row, dict)] if isinstance(chain, list) else []


def _speed(state: State, gpu: Gpu) -> Iterator[Finding]:
    """Speed counts under load only: idle links rest at 2.5 GT/s."""
    chain = loaded_links(state, gpu)
    if chain:
        now = chain[0].get("current_link_speed")
        tops = [row.get("max_link_speed") for row in chain[:2]]
        if now and all(tops) and now < min(top for top in tops if top):
            top = min(top for top in tops if top)
            yield _slow(gpu.name, f"{now:g} of {top:g} GT/s under load", f"current_link_speed of {gpu.bdf} while copying")
    elif gpu.info and gpu.info.utilization_pct and gpu.info.gen_current and gpu.info.gen_max and gpu.info.gen_current < gpu.info.gen_max:
        yield _slow(
            gpu.name,
            f"PCIe generation {gpu.info.gen_current} of {gpu.info.gen_max} at {gpu.info.utilization_pct} % utilisation",
            "nvidia-smi -q, PCIe Generation",
        )


def _slow(name: str, what: str, evidence: str) -> Finding:
    return Finding(
        "pcie-speed-reduced",
        WARNING,
        name,
        f"the PCIe link of {name} runs at {what}",
        evidence,
        "reseat card and riser; set the slot's speed in the BIOS to the full generation, not Auto; look at AER errors in dmesg",
    )


def _uplinks(state: State) -> Iterator[Finding]:
    """Links between bridges do not rest: an uplink of a switch below what both its ends can do is trained down."""
    seen: set[str] = set()
    for gpu in state.gpus:
        for upper, lower in zip(gpu.path, gpu.path[1:], strict=False):
            if lower in seen:
                continue
            seen.add(lower)
            for kind, read in (("speed", parse_speed), ("width", lambda text: float(_number(text) or 0) or None)):
                now = read(state.sysfs(lower, f"current_link_{kind}") or "")
                tops = [read(state.sysfs(end, f"max_link_{kind}") or "") for end in (upper, lower)]
                if now is None or None in tops or now >= min(top for top in tops if top is not None):
                    continue
                if kind == "speed" and lower == gpu.path[-1]:
                    continue  # the port of the GPU itself rests with it
                below = [other.name for other in state.gpus if lower in other.path]
                unit = "GT/s" if kind == "speed" else "lanes"
                yield Finding(
                    f"pcie-{kind}-reduced",
                    WARNING,
                    lower,
                    f"the uplink {lower} above {', '.join(below)} runs at {now:g} {unit}",
                    f"/sys/bus/pci/devices/{lower}/current_link_{kind}, possible {min(top for top in tops if top is not None):g} {unit}",
                    "reseat the switch board's cables; look at the BIOS's setting of that root port",
                )


def _limited(state: State, known_slow: set[str], known: dict[str, dict[str, int | float | None]]) -> Iterator[Finding]:
    """What the kernel said when it found the device, at full speed: no idle link can deceive it."""
    gpus = {gpu.bdf: gpu for gpu in state.gpus}
    for limit in state.kernel_log.limited if state.kernel_log else []:
        gpu = gpus.get(limit.bus_id)
        if gpu is None or limit.bus_id in known_slow:
            continue
        before = known.get(limit.bus_id, {})
        width = limit.width < limit.capable_width
        severity = INFO if before.get("limited_gtps_lanes") == limit.speed * limit.width else WARNING
        yield Finding(
            "pcie-width-reduced" if width else "pcie-speed-reduced",
            severity,
            gpu.name,
            f"a link above {gpu.name} gave it {limit.speed:g} GT/s x{limit.width} at boot, the card can do "
            f"{limit.capable_speed:g} GT/s x{limit.capable_width}",
            f"kernel log: {limit.line}",
            f"look at the slot below {limit.at}: its lanes, riser and BIOS setting; when the slot is built so, save a baseline",
        )


def aer_totals(state: State, bdf: str) -> dict[str, int]:
    """Counts of PCIe errors of a device since boot: correctable, nonfatal, fatal; those not read are left out."""
    totals = {}
    for kind, total in (("correctable", "TOTAL_ERR_COR"), ("nonfatal", "TOTAL_ERR_NONFATAL"), ("fatal", "TOTAL_ERR_FATAL")):
        text = state.sysfs(bdf, f"aer_dev_{kind}")
        if text is not None:
            counts = parse_aer(text)
            totals[kind] = counts.get(total, sum(counts.values()))
    return totals


def _errors(state: State) -> Iterator[Finding]:
    log = state.kernel_log
    for gpu in state.gpus:
        for bdf in [gpu.bdf, *gpu.path[-1:]]:
            totals = aer_totals(state, bdf)
            hard = {kind: totals[kind] for kind in ("fatal", "nonfatal") if totals.get(kind)}
            many = totals.get("correctable", 0) >= CORRECTABLE_LIMIT
            if not hard and not many:
                continue
            shown = {**hard, **({"correctable": totals["correctable"]} if many else {})}
            where = gpu.name if bdf == gpu.bdf else f"{bdf} (port of {gpu.name})"
            yield Finding(
                "pcie-errors",
                WARNING,
                gpu.name,
                f"{where} counted " + ", ".join(f"{count} {kind}" for kind, count in shown.items()) + " PCIe errors since boot",
                f"/sys/bus/pci/devices/{bdf}/aer_dev_*",
                "reseat card and riser; when the count grows under load, lower the slot to the next generation until it is replaced",
            )
    if log and log.aer_uncorrected:
        yield Finding(
            "pcie-errors",
            WARNING,
            "host",
            f"the kernel reported {len(log.aer_uncorrected)} uncorrected PCIe errors",
            f"kernel log: {log.aer_uncorrected[0]}",
            "dmesg | grep -E 'AER|PCIe Bus Error' names the device; reseat it, look at its link",
        )


def _bar(state: State, failing: bool, known: dict[str, dict[str, int | float | None]]) -> Iterator[Finding]:
    small = {}
    for gpu in state.gpus:
        total = gpu.info.bar1_total_mib if gpu.info else None
        where = "nvidia-smi -q, BAR1 Memory Usage"
        if total is None and gpu.pci:
            total, where = gpu.pci.largest_region_mib, "lspci, largest region"
        virtual = gpu.info is not None and gpu.info.virtualization not in {None, "None"}
        before = known.get(gpu.bdf, {}).get("bar1_total_mib")
        shrunk = before is not None and total is not None and total < before
        if total is not None and ((total <= SMALL_BAR_MIB and not virtual and before != total) or shrunk):
            small[gpu.name] = f"{total} MiB" + (f", baseline {before} MiB" if shrunk else "") + f" ({where})"
    if not small:
        return
    several = len(state.gpus) > 1
    yield Finding(
        "rebar-small",
        ERROR if failing else WARNING if several else INFO,
        ", ".join(small),
        f"BAR1 of {', '.join(small)} is small: Resizable BAR is off, peers cannot map the GPU's memory",
        "; ".join(f"{name}: {text}" for name, text in small.items()),
        "BIOS: Above 4G Decoding and Resizable BAR on; a BIOS update may have reset them",
    )
