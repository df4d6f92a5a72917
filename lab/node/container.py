"""A node's container: its configuration, what its disk holds before the first start, start, stop and removal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from lab.console import LabError, run, say, succeeds
from lab.instance import cache_home
from lab.node import image, machine, network, parts, ssh, units
from lab.proxmox import install as proxmox

if TYPE_CHECKING:
    from lab.instance import Node

START_TIMEOUT_S = 180  # two cores shared by many; an idle machine needs 3
# Folders of a node that lie directly on the machine's disk: overlays and many small files would suffer on an overlay.
DISKS = {"vz": "var/lib/vz", "lab": "var/lib/lab"}
REPOSITORY = Path(__file__).resolve().parents[2]


def lxc(node: Node, tool: str, *words: str | Path) -> list[str | Path]:
    """Return the command line of an lxc tool for this node's container."""
    return [f"lxc-{tool}", "-P", node.instance.home / "nodes", "-n", node.name, *words]


def state(node: Node) -> str:
    """Return ``absent``, or LXC's word in lower case: ``stopped``, ``running``, ``starting``..."""
    if not (node.home / "config").exists():
        return "absent"
    return run(lxc(node, "info", "-sH"), check=False).strip().lower() or "stopped"


def cgroup_names(node: Node) -> dict[str, str]:
    """Return the control groups of a node: one name in every hierarchy, so that leftovers are known as its own."""
    stem = f"{node.instance.bridge}.{node.name}"
    return {"container": stem, "monitor": f"{stem}.monitor", "monitor.pivot": f"{stem}.pivot"}


def _remove_cgroups(node: Node) -> None:
    # systemd in a container that was killed leaves its slices behind.
    root = Path("/sys/fs/cgroup")
    for name in cgroup_names(node).values():
        for top in [root / name, *root.glob(f"*/{name}")]:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()


def config_text(node: Node, base: Path) -> str:
    """Return the LXC configuration of a node on that base."""
    code = REPOSITORY / "lab"
    lines = [
        "lxc.include = /usr/share/lxc/config/common.conf",
        "lxc.include = /usr/share/lxc/config/nesting.conf",
        f"lxc.uts.name = {node.name}",
        "lxc.arch = linux64",
        f"lxc.rootfs.path = overlay:{base}:{node.home}/upper",
        # Nested containers and dressed files in /proc and /sys: the profile of a plain container forbids both.
        "lxc.apparmor.profile = unconfined",
        # Nodes made by nvidia-modprobe; opening one finds no driver. Block devices stay out.
        "lxc.cgroup.devices.allow = c *:* rwm",
        "lxc.cgroup2.devices.allow = c *:* rwm",
        *(f"lxc.cgroup.dir.{role} = {name}" for role, name in cgroup_names(node).items()),
        "lxc.net.0.type = veth",
        "lxc.net.0.name = eth0",
        f"lxc.net.0.link = {node.instance.bridge}",
        f"lxc.net.0.veth.pair = {node.veth}",
        f"lxc.net.0.hwaddr = {node.mac}",
        "lxc.net.0.flags = up",
        f"lxc.mount.entry = {code} usr/lib/gpunode-lab/lab none bind,ro,create=dir 0 0",
        f"lxc.mount.entry = {node.instance.home}/apt usr/lib/gpunode-lab-apt none bind,ro,create=dir 0 0",
        *(f"lxc.mount.entry = {node.home}/disk/{name} {place} none bind,create=dir 0 0" for name, place in DISKS.items()),
        "lxc.signal.halt = SIGRTMIN+3",
        "lxc.signal.reboot = SIGTERM",
        "lxc.start.auto = 0",
    ]
    return "".join(f"{line}\n" for line in lines)


def interfaces(node: Node) -> str:
    """Return /etc/network/interfaces as Proxmox's installer writes it: the address lies on vmbr0."""
    return (
        "auto lo\niface lo inet loopback\n\niface eth0 inet manual\n\n"
        f"auto vmbr0\niface vmbr0 inet static\n\taddress {node.address}/24\n\tgateway {node.instance.gateway}\n"
        "\tbridge-ports eth0\n\tbridge-stp off\n\tbridge-fd 0\n\tbridge-maxwait 0\n\n\nsource /etc/network/interfaces.d/*\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def facts(node: Node, boot_loader: str) -> dict[str, object]:
    """Return what the node's own side of the lab may know: ``/etc/lab/node.json``."""
    return {
        "name": node.name,
        "number": node.number,
        "index": node.instance.index,
        "address": node.address,
        "gateway": node.instance.gateway,
        "subnet": node.instance.subnet,
        "boot_loader": boot_loader,
    }


def kernel_library() -> Path:
    """Return the library that answers uname(2) in nodes and guests, compiled once."""
    source = REPOSITORY / "lab/boot/kernel.c"
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    library = cache_home() / "lib" / f"kernel-{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_name(f"{library.name}.{os.getpid()}")
        run(["gcc", "-O2", "-shared", "-fPIC", "-o", part, source])
        part.rename(library)
    return library


def boot_loader(node: Node) -> str:
    """Return how a created node boots: ``grub`` or ``systemd-boot``."""
    return str(json.loads((node.home / "upper/etc/lab/node.json").read_text(encoding="utf-8"))["boot_loader"])


def create(node: Node, boot_loader: str) -> None:
    """Lay out the container's folder; a half-made one of an interrupted run is replaced."""
    shutil.rmtree(node.home, ignore_errors=True)
    ssh.client_key(node.instance)
    guest, recipe = parts.build()
    base = recipe.folder
    upper = node.home / "upper"
    (node.instance.home / "apt").mkdir(parents=True, exist_ok=True)
    for name in DISKS:
        (node.home / "disk" / name).mkdir(parents=True, exist_ok=True)
    _write(upper / "etc/hostname", f"{node.name}\n")
    _write(upper / "etc/hosts", f"127.0.0.1 localhost.localdomain localhost\n{node.address} {node.name}.lab.internal {node.name}\n")
    _write(upper / "etc/machine-id", f"{uuid.uuid4().hex}\n")
    _write(upper / "etc/resolv.conf", machine.resolv_conf())
    _write(upper / "etc/network/interfaces", interfaces(node))
    (upper / "etc/network/interfaces.d").mkdir(exist_ok=True)
    _write(upper / "etc/lab/node.json", json.dumps(facts(node, boot_loader), indent=2) + "\n")
    (upper / "var/log/journal").mkdir(parents=True)
    _write(upper / "etc/default/locale", "LANG=C.UTF-8\n")
    ssh.install(node, upper)
    units.install(upper)
    library = upper / "usr/lib/gpunode-lab/lib/kernel.so"
    library.parent.mkdir(parents=True)
    shutil.copyfile(kernel_library(), library)
    _write(upper / "etc/ld.so.preload", "/usr/lib/gpunode-lab/lib/kernel.so\n")
    place_template(node, guest)
    # The file whose presence says that the folder is complete comes last.
    part = node.home / "config.part"
    part.write_text(config_text(node, base), encoding="utf-8")
    part.rename(node.home / "config")


def place_template(node: Node, guest: image.Recipe) -> None:
    """Put the archive of a guest's root file system where ``local:vztmpl/`` finds it, building it when the cache lacks it."""
    archive = image.template(guest)
    folder = node.home / "disk/vz/template/cache"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / archive.name
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(archive)
    except OSError:  # another file system
        shutil.copyfile(archive, target)


def start(node: Node) -> None:
    """Start the container and return when systemd answers; LabError with the log's end when it does not come up."""
    network.remove_link(node.veth)
    _remove_cgroups(node)
    log = node.home / "lxc.log"
    log.unlink(missing_ok=True)
    try:
        proxmox.install(node.home / "upper", node.name)
    except FileNotFoundError as error:
        raise LabError(str(error)) from None
    done = subprocess.run(
        [str(word) for word in lxc(node, "start", "-d", "-l", "WARN", "-o", log)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]) if log.exists() else done.stderr
        raise LabError(f"{node.name} does not start (whole log: {log}):\n{tail}")


def wait(node: Node) -> None:
    """Wait until ssh lets root in and the boot has ended; LabError naming the failed units otherwise."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not succeeds(ssh.command(node, ["true"])):
        if time.monotonic() > deadline:
            raise LabError(
                f"{node.name} ({node.address}) lets nobody in after {START_TIMEOUT_S} s: look with `python -m lab console {node.name}`"
            )
        if state(node) not in {"running", "starting"}:
            raise LabError(f"{node.name} stopped while it booted: see {node.home}/lxc.log")
        time.sleep(0.2)
    booted = run(ssh.command(node, ["systemctl", "is-system-running", "--wait"]), check=False, timeout=START_TIMEOUT_S).strip()
    if booted != "running":
        failed = run(ssh.command(node, ["systemctl", "--failed", "--no-legend", "--plain"]), check=False).strip()
        say(f"{node.name} is up, but systemd says {booted}: {failed or 'nothing has failed'}")


def stop(node: Node) -> None:
    """Switch the container off: it is about to be removed, so nothing in it needs to end well."""
    if state(node) not in {"absent", "stopped"}:
        run(lxc(node, "stop", "-k"), check=False, timeout=60)


def remove(node: Node) -> None:
    """Stop the container and remove everything of it."""
    stop(node)
    network.remove_link(node.veth)
    _remove_cgroups(node)
    if ssh.known_hosts(node.instance).exists():
        ssh.remember(node, None)
    (node.home / "config").unlink(missing_ok=True)
    shutil.rmtree(node.home)


def inside(node: Node, words: list[str]) -> str:
    """Run a command in the node without ssh and return its stdout, empty when it fails."""
    return run(lxc(node, "attach", "--clear-env", "--", *words), check=False, timeout=20)


def choose_boot_entry(node: Node, release: str) -> None:
    """Pick a kernel at the boot menu of the next start, as a person at the console does."""
    path = node.home / "disk/lab/boot-menu-choice"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{release}\n", encoding="utf-8")
