"""What is to be done with a unit follows from what systemd says of it."""

from __future__ import annotations

import pytest

from gpunode import units

SHOWN = """\
LoadState=loaded
ActiveState=active
NeedDaemonReload=no

LoadState=not-found
ActiveState=inactive
NeedDaemonReload=no

LoadState=loaded
ActiveState=failed
NeedDaemonReload=yes
"""


def test_each_name_gets_its_block() -> None:
    found = units.parse(SHOWN, ["one.service", "two.timer", "three.service"])
    assert found is not None
    assert [unit.stale for unit in found.values()] == [False, True, True]
    assert [name for name, unit in found.items() if unit.missing] == ["two.timer"]


@pytest.mark.parametrize("text", ["", "LoadState=loaded\nActiveState=active\n", SHOWN])
def test_an_answer_for_other_units_is_not_taken(text: str) -> None:
    assert units.parse(text, ["one.service"]) is None


@pytest.mark.parametrize(
    ("active", "is_enabled", "enabled", "state", "steps"),
    [
        ("active", True, True, "started", []),
        ("activating", True, True, "started", []),
        ("inactive", True, True, "started", ["start"]),
        ("failed", True, True, "started", ["start"]),
        ("deactivating", True, True, "started", ["start"]),
        ("active", False, True, "started", ["enable"]),
        ("inactive", False, True, "started", ["enable", "start"]),
        ("active", True, True, "restarted", ["restart"]),
        ("active", True, False, "stopped", ["disable", "stop"]),
        ("failed", False, False, "stopped", []),
        ("active", None, None, None, []),
        ("inactive", None, None, "started", ["start"]),
    ],
)
def test_only_what_differs_is_done(active: str, is_enabled: bool | None, enabled: bool | None, state: str | None, steps: list[str]) -> None:
    assert units.steps(units.Unit("loaded", active, reload=False), is_enabled, enabled, state) == steps
