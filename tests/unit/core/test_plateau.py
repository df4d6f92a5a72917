"""Knee, collapse and cause, on the curves on which other tools' knees find none, and on what metrics can say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode import plateau

LADDER = [1, 32, 64, 128, 256, 512]


def curve(function):
    return [(float(c), function(c)) for c in LADDER]


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        (curve(lambda c: min(c, 32) * 100.0), 32),
        (curve(lambda c: min(c, 64) * 100.0), 64),
        (curve(lambda c: min(c, 128) * 100.0), 128),
        (curve(lambda c: min(c, 256) * 100.0), 256),
        (curve(lambda c: 1000 * c / (c + 32)), 256),  # smooth: 32 to 64 +33 %, ... 128 to 256 +11 %, 256 to 512 +5.9 %
        (curve(lambda c: 1000 * c / (c + 64)), None),  # the last step still gains 11 %
        (curve(lambda c: 1000 * c / (c + 128)), None),
        (list(zip(LADDER, [140, 3200, 5600, 8800, 11500, 12200], strict=True)), 256),
        (list(zip([32, 64, 128, 256, 512], [438, 757, 806, 880, 913], strict=True)), 64),
        (list(zip(LADDER, [100, 3000, 5000, 7000, 7200, 6000], strict=True)), 128),
        ([(1, 95.1), (2, 173.4), (4, 186.5), (8, 266.8)], None),  # a weak step before strong ones is no knee
        ([(1, 100.0), (8, 101.0)], 1),
        ([(1, 100.0)], None),
        ([], None),
    ],
)
def test_knee(points, knee):
    assert plateau.knee(points) == knee


@pytest.mark.parametrize(
    ("points", "collapse"),
    [
        (list(zip(LADDER, [100, 3000, 5000, 7000, 7200, 6000], strict=True)), 512),
        ([(1, 56.6), (2, 117.8), (4, 204.9), (8, 283.9), (16, 404.6), (32, 28.9)], 32),
        ([(1, 100), (2, 200), (4, 150), (8, 198)], None),  # it comes back
        ([(1, 100), (2, 200), (4, 195)], None),  # noise
        ([(1, 100), (2, 200), (4, 150), (8, 140)], 4),
        ([(1, 100), (2, 90), (4, 90)], 2),
        ([], None),
    ],
)
def test_collapse(points, collapse):
    assert plateau.collapse(points) == collapse


@pytest.mark.parametrize(
    ("points", "gain"),
    [
        ([(1, 100), (2, 110)], 0.10),
        ([(0.5, 2.0), (1.0, 5e-324)], -1.0),
        ([(8, 1.0), (8.000000000000002, 1e9)], float("inf")),
        ([(5e-324, 1e-308), (1e9, 1e308)], float("inf")),
    ],
)
def test_a_gain_is_a_number_however_far_apart_levels_are(points, gain):
    assert plateau.gains(points) == [pytest.approx(gain)]


def test_gain_is_per_doubling():
    assert plateau.gains([(1, 18), (8, 140)]) == pytest.approx([0.981], abs=0.001)
    assert plateau.gains([(0.5, 0), (1, 5)]) == [math.inf]
    with pytest.raises(ValueError, match="must grow"):
        plateau.gains([(8, 1), (8, 2)])


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=9))
def test_knee_fits_its_own_definition(values):
    points = [(float(2**index), value) for index, value in enumerate(values)]
    steps, knee = plateau.gains(points), plateau.knee(points)
    if knee is None:
        assert steps[-1] >= plateau.KNEE_GAIN
    else:
        at = [point[0] for point in points].index(knee)
        assert all(step < plateau.KNEE_GAIN for step in steps[at:])
        assert at == 0 or steps[at - 1] >= plateau.KNEE_GAIN


def test_a_gain_near_the_limit_asks_for_a_repetition():
    assert plateau.undecided([(32, 100), (64, 180), (128, 200), (256, 204)]) == [64, 128]  # 11 %
    assert plateau.undecided([(32, 100), (64, 109), (128, 180)]) == []  # a clear step follows
    assert plateau.undecided([(32, 100), (64, 180), (128, 182)]) == []


def sweep(values, **server):
    """Levels whose server tells the same of each, queue as the streams beyond `cap`."""
    cap = server.pop("cap", None)
    levels = []
    for concurrency, value in zip([32, 64, 128, 256, 512], values, strict=True):
        told = {
            "running_max": min(concurrency, cap) if cap else concurrency,
            "queued_max": max(0, concurrency - cap) if cap else 0,
            **server,
        }
        levels.append({"concurrency": concurrency, "steady_total_tps": value, "server": told})
    return levels


STORY = [438, 757, 806, 880, 913]


def test_the_cap_is_named_with_its_flag_and_a_value():
    found = plateau.analyse(sweep(STORY, cap=64), {"max_running_requests": 64, "max_total_num_tokens": 332053, "request_tokens": 384})
    assert (found["knee_concurrency"], found["cause"]) == (64, "request-cap")
    assert "the cap is 64" in found["evidence"]
    assert "--max-running-requests from 64 to 512" in found["next_step"]


def test_the_value_fits_the_cache():
    found = plateau.analyse(sweep(STORY, cap=64), {"max_running_requests": 64, "max_total_num_tokens": 76800, "request_tokens": 384})
    assert "from 64 to 200" in found["next_step"]


def test_vllm_has_a_flag_of_its_own():
    assert "--max-num-seqs" in plateau.analyse(sweep(STORY, cap=64), {"max_running_requests": 64, "engine": "vllm"})["next_step"]


def test_a_cap_that_nobody_told_is_seen_from_running_requests():
    assert plateau.analyse(sweep(STORY, cap=64))["cause"] == "request-cap"


def test_a_full_cache_is_not_a_cap():
    found = plateau.analyse(sweep(STORY, cap=90, token_usage_max=0.98), {"max_running_requests": 256})
    assert found["cause"] == "kv-cache-full"
    assert "98%" in found["evidence"]


@pytest.mark.parametrize(("tokens", "cause"), [(500, "kv-cache-full"), (600, "unknown")])
def test_a_cache_that_holds_no_more_requests_is_full_whatever_the_samples_met(tokens, cause):
    server = {"max_running_requests": 2048, "max_total_num_tokens": tokens, "request_tokens": 64}
    found = plateau.analyse(sweep(STORY, cap=7, token_usage_max=0.59), server)
    assert found["cause"] == cause
    assert ("8 requests of 64 tokens exceed" in found["evidence"]) == (cause == "kv-cache-full")


def with_gpu(levels, power, limit=600.0):
    return [{**level, "gpu": {"power_w_mean": power, "power_limit_w": limit}} for level in levels]


@pytest.mark.parametrize(("power", "cause"), [(150.0, "communication-or-latency-bound"), (560.0, "compute-bound"), (420.0, "unknown")])
def test_power_tells_waiting_from_work(power, cause):
    assert plateau.analyse(with_gpu(sweep(STORY), power))["cause"] == cause


def test_low_power_beside_a_front_end_that_was_not_read_says_so():
    assert "front end is not known" in plateau.analyse(with_gpu(sweep(STORY), 150.0))["evidence"]
    assert "not known" not in plateau.analyse(with_gpu(sweep(STORY, frontend_cpu_share=0.2), 150.0))["evidence"]


def test_without_metrics_low_power_alone_says_nothing():
    levels = [{**level, "server": {}} for level in with_gpu(sweep(STORY), 150.0)]
    found = plateau.analyse(levels)
    assert found["cause"] == "unknown"
    assert "--enable-metrics" in found["evidence"]


def test_a_front_end_at_a_full_core():
    found = plateau.analyse(with_gpu(sweep(STORY, frontend_cpu_share=0.98), 150.0))
    assert found["cause"] == "frontend-bound"


def test_prefill():
    levels = [{**level, "prefill_share": 0.7} for level in sweep(STORY)]
    assert plateau.analyse(levels)["cause"] == "prefill-bound"


def test_the_client_is_ruled_out_first():
    levels = sweep(STORY, cap=64)
    levels[-1]["client_bound"] = "the client used 97% of a core"
    assert plateau.analyse(levels, {"max_running_requests": 64})["cause"] == "client-bound"


def test_still_scaling_and_nothing_at_all():
    assert plateau.analyse(sweep([100, 200, 400, 800, 1600]))["cause"] == "still-scaling"
    empty = plateau.analyse([{"concurrency": 1, "steady_total_tps": None}])
    assert (empty["cause"], empty["detected"], empty["gains_pct"]) == ("unknown", False, [])


def test_levels_without_throughput_are_left_out():
    levels = [*sweep(STORY, cap=64), {"concurrency": 1024, "total_tps": None}]
    assert len(plateau.analyse(levels)["gains_pct"]) == 4


def test_a_queue_behind_the_cap_names_it_although_noise_hides_the_knee():
    # Seen on a real server with a cap of 32: short runs, no knee by the definition, 95 requests waiting.
    seen = [(1, 1577, 1, 0), (8, 9435, 8, 0), (32, 22860, 32, 0), (64, 21649, 32, 32), (128, 28287, 32, 95)]
    levels = [
        {"concurrency": c, "total_tps": t, "server": {"running_max": running, "queued_max": queued}} for c, t, running, queued in seen
    ]
    found = plateau.analyse(levels, {"engine": "sglang", "max_running_requests": 32})
    assert found["knee_concurrency"] is None
    assert found["cause"] == "request-cap"
    assert "--max-running-requests from 32 to 128" in found["next_step"]
    assert found["undecided"] == [32, 64, 128]


def test_a_loss_too_large_for_a_number_is_a_loss_of_everything() -> None:
    assert plateau.gains([(0.5, 2.0), (1, 5e-324)]) == [-1.0]
