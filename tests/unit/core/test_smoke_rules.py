"""Findings of a smoke result and its comparison with a baseline."""

from __future__ import annotations

import random

import pytest

from gpunode import smoke_baseline, smoke_rules


def level(concurrency=32, total=1000.0, **more):
    return {
        "concurrency": concurrency,
        "requested": 96,
        "completed": 96,
        "failed": 0,
        "errors": {},
        "warmup_requests": concurrency,
        "warmup_errors": {},
        "steady_total_tps": total,
        "steady_output_tps": total / 3,
        "ttft_ms": {"p50": 200.0, "p99": 400.0},
        "itl_ms": {"p50": 20.0, "p99": 40.0},
        "e2e_ms": {"p50": 2700.0},
        "steady": {"share": 0.9},
        "client": {
            "cpu_share": 0.1,
            "late_reads_ms_mean": 0.1,
            "late_reads_ms_p90": 0.2,
            "late_reads_ms_p99": 1.0,
            "generation_tokens": 12288,
        },
        "server": {"generation_tokens": 12288},
        **more,
    }


def result(*levels, **more):
    server = {"version": "0.5.23", "flags_digest": "aa"}
    load = {"endpoint": "completions", "input_len": 256, "output_len": 128, "concurrency": [1, 32]}
    return {
        "schema": "gpunode.smoke/1",
        "node": "n1",
        "model": "glm-5",
        "server": server,
        "load": load,
        "levels": list(levels),
        "finished_at": "2026-11-30T12:00:00+00:00",
        "stopped": None,
        "simulated": False,
        **more,
    }


def ids(findings):
    return [(finding.id, finding.severity) for finding in findings]


def test_a_good_result_has_no_findings():
    good = result(level(1, 150.0), level())
    assert smoke_rules.state(good) == []
    assert smoke_rules.failed_requests(good, {}) == []
    assert smoke_rules.thresholds(good, {"min_total_tps": 900, "min_single_stream_tps": 40, "max_ttft_ms": 500}) == []
    assert smoke_rules.verdict([]) == "pass"


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"min_total_tps": 1001.0}, [("total-tps-low", "error")]),
        ({"min_single_stream_tps": 51.0}, [("single-stream-tps-low", "error")]),
        ({"max_ttft_ms": 399.0}, [("ttft-high", "error"), ("ttft-high", "error")]),
    ],
)
def test_thresholds(limits, found):
    both = result(level(1, 150.0), level())
    assert ids(smoke_rules.thresholds(both, limits)) == found
    assert {severity for _, severity in ids(smoke_rules.thresholds(both, limits, warn_only=True))} == {"warning"}


def test_a_threshold_that_was_not_measured_is_unknown_and_required():
    found = smoke_rules.thresholds(result(level(32)), {"min_single_stream_tps": 10.0}, warn_only=True)
    assert ids(found) == [("single-stream-tps-low", "unknown")]
    assert found[0].required


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ({"cpu_share": 0.85}, "85% of a core"),
        ({"late_reads_ms_mean": 60.0}, "60.0 ms late"),
        ({"late_reads_ms_p90": 12.0}, "12 ms late to a tenth"),
        ({"late_reads_ms_p99": 90.0}, ""),
        ({"cpu_share": 0.79}, ""),
    ],
)
def test_the_client_says_when_it_is_the_bottleneck(client, words):
    one = level()
    one["client"] |= client
    assert words in smoke_rules.client_bound(one)
    assert bool(words) == bool(smoke_rules.client_bound(one))


def test_a_client_bound_run_is_neither_good_nor_bad():
    one = level(client_bound="the client used 97% of a core")
    findings = smoke_rules.state(result(one))
    assert ids(findings) == [("client-bound", "unknown")]
    assert smoke_rules.verdict(findings) == "client-bound"
    failed = smoke_rules.failed_requests(result({**one, "errors": {"stalled": 1}}), {})
    assert smoke_rules.verdict([*findings, *failed]) == "fail"


def test_late_tails_are_told_without_a_verdict():
    one = level()
    one["client"]["late_reads_ms_p99"] = 40.0
    assert ids(smoke_rules.state(result(one))) == [("client-late", "info")]


def test_counters_that_differ():
    assert ids(smoke_rules.state(result(level(counters_differ=-0.03)))) == [("counters-differ", "warning")]
    assert smoke_rules.state(result(level(counters_differ=0.019))) == []


def test_errors_are_counted_with_those_of_the_warm_up():
    bad = result(level(errors={"stalled": 1}, failed=1, warmup_errors={"stalled": 1, "http-500": 2}))
    found = smoke_rules.failed_requests(bad, {"stalled": 0.02})
    assert ids(found) == [("request-failed", "warning"), ("request-failed", "error")]
    assert "2 of 128 requests failed: stalled (allowed: 2.0%)" in found[0].summary


def test_nothing_measured_and_cut_short_are_required_unknowns():
    found = smoke_rules.state(result(stopped="the server is gone"))
    assert ids(found) == [("nothing-measured", "unknown"), ("cut-short", "unknown")]
    assert all(finding.required for finding in found)


@pytest.mark.parametrize(("loss", "found"), [(0.15, [("regression", "error")]), (0.03, []), (0.0, []), (-0.2, [])])
def test_twenty_repeats_with_noise_of_a_good_server(loss, found):
    """A loss of 15 % fails and 3 % does not, in 20 of 20 repeats with the 2 % of noise that runs differ by."""
    rng = random.Random(7)
    for _ in range(20):
        before = smoke_baseline.make(result(level(total=1000 * rng.uniform(0.99, 1.01))))
        now = result(level(total=1000 * (1 - loss) * rng.uniform(0.99, 1.01)))
        assert ids(smoke_baseline.compare(now, before)[0]) == found


@pytest.mark.parametrize(
    "change", [{"node": "n2"}, {"model": "glm-6"}, {"server": {"version": "0.5.24", "flags_digest": "aa"}}, {"simulated": True}]
)
def test_a_comparison_across_different_things_is_marked(change):
    before = smoke_baseline.make(result(level()))
    findings, rows = smoke_baseline.compare(result(level(total=500.0), **change), before)
    assert ids(findings) == [("baseline-differs", "warning"), ("regression", "warning")]
    assert rows[0]["change_pct"] == -50.0


@pytest.mark.parametrize(
    ("change", "stay"), [({}, True), ({"node": "other"}, False), ({"simulated": True}, False), ({"levels": []}, False)]
)
def test_a_baseline_stays_while_the_same_is_measured(change, stay):
    baseline = smoke_baseline.make(result(level(total=1000.0), node="n"))
    assert smoke_baseline.stays({**result(level(total=700.0), node="n"), **change}, baseline) == stay


def test_latency_may_not_double_unseen():
    before = smoke_baseline.make(result(level()))
    now = result(level(ttft_ms={"p50": 400.0, "p99": 900.0}))
    assert ids(smoke_baseline.compare(now, before)[0]) == [("latency-regression", "warning")]


def test_no_level_in_common_is_told():
    before = smoke_baseline.make(result(level(1)))
    assert ids(smoke_baseline.compare(result(level(32)), before)[0]) == [("baseline-differs", "warning")]


def test_a_whole_result_serves_as_baseline():
    whole = result(level())
    assert smoke_baseline.load(whole) == smoke_baseline.make(whole)
    assert smoke_baseline.load(smoke_baseline.make(whole)) == smoke_baseline.make(whole)
    for other in ([], {}, {"schema": "gpunode.p2p/1"}):
        with pytest.raises(ValueError, match="neither"):
            smoke_baseline.load(other)
