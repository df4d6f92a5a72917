"""What Proxmox VE answers when it refuses, sorted by what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCKED: Final = "locked"
EXISTS: Final = "exists"
MISSING: Final = "missing"
MODIFIED: Final = "modified"
RESTARTING: Final = "restarting"
ALREADY: Final = "already"
ROOT_ONLY: Final = "root-only"
FORBIDDEN: Final = "forbidden"
AUTHENTICATION: Final = "authentication"
PARAMETER: Final = "parameter"
PROTECTED: Final = "protected"
DEVICE: Final = "device"
STORAGE: Final = "storage"
STORAGE_FULL: Final = "storage-full"
TEMPLATE: Final = "template"
BRIDGE: Final = "bridge"
QUORUM: Final = "quorum"
NO_VMID: Final = "no-vmid"
FIXED: Final = "fixed"
HOST: Final = "host"
OTHER: Final = "other"

WAIT: Final = frozenset({LOCKED, RESTARTING})
"""Kinds that go away by themselves: asked again until a deadline."""

LOG_KINDS: Final = frozenset({BRIDGE, DEVICE, HOST, STORAGE, STORAGE_FULL, TEMPLATE})
"""Kinds that the log of a failed task may tell where its exit status does not."""


@dataclass(frozen=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    remedy: str


def _rule(kind: str, pattern: str, remedy: str = "") -> _Rule:
    return _Rule(kind, re.compile(pattern, re.IGNORECASE), remedy)


# The first rule that matches decides. Texts: pve-container, pve-guest-common, pve-cluster, pve-storage, pve-access-control 9.x.
_RULES: Final = (
    _rule(
        ROOT_ONLY,
        r"only allowed for root@pam|Only root (?:can|may)|user != root@pam",
        "Proxmox VE allows this to root@pam itself and to no API token: use api_backend local or ssh_paramiko,"
        " or https with root@pam's password",
    ),
    _rule(
        LOCKED,
        r"\b(?:CT|VM|container) is locked|is locked \(|can't lock file .* got timeout|can't acquire lock",
        "another task holds the lock: `pvesh get /nodes/{node}/tasks --source active` shows it; a lock that no task owns goes with"
        " `pct unlock {vmid}`",
    ),
    _rule(EXISTS, r"\b(?:CT|VM) \d+ already exists|config file already exists|VM \d+ already running on", "choose another vmid"),
    _rule(ALREADY, r"\b(?:CT|VM) \d+ (?:already running|not running)"),
    _rule(MODIFIED, r"detected modified configuration", "somebody else changed the configuration meanwhile: run this again"),
    _rule(
        MISSING, r"Configuration file '.*' does not exist|CT \d+ does not exist|no such CT", "`pct list` shows the containers of this node"
    ),
    _rule(
        DEVICE,
        r"Device \S+ does not exist|Error accessing device|is not a device|Path is not defined for passthrough device"
        r"|is not a valid device path",
        "the node must exist on the host before a container can have it: `nvidia-modprobe -c 0 -u` makes NVIDIA's now, a unit"
        " ordered before pve-guests.service makes them at boot",
    ),
    _rule(
        HOST,
        r"'mknod' feature requested, but kernel too old|script '.*' (?:does not exist|is not executable)|not in the snippets directory",
    ),
    _rule(
        STORAGE_FULL,
        r"No space left|not enough (?:free )?space|out of space|insufficient free (?:space|extents)|data space .*(?:full|exhausted)"
        r"|Disk quota exceeded",
        "`pvesm status` shows how full the storages are; free some space, or take another storage or a smaller rootfs",
    ),
    _rule(
        TEMPLATE,
        r"volume '\S*vztmpl\S*' does not exist|unable to (?:open|read|find) .*vztmpl|vztmpl.* (?:does not exist|No such file)"
        r"|content type needs to be 'vztmpl'",
        "`pveam list STORAGE` shows the templates that are there, `pveam download STORAGE NAME` gets one",
    ),
    _rule(
        STORAGE,
        r"storage '[^']*' (?:does not exist|does not (?:allow|support)|is (?:disabled|not (?:online|available)))"
        r"|storage '[^']*' failed|no storage ID|no such volume|unable to (?:parse volume ID|use volume)|volume '.*' does not exist"
        r"|does not support (?:CT rootdirs|container directories)",
        "`pvesm status --content rootdir` shows the storages that can hold containers",
    ),
    _rule(
        BRIDGE,
        r"bridge '[^']*' does not exist|MTU size .* bigger than bridge MTU",
        "`ip -br link show type bridge` shows the bridges of this node",
    ),
    _rule(
        PROTECTED,
        r"protection mode enabled",
        "the container has protection: 1; take it off first if you mean it (`pct set {vmid} --protection 0`)",
    ),
    _rule(QUORUM, r"no quorum|cluster not ready", "the cluster has no quorum: `pvecm status`"),
    _rule(NO_VMID, r"unable to get any free VMID", "every vmid of the range is taken: Datacenter, Options, Next Free VMID Range"),
    _rule(FIXED, r"unable to (?:modify|delete) (?:read-only|required) option", "this option cannot be changed after the creation"),
    _rule(
        AUTHENTICATION,
        r"authentication failure|invalid PVE ticket|no ticket|invalid ticket|login failed",
        "check user, realm, password or token",
    ),
    _rule(
        FORBIDDEN,
        r"Permission check failed|permission denied|missing privileges",
        "`pveum user permissions USER` shows what the user may do",
    ),
    _rule(
        RESTARTING,
        r"connection refused|connection (?:reset|closed|aborted)|remote end closed|timed out|ssl handshake|broken pipe|proxy loop",
        "the API does not answer: `systemctl status pveproxy pvedaemon`",
    ),
    _rule(PARAMETER, r"Parameter verification failed|type check \(|property is not defined in schema|value does not|invalid format"),
)

_RESTARTING_STATUS: Final = frozenset({501, 502, 503, 504, 595, 596, 597, 599})


def classify(text: str, status: int | None = None, errors: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Kind and remedy of an answer; ``errors`` are the texts by parameter of a 400. The remedy may hold {vmid} and {node}."""
    everything = " ".join([text, *(f"{key}: {value}" for key, value in (errors or {}).items())])
    for rule in _RULES:
        if rule.pattern.search(everything):
            if rule.kind == RESTARTING and status is not None and status < 500:
                continue
            return rule.kind, rule.remedy
    if status in _RESTARTING_STATUS:
        return RESTARTING, "the API does not answer: `systemctl status pveproxy pvedaemon`"
    if status == 401:
        return AUTHENTICATION, "check user, realm, password or token"
    if status == 403:
        return FORBIDDEN, "`pveum user permissions USER` shows what the user may do"
    if status == 400:
        return PARAMETER, ""
    return OTHER, ""
