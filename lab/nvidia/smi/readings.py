"""`nvidia-smi -q`: the sections of what a GPU's sensors and counters read."""

from __future__ import annotations

from typing import Any

from lab.nvidia import model

from .rows import DEPRECATED, NA, Row, both, mib, same, watt


def clocks_reasons(gpu: dict[str, Any]) -> list[Row]:
    """Why the clocks are as they are."""
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
            same(
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


def memory(gpu: dict[str, Any]) -> list[Row]:
    """Frame buffer, BAR1 and protected memory."""
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
            same((("Total", "total"), ("Used", "used"), ("Free", "free")), "0 MiB"),
        ),
    ]


def utilisation(gpu: dict[str, Any]) -> list[Row]:
    """Utilisation, encoder and frame buffer capture."""

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
            same((("Active Sessions", "session_count"), ("Average FPS", "average_fps"), ("Average Latency", "average_latency")), "0"),
        ),
        both(
            "FBC Stats",
            "fbc_stats",
            same((("Active Sessions", "session_count"), ("Average FPS", "average_fps"), ("Average Latency", "average_latency")), "0"),
        ),
        both(
            "DRAM Encryption Mode",
            "dram_encryption_mode",
            [both("Current", "current_dram_encryption", "Disabled"), both("Pending", "pending_dram_encryption", "Disabled")],
        ),
    ]


def ecc() -> list[Row]:
    """ECC errors, retired pages and remapped rows."""
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
                both("Volatile", "volatile", same(counters, "0")),
                both("Aggregate", "aggregate", [*same(counters, "0"), both("SRAM Threshold Exceeded", "sram_threshold_exceeded", "No")]),
                both(
                    "Aggregate Uncorrectable SRAM Sources",
                    "aggregate_uncorrectable_sram_sources",
                    same([(f"SRAM {label}", f"sram_{tag}") for label, tag in sources], "0"),
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
                        *same(
                            [(word, f"row_remapper_histogram_{word.lower()}") for word in ("High", "Partial", "Low", "None")], "0 bank(s)"
                        ),
                    ],
                ),
            ],
        ),
    ]


def temperature(gpu: dict[str, Any]) -> list[Row]:
    """Temperatures and their limits."""
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


def power(gpu: dict[str, Any]) -> list[Row]:
    """Power draw and limits."""
    limits = ("Current Power Limit", "Requested Power Limit", "Default Power Limit", "Min Power Limit", "Max Power Limit")
    values = (gpu["power_limit"], gpu["power_limit"], model.POWER_MAX_W, model.POWER_MIN_W, model.POWER_MAX_W)
    draw = (("Average Power Draw", "average_power_draw"), ("Instantaneous Power Draw", "instant_power_draw"))
    return [
        both(
            "GPU Power Readings",
            "gpu_power_readings",
            [
                Row(None, "power_state", "P0"),
                *same(draw, watt(gpu["power_w"])),
                *(both(label, label.lower().replace(" ", "_"), watt(value)) for label, value in zip(limits, values, strict=True)),
            ],
        ),
        both("GPU Memory Power Readings ", "gpu_memory_power_readings", same(draw, NA)),
        both(
            "Module Power Readings",
            "module_power_readings",
            [Row(None, "power_state", "P0"), *same(draw, NA), *same([(label, label.lower().replace(" ", "_")) for label in limits], NA)],
        ),
        both("Power Smoothing", "power_smoothing"),
        both(
            "Workload Power Profiles",
            "power_profiles",
            [both("Requested Profiles", "power_profile_requested_profiles"), both("Enforced Profiles", "power_profile_enforced_profiles")],
        ),
    ]


def clocks(gpu: dict[str, Any]) -> list[Row]:
    """Clocks now, set and at most."""
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
