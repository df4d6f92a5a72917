"""The transaction of a driver update: every interruption leads to steps that end on one version everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode import driver_update as du
from gpunode import kernel_update as ku
from gpunode import update_plan

OLD, NEW, OTHER = "580.159.04", "590.48.01", "595.58.03"


def record(step: str, **more: object) -> dict:
    return {
        "schema": ku.SCHEMA,
        "kind": "driver",
        "kernel": "7.0.14-14-pve",
        "from": OLD,
        "to": NEW,
        "step": step,
        "boot_ids": {step: "boot-1"},
        "pins_before": {"pin": "", "next_boot": ""},
        **more,
    }


@pytest.mark.parametrize(
    ("step", "loaded", "boot_id", "steps"),
    [
        ("baseline", OLD, "boot-1", list(du.FORWARD)),
        ("build", OLD, "boot-2", list(du.FORWARD[2:])),
        ("install", OLD, "boot-1", ["install", "prove", "boot", "verify", "keep"]),
        ("install", "", "boot-2", ["install", "prove", "boot", "verify", "keep"]),  # the power went while packages were unpacked
        ("install", NEW, "boot-2", ["install", "prove", "boot", "verify", "keep"]),
        ("boot", OLD, "boot-1", ["boot", "verify", "keep"]),
        ("boot", NEW, "boot-2", ["verify", "keep"]),
        ("boot", OLD, "boot-2", ["back", "recheck", "settle"]),
        ("boot", "", "boot-2", ["back", "recheck", "settle"]),
        ("verify", NEW, "boot-1", ["verify", "keep"]),
        ("verify", NEW, "boot-2", ["verify", "keep"]),
        ("verify", "", "boot-1", ["boot", "verify", "keep"]),  # somebody unloaded it
        ("keep", NEW, "boot-1", ["keep"]),
        ("install", OTHER, "boot-1", ["back", "recheck", "settle"]),
    ],
)
def test_an_interrupted_update_knows_where_it_was(step: str, loaded: str, boot_id: str, steps: list[str]) -> None:
    assert du.steps(record(step), loaded, boot_id) == steps


@pytest.mark.parametrize(
    ("step", "steps"),
    [
        ("baseline", []),
        ("protect", ["settle"]),
        ("build", ["settle"]),
        ("install", ["back", "recheck", "settle"]),
        ("verify", ["back", "recheck", "settle"]),
        ("recheck", ["recheck", "settle"]),
        ("settle", ["settle"]),
    ],
)
def test_the_way_back_goes_on_where_it_was(step: str, steps: list[str]) -> None:
    assert du.steps(record(step, cause="no driver"), NEW, "boot-9") == steps


@given(
    st.sampled_from(du.FORWARD),
    st.sampled_from(["", OLD, NEW, OTHER]),
    st.sampled_from(["boot-1", "boot-2"]),
)
def test_what_is_kept_was_verified_and_what_is_booted_was_proved(step: str, loaded: str, boot_id: str) -> None:
    left = du.steps(record(step), loaded, boot_id)
    order = [*du.FORWARD, *du.BACK]
    assert left == sorted(left, key=order.index)
    assert left[-1:] in ([], ["keep"], ["settle"])
    if "install" in left:
        assert {"prove", "boot", "verify"} <= set(left)
    if "keep" in left:
        assert "verify" in left or step == "keep"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, ""),
        ({"wanted": ""}, "no version was named"),
        ({"wanted": "999.1"}, "apt offers no nvidia-kernel-open-dkms 999.1"),
        ({"loaded": "", "installed": ""}, "no NVIDIA driver is loaded"),
        ({"installed": NEW}, f"driver {OLD} is loaded and nvidia-kernel-open-dkms is {NEW} installed"),
        ({"offered": [NEW]}, "there would be no way back"),
        ({"runfile": True}, ".run file"),
    ],
)
def test_what_stands_in_the_way_is_named(more: dict, says: str) -> None:
    values = {"wanted": NEW, "loaded": OLD, "installed": OLD, "offered": [NEW, OLD], "package": "nvidia-kernel-open-dkms", "runfile": False}
    found = du.problems(**{**values, **more})
    assert (says in found[0]) if says else found == []


def test_versions() -> None:
    text = " nvidia-kernel-open-dkms | 590.48.01-1 | file:/x ./ Packages\n nvidia-kernel-open-dkms | 1:580.159.04-1 | file:/x ./ Packages\n"
    assert du.versions_of(text) == [NEW, OLD]
    assert du.upstream("580.159.04") == OLD


def test_the_new_driver_is_expected_until_it_failed() -> None:
    before = {"driver": OLD, "hmm_off": "Y"}
    assert ku.expected(record("verify", before=before)) == {"driver": NEW, "hmm_off": "Y"}
    assert ku.expected(record("recheck", before=before, cause="slow")) == before
    assert ku.expected({"before": before}) == before


def test_an_unfinished_update_of_the_kernel_comes_first() -> None:
    opened = record("install") | {"kind": "kernel", "from": "7.0.14-14-pve", "to": "7.0.16-2-pve"}
    plan = update_plan.of_kind("driver", lambda _: (1, "", ""), opened, NEW, "nvidia-kernel-open-dkms")
    assert plan["steps"] == []
    assert "playbooks/kernel_update.yml" in plan["problems"][0]
