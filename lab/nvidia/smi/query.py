"""`nvidia-smi -q`: every section as text and as XML, from one description."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from lab.nvidia import model

from . import nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMN = 55  # of the colon, since driver 580.159
DEPRECATED = "Requested functionality has been deprecated"
NA = "N/A"


class Row:
    """A line or a section: text label, XML tag, and a value or the rows below. A missing label or tag leaves that form out."""

    def __init__(self, label: str | None, tag: str | None, value: Any = None, *, text: str | None = None) -> None:
        """Keep the value; text replaces it in the text form."""
        self.label, self.tag, self.text = label, tag, text
        self.rows: list[Row] | None = value if isinstance(value, list) else None
        self.value = "" if self.rows is not None else str(value)


def both(label: str, tag: str, value: Any = NA, *, text: str | None = None) -> Row:
    """A row of both forms."""
    return Row(label, tag, value, text=text)


def _same(pairs: Iterable[tuple[str, str]], value: str) -> list[Row]:
    return [both(label, tag, value) for label, tag in pairs]


def mib(value: float) -> str:
    """A memory size with its unit."""
    return f"{int(value)} MiB"


def watt(value: float) -> str:
    """A power with its unit."""
    return f"{value:.2f} W"


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


def _clocks_reasons(gpu: dict[str, Any]) -> list[Row]:
    idle = "Not Active" if gpu["utilisation"] else "Active"
    stem = "clocks_event_reason_"
    off = "Not Active"
    return [
        both(
            "Clocks Event Reasons",
            "clocks_event_reasons",
            [
                both("Idle", stem + "gpu_idle", idle),
                both("Applications Clocks Setting", stem + "applications_clocks_setting", off),
                both("SW Power Cap", stem + "sw_power_cap", off),
                both("HW Slowdown", stem + "hw_slowdown", off),
                both("    HW Thermal Slowdown", stem + "hw_thermal_slowdown", off),
                both("    HW Power Brake Slowdown", stem + "hw_power_brake_slowdown", off),
                both("Sync Boost", stem + "sync_boost", off),
                both("SW Thermal Slowdown", stem + "sw_thermal_slowdown", off),
                both("Display Clock Setting", stem + "display_clocks_setting", off),
            ],
        ),
        both(
            "Clocks Event Reasons Counters",
            "clocks_event_reasons_counters",
            _same(
                (
                    ("SW Power Capping", "clocks_event_reasons_counters_sw_power_cap"),
                    ("Sync Boost", "clocks_event_reasons_counters_sync_boost"),
                    ("SW Thermal Slowdown", "clocks_event_reasons_counters_sw_therm_slowdown"),
                    ("HW Thermal Slowdown", "clocks_event_reasons_counters_hw_therm_slowdown"),
                    ("HW Power Braking", "clocks_event_reasons_counters_hw_power_brake"),
                ),
                "0 us",
            ),
        ),
    ]


def _memory(gpu: dict[str, Any]) -> list[Row]:
    total, used = gpu["memory_mib"], gpu["used_mib"]
    return [
        both(
            "FB Memory Usage",
            "fb_memory_usage",
            [
                both("Total", "total", mib(total)),
                both("Reserved", "reserved", mib(model.RESERVED_MIB)),
                both("Used", "used", mib(used)),
                both("Free", "free", mib(total - model.RESERVED_MIB - used + 1)),
            ],
        ),
        both(
            "BAR1 Memory Usage",
            "bar1_memory_usage",
            [both("Total", "total", mib(gpu["bar1_mib"])), both("Used", "used", mib(0)), both("Free", "free", mib(gpu["bar1_mib"]))],
        ),
        both(
            "Conf Compute Protected Memory Usage",
            "cc_protected_memory_usage",
            _same((("Total", "total"), ("Used", "used"), ("Free", "free")), "0 MiB"),
        ),
    ]


def _utilisation(gpu: dict[str, Any]) -> list[Row]:
    def share(label: str, tag: str, value: int = 0) -> Row:
        return both(label, tag, f"{value} %")

    return [
        both(
            "Utilization",
            "utilization",
            [
                share("GPU", "gpu_util", gpu["utilisation"]),
                share("Memory", "memory_util", gpu["utilisation"] // 2),
                share("Encoder", "encoder_util"),
                share("Decoder", "decoder_util"),
                share("JPEG", "jpeg_util"),
                share("OFA", "ofa_util"),
            ],
        ),
        both(
            "Encoder Stats",
            "encoder_stats",
            _same((("Active Sessions", "session_count"), ("Average FPS", "average_fps"), ("Average Latency", "average_latency")), "0"),
        ),
        both(
            "FBC Stats",
            "fbc_stats",
            _same((("Active Sessions", "session_count"), ("Average FPS", "average_fps"), ("Average Latency", "average_latency")), "0"),
        ),
        both(
            "DRAM Encryption Mode",
            "dram_encryption_mode",
            [both("Current", "current_dram_encryption", "Disabled"), both("Pending", "pending_dram_encryption", "Disabled")],
        ),
    ]


def _ecc() -> list[Row]:
    counters = (
        ("SRAM Correctable", "sram_correctable"),
        ("SRAM Uncorrectable Parity", "sram_uncorrectable_parity"),
        ("SRAM Uncorrectable SEC-DED", "sram_uncorrectable_secded"),
        ("DRAM Correctable", "dram_correctable"),
        ("DRAM Uncorrectable", "dram_uncorrectable"),
    )
    sources = (("L2", "l2"), ("SM", "sm"), ("Microcontroller", "microcontroller"), ("PCIE", "pcie"), ("Other", "other"))
    return [
        both("ECC Mode", "ecc_mode", [both("Current", "current_ecc", "Enabled"), both("Pending", "pending_ecc", "Enabled")]),
        both(
            "ECC Errors",
            "ecc_errors",
            [
                both("Volatile", "volatile", _same(counters, "0")),
                both("Aggregate", "aggregate", [*_same(counters, "0"), both("SRAM Threshold Exceeded", "sram_threshold_exceeded", "No")]),
                both(
                    "Aggregate Uncorrectable SRAM Sources",
                    "aggregate_uncorrectable_sram_sources",
                    _same([(f"SRAM {label}", f"sram_{tag}") for label, tag in sources], "0"),
                ),
                both("Channel Repair Pending", "channel_repair_pending", "No"),
                both("TPC Repair Pending", "tpc_repair_pending", "No"),
                both("Unrepairable Memory", "unrepairable_memory", "No"),
            ],
        ),
        both(
            "Retired Pages",
            "retired_pages",
            [
                Row(
                    "Single Bit ECC",
                    "multiple_single_bit_retirement",
                    [Row(None, "retired_count", NA), Row(None, "retired_pagelist", NA)],
                    text=NA,
                ),
                Row(
                    "Double Bit ECC", "double_bit_retirement", [Row(None, "retired_count", NA), Row(None, "retired_pagelist", NA)], text=NA
                ),
                both("Pending Page Blacklist", "pending_blacklist"),
                Row(None, "pending_retirement", NA),
            ],
        ),
        both(
            "Remapped Rows",
            "remapped_rows",
            [
                both("Correctable Error", "remapped_row_corr", "0"),
                both("Inactive Correctable Error", "remapped_row_corr_inactive", "0"),
                both("Uncorrectable Error", "remapped_row_unc", "0"),
                both("Inactive Uncorrectable Error", "remapped_row_unc_inactive", "0"),
                both("Pending", "remapped_row_pending", "No"),
                both("Remapping Failure Occurred", "remapped_row_failure", "No"),
                both(
                    "Bank Remap Availability Histogram",
                    "row_remapper_histogram",
                    [
                        both("Max", "row_remapper_histogram_max", "512 bank(s)"),
                        *_same(
                            [(word, f"row_remapper_histogram_{word.lower()}") for word in ("High", "Partial", "Low", "None")], "0 bank(s)"
                        ),
                    ],
                ),
            ],
        ),
    ]


def _temperature(gpu: dict[str, Any]) -> list[Row]:
    return [
        both(
            "Temperature",
            "temperature",
            [
                both("GPU Current Temp", "gpu_temp", f"{gpu['temperature']} C"),
                both("GPU T.Limit Temp", "gpu_temp_tlimit", f"{87 - gpu['temperature']} C"),
                both("GPU Shutdown T.Limit Temp", "gpu_temp_max_tlimit_threshold", "-5 C"),
                both("GPU Slowdown T.Limit Temp", "gpu_temp_slow_tlimit_threshold", "-2 C"),
                both("GPU Max Operating T.Limit Temp", "gpu_temp_max_gpu_tlimit_threshold", "0 C"),
                both("GPU Target Temperature", "gpu_target_temperature"),
                both("Memory Current Temp", "memory_temp"),
                both("Memory Max Operating T.Limit Temp", "gpu_temp_max_mem_tlimit_threshold"),
            ],
        ),
        Row(None, "supported_gpu_target_temp", [Row(None, "gpu_target_temp_min", NA), Row(None, "gpu_target_temp_max", NA)]),
    ]


def _power(gpu: dict[str, Any]) -> list[Row]:
    limits = ("Current Power Limit", "Requested Power Limit", "Default Power Limit", "Min Power Limit", "Max Power Limit")
    values = (gpu["power_limit"], gpu["power_limit"], model.POWER_MAX_W, model.POWER_MIN_W, model.POWER_MAX_W)
    draw = (("Average Power Draw", "average_power_draw"), ("Instantaneous Power Draw", "instant_power_draw"))
    return [
        both(
            "GPU Power Readings",
            "gpu_power_readings",
            [
                Row(None, "power_state", "P0"),
                *_same(draw, watt(gpu["power_w"])),
                *(both(label, label.lower().replace(" ", "_"), watt(value)) for label, value in zip(limits, values, strict=True)),
            ],
        ),
        both("GPU Memory Power Readings ", "gpu_memory_power_readings", _same(draw, NA)),
        both(
            "Module Power Readings",
            "module_power_readings",
            [Row(None, "power_state", "P0"), *_same(draw, NA), *_same([(label, label.lower().replace(" ", "_")) for label in limits], NA)],
        ),
        both("Power Smoothing", "power_smoothing"),
        both(
            "Workload Power Profiles",
            "power_profiles",
            [both("Requested Profiles", "power_profile_requested_profiles"), both("Enforced Profiles", "power_profile_enforced_profiles")],
        ),
    ]


def _clocks(gpu: dict[str, Any]) -> list[Row]:
    busy = gpu["utilisation"] > 0
    deprecated = [both("Graphics", "graphics_clock", DEPRECATED), both("Memory", "mem_clock", DEPRECATED)]
    return [
        both(
            "Clocks",
            "clocks",
            [
                both("Graphics", "graphics_clock", f"{2370 if busy else 180} MHz"),
                both("SM", "sm_clock", f"{2370 if busy else 180} MHz"),
                both("Memory", "mem_clock", f"{12481 if busy else 405} MHz"),
                both("Video", "video_clock", f"{1980 if busy else 600} MHz"),
            ],
        ),
        both("Applications Clocks", "applications_clocks", deprecated),
        both("Default Applications Clocks", "default_applications_clocks", deprecated),
        both("Deferred Clocks", "deferred_clocks", [both("Memory", "mem_clock")]),
        both(
            "Max Clocks",
            "max_clocks",
            [
                both("Graphics", "graphics_clock", "2430 MHz"),
                both("SM", "sm_clock", "2430 MHz"),
                both("Memory", "mem_clock", "12481 MHz"),
                both("Video", "video_clock", "2107 MHz"),
            ],
        ),
        both("Max Customer Boost Clocks", "max_customer_boost_clocks", [both("Graphics", "graphics_clock", "2430 MHz")]),
        both("Clock Policy", "clock_policy", [both("Auto Boost", "auto_boost"), both("Auto Boost Default", "auto_boost_default")]),
    ]


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
            both("Health", "health", _same([(label, label.lower().replace(" ", "_")) for label in (*health, "Partition Assigned")], NA)),
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
        *_clocks_reasons(gpu),
        both("Sparse Operation Mode", "sparse_operation_mode"),
        *_memory(gpu),
        both("Compute Mode", "compute_mode", "Default"),
        *_utilisation(gpu),
        *_ecc(),
        *_temperature(gpu),
        *_power(gpu),
        *([both("EDPp Multiplier", "edpp_multiplier")] if int(session.driver.partition(".")[0]) >= 590 else []),
        *_clocks(gpu),
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
