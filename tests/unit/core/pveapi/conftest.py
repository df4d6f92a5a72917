"""A Proxmox VE in memory: enough of the API and of a node's files to see what a container's life asks of them."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import pytest

from gpunode.pve.conffile import ConfigFile, parse, render
from gpunode.pve.plan import desired_from_user
from gpunode.pve.propstring import FAMILIES, family_of, format_property, new_volume
from gpunode.pve.propstring import parse as parse_property
from gpunode.pveapi import base
from gpunode.pveapi.base import ApiError
from gpunode.pveapi.life import Life
from gpunode.pveapi.request import Request, Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LATE = ("features", "nameserver", "tty", "ostype")


class Proxmox:
    """One node with files and the API over them; ``failures`` maps ``METHOD path-suffix`` to errors raised once each."""

    def __init__(self) -> None:
        self.name = "local"
        self.user = "root@pam"
        self.files: dict[str, str] = {"/etc/pve/storage.cfg": "dir: local\n"}
        self.devices = {f"/dev/nvidia{n}" for n in range(8)} | {"/dev/nvidiactl"}
        self.up: set[int] = set()
        self.calls: list[tuple[str, str, dict[str, str]]] = []
        self.failures: dict[str, list[ApiError]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.exitstatus = "OK"
        self.log: list[str] = ["TASK OK"]
        self.next_ids = [100]
        self.before_write: Callable[[], None] | None = None
        self.shell = self

    # -- files, as a Node -----------------------------------------------------------------------------------------------------------

    def path(self, vmid: int, kind: str = "lxc", node: str = "pve") -> str:
        return f"/etc/pve/nodes/{node}/{kind}/{vmid}.conf"

    def have(self, vmid: int, text: str, *, running: bool = False) -> None:
        self.files[self.path(vmid)] = text
        if running:
            self.boot(vmid)

    def boot(self, vmid: int) -> None:
        config = self.config(vmid)
        config.live.options.update(config.pending.options)
        for name in config.pending.deleted:
            config.live.options.pop(name, None)
        config.live.options.pop("delete", None)
        config.pending.options.clear()
        self.save(vmid, config)
        self.up.add(vmid)
        self.files[f"/var/lib/lxc/{vmid}/config"] = "lxc.arch = amd64\n" + "".join(f"{key} = {value}\n" for key, value in config.live.raw)

    def config(self, vmid: int) -> ConfigFile:
        if self.path(vmid) not in self.files:
            raise ApiError(f"Configuration file 'nodes/pve/lxc/{vmid}.conf' does not exist")
        return parse(self.files[self.path(vmid)])

    def save(self, vmid: int, config: ConfigFile) -> None:
        self.files[self.path(vmid)] = render(config)

    def read_many(self, patterns: Sequence[str]) -> Mapping[str, str]:
        sockets = "".join(f"0: 0 0 0 1 1 1 @/var/lib/lxc/{vmid}/command\n" for vmid in sorted(self.up))
        files = self.files | {"/proc/net/unix": sockets}
        return {path: text for pattern in patterns for path, text in files.items() if fnmatch.fnmatch(path, pattern)}

    def missing_devices(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path not in self.devices]

    def replace_config(self, path: str, vmid: int, digest: str, text: str, deadline: base.Deadline) -> None:
        del vmid, deadline
        if parse(self.files[path]).digest != digest:
            raise ApiError("detected modified configuration - file changed by other user? Try again.")
        self.files[path] = text

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        del data, timeout
        assert list(argv[:2]) == ["pct", "unlock"]
        config = self.config(int(argv[2]))
        config.live.options.pop("lock", None)
        self.save(int(argv[2]), config)
        self.calls.append(("UNLOCK", argv[2], {}))
        return 0, "", ""

    # -- the API --------------------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, params: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Any:
        del timeout
        given = dict(params or {})
        self.calls.append((method, path, dict(given)))
        for key, errors in self.failures.items():
            verb, _, end = key.partition(" ")
            if errors and verb == method and path.endswith(end):
                raise errors.pop(0)
        parts = path.strip("/").split("/")
        if path == "/cluster/nextid":
            return str(self.next_ids.pop(0))
        if "tasks" in parts:
            return self._tasks(parts, given)
        if method == "PUT" and parts[-1] == "config":
            return self._put(int(parts[3]), given)
        raise AssertionError(f"unexpected {method} {path}")

    def _tasks(self, parts: list[str], given: dict[str, str]) -> Any:
        if parts[-1] == "status":
            return self.tasks[parts[-2]]
        if parts[-1] == "log":
            return [{"n": number, "t": line} for number, line in enumerate(self.log, 1)]
        return [task for task in self.tasks.values() if given.get("source") == "all" or task["status"] == "running"]

    def _put(self, vmid: int, given: dict[str, str]) -> None:
        if self.before_write:
            hook, self.before_write = self.before_write, None
            hook()
        config = self.config(vmid)
        if given.pop("digest", config.digest) != config.digest:
            raise ApiError("detected modified configuration - file changed by other user? Try again.")
        if "lock" in config.live.options:
            raise ApiError(f"CT is locked ({config.live.options['lock']})")
        deleted = [name for name in given.pop("delete", "").split(",") if name]
        for name in deleted:
            if vmid in self.up and name.startswith(("dev", "mp", *LATE)):
                config.pending.options["delete"] = " ".join([*config.pending.deleted, name])
            else:
                config.live.options.pop(name, None)
        for name, value in given.items():
            late = name in LATE or (name.startswith(("dev", "mp")) and name in config.live.options)
            target = config.pending if vmid in self.up and late else config.live
            if name == "description":
                target.description = value + "\n"
            else:
                target.options[name] = stored(vmid, name, value)
        self.save(vmid, config)

    def start(self, method: str, path: str, params: Mapping[str, str] | None, deadline: base.Deadline) -> str:
        del deadline
        given = dict(params or {})
        self.calls.append((method, path, dict(given)))
        for key, errors in self.failures.items():
            verb, _, end = key.partition(" ")
            if errors and verb == method and path.endswith(end):
                raise errors.pop(0)
        parts = path.strip("/").split("/")
        kind = {"start": "vzstart", "shutdown": "vzshutdown", "resize": "resize"}.get(
            parts[-1], "vzdestroy" if method == "DELETE" else "vzcreate"
        )
        vmid = int(given["vmid"]) if kind == "vzcreate" else int(parts[3])
        upid = f"UPID:pve:0000ABCD:0123ABCD:6B0D9869:{kind}:{vmid}:root@pam:"
        self.tasks[upid] = {"status": "stopped", "exitstatus": self.exitstatus, "type": kind, "starttime": len(self.tasks), "upid": upid}
        if self.exitstatus == "OK" or self.exitstatus.startswith("WARNINGS"):
            self._do(kind, vmid, given)
        return upid

    def _do(self, kind: str, vmid: int, given: dict[str, str]) -> None:
        if kind == "vzcreate":
            if self.path(vmid) in self.files:
                raise ApiError(f"unable to create CT {vmid} - CT {vmid} already exists on node 'pve'")
            config = parse("arch: amd64\nostype: debian\n")
            options = {name: value for name, value in given.items() if name not in {"vmid", "ostemplate", "storage", "password"}}
            config.live.options |= {name: stored(vmid, name, value) for name, value in options.items()}
            self.save(vmid, config)
        elif kind == "vzstart":
            self.boot(vmid)
        elif kind == "vzshutdown":
            self.up.discard(vmid)
        elif kind == "vzdestroy":
            del self.files[self.path(vmid)]
        elif kind == "resize":
            config = self.config(vmid)
            values = parse_property(FAMILIES["rootfs"], config.live.options[given["disk"]])
            config.live.options[given["disk"]] = format_property(FAMILIES["rootfs"], values | {"size": given["size"]})
            self.save(vmid, config)

    def writes(self) -> list[tuple[str, str]]:
        """What was asked for that changes something."""
        return [(method, path.rpartition("/")[2]) for method, path, _ in self.calls if method != "GET"]


def stored(vmid: int, name: str, value: str) -> str:
    family = family_of(name)
    if family is None:
        return value
    values = parse_property(family, value)
    asked = new_volume(values.get("volume", ""))
    if asked:
        values |= {"volume": f"{asked[0]}:vm-{vmid}-disk-{name}", "size": f"{asked[1]:.0f}G"}
    if family.name == "net":
        values = {"hwaddr": "BC:24:11:00:00:01", "type": "veth"} | values
    return format_property(family, values)


class Node:
    """The same files under a node's name."""

    def __init__(self, proxmox: Proxmox) -> None:
        self.proxmox = proxmox

    def name(self) -> str:
        return "pve"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.proxmox, name)


@pytest.fixture
def proxmox(monkeypatch: pytest.MonkeyPatch) -> Proxmox:
    monkeypatch.setattr(base, "POLL_S", (0.001,))
    return Proxmox()


@pytest.fixture
def live(proxmox: Proxmox) -> Callable[..., Any]:
    """Run one request: options of the container as keywords, those of the request too."""

    def run(state: str = "present", *, hostname: str = "glm", vmid: int | None = 101, **given: Any) -> Any:
        about = {name: given.pop(name) for name in ("adopt", "check", "recreate_interrupted", "device_hint", "force_stop") if name in given}
        create = {name: given.pop(name) for name in ("ostemplate", "password") if name in given}
        request = Request(
            state,
            hostname,
            desired_from_user({"hostname": hostname, **given}),
            vmid,
            create=create,
            timeouts=Timeouts(0.05, 0.05, 60),
            **about,
        )
        proxmox.calls.clear()
        return Life(proxmox, Node(proxmox), request).run()

    return run
