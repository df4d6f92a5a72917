"""The bridge of an instance, its way out through the machine, and their removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lab.console import run, say, succeeds
from lab.instance import HOMES

if TYPE_CHECKING:
    from lab.instance import Instance

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


def ruleset(instance: Instance) -> str:
    """Return the nftables commands that let the instance's subnet out; running them again changes nothing."""
    table = instance.bridge
    return (
        f"add table ip {table}\n"
        f"delete table ip {table}\n"
        f"table ip {table} {{\n"
        f"  chain postrouting {{\n"
        f"    type nat hook postrouting priority srcnat; policy accept;\n"
        f'    ip saddr {instance.subnet} oifname != "{instance.bridge}" masquerade\n'
        f"  }}\n"
        f"  chain forward {{\n"
        f"    type filter hook forward priority mangle; policy accept;\n"
        # The way out may have a smaller MTU than the bridge.
        f"    ip saddr {instance.subnet} tcp flags syn tcp option maxseg size set rt mtu\n"
        f"  }}\n"
        f"}}\n"
    )


def exists(bridge: str) -> bool:
    """Tell whether a bridge stands."""
    return Path(f"/sys/class/net/{bridge}").exists()


def _docker_rules(instance: Instance, action: str) -> None:
    # Docker lets nothing else through the machine; its chain for other people's rules is the way past.
    if not Path("/usr/sbin/iptables").exists() or not succeeds(["iptables", "-w", "-n", "-L", "DOCKER-USER"]):
        return
    for direction in ("-i", "-o"):
        rule = ["DOCKER-USER", direction, instance.bridge, "-j", "ACCEPT"]
        present = succeeds(["iptables", "-w", "-C", *rule])
        if present == (action == "-D"):
            run(["iptables", "-w", action, *rule], check=False)


def up(instance: Instance) -> None:
    """Make the bridge, its address, forwarding and masquerading, whatever of it is missing."""
    if not exists(instance.bridge):
        say(f"bridge {instance.bridge}, {instance.subnet}")
        run(["ip", "link", "add", instance.bridge, "type", "bridge"])
    if f"{instance.gateway}/24" not in run(["ip", "-4", "address", "show", "dev", instance.bridge]):
        run(["ip", "address", "add", f"{instance.gateway}/24", "dev", instance.bridge])
    run(["ip", "link", "set", instance.bridge, "up"])
    saved = HOMES / "ip_forward.before"
    if _FORWARD.read_text(encoding="ascii").strip() != "1":
        HOMES.mkdir(parents=True, exist_ok=True)
        saved.write_text("0\n", encoding="ascii")
        _FORWARD.write_text("1\n", encoding="ascii")
    run(["nft", "-f", "-"], stdin=ruleset(instance))
    _docker_rules(instance, "-I")


def down(instance: Instance) -> None:
    """Remove what ``up`` made; forwarding goes back to what it was when no lab is left."""
    _docker_rules(instance, "-D")
    run(["nft", "delete", "table", "ip", instance.bridge], check=False)
    if exists(instance.bridge):
        say(f"removing bridge {instance.bridge}")
        run(["ip", "link", "delete", instance.bridge])
    saved = HOMES / "ip_forward.before"
    if saved.exists() and not [link for link in links() if link.startswith("gpulab")]:
        _FORWARD.write_text(saved.read_text(encoding="ascii"), encoding="ascii")
        saved.unlink()


def block(instance: Instance) -> None:
    """Drop what the instance's nodes and guests send beyond the lab, until ``unblock`` or the next ``up``."""
    rule = f'ip saddr {instance.subnet} oifname != "{instance.bridge}" drop'
    run(["nft", "-f", "-"], stdin=f"add rule ip {instance.bridge} forward {rule}\n")


def unblock(instance: Instance) -> None:
    """Let the instance's nodes out again."""
    run(["nft", "-f", "-"], stdin=ruleset(instance))


def links() -> list[str]:
    """Return the names of the machine's network interfaces."""
    return [str(link["ifname"]) for link in json.loads(run(["ip", "-j", "link", "show"]))]


def remove_link(name: str) -> None:
    """Remove an interface that a killed container left behind."""
    if exists(name):
        run(["ip", "link", "delete", name], check=False)
