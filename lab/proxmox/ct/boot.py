"""What a reboot of the node leaves behind of containers that were being worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.proxmox.context import Context


def clear_stale(ctx: Context) -> None:
    """Bring the task list up to date: tasks that a reboot cut off end as `unexpected status`.

    Locks in configuration files (`lock: create` of a half-made container) stay, as on the real node: they say that somebody must look.
    """
    from lab.proxmox import tasks

    tasks.listed(ctx.world)
