"""What Proxmox VE writes into a guest's files: host name, hosts, resolver, network, password, keys."""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox import schema
from lab.proxmox.ct import mounts
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_BEGIN, _END = "# --- BEGIN PVE ---", "# --- END PVE ---"


def inside(root: Path, shift: int, work: Callable[[], None]) -> None:
    """Run `work` chrooted into a guest's files as the guest's root, so that no link of the guest's leads out.

    Raises PveError with the reason when it fails.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            os.chroot(root)
            os.chdir("/")
            if shift:
                os.setgroups([])
                os.setresgid(shift, shift, shift)
                os.setresuid(shift, shift, shift)
            os.umask(0o022)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            os.write(writer, traceback.format_exc(limit=3).encode()[-3000:])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        words = stream.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise PveError(f"cannot prepare the files of the guest in {root}: {words.strip().splitlines()[-1] if words else status}")


def detect(root: Path) -> str:
    """The ostype of a root file system, from its os-release; PveError when it is none of those known."""
    try:
        text = (root / "usr/lib/os-release").read_text()
    except OSError:
        try:
            text = (root / "etc/os-release").read_text()
        except OSError:
            raise PveError("unable to detect OS distribution") from None
    match = re.search(r"^ID=\"?([a-z]+)", text, re.MULTILINE)
    names = {"rhel": "centos", "rocky": "centos", "almalinux": "centos", "arch": "archlinux", "sles": "opensuse"}
    found = names.get(match[1], match[1]) if match else ""
    if found not in {"debian", "devuan", "ubuntu", "centos", "fedora", "opensuse", "archlinux", "alpine", "gentoo", "nixos"}:
        raise PveError("unable to detect OS distribution")
    return found


def networks(ctx: Context, conf: Conf) -> list[dict[str, Any]]:
    """The configured interfaces of a container, by number."""
    names = sorted((name for name in conf if re.fullmatch(r"net\d+", name)), key=lambda name: int(name[3:]))
    return [schema.parse(ctx.schema.format_of("net0"), str(conf[name])) for name in names]


def prepare(ctx: Context, conf: Conf, root: Path) -> None:
    """Bring a guest's files up to its configuration, as before each start."""
    if conf.get("ostype") == "unmanaged":
        return
    resolver = _resolver(ctx, conf)
    nets = networks(ctx, conf)
    name = str(conf.get("hostname", "localhost"))

    def work() -> None:
        _hostname(name, nets, str(conf.get("searchdomain", "")))
        if not Path("/etc/.pve-ignore.resolv.conf").exists():
            link = Path("/etc/resolv.conf")
            if link.is_symlink():
                link.unlink()
            _block(link, resolver)
        _network(nets)
        zone = conf.get("timezone")
        if zone:
            _timezone(str(zone))

    inside(root, mounts.shift(conf), work)


def first_time(conf: Conf, root: Path, password: str | None, keys: str | None) -> None:
    """What happens once, after a container was unpacked: password, keys, machine id."""
    hashed = ""
    if password is not None:
        done = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, capture_output=True, text=True, check=True)
        hashed = done.stdout.strip()

    def work() -> None:
        if hashed:
            shadow = Path("/etc/shadow")
            lines = [
                f"root:{hashed}:{line.split(':', 2)[2]}" if line.startswith("root:") else line for line in shadow.read_text().splitlines()
            ]
            shadow.write_text("".join(f"{line}\n" for line in lines))
        if keys:
            Path("/root/.ssh").mkdir(mode=0o700, exist_ok=True)
            file = Path("/root/.ssh/authorized_keys")
            _block(file, keys.strip() + "\n")
            file.chmod(0o600)
        Path("/etc/machine-id").write_text("uninitialized\n")
        for unit in ("sys-kernel-debug.mount", "sys-kernel-config.mount", "systemd-modules-load.service"):  # nothing for a container
            mask = Path("/etc/systemd/system") / unit
            if mask.parent.is_dir() and not mask.exists() and not mask.is_symlink():
                mask.symlink_to("/dev/null")

    inside(root, mounts.shift(conf), work)
    if (root / "etc/ssh").is_dir():
        for name in ("rsa", "ecdsa", "ed25519"):
            file = root / f"etc/ssh/ssh_host_{name}_key"
            if not file.exists() and (root / "usr/sbin/sshd").exists():
                print(f"Creating SSH host key 'ssh_host_{name}_key' - this may take some time ...", flush=True)
                subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", name, "-f", str(file)], check=True, capture_output=True)
                for made in (file, file.with_suffix(".pub")):
                    os.chown(made, mounts.shift(conf), mounts.shift(conf))


def _hostname(name: str, nets: list[dict[str, Any]], domain: str) -> None:
    short = name.partition(".")[0]
    Path("/etc/hostname").write_text(f"{short}\n")
    address = next((net["ip"].partition("/")[0] for net in nets if "/" in str(net.get("ip", ""))), "127.0.1.1")
    first = domain.replace(";", " ").replace(",", " ").split()
    full = name if "." in name else f"{name}.{first[0]}" if first else ""
    names = " ".join(dict.fromkeys(word for word in (full, short) if word))
    hosts = Path("/etc/hosts")
    if not hosts.exists() or "localhost" not in hosts.read_text():
        hosts.write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n")
    _block(hosts, f"{address} {names}\n")


def _block(file: Path, text: str) -> None:
    old = file.read_text() if file.exists() else ""
    rest = re.sub(rf"^{_BEGIN}\n.*?^{_END}\n", "", old, flags=re.DOTALL | re.MULTILINE)
    if file.name == "resolv.conf":
        rest = ""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{rest}{_BEGIN}\n{text}{_END}\n")


def _resolver(ctx: Context, conf: Conf) -> str:
    servers = re.split(r"[,;\s]+", str(conf.get("nameserver", "")).strip())
    domains = str(conf.get("searchdomain", "")).replace(",", " ").replace(";", " ")
    host = ctx.world.path("/etc/resolv.conf")
    theirs = host.read_text() if host.exists() else ""
    if not servers[0] or servers == ["host"]:
        servers = re.findall(r"^nameserver\s+(\S+)", theirs, re.MULTILINE)
    if not domains:
        search = re.search(r"^(?:search|domain)\s+(.+)$", theirs, re.MULTILINE)
        domains = search[1] if search else ""
    return (f"search {domains}\n" if domains else "") + "".join(f"nameserver {server}\n" for server in servers)


def _network(nets: list[dict[str, Any]]) -> None:
    if Path("/sbin/ifup").exists() or Path("/usr/sbin/ifup").exists():
        _ifupdown(nets)
        return
    folder = Path("/etc/systemd/network")
    if not any(Path(path).exists() for path in ("/lib/systemd/systemd-networkd", "/usr/lib/systemd/systemd-networkd")):
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for net in nets:
        file = folder / f"{net['name']}.network"
        file.write_text(networkd(net))
        file.chmod(0o644)
        names.add(file.name)
    for old in folder.glob("*.network"):
        if old.name not in names and "autoconfigured by PVE" in old.read_text():
            old.unlink()
    wants = Path("/etc/systemd/system/multi-user.target.wants/systemd-networkd.service")
    wants.parent.mkdir(parents=True, exist_ok=True)
    if not wants.is_symlink():
        wants.symlink_to("/usr/lib/systemd/system/systemd-networkd.service")


def networkd(net: dict[str, Any]) -> str:
    """The .network file of one interface."""
    v4, v6 = str(net.get("ip", "manual")), str(net.get("ip6", "manual"))
    dhcp = {(True, True): "true", (True, False): "ipv4", (False, True): "ipv6"}.get((v4 == "dhcp", v6 == "dhcp"), "false")
    lines = [
        "[Match]",
        f"Name = {net['name']}",
        "",
        "[Network]",
        f"Description = Interface {net['name']} autoconfigured by PVE",
        f"DHCP = {dhcp}",
    ]
    lines.append(f"IPv6AcceptRA = {'true' if v6 == 'auto' else 'false'}")
    lines += [f"Address = {address}" for address in (v4, v6) if "/" in address]
    outside = []
    for address, gateway in ((v4, net.get("gw")), (v6, net.get("gw6"))):
        if gateway:
            lines.append(f"Gateway = {gateway}")
            if "/" in address and ipaddress.ip_address(gateway) not in ipaddress.ip_interface(address).network:
                outside.append(str(gateway))
    for gateway in outside:
        lines += ["", "[Route]", f"Destination = {gateway}", "Scope = link"]
    return "".join(f"{line}\n" for line in lines)


_NETWORKD = ("systemd-networkd.service", "systemd-networkd-wait-online.service", "systemd-networkd.socket")


def _ifupdown(nets: list[dict[str, Any]]) -> None:
    lines = ["auto lo", "iface lo inet loopback", "iface lo inet6 loopback"]
    for net in nets:
        lines += ["", f"auto {net['name']}"]
        for family, address, gateway in (("inet", net.get("ip"), net.get("gw")), ("inet6", net.get("ip6"), net.get("gw6"))):
            if not address or (address == "manual" and family == "inet6"):
                continue
            if "/" in address:
                lines += [f"iface {net['name']} {family} static", f"\taddress {address}", *([f"\tgateway {gateway}"] if gateway else [])]
            else:
                lines.append(f"iface {net['name']} {family} {address}")
        if not net.get("ip") and not net.get("ip6"):
            lines.append(f"iface {net['name']} inet manual")
    Path("/etc/network").mkdir(exist_ok=True)
    Path("/etc/network/interfaces").write_text("".join(f"{line}\n" for line in lines))
    # As Proxmox does with a preset: at the first boot systemd would enable networkd beside ifupdown, and everything after
    # network-online.target would wait two minutes in vain.
    preset = Path("/etc/systemd/system-preset/00-pve-lxc.preset")
    preset.parent.mkdir(parents=True, exist_ok=True)
    preset.write_text("".join(f"disable {unit}\n" for unit in _NETWORKD))
    for unit in _NETWORKD:
        for link in Path("/etc/systemd/system").glob(f"*.wants/{unit}"):
            link.unlink()


def _timezone(zone: str) -> None:
    local = Path("/etc/localtime")
    known = Path("/usr/share/zoneinfo") / ("UTC" if zone == "host" else zone)
    if known.exists():
        local.unlink(missing_ok=True)
        local.symlink_to(known)
