"""A container's LXC configuration, generated from its Proxmox VE configuration at each start."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from lab.proxmox import schema, storage
from lab.proxmox.ct import devices, machine, mounts, state
from lab.proxmox.errors import PveError
from lab.proxmox.world import write_file

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_SHARED = ("/usr/lib/gpunode-lab", "/usr/lib/gpunode-lab-apt")  # what guests of the lab see of it, read-only
_BIND_FLAGS = {"noatime", "nodev", "noexec", "nosuid"}


def write(ctx: Context, vmid: int, conf: Conf, *, starting: bool = True) -> None:
    """Write /var/lib/lxc/ID/config, the copy of it that this machine starts, and the container's own device nodes.

    Raises PveError for a device node or a bridge that is missing; for a volume or directory only when the container is about to start.
    """
    if conf.get("template"):
        return
    for needed in ("arch", "ostype"):
        if needed not in conf:
            raise PveError(f"missing '{needed}' - internal error")
    if "rootfs" not in conf:
        raise PveError("missing 'rootfs' configuration")
    folder = Path(state.lxc_path(ctx.world)) / str(vmid)
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / "passthrough"
    lines = [*_basics(conf), *_identity(conf), *_limits(conf)]
    shutil.rmtree(staging, ignore_errors=True)
    for _name, device in devices.each(ctx, conf):
        node = devices.make(ctx, conf, staging, device)
        lines.append(f"lxc.cgroup2.devices.allow = {devices.rule(ctx, device)}")
        lines.append(f"lxc.mount.entry = {node} {device['path'].lstrip('/')} none bind,create=file 0 0")
    lines += _networks(ctx, vmid, conf)
    lines += _mounts(ctx, conf, starting=starting)
    lines += [f"{key} = {value}" for key, value in conf.get("lxc", [])]
    write_file(folder / "config", "".join(f"{line}\n" for line in lines), 0o644)
    started = [*machine.follow(lines), *_shared(ctx)]
    write_file(started_file(ctx, vmid), "".join(f"{line}\n" for line in started), 0o644)


def started_file(ctx: Context, vmid: int) -> Path:
    """The configuration that LXC is started with."""
    return ctx.world.path(f"/run/pve/lxc/{vmid}.conf")


def _basics(conf: Conf) -> list[str]:
    features = re.findall(r"(\w+)=([^,]+)", str(conf.get("features", "")))
    lines = ["lxc.include = /usr/share/lxc/config/common.conf"]
    if conf.get("unprivileged") or any(key == "lxc.idmap" for key, _ in conf.get("lxc", [])):
        lines += ["lxc.include = /usr/share/lxc/config/userns.conf", "lxc.mount.auto = sys:mixed"]
    nesting = ("nesting", "1") in features
    if nesting:
        lines.append("lxc.include = /usr/share/lxc/config/nesting.conf")
    lines += [
        "lxc.apparmor.profile = generated",
        *(["lxc.apparmor.allow_nesting = 1"] if nesting else []),
        f"lxc.arch = {conf['arch']}",
        f"lxc.tty.max = {conf.get('tty', 2)}",
        "lxc.environment = TERM=linux",
        "lxc.hook.version = 1",
        "lxc.hook.post-stop = /usr/share/lxc/hooks/lxc-pve-poststop-hook",
    ]
    if not Path("/usr/share/lxc/hooks/lxc-pve-poststop-hook").exists():
        lines.pop()  # a bare machine, in tests
    if conf.get("entrypoint"):
        lines.append(f"lxc.init.cmd = {conf['entrypoint']}")
    lines += [f"lxc.environment.runtime = {word}" for word in str(conf.get("env", "")).split("\0") if word]
    return lines


def _identity(conf: Conf) -> list[str]:
    lines = [f"lxc.uts.name = {conf.get('hostname', 'localhost')}"]
    if conf.get("unprivileged") and not any(key == "lxc.idmap" for key, _ in conf.get("lxc", [])):
        lines += [f"lxc.idmap = {letter} 0 {mounts.SHIFT} 65536" for letter in "ug"]
    return lines


def _limits(conf: Conf) -> list[str]:
    memory = int(conf.get("memory", 512)) * 2**20
    high = memory - 128 * 2**20 if memory >= 16 * 2**30 else memory * 1016 // 1024
    lines = [f"lxc.cgroup2.memory.max = {memory}", f"lxc.cgroup2.memory.high = {high}"]
    lines.append(f"lxc.cgroup2.memory.swap.max = {int(conf.get('swap', 512)) * 2**20}")
    limit = float(conf.get("cpulimit", 0) or 0)
    if limit:
        lines.append(f"lxc.cgroup2.cpu.max = {int(limit * 100000)} 100000")
    if conf.get("cpuunits"):
        lines.append(f"lxc.cgroup2.cpu.weight = {min(10000, max(1, int(conf['cpuunits'])))}")
    cpus, cores = machine.processors(), int(conf.get("cores", 0) or 0)
    pinned = any(key in {"lxc.cgroup2.cpuset.cpus", "lxc.cgroup.cpuset.cpus"} for key, _ in conf.get("lxc", []))
    if cores and cores < len(cpus) and not pinned:
        chosen = sorted(random.sample(cpus, cores))
        lines.append(f"lxc.cgroup2.cpuset.cpus = {','.join(map(str, chosen))}")
    return lines


def _networks(ctx: Context, vmid: int, conf: Conf) -> list[str]:
    lines: list[str] = []
    names = sorted((name for name in conf if re.fullmatch(r"net\d+", name)), key=lambda name: int(name[3:]))
    for number, name in enumerate(names):
        net = schema.parse(ctx.schema.format_of("net0"), str(conf[name]))
        prefix = f"lxc.net.{number}"
        lines += [f"{prefix}.type = veth", f"{prefix}.veth.pair = veth{vmid}i{name[3:]}", f"{prefix}.name = {net['name']}"]
        if net.get("hwaddr"):
            lines.append(f"{prefix}.hwaddr = {net['hwaddr']}")
        if net.get("mtu"):
            lines.append(f"{prefix}.mtu = {net['mtu']}")
        if net.get("bridge"):
            check_bridge(net["bridge"])
            lines.append(f"{prefix}.link = {net['bridge']}")
        if not net.get("link_down"):
            lines.append(f"{prefix}.flags = up")
    return lines or ["lxc.net.0.type = empty"]


def check_bridge(bridge: str) -> None:
    """PveError unless the bridge exists here."""
    if not Path(f"/sys/class/net/{bridge}/bridge").is_dir():
        raise PveError(f"bridge '{bridge}' does not exist")


def _mounts(ctx: Context, conf: Conf, *, starting: bool) -> list[str]:
    lines = []
    for key, mount in mounts.each(ctx, conf):
        source = ctx.world.path(mount["volume"]) if not starting and mount["type"] == "bind" else source_of(ctx, mount)
        if key == "rootfs":
            lines.append(f"lxc.rootfs.path = dir:{source}")
            continue
        flags = ["rbind" if mount["type"] == "bind" else "bind", "create=dir", *(["ro"] if mount.get("ro") else [])]
        flags += [flag for flag in str(mount.get("mountoptions", "")).split(";") if flag in _BIND_FLAGS]
        lines.append(f"lxc.mount.entry = {_octal(str(source))} {_octal(mount['mp'].strip('/'))} none {','.join(flags)} 0 0")
    return lines


def source_of(ctx: Context, mount: mounts.Mount) -> Path:
    """What a mount point mounts on this machine; PveError when it is not there."""
    if mount["type"] == "volume":
        return storage.activated(ctx.world, mount["volume"])
    source = ctx.world.path(mount["volume"])
    if not source.exists():
        raise PveError(f"directory '{mount['volume']}' does not exist")
    return source


def _octal(path: str) -> str:
    return path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def _shared(ctx: Context) -> list[str]:
    lines = [f"lxc.mount.entry = {path} {path.lstrip('/')} none rbind,ro,create=dir 0 0" for path in _SHARED if Path(path).is_dir()]
    for fragment in sorted(ctx.world.path("/run/lab/guest.d").glob("*.conf")):
        lines.append(f"# lab: {fragment}")
        lines += fragment.read_text().splitlines()
    return lines
