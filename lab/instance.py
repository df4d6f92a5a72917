"""Names, addresses and folders of one lab instance, all derived from its index."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

HOMES = Path("/var/lib/gpunode-lab")
DEFAULT_NODE = "gpu-node-01"
BOOT_LOADERS = ("grub", "systemd-boot")
# 10.213.0.0/16 is private and rarely used; the index is the third octet, so at most 256 instances.
NETWORK = "10.213"
HIGHEST_INDEX = 255
# Nodes have .11 to .19; the tenth and later ones would collide with the guests' .111.
HIGHEST_NODE = 9
_NODE_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,48}[a-z])?-?0*([1-9])")


def cache_home() -> Path:
    """Return the folder of things that can be built again: root file systems, packages, wheels."""
    return Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode"))


@dataclass(frozen=True)
class Instance:
    """One lab: its bridge, subnet and home folder."""

    index: int

    @classmethod
    def from_environment(cls) -> Instance:
        """Read ``GPUNODE_LAB_INDEX`` (default 0); ValueError when it is no number from 0 to 255."""
        text = os.environ.get("GPUNODE_LAB_INDEX", "0")
        if not text.isdigit() or int(text) > HIGHEST_INDEX:
            raise ValueError(f"GPUNODE_LAB_INDEX is {text!r}: a number from 0 to {HIGHEST_INDEX} selects the lab instance")
        return cls(int(text))

    @property
    def home(self) -> Path:
        """Everything of this instance that lies on disk."""
        return HOMES / str(self.index)

    @property
    def bridge(self) -> str:
        """Name of the bridge on the machine, and of the nftables table."""
        return f"gpulab{self.index}"

    @property
    def subnet(self) -> str:
        """The instance's network in CIDR form."""
        return f"{NETWORK}.{self.index}.0/24"

    @property
    def gateway(self) -> str:
        """The machine's address on the bridge."""
        return f"{NETWORK}.{self.index}.1"

    def node(self, name: str) -> Node:
        """Return the node of that name; ValueError when the name carries no number from 1 to 9 at its end."""
        match = _NODE_NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"{name!r} is no name for a lab node: letters, digits and dashes, a number from 1 to {HIGHEST_NODE} at its end"
            )
        return Node(self, name, int(match[1]))

    def existing(self) -> list[Node]:
        """Return the nodes that have been created, by name."""
        return [self.node(path.parent.name) for path in sorted((self.home / "nodes").glob("*/config"))]


@dataclass(frozen=True)
class Node:
    """One node: a container of the machine that plays a Proxmox host."""

    instance: Instance
    name: str
    number: int

    @property
    def home(self) -> Path:
        """Folder of the container: ``config``, ``upper`` (what differs from the base), ``disk`` (its data volumes)."""
        return self.instance.home / "nodes" / self.name

    @property
    def address(self) -> str:
        """The node's address on the lab network."""
        return f"{NETWORK}.{self.instance.index}.{10 + self.number}"

    @property
    def mac(self) -> str:
        """A stable, locally administered hardware address."""
        return f"02:67:70:{self.instance.index:02x}:00:{self.number:02x}"

    @property
    def veth(self) -> str:
        """The machine's end of the node's cable (at most 15 characters)."""
        return f"gl{self.instance.index}n{self.number}"
