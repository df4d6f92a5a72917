"""`nvidia-smi -q`: every section as text and as XML, from one description."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from lab.nvidia import model

from . import nvml, readings
from .rows import DEPRECATED, NA, Row, both, mib, same

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMN = 55  # of the colon, since driver 580.159


def _head(session: nvml.Session, gpu: dict[str, Any]) -> list[Row]:
    bus = int(gpu["bdf"][5:7], 16)
    return [
        both("Product Name", "product_name", nvml.product(gpu)),
        both("Product Brand", "product_brand", "NVIDIA"),
        both("Product Architecture", "product_architecture", "Blackwell"),
        both("Display Mode", "display_mode", DEPRECATED),
        both("Display Attached", "display_attached", "Yes"),
        both("Display Active", "display_active", "Disabled"),
        both("Persistence Mode", "persistence_mode", "Enabled" if gpu["persistence"] else "Disabled"),
        both("Addressing Mode", "addressing_mode", "HMM" if session.hmm else "None"),
        both("MIG Mode", "mig_mode", [both("Current", "current_mig", "Disabled"), both("Pending", "pending_mig", "Disabled")]),
        Row(None, "mig_devices", "\n\t\t\tNone\n\t\t"),
        both("Accounting Mode", "accounting_mode", "Disabled"),
        both("Accounting Mode Buffer Size", "accounting_mode_buffer_size", "4000"),
        both("Driver Model", "driver_model", [both("Current", "current_dm"), both("Pending", "pending_dm")]),
        both("Serial Number", "serial", gpu["serial"]),
        both("GPU UUID", "uuid", gpu["uuid"]),
        both("GPU PDI", "pdi", gpu["pdi"]),
        both("Minor Number", "minor_number", gpu["minor"]),
        both("VBIOS Version", "vbios_version", model.VBIOS),
        both("MultiGPU Board", "multigpu_board", "No"),
        both("Board ID", "board_id", f"0x{bus << 8:x}"),
        both("Board Part Number", "board_part_number", "900-2G153-0000-000"),
        both("GPU Part Number", "gpu_part_number", "2BB5-895-A1"),
        both("FRU Part Number", "gpu_fru_part_number"),
        both(
            "Platform Info",
            "platformInfo",
            [
                both("Chassis Serial Number", "chassis_serial_number", ""),
                both("Slot Number", "slot_number", "0"),
                both("Tray Index", "tray_index", "0"),
                both("Host ID", "host_id", "1"),
                both("Peer Type", "peer_type", "Direct Connected"),
                both("Module Id", "module_id", "1"),
                both("GPU Fabric GUID", "gpu_fabric_guid", "0x0000000000000000"),
            ],
        ),
        both(
            "Inforom Version",
            "inforom_version",
            [
                both("Image Version", "img_version", "G153.0210.00.02"),
                both("OEM Object", "oem_object", "2.1"),
                both("ECC Object", "ecc_object", "7.16"),
                both("Power Management Object", "pwr_object"),
            ],
        ),
        both(
            "Inforom BBX Object Flush",
            "inforom_bbx_flush",
            [both("Latest Timestamp", "latest_timestamp"), both("Latest Duration", "latest_duration")],
        ),
        both("GPU Operation Mode", "gpu_operation_mode", [both("Current", "current_gom"), both("Pending", "pending_gom")]),
        both("GPU C2C Mode", "c2c_mode", "Disabled"),
        both(
            "GPU Virtualization Mode",
            "gpu_virtualization_mode",
            [
                both("Virtualization Mode", "virtualization_mode", "None"),
                both("Host VGPU Mode", "host_vgpu_mode"),
                both("vGPU Heterogeneous Mode", "vgpu_heterogeneous_mode"),
            ],
        ),
        both("GPU Recovery Action", "gpu_recovery_action", "None"),
        both("GSP Firmware Version", "gsp_firmware_version", session.driver),
        both("IBMNPU", "ibmnpu", [both("Relaxed Ordering Mode", "relaxed_ordering_mode")]),
    ]


def _pci(gpu: dict[str, Any]) -> Row:
    domain, bus, rest = gpu["bdf"].split(":")
    device = rest.split(".")[0]
    ids = f"{model.DEVICE_ID:04X}{model.VENDOR_ID:04X}", f"{model.SUBSYSTEM_ID:04X}{model.VENDOR_ID:04X}"
    return both(
        "PCI",
        "pci",
        [
            both("Bus", "pci_bus", bus.upper(), text=f"0x{bus.upper()}"),
            both("Device", "pci_device", device.upper(), text=f"0x{device.upper()}"),
            both("Domain", "pci_domain", domain.upper(), text=f"0x{domain.upper()}"),
            both("Base Classcode", "pci_base_class", "3", text="0x3"),
            both("Sub Classcode", "pci_sub_class", "2", text="0x2"),
            both("Device Id", "pci_device_id", ids[0], text=f"0x{ids[0]}"),
            both("Bus Id", "pci_bus_id", nvml.bus_id(gpu)),
            both("Sub System Id", "pci_sub_system_id", ids[1], text=f"0x{ids[1]}"),
            both(
                "GPU Link Info",
                "pci_gpu_link_info",
                [
                    both(
                        "PCIe Generation",
                        "pcie_gen",
                        [
                            both("Max", "max_link_gen", model.MAX_GEN),
                            both("Current", "current_link_gen", gpu["gen"]),
                            both("Device Current", "device_current_link_gen", gpu["gen"]),
                            both("Device Max", "max_device_link_gen", model.MAX_GEN),
                            both("Host Max", "max_host_link_gen", model.MAX_GEN),
                        ],
                    ),
                    both(
                        "Link Width",
                        "link_widths",
                        [both("Max", "max_link_width", f"{model.MAX_WIDTH}x"), both("Current", "current_link_width", f"{gpu['width']}x")],
                    ),
                ],
            ),
            both("Bridge Chip", "pci_bridge_chip", [both("Type", "bridge_chip_type"), both("Firmware", "bridge_chip_fw")]),
            both("Replays Since Reset", "replay_counter", gpu["replays"]),
            both("Replay Number Rollovers", "replay_rollover_counter", "0"),
            both("Tx Throughput", "tx_util", f"{558 + gpu['slot']} KB/s"),
            both("Rx Throughput", "rx_util", f"{441 + gpu['slot']} KB/s"),
            both("Atomic Caps Outbound", "atomic_caps_outbound"),
            both("Atomic Caps Inbound", "atomic_caps_inbound", "FETCHADD_32 FETCHADD_64 SWAP_32 SWAP_64 CAS_32 CAS_64 "),
        ],
    )


def _fabric() -> Row:
    health = ("Summary", "Bandwidth", "Route Recovery in progress", "Route Unhealthy", "Access Timeout Recovery", "Incorrect Configuration")
    return both(
        "Fabric",
        "fabric",
        [
            both("State", "state"),
            both("Status", "status"),
            both("CliqueId", "cliqueId"),
            both("ClusterUUID", "clusterUuid"),
            both("Health", "health", same([(label, label.lower().replace(" ", "_")) for label in (*health, "Partition Assigned")], NA)),
        ],
    )


def _processes(gpu: dict[str, Any]) -> Row:
    if not gpu["processes"]:
        return Row("Processes", "processes", [], text="None")
    return both(
        "Processes",
        "processes",
        [
            Row(
                None,
                "process_info",
                [
                    both("GPU instance ID", "gpu_instance_id"),
                    both("Compute instance ID", "compute_instance_id"),
                    both("Process ID", "pid", entry["pid"]),
                    both("Type", "type", "C"),
                    both("Name", "process_name", entry["name"]),
                    both("Used GPU Memory", "used_memory", mib(entry["used_mib"])),
                ],
            )
            for entry in gpu["processes"]
        ],
    )


def describe(session: nvml.Session, gpu: dict[str, Any]) -> list[Row]:
    """All rows of one GPU, in nvidia-smi's order."""
    return [
        *_head(session, gpu),
        _pci(gpu),
        both("Fan Speed", "fan_speed"),
        both("Performance State", "performance_state", "P0"),
        *readings.clocks_reasons(gpu),
        both("Sparse Operation Mode", "sparse_operation_mode"),
        *readings.memory(gpu),
        both("Compute Mode", "compute_mode", "Default"),
        *readings.utilisation(gpu),
        *readings.ecc(),
        *readings.temperature(gpu),
        *readings.power(gpu),
        *([both("EDPp Multiplier", "edpp_multiplier")] if int(session.driver.partition(".")[0]) >= 590 else []),
        *readings.clocks(gpu),
        _fabric(),
        Row(None, "supported_clocks", NA),
        _processes(gpu),
        Row(None, "accounted_processes", []),
        both("Capabilities", "capabilities", [both("EGM", "egm", "disabled")]),
    ]


# What -d NAME keeps.
DISPLAY: dict[str, set[str]] = {
    "MEMORY": {"FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"},
    "UTILIZATION": {"Utilization"},
    "ECC": {"ECC Mode", "ECC Errors"},
    "TEMPERATURE": {"Temperature"},
    "POWER": {"GPU Power Readings", "GPU Memory Power Readings ", "Module Power Readings", "Power Smoothing"},
    "CLOCK": {
        "Clocks",
        "Applications Clocks",
        "Default Applications Clocks",
        "Deferred Clocks",
        "Max Clocks",
        "Max Customer Boost Clocks",
        "Clock Policy",
    },
    "COMPUTE": {"Compute Mode"},
    "PIDS": {"Processes"},
    "PERFORMANCE": {"Performance State", "Clocks Event Reasons", "Clocks Event Reasons Counters", "Sparse Operation Mode"},
    "SUPPORTED_CLOCKS": set(),
    "PAGE_RETIREMENT": {"Retired Pages"},
    "ACCOUNTING": {"Accounting Mode", "Accounting Mode Buffer Size"},
    "ENCODER_STATS": {"Encoder Stats"},
    "FBC_STATS": {"FBC Stats"},
    "ROW_REMAPPER": {"Remapped Rows"},
}


def text(session: nvml.Session, gpus: list[dict[str, Any]], display: set[str] | None = None) -> str:
    """The whole of -q as text; display names the sections of -d."""
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [f"{'Timestamp':<{COLUMN}}: {time.strftime('%a %b %e %H:%M:%S %Y')}", f"{'Driver Version':<{COLUMN}}: {session.driver}"]
    lines += [f"{'CUDA Version':<{COLUMN}}: {nvml.cuda_version(session.driver)}", ""]
    lines += [f"{'Attached GPUs':<{COLUMN}}: {len(session.gpus)}"]
    kept = None if display is None else set().union(*(DISPLAY[name] for name in display))
    for gpu in gpus:
        lines.append(f"GPU {nvml.bus_id(gpu)}")
        rows = [row for row in describe(session, gpu) if kept is None or row.label in kept]
        lines += _text(rows, 1)
        lines.append("")
    return "\n".join(lines) + "\n"


def _text(rows: list[Row], depth: int) -> Iterator[str]:
    for row in rows:
        if row.label is None:
            if row.tag == "process_info":
                yield from _text(row.rows or [], depth)
            continue
        label = "    " * depth + row.label
        if row.rows and row.text is None:
            yield label
            yield from _text(row.rows, depth + 1)
        else:
            yield f"{label:<{COLUMN}}: {row.value if row.text is None else row.text}"


def xml(session: nvml.Session, gpus: list[dict[str, Any]]) -> str:
    """The whole of -q -x."""
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "<nvidia_smi_log>"]
    lines += [f"\t<timestamp>{time.strftime('%a %b %e %H:%M:%S %Y')}</timestamp>", f"\t<driver_version>{session.driver}</driver_version>"]
    lines += [
        f"\t<cuda_version>{nvml.cuda_version(session.driver)}</cuda_version>",
        f"\t<attached_gpus>{len(session.gpus)}</attached_gpus>",
    ]
    for gpu in gpus:
        lines.append(f'\t<gpu id="{nvml.bus_id(gpu)}">')
        lines += _xml(describe(session, gpu), 2)
        lines += ["\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


def _xml(rows: list[Row], depth: int) -> Iterator[str]:
    indent = "\t" * depth
    for row in rows:
        if row.tag is None:
            continue
        if row.rows is None:
            yield f"{indent}<{row.tag}>{escape(row.value.rstrip(' '))}</{row.tag}>"
        else:
            yield f"{indent}<{row.tag}>"
            yield from _xml(row.rows, depth + 1)
            yield f"{indent}</{row.tag}>"
