"""`lspci -vvv`: bridges, links, access control services and drivers of PCI devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .text import NotUnderstoodError, bus_id, excerpt, is_cut, lines_of

WHAT: Final = "lspci -vvv"
_DEVICE: Final = re.compile(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:]+?)(?: \[[0-9a-f]{4}\])?: (.*)")
_LINK: Final = re.compile(r"Speed ([\d.]+|unknown)(?:GT/s)?(?: \((\w+)\))?, Width x(\d+)(?: \((\w+)\))?")
_FLAG: Final = re.compile(r"([A-Za-z]+)([+-])")
_UNITS: Final = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True)
class Link:
    """Speed in GT/s (None: unknown) and number of lanes."""

    speed: float | None
    width: int


@dataclass
class PciDevice:
    """One device; what its block does not tell is None."""

    bdf: str
    kind: str
    name: str
    revision: str | None = None
    numa_node: int | None = None
    port_type: str | None = None
    """'Root Port', 'Upstream Port', 'Downstream Port', 'Endpoint', 'Legacy Endpoint'."""
    secondary: int | None = None
    subordinate: int | None = None
    link_cap: Link | None = None
    link_now: Link | None = None
    acs_cap: dict[str, bool] | None = None
    acs_ctl: dict[str, bool] | None = None
    relaxed_ordering: bool | None = None
    largest_region_mib: int | None = None
    driver: str | None = None
    access_denied: bool = False
    lost: bool = False
    """The device answers with ones only: revision ff or an unknown header type 7f."""
    complete: bool = True
    flags: list[str] = field(default_factory=list)

    @property
    def is_bridge(self) -> bool:
        """True for root ports and ports of switches."""
        return "PCI bridge" in self.kind or self.secondary is not None

    @property
    def is_nvidia_gpu(self) -> bool:
        """True for display and 3D controllers of NVIDIA."""
        return "NVIDIA" in self.name and ("VGA" in self.kind or "3D controller" in self.kind or "Display" in self.kind)

    @property
    def acs_redirect(self) -> bool | None:
        """Whether peer-to-peer traffic through this port is sent up to the root; None where the control register was not shown.

        Only ReqRedir, CmpltRedir and EgressCtrl do that: SrcValid, which NVIDIA's guide and gpud test, is set on hosts at full speed.
        """
        if self.acs_ctl is None:
            return None
        return any(self.acs_ctl.get(name, False) for name in ("ReqRedir", "CmpltRedir", "EgressCtrl"))


def parse_lspci(text: str) -> list[PciDevice]:
    """Read ``lspci -vvv`` (also -vv, -k, with -D or -nn); the last block of a cut text has ``complete`` False.

    Raises NotUnderstoodError for a text without a single device line.
    """
    devices: list[PciDevice] = []
    lines = lines_of(text)
    for line in lines:
        if match := _DEVICE.fullmatch(line):
            devices.append(_new_device(match))
        elif devices and line.strip():
            _read_line(devices[-1], line.strip())
    if not devices:
        raise NotUnderstoodError(WHAT, f"no device line such as '01:00.0 3D controller: …': {excerpt(text)}")
    devices[-1].complete = not is_cut(text)
    return devices


def _new_device(match: re.Match[str]) -> PciDevice:
    address = bus_id(match[1])
    revision = re.search(r"\(rev ([0-9a-f]{2})\)", match[3])
    device = PciDevice(address, match[2], match[3], revision[1] if revision else None)
    device.lost = device.revision == "ff"
    return device


def _flags(text: str) -> dict[str, bool]:
    return {name: sign == "+" for name, sign in _FLAG.findall(text)}


def _link(text: str) -> Link | None:
    match = _LINK.search(text)
    if not match:
        return None
    return Link(None if match[1] == "unknown" else float(match[1]), int(match[3]))


def _read_line(device: PciDevice, line: str) -> None:
    key, _, value = line.partition(":")
    if key == "LnkCap":
        device.link_cap = _link(value)
    elif key == "LnkSta":
        device.link_now = _link(value)
        device.flags += [word for word in ("downgraded", "overdriven") if word in value]
    elif key == "ACSCap":
        device.acs_cap = _flags(value)
    elif key == "ACSCtl":
        device.acs_ctl = _flags(value)
    elif key == "Bus" and (match := re.search(r"secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", value)):
        device.secondary, device.subordinate = int(match[1], 16), int(match[2], 16)
    elif key == "NUMA node" and value.strip().isdecimal():
        device.numa_node = int(value)
    elif key == "Kernel driver in use":
        device.driver = value.strip()
    elif key == "Capabilities" and "access denied" in value:
        device.access_denied = True
    elif match := re.search(r"Express (?:\(v\d\) )?(Root Port|Upstream Port|Downstream Port|Legacy Endpoint|Endpoint)", line):
        device.port_type = match[1]
    elif line.startswith("RlxdOrd"):
        device.relaxed_ordering = line[7:8] == "+"
    elif line.startswith("Region") and (match := re.search(r"\[size=(\d+)([KMGT])\]", line)):
        size = int(int(match[1]) * _UNITS[match[2]])
        device.largest_region_mib = max(size, device.largest_region_mib or 0)
    elif "Unknown header type 7f" in line:
        device.lost = True
