"""Changes of a running container: mounts, device nodes and interfaces moved into its namespaces."""

from __future__ import annotations

import ctypes
import os
import subprocess
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox.ct import devices, lxcfile, machine, mounts, state
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _MOUNT_ATTR_RDONLY = 1, 4, 1
_NEWNS = 0x00020000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: Any) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def bind(pid: int, source: Path, target: str, shift: int, *, read_only: bool = False, file: bool = False) -> None:
    """Mount a file or directory of the host at a path of a running container, whose init is `pid` and whose root is `shift`."""
    tree = _call(
        _OPEN_TREE, _AT_FDCWD, str(source).encode(), ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | (0 if file else _AT_RECURSIVE))
    )
    try:
        if read_only:
            attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
            _call(_MOUNT_SETATTR, tree, b"", ctypes.c_uint(_AT_EMPTY_PATH), ctypes.byref(attributes), ctypes.c_size_t(32))

        def work() -> None:
            place = Path(target)
            files_as(shift)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file:
                place.touch()
            else:
                place.mkdir(exist_ok=True)
            files_as(0)
            _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))

        in_mount_namespace(pid, work)
    finally:
        os.close(tree)


def files_as(number: int) -> None:
    """Make this process's files those of a user and group: a guest's own file systems know no ids outside its range."""
    _libc.setfsgid(number)
    _libc.setfsuid(number)


def in_mount_namespace(pid: int, work: Callable[[], None]) -> None:
    """Run `work` in a process that has entered a container's mount namespace and root; PveError when it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
            root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
            if _libc.setns(namespace, _NEWNS):
                raise OSError(ctypes.get_errno(), "failed to enter the container's mount namespace")
            os.fchdir(root)
            os.chroot(".")
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(writer, (str(error) or traceback.format_exc()).encode()[-1000:])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        words = stream.read()
    if os.waitpid(child, 0)[1]:
        raise PveError(words or "failed in the container's mount namespace")


def device(ctx: Context, vmid: int, conf: Conf, value: str) -> None:
    """Give a running container a device node of its own."""
    found = devices.parse(ctx, value)
    node = devices.make(ctx, conf, Path(state.lxc_path(ctx.world)) / str(vmid) / "passthrough", found)
    done = subprocess.run(
        ["lxc-cgroup", "-P", state.lxc_path(ctx.world), "-n", str(vmid), "devices.allow", devices.rule(ctx, found)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not conf.get("unprivileged") and not machine.unified():
        raise PveError(done.stderr.strip())
    bind(state.init_pid(ctx.world, vmid), node, found["path"], mounts.shift(conf), file=True)


def mount(ctx: Context, vmid: int, conf: Conf, found: mounts.Mount) -> None:
    """Mount a mount point into a running container."""
    bind(state.init_pid(ctx.world, vmid), lxcfile.source_of(ctx, found), found["mp"], mounts.shift(conf), read_only=bool(found.get("ro")))


def memory(ctx: Context, vmid: int, mib: int, swap_mib: int) -> None:
    """Set a running container's limits of memory and swap."""
    size, total = mib * 2**20, (mib + swap_mib) * 2**20
    if machine.unified():
        steps = [("memory.max", size), ("memory.swap.max", total - size)]
    else:  # memory may never exceed memory and swap, on the way either
        steps = [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", total)]
    words = [_limit(ctx, vmid, *step) for step in steps]
    if words[0]:
        words = [_limit(ctx, vmid, *step) for step in reversed(steps)]
    if words[-1]:
        raise PveError(f"can't change the memory limit: {words[-1]}")


def _limit(ctx: Context, vmid: int, key: str, value: int) -> str:
    command = ["lxc-cgroup", "-P", state.lxc_path(ctx.world), "-n", str(vmid), key, str(value)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


def network(ctx: Context, vmid: int, number: str, net: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Plug an interface into a running container, or change its addresses."""
    pid = state.init_pid(ctx.world, vmid)
    host, name = f"veth{vmid}i{number}", net["name"]
    hard = ("name", "hwaddr", "bridge", "mtu", "tag")
    if old is not None and any(old.get(key) != net.get(key) for key in hard):
        subprocess.run(["ip", "link", "del", host], capture_output=True, check=False)
        old = None
    if old is None:
        if net.get("bridge"):
            lxcfile.check_bridge(net["bridge"])
        peer = f"{host}p"
        _ip("link", "add", host, "type", "veth", "peer", "name", peer, "address", net["hwaddr"])
        if net.get("bridge"):
            _ip("link", "set", host, "master", net["bridge"])
        _ip("link", "set", peer, "netns", str(pid), "name", name)
        _ip("link", "set", host, "up")
        _inside(pid, "link", "set", name, "up")
    else:
        _inside(pid, "addr", "flush", "dev", name)
    for address, gateway, family in ((net.get("ip"), net.get("gw"), "-4"), (net.get("ip6"), net.get("gw6"), "-6")):
        if address and "/" in address:
            _inside(pid, family, "addr", "replace", address, "dev", name)
        if gateway:
            _inside(pid, family, "route", "replace", "default", "via", gateway, "dev", name, "onlink")


def unplug(vmid: int, number: str) -> None:
    """Take an interface out of a running container."""
    subprocess.run(["ip", "link", "del", f"veth{vmid}i{number}"], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PveError(f"command 'ip {' '.join(words)}' failed: {done.stderr.strip()}")


def _inside(pid: int, *words: str) -> None:
    done = subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PveError(f"command 'ip {' '.join(words)}' failed in the container: {done.stderr.strip()}")
