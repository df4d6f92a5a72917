"""The kernel log (`dmesg`, `journalctl -k`, a grep of either): what the driver, the IOMMU and PCIe reported since boot."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .text import bus_id, lines_of

_STAMP: Final = re.compile(
    r"^(?:<\d+>)?(?:\w+\s*:\w+\s*:\s*)?"  # dmesg -r and -x: priority, or facility and level
    r"(?:\[\s*[^\]]*?\d[^\]]*\]\s?"  # [ 1.234567], [Fri Jun 26 …]
    r"|\d{4}-\d\d-\d\dT\S+\s|\w{3}\s+\d+ \d\d:\d\d:\d\d(?:\.\d+)?\s"  # ISO, syslog, journalctl -o short-precise
    r"|\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\s|\d{9,}\.\d+\s)?"  # journalctl -o short-full, short-unix
    r"(?:[\w.-]+ kernel: )?(?:\[\s*\d+\.\d+\]\s)?"  # host and 'kernel:' of journalctl
    r"(?:\[\s*[TC]\d+\]\s)?"  # the caller, with CONFIG_PRINTK_CALLER
)
_ADDRESS: Final = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"
_XID: Final = re.compile(rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}\): (\d+),?\s*(.*)", re.IGNORECASE)
_FALLEN: Final = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus", re.IGNORECASE)
_FALLEN_BEGIN: Final = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}", re.IGNORECASE)
_LIMITED: Final = re.compile(
    rf"\w+ {_ADDRESS}: ([\d.]+) Gb/s available PCIe bandwidth, limited by ([\d.]+) GT/s PCIe x(\d+) link at {_ADDRESS} "
    r"\(capable of ([\d.]+) Gb/s with ([\d.]+) GT/s PCIe x(\d+) link\)"
)
_REJECTED: Final = re.compile(
    r"Key was rejected by service|[Ll]oading of (?:unsigned )?module .*is rejected|module .* rejected: .*(?:signature|key)"
)
_VERSION: Final = r"(\d{3}\.[\d.]*\d)"


@dataclass(frozen=True)
class Xid:
    """One Xid line of the driver."""

    bus_id: str
    number: int
    text: str


@dataclass(frozen=True)
class Limited:
    """A device whose bandwidth a slower link above it limits, as the kernel said when it found the device at full speed."""

    bus_id: str
    speed: float
    width: int
    at: str
    capable_speed: float
    capable_width: int
    line: str


@dataclass
class KernelLog:
    """What was found; ``lines`` counts all lines, so that an empty log is told from a silent one."""

    lines: int = 0
    cmdline: str | None = None
    from_boot: bool = False
    """Whether the log reaches back to the boot, so that silence means something."""
    nvrm_version: str | None = None
    nvrm_open: bool | None = None
    xids: list[Xid] = field(default_factory=list)
    fallen: list[str] = field(default_factory=list)
    not_probed: int = 0
    other_drivers: dict[str, str] = field(default_factory=dict)
    """Address to driver for GPUs that nouveau, nova or vfio-pci claimed at some time."""
    api_mismatches: list[tuple[str, str]] = field(default_factory=list)
    """(version of the client, version of the module)."""
    key_rejected: str | None = None
    io_page_faults: int = 0
    io_page_fault: str | None = None
    iommu_active: bool | None = None
    """True when devices were put into groups, False when the command line turns it off; None when the log does not say."""
    acs_override: bool = False
    limited: list[Limited] = field(default_factory=list)
    aer_uncorrected: list[str] = field(default_factory=list)
    aer_corrected: int = 0
    hmm_failure: str | None = None
    bar_failures: list[str] = field(default_factory=list)


def parse_kernel_log(text: str) -> KernelLog:
    """Read a kernel log with any kind of time stamp, whole or grepped; every text is one, a cut last line is read as far as it goes.

    'iommu: Default domain type: Translated' says nothing: it is printed with the IOMMU switched off as well.
    """
    log = KernelLog()
    pending = ""
    mismatch = ""
    for raw in lines_of(text):
        line = _STAMP.sub("", raw, count=1).strip()
        if not line:
            continue
        log.lines += 1
        if mismatch and (line.startswith("NVRM:") or raw.startswith((" ", "\t"))):
            mismatch += " " + line.removeprefix("NVRM:").strip()
            mismatch = _mismatch(log, mismatch)
            continue
        mismatch = ""
        if "NVRM: API mismatch" in line:
            mismatch = _mismatch(log, line.partition("NVRM:")[2])
        elif pending and "fallen off the bus" in line:
            log.fallen.append(pending)
            pending = ""
        elif match := _FALLEN_BEGIN.search(line):
            pending = bus_id(match[1])
        elif "PCIe Bus Error" in line or "AER:" in line or "available PCIe bandwidth" in line:
            _kernel_line(log, line)  # of the GPU itself it begins with the driver's name
        elif "NVRM" in line or "nvidia" in line or "nouveau" in line or "vfio" in line or "nova" in line:
            _driver_line(log, line)
        else:
            _kernel_line(log, line)
        if _REJECTED.search(line):
            log.key_rejected = log.key_rejected or line
        if "IO_PAGE_FAULT" in line or re.search(r"DMAR:.*fault", line):
            log.io_page_faults += 1
            log.io_page_fault = log.io_page_fault or line
    log.fallen = sorted({*log.fallen, *(xid.bus_id for xid in log.xids if xid.number == 79)})
    if log.iommu_active is None and log.cmdline is not None and re.search(r"\b(?:amd_iommu|intel_iommu|iommu)=off\b", log.cmdline):
        log.iommu_active = False
    return log


def _mismatch(log: KernelLog, text: str) -> str:
    """Return the text so far while its two versions are not there yet; '' when they are."""
    match = re.search(rf"(?:client|has) .*?version {_VERSION}\b.*?module has the version {_VERSION}\b", text)
    if match:
        log.api_mismatches.append((match[1], match[2]))
        return ""
    return text if len(text) < 600 else ""


def _driver_line(log: KernelLog, line: str) -> None:
    if match := _XID.search(line):
        log.xids.append(Xid(bus_id(match[1]), int(match[2]), match[3]))
    elif match := _FALLEN.search(line):
        log.fallen.append(bus_id(match[1]))
    elif match := re.search(rf"NVRM: loading NVIDIA UNIX (.*?)\s+{_VERSION}\s", line):
        log.nvrm_version = match[2]
        log.nvrm_open = "Open" in match[1]
    elif match := re.search(r"probe routine was not called for (\d+) device", line):
        log.not_probed = int(match[1])
    elif match := re.match(rf"(nouveau|NovaCore|nova-core|vfio-pci) {_ADDRESS}: ", line, re.IGNORECASE):
        if "NVIDIA" in line or match[1] != "nouveau":
            log.other_drivers[bus_id(match[2])] = match[1]
    elif "request_free_mem_region() err" in line or "uvm_hmm" in line.lower():
        log.hmm_failure = log.hmm_failure or line
    elif "BAR" in line and ("is 0M" in line or "failed to assign" in line or "can't assign" in line):
        log.bar_failures.append(line)


def _kernel_line(log: KernelLog, line: str) -> None:
    if match := re.search(r"[Cc]ommand line: (.*)", line):
        log.cmdline = log.cmdline or match[1].strip()
        log.from_boot = True
    elif line.startswith("Linux version"):
        log.from_boot = True
    elif "Adding to iommu group" in line:
        log.iommu_active = True
    elif "PCIe ACS overrides enabled" in line:
        log.acs_override = True
    elif match := _LIMITED.search(line):
        log.limited.append(
            Limited(bus_id(match[1]), float(match[3]), int(match[4]), bus_id(match[5]), float(match[7]), int(match[8]), line)
        )
    elif "PCIe Bus Error" in line or "AER:" in line:
        if re.search(r"severity=Uncorrect|Uncorrect\w* (?:\(|error)|[Ff]atal error", line) and "Corrected error" not in line:
            log.aer_uncorrected.append(line)
        elif re.search(r"severity=Correct|Corrected error", line):
            log.aer_corrected += 1
