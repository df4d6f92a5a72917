"""`nvidia-smi -q` and `nvidia-smi -q -x`: what the driver says about each GPU."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from .text import NotUnderstoodError, bus_id, excerpt, is_cut, lines_of, plain

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

WHAT: Final = "nvidia-smi -q"
SIMULATED_MARK: Final = "(simulated)"
"""Product names of stand-ins carry it, so that no report takes them for hardware."""


@dataclass
class GpuInfo:
    """One GPU; None means that the driver did not say (N/A) or that the text ends before it."""

    bus_id: str
    name: str | None = None
    architecture: str | None = None
    uuid: str | None = None
    minor: int | None = None
    vbios: str | None = None
    gsp_firmware: str | None = None
    addressing_mode: str | None = None
    mig: str | None = None
    ecc: str | None = None
    persistence: str | None = None
    virtualization: str | None = None
    recovery_action: str | None = None
    pstate: str | None = None
    gen_current: int | None = None
    gen_max: int | None = None
    gen_device_max: int | None = None
    gen_host_max: int | None = None
    width_current: int | None = None
    width_max: int | None = None
    replays: int | None = None
    fb_total_mib: int | None = None
    fb_used_mib: int | None = None
    bar1_total_mib: int | None = None
    utilization_pct: int | None = None
    power_limit_w: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    process_ids: list[int] = field(default_factory=list)
    trouble: str | None = None
    """A value that says that the GPU does not answer: 'GPU is lost', 'Unknown Error', 'ERR!', 'GPU requires reset'."""

    @property
    def simulated(self) -> bool:
        """True for a GPU of the lab."""
        return self.name is not None and SIMULATED_MARK in self.name


@dataclass
class SmiQ:
    """The whole output; ``complete`` is False when fewer GPUs are told than are attached or the text is cut."""

    driver_version: str | None
    cuda_version: str | None
    attached: int | None
    gpus: list[GpuInfo]
    complete: bool


_TROUBLE: Final = re.compile(r"GPU is lost|Unknown Error|ERR!|GPU requires reset|\[?Gpu Lost\]?", re.IGNORECASE)

# attribute: (heading, key) in the text; the heading is the last line without a value before the key, '' any.
_TEXT_KEYS: Final[dict[str, tuple[str, str]]] = {
    "name": ("", "Product Name"),
    "architecture": ("", "Product Architecture"),
    "uuid": ("", "GPU UUID"),
    "minor": ("", "Minor Number"),
    "vbios": ("", "VBIOS Version"),
    "gsp_firmware": ("", "GSP Firmware Version"),
    "addressing_mode": ("", "Addressing Mode"),
    "mig": ("MIG Mode", "Current"),
    "ecc": ("ECC Mode", "Current"),
    "persistence": ("", "Persistence Mode"),
    "virtualization": ("", "Virtualization Mode"),
    "recovery_action": ("", "GPU Recovery Action"),
    "pstate": ("", "Performance State"),
    "gen_current": ("PCIe Generation", "Current"),
    "gen_max": ("PCIe Generation", "Max"),
    "gen_device_max": ("PCIe Generation", "Device Max"),
    "gen_host_max": ("PCIe Generation", "Host Max"),
    "width_current": ("Link Width", "Current"),
    "width_max": ("Link Width", "Max"),
    "replays": ("", "Replays Since Reset"),
    "fb_total_mib": ("FB Memory Usage", "Total"),
    "fb_used_mib": ("FB Memory Usage", "Used"),
    "bar1_total_mib": ("BAR1 Memory Usage", "Total"),
    "utilization_pct": ("Utilization", "GPU"),
    "power_limit_w": ("GPU Power Readings", "Current Power Limit"),
    "fabric_state": ("Fabric", "State"),
    "fabric_status": ("Fabric", "Status"),
}
_TEXT_ALSO: Final[dict[tuple[str, str], str]] = {("Power Readings", "Power Limit"): "power_limit_w"}
"""Names of drivers before 530."""
_XML_PATHS: Final = {
    "name": "product_name",
    "architecture": "product_architecture",
    "uuid": "uuid",
    "minor": "minor_number",
    "vbios": "vbios_version",
    "gsp_firmware": "gsp_firmware_version",
    "addressing_mode": "addressing_mode",
    "mig": "mig_mode/current_mig",
    "ecc": "ecc_mode/current_ecc",
    "persistence": "persistence_mode",
    "virtualization": "gpu_virtualization_mode/virtualization_mode",
    "recovery_action": "gpu_recovery_action",
    "pstate": "performance_state",
    "gen_current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "gen_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "gen_device_max": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    "gen_host_max": "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    "width_current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "width_max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "replays": "pci/replay_counter",
    "fb_total_mib": "fb_memory_usage/total",
    "fb_used_mib": "fb_memory_usage/used",
    "bar1_total_mib": "bar1_memory_usage/total",
    "utilization_pct": "utilization/gpu_util",
    "power_limit_w": "gpu_power_readings/current_power_limit",
    "fabric_state": "fabric/state",
    "fabric_status": "fabric/status",
}
_XML_ALSO: Final = {"power_limit_w": "power_readings/power_limit"}
_NUMBERS: Final = frozenset(name for name, kind in GpuInfo.__annotations__.items() if kind == "int | None")


def parse_smi_q(text: str) -> SmiQ:
    """Read ``nvidia-smi -q``, as text or as XML (``-x``), whichever it is.

    Raises NotUnderstoodError for anything else; a refusal of the driver itself ('couldn't communicate with the NVIDIA driver') is such.
    """
    if re.match(r"\s*<", plain(text)):
        return _parse_xml(text)
    if not any("NVSMI LOG" in line or line.startswith("Driver Version") for line in lines_of(text)):
        raise NotUnderstoodError(WHAT, excerpt(text))
    return _parse_text(text)


def _store(gpu: GpuInfo, name: str, raw: str) -> None:
    value = raw.strip()
    if _TROUBLE.search(value):
        gpu.trouble = gpu.trouble or value
        return
    if value in {"", "N/A", "[N/A]", "[Not Supported]"} or getattr(gpu, name) is not None:
        return
    if name not in _NUMBERS:
        setattr(gpu, name, value)
    elif match := re.match(r"\d+", value):
        setattr(gpu, name, int(match[0]))


def _parse_text(text: str) -> SmiQ:
    lines = lines_of(text)
    if is_cut(text):
        lines = lines[:-1]  # its value may be cut short
    by_key = {place: name for name, place in _TEXT_KEYS.items()} | _TEXT_ALSO
    top: dict[str, str] = {}
    gpus: list[GpuInfo] = []
    heading = ""
    whole = False
    slice_indent: int | None = None
    for line in lines:
        stripped = line.strip()
        if slice_indent is not None and _in_slice(line, slice_indent):
            continue
        slice_indent = len(line) - len(line.lstrip()) if stripped == "MIG Device" else None
        if match := re.match(r"GPU ([0-9A-Fa-f:.]{10,})", stripped):
            if not (bus := bus_id(match[1])):
                raise NotUnderstoodError(WHAT, f"{stripped!r} where a GPU's bus address belongs")
            gpus.append(GpuInfo(bus))
            heading = ""
            whole = False
            continue
        pair = re.match(r"\s*([^:]+?)\s*:(?:\s+(.*))?$", line)
        if not pair:
            heading = re.sub(r"\s+", " ", stripped) or heading
            whole = whole or heading in {"Processes", "Capabilities"}
            continue
        key, value = re.sub(r"\s+", " ", pair[1]), pair[2] or ""
        if not gpus:
            top.setdefault(key, value)
            continue
        whole = whole or key == "Processes"
        if key == "Process ID" and value.isdecimal():
            gpus[-1].process_ids.append(int(value))
        field_name = by_key.get((heading, key)) or by_key.get(("", key))
        if field_name:
            _store(gpus[-1], field_name, value)
    attached = top.get("Attached GPUs", "")
    count = int(attached) if attached.isdecimal() else None
    complete = count == len(gpus) and (whole or not gpus)
    return SmiQ(_version(top.get("Driver Version")), _version(top.get("CUDA Version")), count, gpus, complete)


def _in_slice(line: str, indent: int) -> bool:
    """Whether a line tells of a MIG device, a slice of the GPU with a memory and a BAR1 of its own, whose heading stands at ``indent``.

    In a text without indentation a slice ends where the GPU's own keys go on.
    """
    own = len(line) - len(line.lstrip())
    return own > indent or (
        not own and not indent and not re.match(r"MIG Device$|Accounting Mode|Driver Model|Serial Number|GPU [0-9A-Fa-f]{4,8}:", line)
    )


def _version(raw: str | None) -> str | None:
    return raw if raw and re.fullmatch(r"\d+(?:\.\d+)+", raw) else None


def _parse_xml(text: str) -> SmiQ:
    from xml.etree.ElementTree import ParseError, XMLPullParser

    source = plain(text).lstrip()
    if "<!ENTITY" in source:
        raise NotUnderstoodError(f"{WHAT} -x", "a document with entity declarations")
    parser: XMLPullParser[Element] = XMLPullParser(events=("start", "end"))
    root: Element | None = None
    whole: set[int] = set()
    with contextlib.suppress(ParseError):  # cut: what was read until there counts
        parser.feed(source)
        parser.close()
    with contextlib.suppress(ParseError):
        for event in parser.read_events():
            kind, element = cast("tuple[str, Element]", event)
            root = element if root is None else root
            if kind == "end":
                whole.add(id(element))
    if root is None or root.tag != "nvidia_smi_log":
        raise NotUnderstoodError(f"{WHAT} -x", excerpt(text))
    ended = id(root) in whole

    def value(parent: Element, path: str) -> str | None:
        found = parent.find(path)
        return found.text if found is not None and id(found) in whole else None

    gpus = []
    for element in root.findall("gpu"):
        gpu = GpuInfo(bus_id(element.get("id", "")))
        if not gpu.bus_id:
            raise NotUnderstoodError(f"{WHAT} -x", f"a gpu element with id {element.get('id')!r}")
        for name, path in [*_XML_PATHS.items(), *_XML_ALSO.items()]:
            if (raw := value(element, path)) is not None:
                _store(gpu, name, raw)
        pids = [value(process, "pid") or "" for process in element.findall("processes/process_info")]
        gpu.process_ids = [int(pid) for pid in pids if pid.isdecimal()]
        gpus.append(gpu)
    attached = value(root, "attached_gpus") or ""
    count = int(attached) if attached.isdecimal() else None
    driver = _version(value(root, "driver_version"))
    return SmiQ(driver, _version(value(root, "cuda_version")), count, gpus, ended and count == len(gpus))
