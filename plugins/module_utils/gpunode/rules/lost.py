"""Rules about GPUs that do not answer any more: off the bus, or given up by the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..findings import ERROR, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..state import State


def _signs(state: State) -> dict[str, list[str]]:
    """Address to what says that the GPU there is lost."""
    signs: dict[str, list[str]] = {}
    log = state.kernel_log
    for bdf in log.fallen if log else []:
        number = any(xid.bus_id == bdf and xid.number == 79 for xid in log.xids) if log else False
        signs.setdefault(bdf, []).append("kernel log: " + ("Xid 79, " if number else "") + "GPU has fallen off the bus")
    for gpu in state.gpus:
        if gpu.info and gpu.info.trouble:
            signs.setdefault(gpu.bdf, []).append(f"nvidia-smi -q: {gpu.info.trouble}")
        if gpu.pci and gpu.pci.lost:
            signs.setdefault(gpu.bdf, []).append("lspci: answers with ones only (rev ff)")
    for match in re.finditer(r"device handle for GPU\s*\d*:?\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+): ([^\n]+)", state.smi_reading.text):
        signs.setdefault(match[1].lower()[4:], []).append(f"nvidia-smi: {match[2].strip()}")
    return signs


def _works_again(state: State, bdf: str, signs: list[str]) -> bool:
    """Whether only the log, which is the past, speaks of a loss, and the GPU carried data since."""
    back = {gpu.bdf for gpu in state.gpus if gpu.index in state.proven}
    return bdf in back and all(sign.startswith("kernel log") for sign in signs)


def lost_gpus(state: State) -> set[str]:
    """Addresses of the GPUs that do not answer now."""
    return {bdf for bdf, signs in _signs(state).items() if not _works_again(state, bdf, signs)}


def check_lost(state: State) -> Iterator[Finding]:
    """Yield one finding for each GPU that is lost, or was since boot."""
    names = {gpu.bdf: gpu.name for gpu in state.gpus}
    for bdf, signs in sorted(_signs(state).items()):
        name = names.get(bdf, bdf)
        again = _works_again(state, bdf, signs)
        yield Finding(
            "gpu-lost",
            WARNING if again else ERROR,
            name,
            f"{name} ({bdf}) was off the bus since boot, and works again" if again else f"{name} ({bdf}) does not answer any more",
            "; ".join(signs),
            "reset it (nvidia-smi -r -i) or power-cycle the node; when it comes back, look at power cables, riser and temperature",
            "NVIDIA XID 79; NVIDIA/open-gpu-kernel-modules#1151",
        )
