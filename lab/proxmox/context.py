"""One request: who asks, from where, of which node."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from lab.proxmox import pctconf, tasks
from lab.proxmox.errors import PermError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.proxmox.access import Access
    from lab.proxmox.schema import Schema
    from lab.proxmox.world import World

ROOT = "root@pam"


@dataclasses.dataclass
class Context:
    """A request's surroundings. `cli`: pct and pvesh, whose tasks run in the foreground as root@pam."""

    world: World
    schema: Schema
    user: str = ROOT
    cli: bool = True
    total: int | None = None  # of a list that was cut
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # what a call adds beside its data

    @functools.cached_property
    def access(self) -> Access:
        """Users, tokens and their permissions."""
        from lab.proxmox.access import Access

        return Access(self.world)

    @property
    def is_root(self) -> bool:
        """Only the ticket or the shell of root@pam: no token of his is."""
        return self.user == ROOT

    def may(self, path: str, *privileges: str, any_of: bool = False) -> bool:
        """Whether the user holds the privileges on a path."""
        if self.is_root:
            return True
        held = self.access.privileges(self.user, path)
        return any(word in held for word in privileges) if any_of else all(word in held for word in privileges)

    def need(self, path: str, *privileges: str, any_of: bool = False) -> None:
        """PermError with the API's words unless the user holds the privileges on a path."""
        if not self.may(path, *privileges, any_of=any_of):
            raise PermError(f"{path}, {'|'.join(privileges)}")

    def load(self, vmid: int) -> pctconf.Conf:
        """A container's configuration."""
        return pctconf.load(self.world, self.schema, vmid)

    def task(self, kind: str, ident: str | int, work: Callable[[], None]) -> str:
        """Start a task and return its UPID."""
        return tasks.start(self.world, kind, str(ident), self.user, work, foreground=self.cli)
