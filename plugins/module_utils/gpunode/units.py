"""What `systemctl show` says of units, and what is to be done so that they are as wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PROPERTIES: Final = ("LoadState", "ActiveState", "NeedDaemonReload")
_RUNS: Final = frozenset({"active", "activating", "reloading", "refreshing"})
"""States in which a start has nothing to do."""
_RESTS: Final = frozenset({"inactive", "failed"})
"""States in which a stop has nothing to do."""


@dataclass(frozen=True)
class Unit:
    """A unit as systemd has it in memory."""

    load: str
    active: str
    reload: bool

    @property
    def missing(self) -> bool:
        """Nothing of this name was found when systemd looked last."""
        return self.load == "not-found"

    @property
    def stale(self) -> bool:
        """Its files may say something else by now."""
        return self.reload or self.missing


def parse(text: str, names: Sequence[str]) -> dict[str, Unit] | None:
    """Name to unit of an answer with ``PROPERTIES`` for ``names``, in their order; None where it is not one for each."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.strip().split("\n\n")]
    if len(blocks) != len(names) or not all(set(PROPERTIES) <= set(block) for block in blocks):
        return None
    return {
        name: Unit(block["LoadState"], block["ActiveState"], block["NeedDaemonReload"] == "yes")
        for name, block in zip(names, blocks, strict=True)
    }


def steps(unit: Unit, is_enabled: bool | None, enabled: bool | None, state: str | None) -> list[str]:
    """Verbs of systemctl, in order: first what holds at boot, then what holds now. None leaves that alone."""
    found = []
    if enabled is not None and enabled != is_enabled:
        found.append("enable" if enabled else "disable")
    if state == "restarted":
        found.append("restart")
    elif state == "started" and unit.active not in _RUNS:
        found.append("start")
    elif state == "stopped" and unit.active not in _RESTS:
        found.append("stop")
    return found
