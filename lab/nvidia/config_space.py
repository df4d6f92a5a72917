"""PCI configuration space as lspci and setpci read it: 4096 bytes for a GPU, its root port and its host bridge.

The layout follows the PCI Express base specification; offsets of the capabilities follow what such devices show in public lspci listings.
"""

from __future__ import annotations

import struct

SIZE = 4096
ACS_OFFSET = 0x2A0  # in the root port: extended capability 0x000d
ACS_REDIRECT = 0x001D  # SrcValid, ReqRedir, CmpltRedir, UpstreamFwd: what a kernel with a live IOMMU asks for
ACS_FIRMWARE = 0x0001  # SrcValid alone
_ACS_CAPABLE = 0x005F
_SPEED_UNKNOWN = 0xFF


class Space:
    """A configuration space under construction."""

    def __init__(self) -> None:
        """Start with 4096 zero bytes."""
        self.data = bytearray(SIZE)

    def put(self, offset: int, layout: str, *values: int) -> None:
        """Store little-endian values (struct layout) at an offset."""
        struct.pack_into("<" + layout, self.data, offset, *values)

    def extended(self, offset: int, identity: int, version: int, following: int) -> None:
        """Write the header of an extended capability."""
        self.put(offset, "I", identity | version << 16 | following << 20)

    def express(self, offset: int, following: int, kind: int, *, gen: int, width: int, max_gen: int, max_width: int, port: int = 0) -> None:
        """Write a PCI Express capability, version 2; kind 1 is a legacy endpoint, 4 a root port."""
        root = kind == 4
        self.put(offset, "BBH", 0x10, following, 0x0002 | kind << 4 | (0x0100 if root else 0))
        self.put(offset + 4, "I", 0x00008022 if root else 0x10008E21)
        self.put(offset + 8, "HH", 0x2837 if root else 0x2937, 0)
        self.put(
            offset + 0x0C, "I", max_gen | max_width << 4 | 2 << 10 | 7 << 15 | 1 << 22 | (0x00300000 if root else 0x00040000) | port << 24
        )
        self.put(offset + 0x10, "HH", 0, gen | width << 4 | 0x1000 | (0x2000 if root else 0))
        if root:
            self.put(offset + 0x14, "I", 0x00000040 | (port + 1) << 19)
            self.put(offset + 0x1A, "H", 0x0040)
        self.put(offset + 0x24, "I", 0x00031993 if not root else 0x00031C17)
        self.put(offset + 0x28, "H", 0x1040 if not root else 0x1000)
        self.put(offset + 0x2C, "I", (1 << max_gen + 1) - 2)
        self.put(offset + 0x30, "HH", max_gen, 0x001E)

    def errors(self, offset: int, following: int) -> None:
        """Write an Advanced Error Reporting capability without an error."""
        self.extended(offset, 0x0001, 2, following)
        self.put(offset + 4, "IIIIII", 0, 0, 0x00462030, 0, 0x00002000, 0x000001E0)


def _bars(space: Space, bars: dict[int, int]) -> None:
    for register, address in bars.items():
        space.put(0x10 + 4 * register, "II", (address & 0xFFFFFFF0) | 0xC, address >> 32)


def gpu(bars: dict[int, int], *, device: int, subsystem: int, bus_master: bool, gen: int, width: int, bar1_mib: int, serial: int) -> bytes:
    """A Blackwell server GPU: 3D controller, MSI-X, Resizable BAR, AER. bars maps register number to address."""
    space = Space()
    space.put(0x00, "HHHHBBBBBBBB", 0x10DE, device, 0x0406 if bus_master else 0x0400, 0x0010, 0xA1, 0x00, 0x02, 0x03, 0, 0, 0, 0)
    _bars(space, bars)
    space.put(0x2C, "HH", 0x10DE, subsystem)
    space.put(0x34, "B", 0x40)
    space.put(0x3C, "BB", 0xFF, 0x01)
    space.put(0x40, "BBHHH", 0x01, 0x48, 0x4803, 0x0008, 0)  # power management
    space.put(0x48, "BBH", 0x05, 0x60, 0x0188)  # MSI, not in use
    space.express(0x60, 0x9C, 1, gen=gen, width=width, max_gen=5, max_width=16)
    space.put(0x9C, "BBB", 0x09, 0xB0, 0x14)
    space.put(0xB0, "BBHII", 0x11, 0, 0x8008 if bus_master else 0x0008, 0x00B90000, 0x00BA0000)
    space.extended(0x100, 0x0019, 1, 0x12C)
    space.extended(0x12C, 0x0018, 1, 0x134)
    space.extended(0x134, 0x0015, 1, 0x14C)
    size = max(bar1_mib.bit_length() - 1, 6)
    space.put(0x138, "II", 0x0003FFC0 << 4 & 0xFFFFFFF0, 2 | 1 << 5 | size << 8)
    space.extended(0x14C, 0x0025, 1, 0x158)
    space.extended(0x158, 0x0026, 1, 0x1B8)
    space.errors(0x1B8, 0x2F4)
    space.extended(0x2F4, 0x0003, 1, 0)
    space.put(0x2F8, "Q", serial & (1 << 64) - 1)
    return bytes(space.data)


def root_port(bus: int, secondary: int, window: tuple[int, int], *, acs: int, gen: int, width: int, port: int) -> bytes:
    """A root port with a slot behind it. window is the prefetchable memory (first, last byte) that it forwards."""
    space = Space()
    space.put(0x00, "HHHHBBBBBBBB", 0x1022, 0x14AB, 0x0407, 0x0010, 0x01, 0x00, 0x04, 0x06, 0x10, 0, 0x81, 0)
    space.put(0x18, "BBBB", bus, secondary, secondary, 0)
    space.put(0x1C, "BBH", 0xF1, 0x01, 0)
    space.put(0x20, "HH", 0xFFF0, 0x0000)
    first, last = window
    space.put(0x24, "HHII", (first >> 16 & 0xFFF0) | 1, (last >> 16 & 0xFFF0) | 1, first >> 32, last >> 32)
    space.put(0x34, "B", 0x50)
    space.put(0x3C, "BBH", 0xFF, 0x01, 0x0002)
    space.put(0x50, "BBHHH", 0x01, 0x58, 0xC803, 0x0000, 0)
    space.express(0x58, 0xA0, 4, gen=gen, width=width, max_gen=5, max_width=16, port=port)
    space.put(0xA0, "BBHQH", 0x05, 0xC0, 0x0081, 0xFEE00000 + (port << 12), 0x0020)
    space.put(0xC0, "BBHHH", 0x0D, 0, 0, 0x1022, 0x1453)
    space.extended(0x100, 0x000B, 1, 0x150)
    space.put(0x104, "I", 0x01010001)
    space.errors(0x150, 0x270)
    space.extended(0x270, 0x0019, 1, ACS_OFFSET)
    space.extended(ACS_OFFSET, 0x000D, 1, 0x400)
    space.put(ACS_OFFSET + 4, "HH", _ACS_CAPABLE, acs)
    space.extended(0x400, 0x0025, 1, 0x410)
    space.extended(0x410, 0x0026, 1, 0)
    return bytes(space.data)


def host_bridge() -> bytes:
    """The root complex' own function of a root bus."""
    space = Space()
    space.put(0x00, "HHHHBBBBBBBB", 0x1022, 0x14A4, 0x0000, 0x0000, 0x01, 0x00, 0x00, 0x06, 0, 0, 0x80, 0)
    space.put(0x2C, "HH", 0x1022, 0x14A4)
    return bytes(space.data)


def lost() -> bytes:
    """What the bus answers for a device that fell off it."""
    return bytes([_SPEED_UNKNOWN]) * SIZE
