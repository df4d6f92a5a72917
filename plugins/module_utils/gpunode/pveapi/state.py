"""One container as it is now, read from the node's files or from the API alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..pve.conffile import ConfigFile, parse
from ..pve.plan import Current
from ..pve.propstring import is_on
from .base import Api, ApiError
from .node import GUESTS, Node, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

META = ("lock", "parent", "snaptime", "snapstate", "digest", "snapname")
"""Keys of the configuration that are no options."""

SIGNS_OF_LIFE = ("user.cfg", "storage.cfg", "datacenter.cfg", "corosync.conf")
"""Files of which every node has some in /etc/pve."""


@dataclass
class Guest:
    """A guest that has a vmid: a container of this node with all there is to know, or merely whose it is.

    ``kind`` is ``lxc`` or ``qemu``. ``text`` is the configuration file where it could be read. ``started_raw`` are the raw lines with
    which the running container was started, None when unknown.
    """

    kind: str
    node: str
    vmid: int
    hostname: str = ""
    current: Current = field(default_factory=lambda: Current(0, {}))
    lock: str = ""
    template: bool = False
    path: str = ""
    text: str | None = None
    started_raw: Sequence[tuple[str, str]] | None = None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.current.running

    @property
    def unfinished(self) -> bool:
        """Whether its creation has not come to its end: it runs, or was cut short."""
        return self.lock == "create"


def from_files(node: Node, here: str, vmid: int) -> Guest | None:
    """The guest with this vmid anywhere in the cluster; None without one. Raises ``ApiError`` when /etc/pve is not there."""
    files = node.read_many(
        [
            f"{GUESTS}/*/lxc/{vmid}.conf",
            f"{GUESTS}/*/qemu-server/{vmid}.conf",
            "/proc/net/unix",
            f"/var/lib/lxc/{vmid}/config",
            *(f"/etc/pve/{name}" for name in SIGNS_OF_LIFE),
        ]
    )
    for path, text in files.items():
        if not path.startswith(GUESTS):
            continue
        parts = PurePosixPath(path).parts
        owner, kind = parts[4], "lxc" if parts[5] == "lxc" else "qemu"
        if kind == "qemu":
            name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("name:")), "")
            return Guest(kind, owner, vmid, name)
        generated = files.get(f"/var/lib/lxc/{vmid}/config") if owner == here else None
        return _from_config(parse(text), owner, vmid, running(files.get("/proc/net/unix", ""), vmid), path, text, generated)
    if not any(path.startswith("/etc/pve/") for path in files):
        # An unmounted /etc/pve looks like a node without guests, and every vmid like a free one.
        raise ApiError(
            f"nothing of Proxmox VE is readable below /etc/pve on {here}: is pve-cluster running? `systemctl status pve-cluster`"
        )
    return None


def _from_config(config: ConfigFile, owner: str, vmid: int, runs: bool, path: str, text: str, generated: str | None) -> Guest:
    live = {key: value for key, value in config.live.options.items() if key not in META}
    if config.live.description:
        live["description"] = config.live.description
    pending = {key: value for key, value in config.pending.options.items() if key != "delete"}
    if config.pending.description:
        pending["description"] = config.pending.description
    current = Current(vmid, live, pending, tuple(config.pending.deleted), tuple(config.live.raw), config.digest, runs)
    return Guest(
        "lxc",
        owner,
        vmid,
        current.effective.get("hostname", ""),
        current,
        config.live.options.get("lock", ""),
        is_on(live.get("template")),
        path,
        text,
        tuple(parse(generated).live.raw) if generated is not None and runs else None,
    )


def by_hostname_from_files(node: Node, hostname: str) -> list[int]:
    """Vmids of all containers of the cluster with this hostname."""
    files = node.read_many([f"{GUESTS}/*/lxc/*.conf"])
    return sorted(int(PurePosixPath(path).stem) for path, text in files.items() if parse(text).live.options.get("hostname") == hostname)


def from_api(api: Api, here: str, vmid: int) -> Guest | None:
    """The guest with this vmid, through the API alone."""
    entry = next((item for item in _guests(api) if int(item.get("vmid", 0)) == vmid), None)
    if entry is None or not entry.get("node"):
        return _unlisted(api, here, vmid)
    owner, kind = str(entry["node"]), str(entry.get("type", "lxc"))
    if kind != "lxc":
        return Guest(kind, owner, vmid, str(entry.get("name", "")))
    return _read(api, owner, vmid)


def _unlisted(api: Api, here: str, vmid: int) -> Guest | None:
    """The list of the cluster's resources lags behind by seconds: a container made just now may be missing there."""
    try:
        return _read(api, here, vmid)
    except ApiError as error:
        if error.kind == "missing":
            return None
        raise


def _read(api: Api, owner: str, vmid: int) -> Guest:
    base = f"/nodes/{owner}/lxc/{vmid}"
    config = api.call("GET", f"{base}/config", {"current": "1"}) or {}
    waiting = api.call("GET", f"{base}/pending") or []
    status = api.call("GET", f"{base}/status/current") or {}
    live = {key: str(value) for key, value in config.items() if key not in META and key != "lxc"}
    pending = {str(item["key"]): str(item["pending"]) for item in waiting if "pending" in item}
    deleted = tuple(str(item["key"]) for item in waiting if item.get("delete"))
    raw = tuple((str(pair[0]), str(pair[1])) for pair in config.get("lxc", []))
    current = Current(vmid, live, pending, deleted, raw, str(config.get("digest", "")), status.get("status") == "running")
    return Guest(
        "lxc",
        owner,
        vmid,
        current.effective.get("hostname", ""),
        current,
        str(config.get("lock", "")),
        is_on(live.get("template")),
    )


def by_hostname_from_api(api: Api, hostname: str) -> list[int]:
    """Vmids of all containers of the cluster with this hostname, through the API alone."""
    return sorted(int(item["vmid"]) for item in _guests(api) if item.get("type") == "lxc" and item.get("name") == hostname)


def _guests(api: Api) -> list[Mapping[str, Any]]:
    return list(api.call("GET", "/cluster/resources", {"type": "vm"}) or [])
