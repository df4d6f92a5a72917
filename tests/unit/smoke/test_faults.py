"""Every way in which a server can fail, at the start, middle and end of a level: counted by kind, bounded in time, never a clean exit."""

from __future__ import annotations

import time

import pytest

LEVEL = {"concurrency": (4,), "requests_per_level": 24}
WARMUP = 4
WHERE = {"start": WARMUP, "middle": WARMUP + 12, "end": WARMUP + 23}
STALL_S = 0.4
FAULTS = {
    "http-500": "http-500",
    "http-400": "http-400",
    "redirect": "redirect",
    "not-a-stream": "not-a-stream",
    "reset-first": "connection-reset",
    "eof-first": "connection-closed",
    "reset": "connection-reset",
    "eof": "connection-closed",
    "error-event": "stream-error",
    "malformed": "malformed-event",
    "cut": "stream-ended-early",
    "end-early": "stream-ended-early",
    "no-end": "no-end-of-stream",
    "stall": "stalled",
    "stall-first": "no-first-token",
    "endless": "runaway",
    "early-stop": "early-stop",
    "wrong-usage": "usage-mismatch",
    "usage-short": "usage-mismatch",
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_is_counted_once_and_fails(truth, smoke, fault, where):
    at = WHERE[where]
    truth.reset(ttft_ms=10, itl_ms=1, fault=fault, **{"from": at, "to": at + 1})
    began = time.monotonic()
    result, code = smoke(truth.url, stall_s=STALL_S, request_s=1.5 if fault == "stall-first" else 10, **LEVEL)
    assert time.monotonic() - began < 8
    level = result["levels"][0]
    assert level["errors"] == {FAULTS[fault]: 1}
    assert (level["requested"], level["completed"], level["failed"]) == (24, 23, 1)
    assert result["error_examples"][FAULTS[fault]][0]
    assert (result["verdict"], code) == ("fail", 1)


@pytest.mark.parametrize("fault", ["http-500", "reset", "stall"])
def test_an_error_ratio_allowed_by_name_is_a_warning(truth, smoke, fault):
    truth.reset(ttft_ms=10, itl_ms=1, fault=fault, **{"from": 10, "to": 11})
    result, code = smoke(truth.url, stall_s=STALL_S, allowed={FAULTS[fault]: 0.05}, **LEVEL)
    assert (result["verdict"], code) == ("warn", 0)
    result, code = smoke(truth.url, allowed={"another-kind": 0.5}, stall_s=STALL_S, **LEVEL)
    truth.reset(ttft_ms=10, itl_ms=1, fault=fault, **{"from": 10, "to": 11})
    result, code = smoke(truth.url, allowed={"another-kind": 0.5}, stall_s=STALL_S, **LEVEL)
    assert (result["verdict"], code) == ("fail", 1)


def test_too_many_requests_is_obeyed_within_a_bound(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1, fault="http-429", **{"from": 10, "to": 11})
    began = time.monotonic()
    result, code = smoke(truth.url, **LEVEL)
    assert result["levels"][0]["errors"] == {"http-429": 1}
    assert 1.0 < time.monotonic() - began < 5  # Retry-After: 1
    assert code == 1


@pytest.mark.parametrize(("token", "at"), [(0, 4), (5, 16)])
def test_a_killed_server_ends_the_run_with_a_partial_report(own_truth, smoke, token, at):
    own_truth.reset(ttft_ms=10, itl_ms=1, fault="die", token=token, **{"from": at})
    began = time.monotonic()
    result, code = smoke(own_truth.url, concurrency=(4, 8), requests_per_level=24)
    assert time.monotonic() - began < 15
    assert code == 1
    assert [level["concurrency"] for level in result["levels"]] == [4]
    assert "gone" in result["stopped"]
    errors = result["levels"][0]["errors"]
    assert errors["connection-refused"] >= 1
    assert {finding["id"] for finding in result["findings"]} >= {"request-failed", "cut-short"}


def test_nothing_listens(smoke):
    result, code = smoke("http://127.0.0.1:9")
    assert (result["verdict"], code) == ("unknown", 3)
    assert result["findings"][0]["id"] == "nothing-measured"


def test_a_model_that_is_not_served_is_wrong_input(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1)
    result, code = smoke(truth.url, model="gpt-5")
    assert code == 2
    assert "serves truth" in result["stopped"]
    assert truth.truth()["requests"] == 0


def test_the_deadline_of_the_run_ends_it_with_what_was_measured(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=20)
    began = time.monotonic()
    result, code = smoke(truth.url, concurrency=(1, 2, 4), requests_per_level=16, deadline_s=4.5)
    assert time.monotonic() - began < 8
    assert (result["verdict"], code) == ("unknown", 3)
    assert "deadline" in result["stopped"]
    assert result["levels"][0]["completed"] == 16


def test_faults_of_every_eighth_request_leave_the_others_right(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1, fault="error-event", every=8)
    result, code = smoke(truth.url, concurrency=(8,), requests_per_level=64)
    level = result["levels"][0]
    assert level["failed"] + sum(level["warmup_errors"].values()) == 9
    assert level["completed"] == 64 - level["failed"]
    assert code == 1
