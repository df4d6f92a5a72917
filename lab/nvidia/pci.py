"""The PCI part of sysfs: device folders, driver links, link state, IOMMU groups.

Device folders lie where the kernel has them, /sys/devices/pciDDDD:BB/PORT/GPU, so that a walk from a GPU to its root meets every bridge.
A configuration space is written once at boot: what setpci changes stays until the next one, as in hardware.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from . import config_space, model, paths
from .state import write

GIB = 1 << 30
CONTROLS = ("bind", "unbind", "new_id", "remove_id")  # to which one writes; driver_core.py answers
MIB = 1 << 20
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
_AER = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
_AER_FATAL = (
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
)


def speed(gen: int) -> str:
    """A link speed as sysfs spells it."""
    return f"{_SPEEDS[gen]} GT/s PCIe"


def bars(gpu: dict[str, Any]) -> list[tuple[int, int, int]]:
    """(BAR number, first address, size in bytes) of a GPU's memory regions."""
    base = 0x20_0000_0000_00 + gpu["slot"] * 0x200_0000_0000
    return [(0, base + 0x100_0000_0000, 64 * MIB), (2, base, gpu["bar1_mib"] * MIB), (4, base + 0x100_0400_0000, 32 * MIB)]


def window(gpu: dict[str, Any]) -> tuple[int, int]:
    """First and last byte of what the root port forwards to a GPU."""
    base = 0x20_0000_0000_00 + gpu["slot"] * 0x200_0000_0000
    return base, base + 0x100_07FF_FFFF


def folder(gpu: dict[str, Any], what: str = "gpu") -> Path:
    """The sysfs folder of a GPU, its port ("port") or its host bridge ("bridge")."""
    root = paths.SYS_PCI_DEVICES / f"pci{gpu['root']}"
    if what == "bridge":
        return root / f"{gpu['root']}:00.0"
    return root / gpu["port"] if what == "port" else root / gpu["port"] / gpu["bdf"]


def _link(path: Path, target: str) -> None:
    if path.is_symlink():
        if path.readlink() == Path(target):
            return
        path.unlink()
    path.symlink_to(target)


def _unlink(path: Path) -> None:
    if path.is_symlink() or path.exists():
        path.unlink()


def _up(path: Path) -> str:
    """The way from a device folder to /sys."""
    return "../" * (len(path.relative_to(paths.SYS_PCI_DEVICES).parts) + 1)


def _identity(
    path: Path, *, bdf: str, class_: int, ids: tuple[int, int, int, int], revision: int, numa: int, cpulist: str, irq: int
) -> None:
    vendor, device, subvendor, subdevice = ids
    base, sub, interface = class_ >> 16, class_ >> 8 & 0xFF, class_ & 0xFF
    modalias = f"pci:v{vendor:08X}d{device:08X}sv{subvendor:08X}sd{subdevice:08X}bc{base:02X}sc{sub:02X}i{interface:02X}"
    for name, text in {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "subsystem_vendor": f"0x{subvendor:04x}",
        "subsystem_device": f"0x{subdevice:04x}",
        "class": f"0x{class_:06x}",
        "revision": f"0x{revision:02x}",
        "irq": str(irq),
        "numa_node": str(numa),
        "local_cpulist": cpulist,
        "modalias": modalias,
        "enable": "1",
        "power_state": "D0",
        "broken_parity_status": "0",
        "driver_override": "(null)",
        "dma_mask_bits": "52",
        "uevent": f"PCI_CLASS={class_:X}\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID={subvendor:04X}:{subdevice:04X}\n"
        f"PCI_SLOT_NAME={bdf}\nMODALIAS={modalias}",
    }.items():
        write(path / name, text + "\n")
    _link(path / "subsystem", _up(path) + "bus/pci")


def _errors(path: Path, correctable: int) -> None:
    lines = [f"{name} {correctable if name == 'RxErr' else 0}" for name in _AER]
    write(path / "aer_dev_correctable", "\n".join([*lines, f"TOTAL_ERR_COR {correctable}"]) + "\n")
    for kind, total in (("fatal", "TOTAL_ERR_FATAL"), ("nonfatal", "TOTAL_ERR_NONFATAL")):
        write(path / f"aer_dev_{kind}", "\n".join([*(f"{name} 0" for name in _AER_FATAL), f"{total} 0"]) + "\n")


def _resources(path: Path, regions: list[tuple[int, int, int]]) -> None:
    lines = ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13
    for number, first, size in regions:
        lines[number] = f"0x{first:016x} 0x{first + size - 1:016x} 0x000000000014220c"
        with (path / f"resource{number}").open("ab") as sparse:
            sparse.truncate(size)
    write(path / "resource", "\n".join(lines) + "\n")


def links(state: dict[str, Any]) -> None:
    """Write what can change while the node runs: link state, driver links, error counters."""
    drivers: dict[str, list[dict[str, Any]]] = {name: [] for name in ("nvidia", "vfio-pci", "nouveau")}
    for gpu in state["gpus"]:
        path, port = folder(gpu), folder(gpu, "port")
        for place in (path, port):
            write(place / "current_link_speed", speed(gpu["gen"]) + "\n")
            write(place / "current_link_width", f"{gpu['width']}\n")
            write(place / "max_link_speed", speed(model.MAX_GEN) + "\n")
            write(place / "max_link_width", f"{model.MAX_WIDTH}\n")
        _errors(path, gpu["aer_correctable"])
        _errors(port, gpu["aer_correctable"])
        if gpu["driver"]:
            drivers.setdefault(gpu["driver"], []).append(gpu)
            _link(path / "driver", _up(path) + f"bus/pci/drivers/{gpu['driver']}")
        else:
            _unlink(path / "driver")
        if gpu["lost"]:
            _raw(path, config_space.lost())
            write(path / "revision", "0xff\n")
    state["vfio"] = bool(state.get("vfio") or drivers["vfio-pci"])  # once loaded, it stays
    registered = {"nvidia": "nvidia" in state["loaded"], "nouveau": "nouveau" in state["loaded"], "vfio-pci": state["vfio"]}
    for name, bound in drivers.items():
        place = paths.SYS_PCI_BUS / "drivers" / name
        if place.is_dir():
            for entry in place.iterdir():
                if entry.is_symlink() and entry.name not in {gpu["bdf"] for gpu in bound}:
                    entry.unlink()
        if registered[name] or bound:
            place.mkdir(parents=True, exist_ok=True)
            for gpu in bound:
                _link(place / gpu["bdf"], f"../../../../devices/pci{gpu['root']}/{gpu['port']}/{gpu['bdf']}")
            for control in CONTROLS:
                _link(place / control, str(paths.CONTROL / f"{name}.{control}"))
        elif place.is_dir():
            shutil.rmtree(place)


def _raw(path: Path, data: bytes) -> None:
    with (path / "config").open("r+b" if (path / "config").exists() else "w+b") as file:
        file.write(data)


def configure(gpu: dict[str, Any], acs: int) -> None:
    """Write the configuration spaces of a GPU, its root port and its host bridge afresh."""
    bus = int(gpu["root"][5:7], 16)
    _raw(folder(gpu, "bridge"), config_space.host_bridge())
    _raw(
        folder(gpu, "port"),
        config_space.root_port(bus, bus + 1, window(gpu), acs=acs, gen=gpu["gen"], width=gpu["width"], port=gpu["slot"]),
    )
    _raw(
        folder(gpu),
        config_space.gpu(
            {number: first for number, first, _ in bars(gpu)},
            device=model.DEVICE_ID,
            subsystem=model.SUBSYSTEM_ID,
            bus_master=gpu["driver"] is not None,
            gen=gpu["gen"],
            width=gpu["width"],
            bar1_mib=gpu["bar1_mib"],
            serial=int(gpu["serial"]),
        ),
    )


def build(state: dict[str, Any]) -> None:
    """Write the whole tree for a boot; state["iommu"] is off, pt or on, state["acs"] the ACS control word set by firmware and kernel."""
    for place in (paths.SYS_PCI_BUS, paths.SYS_PCI_DEVICES, paths.SYS_IOMMU, paths.SYS_CLASS_IOMMU):
        place.mkdir(parents=True, exist_ok=True)
        for entry in place.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    devices = paths.SYS_PCI_BUS / "devices"
    for name in ("devices", "drivers/pcieport", "slots"):
        (paths.SYS_PCI_BUS / name).mkdir(parents=True)
    write(paths.SYS_PCI_BUS / "rescan", "")
    _link(paths.SYS_PCI_BUS / "drivers_probe", str(paths.CONTROL / "drivers_probe"))
    group = 0
    for gpu in state["gpus"]:
        functions = [
            (folder(gpu, "bridge"), f"{gpu['root']}:00.0", 0x060000, (0x1022, 0x14A4, 0x1022, 0x14A4), 1, 0),
            (folder(gpu, "port"), gpu["port"], 0x060400, (0x1022, 0x14AB, 0x1022, 0x1453), 1, 40 + gpu["slot"]),
            (folder(gpu), gpu["bdf"], 0x030200, (model.VENDOR_ID, model.DEVICE_ID, model.VENDOR_ID, model.SUBSYSTEM_ID), 0xA1, gpu["irq"]),
        ]
        for path, bdf, class_, ids, revision, irq in functions:
            path.mkdir(parents=True)
            _identity(path, bdf=bdf, class_=class_, ids=ids, revision=revision, numa=gpu["numa"], cpulist=gpu["cpulist"], irq=irq)
            _resources(path, bars(gpu) if path == folder(gpu) else [])
            _link(devices / bdf, "../../../devices/" + str(path.relative_to(paths.SYS_PCI_DEVICES)))
            if state["iommu"] != "off":
                members = paths.SYS_IOMMU / str(group) / "devices"
                members.mkdir(parents=True)
                write(paths.SYS_IOMMU / str(group) / "type", "identity\n" if state["iommu"] == "pt" else "DMA-FQ\n")
                write(paths.SYS_IOMMU / str(group) / "reserved_regions", "0x00000000fee00000 0x00000000feefffff msi\n")
                _link(members / bdf, "../../../../devices/" + str(path.relative_to(paths.SYS_PCI_DEVICES)))
                _link(path / "iommu_group", _up(path) + f"kernel/iommu_groups/{group}")
                group += 1
        port = folder(gpu, "port")
        _link(port / "driver", _up(port) + "bus/pci/drivers/pcieport")
        _link(paths.SYS_PCI_BUS / "drivers/pcieport" / gpu["port"], f"../../../../devices/pci{gpu['root']}/{gpu['port']}")
        write(port / "secondary_bus_number", f"{int(gpu['root'][5:7], 16) + 1}\n")
        configure(gpu, state["acs"])
    if state["iommu"] != "off":
        for number in range(4):
            (paths.SYS_CLASS_IOMMU / f"ivhd{number}").mkdir()
    links(state)
