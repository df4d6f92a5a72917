"""The transaction: every interruption leads to steps that end on a proved kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode import kernel_update as ku

OLD, NEW = "7.0.14-14-pve", "7.0.16-2-pve"


def record(step: str, **more: object) -> dict:
    return {
        "schema": ku.SCHEMA,
        "from": OLD,
        "to": NEW,
        "step": step,
        "boot_ids": {step: "boot-1"},
        "pins_before": {"pin": "", "next_boot": ""},
        **more,
    }


@pytest.mark.parametrize(
    ("step", "running", "boot_id", "steps"),
    [
        ("baseline", OLD, "boot-1", list(ku.FORWARD)),
        ("protect", OLD, "boot-2", list(ku.FORWARD[1:])),
        ("install", OLD, "boot-2", list(ku.FORWARD[2:])),
        ("prove", OLD, "boot-1", list(ku.FORWARD[3:])),
        ("arm", OLD, "boot-1", ["arm", "boot", "verify", "keep"]),
        ("boot", OLD, "boot-1", ["boot", "verify", "keep"]),
        ("boot", NEW, "boot-2", ["verify", "keep"]),
        ("verify", NEW, "boot-1", ["verify", "keep"]),
        ("keep", NEW, "boot-1", ["keep"]),
        ("install", NEW, "boot-2", ["prove", "verify", "keep"]),
        ("arm", OLD, "boot-2", ["back", "recheck", "settle"]),
        ("boot", OLD, "boot-2", ["back", "recheck", "settle"]),
        ("verify", OLD, "boot-2", ["back", "recheck", "settle"]),
        ("keep", OLD, "boot-2", ["back", "recheck", "settle"]),
        ("boot", "6.17.13-21-pve", "boot-2", ["back", "recheck", "settle"]),
    ],
)
def test_an_interrupted_update_knows_where_it_was(step: str, running: str, boot_id: str, steps: list[str]) -> None:
    assert ku.steps(record(step), running, boot_id) == steps


@pytest.mark.parametrize(
    ("step", "steps"),
    [
        ("baseline", []),
        ("protect", ["settle"]),
        ("install", ["settle"]),
        ("prove", ["settle"]),
        ("arm", ["back", "recheck", "settle"]),
        ("verify", ["back", "recheck", "settle"]),
        ("back", ["back", "recheck", "settle"]),
        ("recheck", ["recheck", "settle"]),
        ("settle", ["settle"]),
    ],
)
def test_the_way_back_goes_on_where_it_was(step: str, steps: list[str]) -> None:
    assert ku.steps(record(step, cause="no driver"), NEW, "boot-9") == steps


def test_a_closed_record_begins_anew() -> None:
    for outcome in ku.FINAL:
        assert ku.steps(record("keep", outcome=outcome), OLD, "boot-1") == list(ku.FORWARD)
    assert ku.steps(None, OLD, "boot-1") == list(ku.FORWARD)


@given(
    st.sampled_from(ku.FORWARD),
    st.sampled_from([OLD, NEW, "6.17.13-21-pve"]),
    st.sampled_from(["boot-1", "boot-2"]),
    st.sampled_from(["", "x"]),
)
def test_steps_are_in_order_and_never_boot_what_was_not_proved(step: str, running: str, boot_id: str, cause: str) -> None:
    left = ku.steps(record(step, **({"cause": cause} if cause else {})), running, boot_id)
    order = [*ku.FORWARD, *ku.BACK]
    assert left == sorted(left, key=order.index)
    assert not (set(left) & set(ku.FORWARD) and set(left) & set(ku.BACK))
    if "boot" in left and ku.FORWARD.index(step) <= ku.FORWARD.index("prove"):
        assert "prove" in left
    if "keep" in left:
        assert "verify" in left or step == "keep"
    if cause and step != "baseline":
        assert left[-1] == "settle"


@pytest.mark.parametrize(
    ("before", "installed", "pin"),
    [("", [OLD, NEW], ""), (OLD, [OLD, NEW], NEW), ("", [OLD, NEW, "7.1.1-1-pve"], NEW)],
)
def test_kept_pin(before: str, installed: list[str], pin: str) -> None:
    assert ku.kept_pin({"pin": before, "next_boot": ""}, NEW, installed) == pin


@pytest.mark.parametrize(
    ("before", "failed", "installed", "pins"),
    [
        (("", ""), "prove", [OLD], ("", "")),
        (("", ""), "verify", [OLD, NEW], (OLD, "")),  # the failed kernel stays: the pin keeps the node off it
        ((OLD, ""), "verify", [OLD, NEW], (OLD, "")),
        ((NEW, ""), "verify", [OLD, NEW], (OLD, "")),  # somebody had pinned what now proved bad
        (("", OLD), "install", [OLD], ("", OLD)),
        (("", OLD), "boot", [OLD], ("", "")),  # a boot has spent it
        (("", NEW), "install", [OLD], ("", "")),  # a kernel that is gone cannot be pinned
    ],
)
def test_settled_pins(before: tuple[str, str], failed: str, installed: list[str], pins: tuple[str, str]) -> None:
    state = record("settle", failed_step=failed) | {"pins_before": dict(zip(("pin", "next_boot"), before, strict=True))}
    assert tuple(ku.settled_pins(state, installed).values()) == pins


def test_our_own_pin_is_not_taken_for_somebodys() -> None:
    closed = record("settle", outcome="returned", own_pin=OLD)
    assert ku.pins_before(closed, {"pin": OLD, "next_boot": ""}) == {"pin": "", "next_boot": ""}
    assert ku.pins_before(closed | {"own_pin": ""}, {"pin": OLD, "next_boot": ""}) == {"pin": OLD, "next_boot": ""}
    assert ku.pins_before(closed, {"pin": NEW, "next_boot": ""}) == {"pin": NEW, "next_boot": ""}


@pytest.mark.parametrize(
    ("wanted", "offered", "installed", "target"),
    [
        ("", NEW, [OLD], NEW),
        ("", "", [OLD], ""),
        ("", OLD, [OLD, NEW], NEW),  # installed by an upgrade, not booted yet
        ("", "7.0.12-3-pve", [OLD], ""),
        ("7.0.12-3-pve", NEW, [OLD], "7.0.12-3-pve"),  # back to an older one, by name
        (OLD, NEW, [OLD], ""),
    ],
)
def test_target(wanted: str, offered: str, installed: list[str], target: str) -> None:
    assert ku.choose_target(wanted, offered, installed, OLD) == target


def facts(**more: object) -> dict:
    return {
        "gpus": [{"bus_id": "0000:11:00.0", "driver": "nvidia"}, {"bus_id": "0000:31:00.0", "driver": "nvidia"}],
        "driver": {"loaded_version": "580.159.04", "open": True, "uvm_disable_hmm": "Y", "params": {"RegistryDwords": "ForceP2P=0x11"}},
        "device_nodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia-uvm"}],
        "containers": [{"vmid": 101, "status": "running"}, {"vmid": 102, "status": "stopped"}],
        **more,
    }


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ({"driver": {"loaded_version": None}}, "no NVIDIA driver is loaded"),
        ({"driver": facts()["driver"] | {"loaded_version": "550.1"}}, "is 550.1, it was 580.159.04"),
        ({"driver": facts()["driver"] | {"uvm_disable_hmm": "N"}}, "HMM is on again"),
        ({"driver": facts()["driver"] | {"params": {}}}, "RegistryDwords"),
        ({"gpus": facts()["gpus"][:1]}, "1 of 2 GPUs left the PCI bus (0000:31:00.0"),
        ({"gpus": [facts()["gpus"][0], {"bus_id": "0000:31:00.0", "driver": None}]}, "does not drive 0000:31:00.0"),
        ({"device_nodes": [{"path": "/dev/nvidia0"}]}, "/dev/nvidia-uvm"),
        ({"containers": [{"vmid": 101, "status": "stopped"}]}, "do not run: 101"),
    ],
)
def test_what_a_boot_lost_is_named(after: dict, says: str) -> None:
    (line,) = ku.differences(ku.summary_of(facts()), ku.summary_of(facts(**after)))
    assert says in line


def test_a_boot_that_lost_nothing() -> None:
    assert ku.differences(ku.summary_of(facts()), ku.summary_of(facts())) == []
