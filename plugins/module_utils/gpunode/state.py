"""The state of a node as rules see it: a snapshot read by the parsers, each thing once, with the reason where it could not be read."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from . import cmdline
from .entities import Gpu, Pair
from .parsers import driver_files, nvlink
from .parsers.dkms import DkmsEntry, parse_dkms
from .parsers.kernel_log import KernelLog, parse_kernel_log
from .parsers.lspci import PciDevice, parse_lspci
from .parsers.p2p_status import CAPABILITIES, P2pStatus, parse_p2p_status
from .parsers.smi_q import SmiQ, parse_smi_q
from .parsers.text import NotUnderstoodError, bus_id
from .parsers.topo import Topology, parse_topo
from .snapshot import MISSING, NOT_READ, VALUE, Part, Reading, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES: Final = "/sys/bus/pci/devices"
NVIDIA_VENDOR: Final = "0x10de"
_DISPLAY_CLASSES: Final = ("0x0300", "0x0302", "0x0380")
NO_DRIVER: Final = re.compile(r"couldn't communicate with the NVIDIA driver|No devices were found", re.IGNORECASE)
KERNEL_LOGS: Final = ("dmesg", "journalctl -k -b", "journalctl -k -b 0", "journalctl -k")


class State:
    """Everything that rules ask for; parsing happens on first use and each failure is remembered in ``refusals``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.host: Part = snapshot.host
        self.container: Part | None = snapshot.container
        self.refusals: dict[str, str] = {}

    def _parse(self, key: str, reading: Reading, parser: Callable[[str], Any]) -> Any:
        if not reading.ok:
            if reading.state == NOT_READ:
                self.refusals.setdefault(key, reading.why)
            return None
        try:
            return parser(reading.text)
        except NotUnderstoodError as error:
            self.refusals[key] = f"not understood: {error.why}"
            return None

    @cached_property
    def smi_reading(self) -> Reading:
        """`nvidia-smi -q` as XML or text, the first that worked."""
        readings = [self.host.command(line) for line in ("nvidia-smi -q -x", "nvidia-smi -q")]
        worked = [reading for reading in readings if reading.ok]
        said = [reading for reading in readings if reading.state != NOT_READ or reading.text or reading.why != "was not run"]
        return (worked or said or readings)[0]

    @cached_property
    def smi(self) -> SmiQ | None:
        """What the driver says about each GPU."""
        found: SmiQ | None = self._parse("nvidia-smi -q", self.smi_reading, parse_smi_q)
        text = self.host.command("nvidia-smi -q")
        if found is None and text.ok and text is not self.smi_reading:
            found = self._parse("nvidia-smi -q", text, parse_smi_q)
        return found

    @cached_property
    def topology(self) -> Topology | None:
        """The matrix of paths."""
        found: Topology | None = self._parse("nvidia-smi topo -m", self.host.command("nvidia-smi topo -m"), parse_topo)
        return found

    @cached_property
    def p2p_status(self) -> dict[str, P2pStatus]:
        """Capability letter to matrix, for those that were read."""
        found = {}
        for letter in CAPABILITIES:
            line = f"nvidia-smi topo -p2p {letter}"
            status = self._parse(line, self.host.command(line), lambda text, letter=letter: parse_p2p_status(text, letter))  # type: ignore[misc]
            if status is not None:
                found[letter] = status
        return found

    @cached_property
    def lspci(self) -> dict[str, PciDevice] | None:
        """Address to device."""
        devices = self._parse("lspci -vvv", self.host.command("lspci -vvv"), parse_lspci)
        return None if devices is None else {device.bdf: device for device in devices}

    @cached_property
    def kernel_log_text(self) -> str:
        """The kernel log of this boot as it was read; empty without one."""
        for line in KERNEL_LOGS:
            reading = self.host.command(line)
            if reading.ok and reading.text.strip():
                return reading.text
        return ""

    @cached_property
    def kernel_log(self) -> KernelLog | None:
        """The kernel log of this boot."""
        return parse_kernel_log(self.kernel_log_text) if self.kernel_log_text else None

    @cached_property
    def dkms(self) -> list[DkmsEntry] | None:
        """Modules that DKMS knows."""
        found: list[DkmsEntry] | None = self._parse("dkms status", self.host.command("dkms status"), parse_dkms)
        return found

    @cached_property
    def driver(self) -> driver_files.LoadedDriver | None:
        """The loaded module; None when none is, or when that was not read (see ``driver_reading``)."""
        found: driver_files.LoadedDriver | None = self._parse("driver version", self.driver_reading, driver_files.parse_driver_version)
        return found

    @property
    def driver_reading(self) -> Reading:
        """/proc/driver/nvidia/version."""
        return self.host.file("/proc/driver/nvidia/version")

    @cached_property
    def driver_version(self) -> str | None:
        """Version of the module that runs, by whichever way it is told."""
        if self.driver is not None:
            return self.driver.version
        module = self.host.file("/sys/module/nvidia/version")
        if module.ok and module.text.strip():
            return module.text.strip()
        return self.smi.driver_version if self.smi else None

    @property
    def driver_loaded(self) -> bool | None:
        """True, False, or None where nothing tells."""
        if self.driver is not None or (self.smi is not None and self.smi.driver_version):
            return True
        module = self.host.file("/sys/module/nvidia/version")
        if module.ok:
            return True
        if MISSING in {self.driver_reading.state, module.state} or NO_DRIVER.search(self.smi_said(self.host)):
            return False
        return True if self.topology is not None or self.p2p_status else None

    @staticmethod
    def smi_said(part: Part) -> str:
        """Everything that nvidia-smi printed where it failed."""
        lines = [line for line in part.data.get("commands", {}) if line.startswith("nvidia-smi")]
        return "\n".join(f"{part.command(line).text} {part.command(line).why}" for line in lines if not part.command(line).ok)

    @cached_property
    def params(self) -> dict[str, str] | None:
        """Live parameters of nvidia.ko."""
        reading = self.host.file("/proc/driver/nvidia/params")
        found: dict[str, str] | None = self._parse("/proc/driver/nvidia/params", reading, driver_files.parse_params)
        return found

    @cached_property
    def modprobe(self) -> driver_files.ModprobeOptions | None:
        """Options in modprobe.d, and those of the kernel command line, which modprobe takes last; None when no file was read."""
        paths = [match[0] for match in self.host.paths("files", r"/(?:etc|run|usr/lib|lib)/modprobe\.d/.+\.conf")]
        if not paths:
            return None
        found = driver_files.parse_modprobe({path: self.host.file(path).text for path in paths})
        for word in self.command_line or ():
            if match := re.fullmatch(r"(nvidia[\w-]*)\.(\w+)(?:=(.*))?", word):
                found.options.setdefault(match[1].replace("-", "_"), {})[match[2]] = (match[3] or "", "the kernel command line")
        return found

    @cached_property
    def kernel(self) -> str | None:
        """Release of the running kernel."""
        for reading in (self.host.command("uname -r"), self.host.file("/proc/sys/kernel/osrelease")):
            if reading.ok and reading.text.strip():
                return reading.text.strip()
        return None

    @cached_property
    def command_line(self) -> list[str] | None:
        """Parameters of the kernel command line."""
        reading = self.host.file("/proc/cmdline")
        if reading.ok:
            return cmdline.split(reading.text.strip())
        log = self.kernel_log
        return cmdline.split(log.cmdline) if log and log.cmdline else None

    @cached_property
    def nvlinks(self) -> dict[int, list[float | None]]:
        """GPU index to its NVLinks."""
        reading = self.host.command("nvidia-smi nvlink -s")
        return self._parse("nvidia-smi nvlink -s", reading, nvlink.parse_nvlink) or {}

    def sysfs(self, bdf: str, name: str) -> str | None:
        """Text of a file of a PCI device, stripped; None when not there or not read."""
        reading = self.host.file(f"{DEVICES}/{bdf}/{name}")
        return reading.text.strip() if reading.ok else None

    @cached_property
    def pci_gpus(self) -> list[str] | None:
        """Addresses of NVIDIA's display controllers on the bus, by sysfs or lspci; None when neither was read."""
        vendors = {match[1]: self.host.file(match[0]).text.strip() for match in self.host.paths("files", rf"{DEVICES}/([^/]+)/vendor")}
        if vendors:
            classes = {bdf: self.sysfs(bdf, "class") or "" for bdf in vendors}
            return sorted(bdf for bdf, vendor in vendors.items() if vendor == NVIDIA_VENDOR and classes[bdf][:6] in _DISPLAY_CLASSES)
        if self.lspci is not None:
            return sorted(bdf for bdf, device in self.lspci.items() if device.is_nvidia_gpu)
        return None

    @cached_property
    def gpus(self) -> list[Gpu]:
        """All GPUs that anything tells of, those the driver counts first and in its order."""
        known: dict[str, Gpu] = {}
        for index, info in enumerate(self.smi.gpus if self.smi else []):
            known[info.bus_id] = Gpu(info.bus_id, index, info)
        proc = sorted({bus_id(match[1]) for match in self.host.paths("files", r"/proc/driver/nvidia/gpus/([^/]+)/information")})
        for index, bdf in enumerate(proc):
            known.setdefault(bdf, Gpu(bdf, None if self.smi and self.smi.complete else index))
        for bdf in self.pci_gpus or []:
            known.setdefault(bdf, Gpu(bdf))
        for gpu in known.values():
            gpu.pci = (self.lspci or {}).get(gpu.bdf)
            gpu.driver = self._kernel_driver(gpu)
            gpu.path = self._bridges(gpu.bdf)
        return list(known.values())

    def _kernel_driver(self, gpu: Gpu) -> str | None:
        link = self.host.link(f"{DEVICES}/{gpu.bdf}/driver")
        if link.state == VALUE:
            return link.text.rstrip("/").rsplit("/", 1)[-1]
        if link.state == MISSING:
            return ""
        return gpu.pci.driver if gpu.pci else None

    def _bridges(self, bdf: str) -> list[str]:
        """Bridges above a device: from the path that sysfs gives it, else from lspci's bus numbers."""
        link = self.host.link(f"{DEVICES}/{bdf}")
        if link.ok:
            return re.findall(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", link.text)[:-1]
        bus = int(bdf.split(":")[1], 16)
        above = [
            device
            for device in (self.lspci or {}).values()
            if device.secondary is not None and device.bdf[:4] == bdf[:4] and device.secondary <= bus <= (device.subordinate or 0)
        ]
        return [device.bdf for device in sorted(above, key=lambda device: device.secondary or 0)]

    @cached_property
    def count(self) -> int | None:
        """Number of GPUs that the driver offers; None when nothing tells."""
        if self.smi is not None and self.smi.attached is not None:
            return self.smi.attached
        if self.topology is not None:
            return len(self.topology.gpus)
        listing = self.host.command("nvidia-smi -L")
        if listing.ok:
            return len(re.findall(r"^GPU \d+:", listing.text, re.MULTILINE))
        if self.p2p_status:
            return len(next(iter(self.p2p_status.values())).gpus)
        proc = list(self.host.paths("files", r"/proc/driver/nvidia/gpus/[^/]+/information"))
        return len(proc) or None

    @cached_property
    def pairs(self) -> list[Pair] | None:
        """Measured pairs with the path of each; None when nothing was measured."""
        measured = self.snapshot.measured
        if measured is None:
            return None
        names = [name for name in Pair.__dataclass_fields__ if name != "extra"]
        places = self.measured_places
        pairs = []
        for entry in measured:
            pair = Pair(**{name: entry[name] for name in names if name in entry})
            pair.extra = {key: value for key, value in entry.items() if key not in names}
            pair.src, pair.dst = places.get(pair.src, pair.src), places.get(pair.dst, pair.dst)
            if pair.path is None and self.topology is not None:
                pair.path = self.topology.path(pair.src, pair.dst)
            pairs.append(pair)
        return pairs

    @cached_property
    def measured_places(self) -> dict[int, int]:
        """Number that CUDA gave a GPU where it was measured to its number on the host: they differ where a container has only some."""
        numbers = {gpu.bdf: gpu.index for gpu in self.gpus if gpu.index is not None}
        told = self.snapshot.measurement.get("gpus")
        places = {}
        for gpu in told if isinstance(told, list) else []:
            number = numbers.get(bus_id(str(gpu.get("bus_id", "")))) if isinstance(gpu, dict) else None
            if number is not None and isinstance(gpu.get("index"), int):
                places[gpu["index"]] = number
        return places

    def is_light(self, pair: Pair) -> bool:
        """True for a pair that was measured with small buffers because the GPUs were in use: no bandwidth is to be judged."""
        return bool(pair.extra.get("light", self.snapshot.measurement.get("mode") == "light"))

    @cached_property
    def proven(self) -> set[int]:
        """GPUs that carried data in every measured pair of theirs: whatever happened to them before, they work now."""
        pairs = self.pairs or []
        tried = {gpu for pair in pairs for gpu in (pair.src, pair.dst)}
        failed = {gpu for pair in pairs if pair.status != "ok" or not pair.data_ok for gpu in (pair.src, pair.dst)}
        return tried - failed

    @property
    def patterns(self) -> list[dict[str, Any]]:
        """Concurrent patterns that were measured."""
        told = self.snapshot.measurement.get("patterns")
        return [pattern for pattern in told if isinstance(pattern, dict)] if isinstance(told, list) else []

    @property
    def host_copies(self) -> list[dict[str, Any]]:
        """Copies between each GPU and the host, with ``name`` added: 'GPU3'."""
        told = self.snapshot.measurement.get("host")
        entries = [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []
        return [{**entry, "name": f"GPU{self.measured_places.get(entry.get('gpu', -1), entry.get('gpu'))}"} for entry in entries]

    @cached_property
    def simulated(self) -> bool:
        """True when anything here came from a stand-in."""
        told = self.snapshot.measurement
        return (
            any(gpu.info and gpu.info.simulated for gpu in self.gpus)
            or "(simulated)" in str(told.get("gpus"))
            or bool(told.get("simulated"))
        )

    @property
    def has_nvlink(self) -> bool:
        """True when any two GPUs are joined by NVLink."""
        return self.topology is not None and any(cell.startswith("NV") for row in self.topology.matrix for cell in row)
