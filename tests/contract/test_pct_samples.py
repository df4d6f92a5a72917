"""Container files of other people: read as they are meant, planned against themselves without change, written back unharmed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.pve.conffile import PENDING, edit_raw, parse, render
from gpunode.pve.options import CONFIGURATION, meaning
from gpunode.pve.passthrough import passthrough
from gpunode.pve.plan import Current, desired_from_user, make_plan
from gpunode.pve.propstring import FAMILIES, family_of

SAMPLES = Path(os.environ["GPUNODE_SAMPLES"]) / "pct" if os.environ.get("GPUNODE_SAMPLES") else None
FILES = sorted(SAMPLES.glob("*.conf")) if SAMPLES else []
pytestmark = pytest.mark.skipif(not FILES, reason="GPUNODE_SAMPLES names no folder with pct samples")


def expected(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.with_suffix(".meta.yml").read_text())["expected"])


def as_parameters(options: dict[str, str], raw: list[tuple[str, str]]) -> dict[str, Any]:
    """The module's parameters that describe exactly these options."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        family = family_of(name)
        if family is not None and family.numbered:
            found.setdefault(family.name, []).append(value)
        elif name in CONFIGURATION and value:
            found[name] = value
    found["lxc"] = [{"key": key, "value": value} for key, value in raw]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_read_as_it_is_meant(path: Path) -> None:
    wanted, config = expected(path), parse(path.read_text())
    found = passthrough(config)
    assert list(found.gpus) == wanted["gpus"]
    assert found.mechanism == wanted["mechanism"]
    assert found.unprivileged == wanted["unprivileged"]
    assert sorted(found.devices) == sorted(wanted["other_devices"])
    assert sorted(config.snapshots) == sorted(wanted.get("snapshots", []))
    assert bool(config.pending.options or config.pending.raw) == wanted.get("pending", False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_planned_against_itself_without_change(path: Path) -> None:
    config = parse(path.read_text())
    options = {key: value for key, value in config.live.options.items() if key not in {"lock", "parent", "snaptime"}}
    current = Current(100, options, raw=tuple(config.live.raw))
    assert not make_plan(current, desired_from_user({}))
    # What a deprecated key says is kept, but not asked for.
    asked = [(key, value) for key, value in config.live.raw if not key.startswith("lxc.cgroup.")]
    params = as_parameters(options, asked) | {"purge_unmanaged": [name for name in FAMILIES if FAMILIES[name].numbered]}
    plan = make_plan(current, desired_from_user(params))
    assert not plan, (plan.set, plan.delete, plan.raw_add, plan.raw_remove)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_written_back_unharmed(path: Path) -> None:
    text = path.read_text()
    config = parse(text)
    assert edit_raw(text, [], []) == text
    line = ("lxc.prlimit.memlock", "unlimited")
    added = edit_raw(text, [], [line])
    assert parse(added).live.raw == [*config.live.raw, line]
    for name, section in config.snapshots.items():
        assert parse(added).snapshots[name] == section
    assert edit_raw(added, [line], []).rstrip("\n") == text.rstrip("\n")
    # Proxmox's own writer: what it understood is still there, in the same section, and a second write changes nothing.
    again = parse(render(config))
    assert again.live.raw == config.live.raw
    assert again.live.description == config.live.description
    assert {key: meaning(key, value) for key, value in again.live.options.items()} == {
        key: meaning(key, value) for key, value in config.live.options.items()
    }
    assert again.snapshots == config.snapshots
    assert again.pending.options == config.pending.options
    assert render(again) == render(config)
    assert (f"[{PENDING}]" in render(config)) == bool(config.pending.options or config.pending.raw)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_passes_gpus_by_hand_can_be_taken_out(path: Path) -> None:
    text = path.read_text()
    found = passthrough(parse(text))
    converted = passthrough(parse(edit_raw(text, found.by_hand, [])))
    assert converted.by_hand == ()
    assert [gpu for gpu in converted.gpus if gpu not in found.slots.values()] == []
    assert set(converted.devices) == {
        device for device in found.devices if not device.startswith("/dev/nvidia") or device in found.slots.values()
    }
