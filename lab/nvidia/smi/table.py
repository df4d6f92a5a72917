"""The summary table of a bare `nvidia-smi`."""

from __future__ import annotations

import time
from typing import Any

from . import nvml

_WIDE = "+" + "-" * 89 + "+"
_RULE = "+-----------------------------------------+------------------------+----------------------+"


def _short(name: str) -> str:
    return name if len(name) <= 27 else name[:24] + "..."


def render(session: nvml.Session, gpus: list[dict[str, Any]]) -> str:
    """The table for some GPUs, the processes below."""
    lines = [time.strftime("%a %b %e %H:%M:%S %Y") + "       ", _WIDE]
    lines.append(
        f"| NVIDIA-SMI {session.library:<22} Driver Version: {session.driver:<14} CUDA Version: {nvml.cuda_version(session.driver):<8} |"
    )
    lines += [
        _RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for gpu in gpus:
        memory = f"{gpu['used_mib']}MiB / {gpu['memory_mib']}MiB"
        power = f"{gpu['power_w']:.0f}W / {gpu['power_limit']:>4.0f}W"
        lines += [
            (
                f"| {gpu['index']:>3}  {_short(nvml.product(gpu)):<27}{'On' if gpu['persistence'] else 'Off':>6}  "
                f"|   {nvml.bus_id(gpu)} Off |                    0 |"
            ),
            f"| N/A {gpu['temperature']:>4}C    P0   {power:>21} | {memory:>22} | {gpu['utilisation']:>6}%      Default |",
            "|                                         |                        |             Disabled |",
            _RULE,
        ]
    lines += [
        "",
        _WIDE,
        f"| {'Processes:':<87} |",
        f"| {' GPU   GI   CI              PID   Type   Process name                        GPU Memory':<87} |",
        f"| {'       ID   ID                                                               Usage':<87} |",
        "|" + "=" * 89 + "|",
    ]
    running = [(gpu, entry) for gpu in gpus for entry in gpu["processes"]]
    for gpu, entry in running:
        name = entry["name"] if len(entry["name"]) <= 34 else "..." + entry["name"][-31:]
        lines.append(f"|{gpu['index']:>5}   N/A  N/A {entry['pid']:>16}      C   {name:<34} {entry['used_mib']:>8}MiB |")
    if not running:
        lines.append(f"|  {'No running processes found':<87}|")
    return "\n".join([*lines, _WIDE]) + "\n"
