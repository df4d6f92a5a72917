"""The environment of a check: versions and settings that can explain a change, as a baseline keeps them and as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..cmdline import split
from .isolation import iommu_type, redirecting_bridges
from .pcie import link_widths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..state import State

ENVIRONMENT: Final = (
    ("kernel", "kernel"),
    ("driver", "driver"),
    ("driver_flavour", "kind of kernel module"),
    ("container_driver", "driver in the container"),
    ("cmdline", "kernel command line"),
    ("bios", "BIOS"),
    ("secure_boot", "Secure Boot"),
    ("iommu", "IOMMU"),
    ("acs", "ACS redirection"),
    ("hmm_disabled", "uvm_disable_hmm"),
    ("addressing_mode", "addressing mode"),
    ("registry_dwords", "RegistryDwords of the module"),
    ("module_params", "parameters of the module"),
    ("module_options", "options in modprobe.d"),
    ("bar1", "BAR1 size"),
    ("link_width", "PCIe link width"),
    ("link_max", "possible PCIe link"),
    ("pcie_generation", "possible PCIe generation"),
    ("power_limit", "power limit"),
    ("persistence", "persistence mode"),
    ("mig", "MIG mode"),
    ("ecc", "ECC mode"),
    ("vbios", "VBIOS"),
    ("gsp_firmware", "GSP firmware"),
)
"""What can explain a change, in the order in which it usually does: all that a rule warns about as a setting of the host is here."""
_WORDS: Final[dict[str, tuple[str, ...]]] = {"cmdline": ("BOOT_IMAGE=",), "module_params": ()}
"""Keys that are lists of words, of which the changed ones are told; words with these beginnings change with the kernel by themselves."""


def environment(state: State) -> dict[str, str]:
    """Versions and settings that can change the picture; what was not read is left out."""
    bios = [state.host.file(f"/sys/class/dmi/id/{name}") for name in ("bios_vendor", "bios_version", "bios_date")]
    hmm = state.host.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    secure = state.host.command("mokutil --sb-state")
    options = state.modprobe.options if state.modprobe else {}
    container = state.container
    libraries = [container.link(match[0]).text for match in container.paths("links", r".*/libcuda\.so\.1")] if container else []
    infos = {gpu.bdf: gpu.info for gpu in state.gpus if gpu.info and not gpu.info.trouble}
    widths = {gpu.bdf: link_widths(state, gpu)[0] for gpu in state.gpus}
    found = {
        "kernel": state.kernel,
        "driver": state.driver_version,
        "driver_flavour": ("open" if state.driver.open else "proprietary") if state.driver else None,
        "container_driver": _joined(text.partition(".so.")[2] for text in libraries),
        "cmdline": " ".join(state.command_line) if state.command_line is not None else None,
        "bios": " ".join(reading.text.strip() for reading in bios if reading.ok) or None,
        "secure_boot": " ".join(secure.text.split()[:2]) or None if secure.ok else None,
        "iommu": _joined(iommu_type(state, gpu.bdf) for gpu in state.gpus),
        "acs": _acs(state),
        "hmm_disabled": hmm.text.strip() if hmm.ok else None,
        "addressing_mode": _each({bdf: info.addressing_mode for bdf, info in infos.items()}),
        "registry_dwords": (state.params or {}).get("RegistryDwords"),
        "module_params": _params(state.params),
        "module_options": _joined(
            f"{module} {name}={value}"
            for module, pairs in options.items()
            if module.startswith("nvidia")
            for name, (value, _) in pairs.items()
        ),
        "bar1": _each({bdf: _unit(info.bar1_total_mib, "MiB") for bdf, info in infos.items()}),
        "link_width": _each({bdf: f"x{width}" if width else None for bdf, width in widths.items()}),
        "link_max": _each({gpu.bdf: _link_max(state, gpu.bdf, gpu.path) for gpu in state.gpus}),
        "pcie_generation": _each({bdf: _unit(info.gen_max, "") for bdf, info in infos.items()}),
        "power_limit": _each({bdf: _unit(info.power_limit_w, "W") for bdf, info in infos.items()}),
        "persistence": _each({bdf: info.persistence for bdf, info in infos.items()}),
        "mig": _each({bdf: info.mig for bdf, info in infos.items()}),
        "ecc": _each({bdf: info.ecc for bdf, info in infos.items()}),
        "vbios": _joined(gpu.info.vbios for gpu in state.gpus if gpu.info),
        "gsp_firmware": _joined(gpu.info.gsp_firmware for gpu in state.gpus if gpu.info),
    }
    return {key: value for key, value in found.items() if value is not None}


def _joined(values: Iterable[str | None]) -> str | None:
    told = sorted({value for value in values if value})
    return ", ".join(told) if told else None


def _each(values: Mapping[str, str | None]) -> str | None:
    """One value for all GPUs, or each value with the addresses of those that have it; None where no GPU has one."""
    groups: dict[str, list[str]] = {}
    for bdf, value in sorted(values.items()):
        if value is not None:
            groups.setdefault(value, []).append(bdf)
    if len(groups) < 2:
        return next(iter(groups), None)
    return "; ".join(f"{value} ({', '.join(owners)})" for value, owners in sorted(groups.items()))


def _unit(value: int | None, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}".strip()


def _acs(state: State) -> str | None:
    """Which ports redirect peer traffic; None where not every control register could be read."""
    devices = state.lspci
    if devices is None or any(device.is_bridge and device.access_denied for device in devices.values()):
        return None
    if not any(device.is_bridge for device in devices.values()):
        return None
    return ", ".join(sorted(redirecting_bridges(state))) or "off"


def _params(params: Mapping[str, str] | None) -> str | None:
    """Live parameters of nvidia.ko as words, without RegistryDwords, which has a place of its own."""
    told = [f"{name}={value.replace(' ', '_')}" for name, value in sorted((params or {}).items()) if name != "RegistryDwords"]
    return " ".join(told) if told else None


def _link_max(state: State, bdf: str, path: list[str]) -> str | None:
    """What the card and the port above it could do: a BIOS that splits or slows the slot changes the port's."""
    told = []
    for place in (bdf, *path[-1:]):
        speed, width = state.sysfs(place, "max_link_speed"), state.sysfs(place, "max_link_width")
        if speed and width:
            told.append(f"{speed.removesuffix(' PCIe')} x{width}")
    return " below ".join(told) if told else None


def changes(before: Mapping[str, Any], after: Mapping[str, str]) -> list[dict[str, str]]:
    """What can explain a change: [{"what", "before", "after"}], in the order in which it usually does.

    What either does not know is left out. ``before`` and ``after``: environments, the baseline's and the one now.
    """
    found = []
    for key, what in ENVIRONMENT:
        if key not in before or key not in after or before[key] == after[key]:
            continue
        if key in _WORDS:
            old, new = (_words(key, str(text)) for text in (before[key], after[key]))
            if key == "module_params":  # another driver has other parameters: those that both have are compared
                names = {word.partition("=")[0] for word in old} & {word.partition("=")[0] for word in new}
                old, new = ([word for word in words if word.partition("=")[0] in names] for words in (old, new))
            gone, added = [word for word in old if word not in new], [word for word in new if word not in old]
            if gone or added:
                found.append({"what": what, "before": " ".join(gone) or "(nothing removed)", "after": " ".join(added) or "(nothing added)"})
        else:
            found.append({"what": what, "before": str(before[key]) or "(empty)", "after": str(after[key]) or "(empty)"})
    return found


def _words(key: str, text: str) -> list[str]:
    words = split(text) if key == "cmdline" else text.split()
    return [word for word in words if not word.startswith(_WORDS[key])]


def not_compared(before: Mapping[str, Any], after: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return (what is known now and the baseline does not keep, what it keeps and is not known now), in words."""
    kept_not = [what for key, what in ENVIRONMENT if key in after and key not in before]
    known_not = [what for key, what in ENVIRONMENT if key in before and key not in after]
    return kept_not, known_not


def suspects(changed: list[dict[str, str]]) -> str:
    """The changes in one line, for the evidence of failures; '' without any."""
    if not changed:
        return ""
    return "changed since the baseline: " + "; ".join(f"{entry['what']} {entry['before']} -> {entry['after']}" for entry in changed)
