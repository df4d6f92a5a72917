"""What the kernel does when somebody writes to sysfs: bind, unbind, new_id, remove_id of a driver, and the bus's drivers_probe.

Those files are links to pipes, which this process reads: a write is answered in its order and takes effect within milliseconds. What the
kernel would refuse to the writer (a device that the driver does not have) is said on standard output, since a pipe takes everything.
"""

from __future__ import annotations

import os
import re
import selectors
import sys
from typing import TYPE_CHECKING, Any

from . import kernel, kmsg, model, paths, pci, state, users

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = f"{model.VENDOR_ID:04x}:{model.DEVICE_ID:04x}"
# Who is asked first when a device has no driver: vfio-pci takes only what it was told to take.
DRIVERS = ("vfio-pci", "nvidia", "nouveau")
_BDF = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
# The order in which writes of one moment are answered: what frees comes before what takes.
_ORDER = ("unbind", "remove_id", "new_id", "bind", "drivers_probe")


def make_controls() -> None:
    """Make the pipes of a fresh boot."""
    paths.CONTROL.mkdir(parents=True, exist_ok=True)
    for name in ("drivers_probe", *(f"{driver}.{control}" for driver in DRIVERS for control in pci.CONTROLS)):
        if not (paths.CONTROL / name).exists():
            os.mkfifo(paths.CONTROL / name, 0o200)


def answer(control: str, driver: str, text: str) -> None:
    """Do what a write of ``text`` to a driver's control (or to drivers_probe, without a driver) asks for."""
    with state.change() as now:
        if control in {"new_id", "remove_id"}:
            _change_ids(now, driver, control, text)
        for gpu in _named(now, text) if control not in {"new_id", "remove_id"} else now["gpus"]:
            if control == "unbind":
                _unbind(gpu, driver)
            elif control == "bind":
                if gpu["driver"] is None and driver in _matching(now, gpu):
                    _bind(now, gpu, driver)
                else:
                    _refuse(gpu, f"does not go to {driver}")
            elif gpu["driver"] is None and control != "remove_id":
                for candidate in _matching(now, gpu)[:1]:
                    _bind(now, gpu, candidate)
        kernel.render(now)


def _named(now: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    for bdf in _BDF.findall(text):
        found = [gpu for gpu in now["gpus"] if gpu["bdf"] == bdf.lower()]
        if not found:
            print(f"{bdf}: No such device", flush=True)
        yield from found


def _refuse(gpu: dict[str, Any], why: str) -> None:
    has = f"it has {gpu['driver'] or 'no driver'}, its driver_override is {_override(gpu)}"
    print(f"{gpu['bdf']} {why} ({has}): No such device", flush=True)


def _override(gpu: dict[str, Any]) -> str | None:
    """The driver that alone may take a device. The kernel shows an empty one as (null)."""
    place = pci.folder(gpu) / "driver_override"
    text = place.read_text().strip()
    if not text:
        state.write(place, "(null)\n")
    return None if text in {"", "(null)"} else text


def _registered(now: dict[str, Any]) -> list[str]:
    loaded = {"nvidia": "nvidia" in now["loaded"], "nouveau": "nouveau" in now["loaded"], "vfio-pci": bool(now.get("vfio"))}
    return [driver for driver in DRIVERS if loaded[driver]]


def _matching(now: dict[str, Any], gpu: dict[str, Any]) -> list[str]:
    """Drivers that would take a device, the first one first."""
    override = _override(gpu)
    if override is not None:
        return [driver for driver in _registered(now) if driver == override]
    return [driver for driver in _registered(now) if driver != "vfio-pci" or IDS in now.get("vfio_ids", [])]


def _change_ids(now: dict[str, Any], driver: str, control: str, text: str) -> None:
    ids = {":".join(pair).lower() for pair in re.findall(r"\b([0-9a-fA-F]{4})[ :]([0-9a-fA-F]{4})\b", text)}
    if driver == "vfio-pci":
        have = set(now.get("vfio_ids", []))
        now["vfio_ids"] = sorted(have | ids if control == "new_id" else have - ids)


def _unbind(gpu: dict[str, Any], driver: str) -> None:
    if gpu["driver"] != driver:
        _refuse(gpu, f"is not {driver}'s")
    elif driver == "nvidia" and users.count("nvidia"):
        # The real one waits for its users here, and with it whoever wrote.
        kmsg.log(f"NVRM: Attempting to remove device {gpu['bdf']} with non-zero usage count!", level=kmsg.ERROR)
    else:
        gpu["driver"] = None
        gpu.pop("minor", None)
        gpu.update(persistence=False, power_limit=model.POWER_MAX_W)


def _bind(now: dict[str, Any], gpu: dict[str, Any], driver: str) -> None:
    if driver == "nvidia":
        kernel.bind(now, gpu)
        kmsg.log(f"nvidia {gpu['bdf']}: enabling device (0000 -> 0002)")
    else:
        gpu["driver"] = driver


def main() -> int:
    """Read the pipes for as long as the node runs."""
    waiting = selectors.DefaultSelector()
    for place in sorted(paths.CONTROL.iterdir()):
        driver, _, control = place.name.rpartition(".")
        # Open for writing too, so that it never ends and nobody who writes waits for a reader.
        waiting.register(os.open(place, os.O_RDWR | os.O_NONBLOCK), selectors.EVENT_READ, (control, driver))
    while True:
        ready = [key for key, _ in waiting.select()]
        for key in sorted(ready, key=lambda key: _ORDER.index(key.data[0])):
            answer(*key.data, os.read(key.fd, 65536).decode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main())
