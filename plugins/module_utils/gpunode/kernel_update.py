"""The transaction of a kernel update: which steps are left, given its record and what runs; what a trial boot shows; how pins end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .kernels import newest, release_key

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "gpunode.kernel-update/1"
FORWARD: Final = ("baseline", "protect", "install", "prove", "arm", "boot", "verify", "keep")
"""``protect`` pins the running kernel before anything is installed: whatever cuts the power then, the node boots what it ran."""
BACK: Final = ("back", "recheck", "settle")
FINAL: Final = ("kept", "returned", "refused")
_UNTOUCHED: Final = ("baseline",)
_BOOTED: Final = ("boot", "verify", "keep")


def is_open(record: Mapping[str, Any] | None) -> bool:
    """Whether a record is of a transaction that has not ended."""
    return bool(record) and record.get("outcome") not in FINAL if record else False


def failure_of(record: Mapping[str, Any], running: str, boot_id: str) -> str:
    """Why an interrupted transaction has failed by what runs now; empty while it has not.

    The one-time pin is spent by any boot. A node that was to try the new kernel and runs another one after a boot was let down by it, or
    somebody chose otherwise: both end the trial.
    """
    if record.get("cause"):
        return str(record["cause"])
    step, source, target = record["step"], record["from"], record["to"]
    if running == target:
        return ""
    if running != source:
        return f"the node runs {running}, neither {source} that the update began on nor {target} that it is for"
    if step in {"arm", *_BOOTED} and boot_id != record.get("boot_ids", {}).get(step, boot_id):
        if step == "keep":
            return f"the node was rebooted while {target} was being kept, and came up with {source}"
        tried = "was armed" if step == "arm" else "was booted once" if step == "boot" else "was being verified"
        return (
            f"the kernel {target} {tried}, and the node came up again with {source}: {target} died before it was up, or somebody reset the "
            "node or chose another entry at its console"
        )
    return ""


def steps(record: Mapping[str, Any] | None, running: str, boot_id: str) -> list[str]:
    """The steps that are left, in order: all of them for a new transaction, from the interrupted one on, or the way back.

    Each step can be done again: an interrupted one is done from its beginning.
    """
    if record is None or not is_open(record):
        return list(FORWARD)
    if failure_of(record, running, boot_id):
        return back_steps(record["step"])
    left = list(FORWARD[FORWARD.index(record["step"]) :])
    if running == record["to"]:
        return [step for step in left if step not in {"baseline", "protect", "install", "arm", "boot"}]
    if record["step"] in {"verify", "keep"}:  # the trial kernel does not run: it is booted again before it is judged
        return list(FORWARD[FORWARD.index("arm") :])
    return left


def back_steps(step: str) -> list[str]:
    """The way back from a step that failed; before anything was touched there is nothing to take back."""
    if step in _UNTOUCHED:
        return []
    if step in BACK:
        return list(BACK[BACK.index(step) :])
    return list(BACK) if step in {"arm", *_BOOTED} else ["settle"]


def pins_before(record: Mapping[str, Any] | None, pins: Mapping[str, str]) -> dict[str, str]:
    """The pins that a new transaction gives back: those found, or those that an earlier one found where its own pin still stands."""
    if record and record.get("outcome") in FINAL and record.get("own_pin") and record["own_pin"] == pins.get("pin"):
        return {"pin": record["pins_before"]["pin"], "next_boot": pins.get("next_boot", "")}
    return {"pin": pins.get("pin", ""), "next_boot": pins.get("next_boot", "")}


def kept_pin(before: Mapping[str, str], target: str, installed: list[str]) -> str:
    """The pin after the new kernel was kept: none where there was none and it is the newest; a pin that was there moves to it."""
    return target if before.get("pin") or newest(installed) != target else ""


def settled_pins(record: Mapping[str, Any], installed: list[str]) -> dict[str, str]:
    """The pins after a return: those from before where they lead to the old kernel, else the old kernel stays pinned."""
    before = dict(record["pins_before"])
    if before["pin"] == record["from"] or (not before["pin"] and newest(installed) == record["from"]):
        booted = record.get("failed_step") in {"boot", "verify", "keep"}
        return {"pin": before["pin"], "next_boot": "" if booted or before["next_boot"] not in installed else before["next_boot"]}
    return {"pin": record["from"], "next_boot": ""}


def choose_target(wanted: str, offered: str, installed: list[str], running: str) -> str:
    """The kernel to update to: the one asked for, else the newest of those offered and installed; empty when that one runs already."""
    target = wanted or newest([*filter(None, [offered]), *installed])
    if target == running or (not wanted and release_key(target) <= release_key(running)):
        return ""
    return target


def summary_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What of gpu_host_facts must be the same on the new kernel."""
    driver = facts.get("driver") or {}
    return {
        "driver": driver.get("loaded_version"),
        "open": driver.get("open"),
        "hmm_off": driver.get("uvm_disable_hmm"),
        "registry": (driver.get("params") or {}).get("RegistryDwords"),
        "gpus": [gpu["bus_id"] for gpu in facts.get("gpus") or []],
        "driven": [gpu["bus_id"] for gpu in facts.get("gpus") or [] if gpu.get("driver") == "nvidia"],
        "nodes_missing": list(facts.get("nvidia_nodes_missing") or []),
        "nodes": sorted(node["path"] for node in facts.get("device_nodes") or []),
        "guests": sorted(guest["vmid"] for guest in facts.get("containers") or [] if guest.get("status") == "running"),
    }


def expected(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the node must be now, as ``summary_of`` gives it: what it was, with the new driver where that is what is updated."""
    forward = record.get("kind") == "driver" and not record.get("cause")
    return {**record["before"], **({"driver": record["to"]} if forward else {})}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a boot lost, causes before consequences, each naming what was read and what to run; both as ``summary_of`` gives them."""
    lost = []
    if gone := [gpu for gpu in before["gpus"] if gpu not in after["gpus"]]:
        lost.append(
            f"{len(gone)} of {len(before['gpus'])} GPUs left the PCI bus ({', '.join(gone)}; read from /sys/bus/pci/devices): look for "
            "Xid 79 in `dmesg | grep NVRM`, power-cycle the machine, reseat the card"
        )
    if before["driver"] and not after["driver"]:
        lost.append(
            "no NVIDIA driver is loaded (/proc/driver/nvidia/version does not exist): run `modprobe nvidia` and read `dmesg | tail`; "
            "`dkms status` says for which kernels it is built"
        )
        return lost
    if after["driver"] != before["driver"]:
        lost.append(f"the loaded driver is {after['driver']}, it was {before['driver']} (/proc/driver/nvidia/version)")
    if before["hmm_off"] == "Y" and after["hmm_off"] != "Y":
        lost.append(
            f"HMM is on again: /sys/module/nvidia_uvm/parameters/uvm_disable_hmm reads {after['hmm_off'] or 'nothing'}, it read Y; "
            "`modprobe --showconfig | grep uvm_disable_hmm` shows the files' values, the last one counts"
        )
    if before["registry"] and after["registry"] != before["registry"]:
        lost.append(f"RegistryDwords of /proc/driver/nvidia/params reads {after['registry'] or 'nothing'}, it read {before['registry']}")
    undriven = [gpu for gpu in before["driven"] if gpu in after["gpus"] and gpu not in after["driven"]]
    if undriven:
        lost.append(f"the driver does not drive {', '.join(undriven)} any more: look into `dmesg | grep NVRM`")
    missing = [node for node in before["nodes"] if node not in after["nodes"] and not gone]
    if missing:
        lost.append(f"device nodes are missing: {', '.join(missing)}: `systemctl status gpunode-nvidia-nodes`")
    stopped = [str(guest) for guest in before["guests"] if guest not in after["guests"]]
    if stopped:
        lost.append(f"containers that ran before do not run: {', '.join(stopped)}: `journalctl -u pve-guests -b`, `pct start {stopped[0]}`")
    return lost
