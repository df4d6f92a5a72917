"""Faults of the host's own part that happen outside the node: in its repositories, on its cable, at its plug."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.console import LabError, run, succeeds
from lab.node import container, network, parts, ssh

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.instance import Node


def headers_missing(node: Node, release: str = "") -> None:
    """No headers for kernel RELEASE (default: the running one): neither installed nor in the repositories."""
    chosen = release or run(ssh.command(node, ["cat", "/run/lab/kernel-release"])).strip()
    name = f"proxmox-headers-{chosen}"
    parts.withdraw(node.instance, {name})
    if succeeds(ssh.command(node, ["dpkg", "-s", name])):
        run(ssh.command(node, ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "purge", name]))


def network_out(node: Node) -> None:
    """Nothing outside the lab answers its nodes and guests: mirrors, registries, name servers."""
    network.block(node.instance)


def power_cut(node: Node) -> None:
    """The node loses power now; `python -m lab up` switches it on again."""
    if container.state(node) != "running":
        raise LabError(f"{node.name} does not run")
    run(container.lxc(node, "stop", "-k"))


def clear(node: Node) -> None:
    """Put withdrawn packages back and let the node out again."""
    parts.withdraw(node.instance, None)
    network.unblock(node.instance)


FAULTS: dict[str, Callable[..., None]] = {"headers-missing": headers_missing, "network-out": network_out, "power-cut": power_cut}
