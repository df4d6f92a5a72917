"""Rules about the measurement itself: did CUDA start, was anything left behind, what happened when many pairs copied at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..findings import ERROR, UNKNOWN, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..state import State

COLLAPSE_SHARE: Final = 0.5
"""Many pairs at once carry at least what one of them does alone; posted writes across two root ports fell to 2.7 of 56 GB/s."""
PEER_SHARE: Final = 0.75
"""Equal GPUs copy from and to the host within a few per cent; half a link gives 0.5, the far socket 0.9."""


_CUDA_REMEDY: Final = (
    "HMM off (uvm_disable_hmm=1), /dev/nvidia-uvm with the right major, libcuda of the host's version; dmesg | grep -i nvidia"
)
_CUDA_REMEDIES: Final = {
    "34": "libcuda is a stub of the CUDA toolkit: take the folder named stubs out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
    "35": "the driver is too old for this CUDA: the same driver version on host and container, then reboot the node",
    "100": "no GPU is visible there: device nodes in the container (dev[n]), CUDA_VISIBLE_DEVICES, nvidia-smi -L in it",
    "802": "systemctl restart nvidia-fabricmanager on the node; nvidia-smi -q tells the fabric's state",
    "803": "install exactly the host's driver version where it is measured (site.yml --tags cuda_userspace); after an update reboot",
    "804": "take the package cuda-compat out: its libcuda is made for other GPUs than these",
}
"""Codes of CUDA of which the cause is known; others are mostly HMM, device nodes or the driver itself."""


def check_measurement(state: State) -> Iterator[Finding]:
    """Yield findings about the run as a whole."""
    yield from _fatal(state)
    yield from _stuck(state)
    yield from _visible(state)
    yield from _patterns(state)
    yield from _host_copies(state)


def was_killed(reason: object) -> bool:
    """Say whether somebody else killed the measuring process, the kernel for want of memory most likely: that proves nothing."""
    return bool(re.search(r"the worker died .*\(signal 9\)", str(reason)))


def has_failed(state: State) -> bool:
    """Whether CUDA itself refused to start, with a code."""
    return fatal_of(state).get("code") is not None


def fatal_of(state: State) -> dict[str, Any]:
    """What kept the whole measurement from being made; empty when nothing did."""
    told = state.snapshot.measurement.get("fatal")
    return told if isinstance(told, dict) else {}


def _fatal(state: State) -> Iterator[Finding]:
    """A code of CUDA is the driver's own word; without one the measurement could not be made, which is an unknown of the pairs."""
    if not has_failed(state):
        return
    fatal = fatal_of(state)
    where = state.snapshot.measurement.get("where")
    yield Finding(
        "cuda-failed",
        ERROR,
        str(where or "host"),
        f"CUDA does not start in {where}" if where else "CUDA does not start",
        str(fatal.get("summary", "")),
        _CUDA_REMEDIES.get(str(fatal["code"]), _CUDA_REMEDY),
        "NVIDIA CUDA release notes, known issue on HMM and KASLR",
    )


def stuck_workers(state: State) -> list[str]:
    """Each process of the measurement that survived SIGKILL, in words; its number is that of the place where it ran."""
    told = state.snapshot.measurement.get("stuck")
    where = str(state.snapshot.measurement.get("where") or "")
    place = f" (its number in {where})" if where.startswith("container") else ""
    found = []
    for worker in told if isinstance(told, list) else []:
        names = _names(state, worker)
        found.append(f"process {worker.get('pid')}{place} of the measurement cannot be killed" + (f" and holds {names}" if names else ""))
    return found


def _names(state: State, worker: Mapping[str, Any]) -> str:
    return ", ".join(f"GPU{state.measured_places.get(gpu, gpu)}" for gpu in worker.get("gpus") or [])


def _stuck(state: State) -> Iterator[Finding]:
    told = state.snapshot.measurement.get("stuck")
    for words, worker in zip(stuck_workers(state), told or [], strict=True):
        yield Finding(
            "p2p-hang",
            ERROR,
            _names(state, worker) or "host",
            f"{words}: it hangs in the driver",
            f"state {worker.get('state')}, in step {worker.get('step')}",
            "reboot the node; nothing else ends that process and frees these GPUs (on the node: ps -eo pid,stat,wchan:30,args | grep ' D')",
        )


def _visible(state: State) -> Iterator[Finding]:
    """A container that was given GPUs and does not see them all."""
    told = state.snapshot.measurement.get("gpus")
    part = state.container
    if part is None or not isinstance(told, list) or not told:
        return
    given = sum(1 for path in part.data.get("nodes", {}) if path.removeprefix("/dev/nvidia").isdecimal() and part.node(path))
    if len(told) < given:
        yield Finding(
            "gpu-missing",
            ERROR,
            part.name,
            f"CUDA sees {len(told)} of the {given} GPUs that {part.name} was given",
            f"{given} nodes /dev/nvidiaN in {part.name}; cuDeviceGetCount {len(told)}",
            "nvidia-smi -L on the host and in the container; a GPU of the host may be lost; CUDA_VISIBLE_DEVICES may hide some",
        )


def _patterns(state: State) -> Iterator[Finding]:
    alone = [pair.copy_gbps for pair in state.pairs or [] if pair.status == "ok" and pair.copy_gbps and not state.is_light(pair)]
    for pattern in state.patterns:
        name, status, total = pattern.get("name"), pattern.get("status"), pattern.get("total_gbps")
        told = str(pattern.get("reason") or "")
        if pattern.get("data_ok") is False or status == "corrupt":
            wrong = pattern.get("wrong")
            told = "; ".join(part for part in (told, f"wrong: {wrong}" if wrong else "") if part)
            yield _pattern("p2p-corrupt", ERROR, f"{name}", "data did not arrive as it was sent while many pairs copied at once", told)
        elif status == "error" and was_killed(told):
            yield Finding(
                "not-readable",
                UNKNOWN,
                f"pattern {name}",
                f"the pattern {name} was not measured: its process was killed from outside",
                told,
                "look for 'Out of memory' in dmesg; give the container more memory for the time of the measurement",
            )
        elif status in {"hang", "error"}:
            yield _pattern(f"p2p-{status}", ERROR, f"{name}", f"copies of many pairs at once ended with {status}", told)
        elif total and alone and total < COLLAPSE_SHARE * min(alone):
            evidence = f"{total:.1f} GB/s in sum, the slowest pair alone {min(alone):.1f} GB/s"
            yield _pattern("p2p-slower-than-expected", WARNING, f"{name}", "many pairs at once carry less than one of them alone", evidence)


def _host_copies(state: State) -> Iterator[Finding]:
    """Copies between each GPU and the host's memory: a GPU alone among its peers has a link of its own to blame."""
    copies = state.host_copies
    for key, words in (("to_gpu_gbps", "to"), ("from_gpu_gbps", "from")):
        rates = sorted(entry[key] for entry in copies if entry.get(key))
        usual = rates[len(rates) // 2] if rates else 0.0
        for entry in copies:
            if entry.get(key) and entry[key] < PEER_SHARE * usual:
                yield Finding(
                    "p2p-slower-than-expected",
                    WARNING,
                    entry["name"],
                    f"copies {words} {entry['name']} from and to the host are slower than those of the other GPUs: its link",
                    f"{entry[key]:.1f} GB/s, usual {usual:.1f} GB/s",
                    "compare link width and speed under load; reseat card and riser",
                )
    for entry in copies:
        if entry.get("data_ok") is False:
            yield Finding(
                "p2p-corrupt",
                ERROR,
                entry["name"],
                f"data copied between {entry['name']} and the host's memory did not arrive as it was sent",
                str(entry.get("reason") or "host copies"),
                "do not serve from this GPU; look for PCIe errors and Xids, reseat it; IOMMU off or iommu=pt",
            )


def _pattern(finding_id: str, severity: str, name: str, summary: str, evidence: str) -> Finding:
    return Finding(
        finding_id,
        severity,
        f"pattern {name}",
        f"{summary} (pattern {name})",
        evidence,
        "look at switches that several of these pairs share: firmware, ACS, uplinks; compare with IOMMU on and off",
        "local-inference-lab/rtx6kpro, collapse-report",
    )
