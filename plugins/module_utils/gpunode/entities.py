"""GPUs and pairs of GPUs as rules see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .parsers.lspci import PciDevice
    from .parsers.smi_q import GpuInfo


@dataclass
class Pair:
    """One measured ordered pair, as in the result's ``pairs``; None means not measured."""

    src: int
    dst: int
    path: str | None = None
    can_access: bool | None = None
    copy_gbps: float | None = None
    bidirectional_gbps: float | None = None
    sm_read_gbps: float | None = None
    read_latency_us: float | None = None
    data_ok: bool | None = None
    status: str = "ok"
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """'GPU0->GPU5'."""
        return f"GPU{self.src}->GPU{self.dst}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the result's ``pairs``."""
        known = {key: value for key, value in self.__dict__.items() if key != "extra"}
        return {**known, **self.extra}


@dataclass
class Gpu:
    """One GPU by its PCI address, with everything that was read about it."""

    bdf: str
    index: int | None = None
    info: GpuInfo | None = None
    pci: PciDevice | None = None
    driver: str | None = None
    """Kernel driver that owns it; '' = none, None = not read."""
    path: list[str] = field(default_factory=list)
    """Addresses of the bridges above it, root port first; empty when not known."""

    @property
    def name(self) -> str:
        """'GPU3', or its address when the driver does not count it."""
        return f"GPU{self.index}" if self.index is not None else self.bdf
