"""What this machine can follow of a container's LXC configuration, which is written for a Proxmox VE host.

The machine under the lab may have control groups v1, few processors, no AppArmor and no right to raise limits. LXC starts a copy of the
configuration in which such lines are replaced by what does the same here, or are comments that say what is missing.
"""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from lab.proxmox.errors import PveError

_CAP_SYS_RESOURCE = 24


def follow(lines: list[str]) -> list[str]:
    """Replace what this machine cannot follow in the lines of an LXC configuration."""
    found: list[str] = []
    for line in lines:
        key, equals, value = (part.strip() for part in line.partition("="))
        found += _one(line, key, value) if equals else [line]
    limits = dict(line.split(" = ", 1) for line in found if line.startswith("lxc.cgroup.memory."))
    swap = next((line.split(" = ")[1] for line in lines if line.startswith("lxc.cgroup2.memory.swap.max = ")), None)
    memory = limits.get("lxc.cgroup.memory.limit_in_bytes")
    if not unified() and memory and swap and _swap_counted():
        found.append(f"lxc.cgroup.memory.memsw.limit_in_bytes = {int(memory) + int(swap)}")
    return found


def _one(line: str, key: str, value: str) -> list[str]:
    if key.startswith("lxc.apparmor."):
        if Path("/sys/kernel/security/apparmor").exists():
            return [line]
        return [f"# lab: no AppArmor here: {line}"] if key != "lxc.apparmor.profile" else ["lxc.apparmor.profile = unconfined"]
    if key.startswith("lxc.prlimit."):
        return [line] if _may_limit(key.removeprefix("lxc.prlimit."), value) else [f"# lab: this machine's hard limit is lower: {line}"]
    if not key.startswith("lxc.cgroup2."):
        return [line]
    name = key.removeprefix("lxc.cgroup2.")
    if name == "cpuset.cpus":
        both = [number for number in numbers(value) if number in processors()]
        return [f"{_key(name)} = {','.join(map(str, both))}"] if both else [f"# lab: none of these is here: {line}"]
    if name == "cpuset.mems":
        here = [int(path.name[4:]) for path in Path("/sys/devices/system/node").glob("node[0-9]*")] or [0]
        both = [number for number in numbers(value) if number in here]
        return [f"{_key(name)} = {','.join(map(str, both))}"] if both and unified() else [f"# lab: not followed here: {line}"]
    if unified():
        return [line]
    if name.startswith("devices."):
        return [f"{_key(name)} = {value}"]
    if name == "memory.max":
        return [f"lxc.cgroup.memory.limit_in_bytes = {value}"] if value.isdigit() else []
    if name == "cpu.max":
        quota, _, period = value.partition(" ")
        return [f"lxc.cgroup.cpu.cfs_period_us = {period or 100000}", f"lxc.cgroup.cpu.cfs_quota_us = {-1 if quota == 'max' else quota}"]
    return [f"# lab: control groups v1 have no such file: {line}"]


def unified() -> bool:
    """Whether this machine's controllers are in the unified hierarchy."""
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def processors() -> list[int]:
    """The processors that this machine has."""
    return sorted(os.sched_getaffinity(0))


def _key(name: str) -> str:
    return f"lxc.cgroup2.{name}" if unified() else f"lxc.cgroup.{name}"


def _swap_counted() -> bool:
    return any(Path("/sys/fs/cgroup/memory").rglob("memory.memsw.limit_in_bytes"))


def _may_limit(name: str, value: str) -> bool:
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if capabilities and int(capabilities[1], 16) >> _CAP_SYS_RESOURCE & 1:
        return True
    number = getattr(resource, f"RLIMIT_{name.upper()}", None)
    hard = resource.RLIM_INFINITY if number is None else resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY:
        return True
    wanted = value.rpartition(":")[2].strip()
    return wanted.isdigit() and int(wanted) <= hard


def numbers(text: str) -> list[int]:
    """Read a list of numbers like 0-3,8; PveError when it is none."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise PveError(f"cannot read '{text}' as a list of numbers")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
