"""Frequency scaling in /sys/devices/system/cpu, which machines that are virtual lack and which no node may change on others.

The files are copies under /run/lab/sysfs: what is written there reads back and changes nothing on the machine.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from lab.boot import mounts

REAL = Path("/sys/devices/system/cpu")
COPY = Path("/run/lab/sysfs/cpu")
FREQUENCY = {
    "scaling_governor": "schedutil",
    "scaling_available_governors": "conservative ondemand userspace powersave performance schedutil",
    "scaling_driver": "acpi-cpufreq",
    "scaling_cur_freq": "1500000",
    "scaling_min_freq": "1500000",
    "scaling_max_freq": "2900000",
    "cpuinfo_max_freq": "2900000",
}


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file():
            # Some files cannot be read.
            with contextlib.suppress(OSError):
                (target / path.name).write_bytes(path.read_bytes())


def build(real: Path, folder: Path) -> None:
    """Copy what tools read of the processors and give each one frequency scaling."""
    _copy(real, folder)
    for name in ("smt", "vulnerabilities"):
        if (real / name).is_dir():
            _copy(real / name, folder / name)
    for cpu in real.glob("cpu[0-9]*"):
        place = folder / cpu.name
        _copy(cpu, place)
        if (cpu / "topology").is_dir():
            _copy(cpu / "topology", place / "topology")
        (place / "cpufreq").mkdir()
        for name, value in FREQUENCY.items():
            (place / "cpufreq" / name).write_text(f"{value}\n", encoding="ascii")


def dress() -> None:
    """Mount the copy over /sys/devices/system/cpu."""
    if str(REAL) in mounts.mounted():
        mounts.unmount(REAL)
    shutil.rmtree(COPY, ignore_errors=True)
    build(REAL, COPY)
    mounts.bind(COPY, REAL)
