"""Users, tokens, tickets and permissions: user.cfg and what lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.proxmox.world import World


class Access:
    """The users of /etc/pve/user.cfg and what they may."""

    def __init__(self, world: World) -> None:
        self.world = world

    def privileges(self, user: str, path: str) -> set[str]:
        """The privileges of a user or token on a path."""
        del user, path
        return set()

    def forget_guest(self, vmid: int, *, purge: bool) -> None:
        """Remove the permissions that name a guest which is gone."""
        del vmid, purge
