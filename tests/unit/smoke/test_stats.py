"""Windows, percentiles and peaks, from what processes saw."""

from __future__ import annotations

import array

import pytest

from gpunode_tools.smoke import sampler, stats
from gpunode_tools.smoke.level import Data


def data(per_hundredth, *, base=100.0, started=0.0, dry=2.0, ended=2.0, **more):
    found = Data(4, base=base, started=base + started, dry=base + dry, ended=base + ended, completed=4, **more)
    found.buckets = array.array("L", per_hundredth)
    return found


def test_quantiles_lie_between_their_neighbours():
    assert stats.quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert stats.summary_ms([0.010])["p99"] == 10.0
    assert stats.summary_ms([]) is None


def test_edges_of_a_window_are_shared_out():
    merged = stats.Merged([data([10] * 200)])
    assert merged.tokens_between(100.0, 102.0) == pytest.approx(2000)
    assert merged.tokens_between(100.005, 101.0) == pytest.approx(995)
    assert merged.tokens_between(100.5, 100.5) == 0


def test_the_peak_slides():
    values = [0] * 50 + [10] * 100 + [0] * 100
    assert stats.Merged([data(values, dry=2.5, ended=2.5)]).peak() == 1000
    assert stats.Merged([data([10] * 50, dry=0.5, ended=0.5)]).peak() is None


def test_processes_with_other_bases_are_aligned():
    one, two = data([1] * 200), data([1] * 150, base=100.5, dry=1.5, ended=1.5)
    merged = stats.Merged([one, two])
    assert merged.tokens_between(100.0, 100.5) == pytest.approx(50)
    assert merged.tokens_between(100.5, 102.0) == pytest.approx(300)


def test_the_steady_state_ends_where_the_first_slot_runs_dry():
    made = stats.level([data([10] * 100 + [5] * 100, dry=1.0, output_tokens=1500, input_tokens=3000)], 4)
    assert made["steady"] == {"start_s": 0.0, "end_s": 1.0, "share": 0.5}
    assert (made["steady_output_tps"], made["output_tps"]) == (1000.0, 750.0)
    assert (made["steady_total_tps"], made["total_tps"], made["input_tps"]) == (3000.0, 2250.0, 1500.0)
    assert made["per_second_output"] == [1000, 500]


def test_several_tokens_an_event_without_usage_in_each_are_scaled():
    one = data([1] * 200, output_tokens=800, shown_tokens=200)
    one.gaps.extend([0.04] * 10)
    made = stats.level([one], 4)
    assert made["output_tps"] == 400.0
    assert made["itl_ms"]["p50"] == pytest.approx(10.0, abs=0.01)


def test_nothing_completed_tells_nothing():
    empty = Data(4, base=1.0, started=1.0, dry=1.0, ended=1.0)
    made = stats.level([empty], 4)
    assert made["total_tps"] is made["steady_total_tps"] is made["ttft_ms"] is None


METRICS = """# HELP sglang:num_running_reqs The number
sglang:num_running_reqs{model_name="m",tp_rank="0"} 31.0
sglang:num_queue_reqs{model_name="m"} 13.0
sglang:token_usage{model_name="m"} 0.91
sglang:generation_tokens_total{is_streaming="true"} 4.64996e+06
sglang:generation_tokens_total{is_streaming="false"} 8.0
sglang:time_to_first_token_seconds_bucket{le="0.1"} 3.0
sglang:process_cpu_seconds_total{component="tokenizer"} 12.5
sglang:process_cpu_seconds_total{component="detokenizer"} 3.25
sglang:fwd_occupancy{a="b"} NaN
"""


def test_metrics_of_sglang():
    found = sampler.parse(METRICS)
    assert found == {
        "running": 31.0,
        "queued": 13.0,
        "token_usage": 0.91,
        "generation_tokens": 4649968.0,
        "cpu": {"tokenizer": 12.5, "detokenizer": 3.25},
    }


def readings(seconds, *, moved_every=5.0, share=0.9):
    """Samples every half second of a counter that its owner counts up every few seconds."""
    return [
        {"at": 100.0 + at / 2, "cpu": {"tokenizer": 7.0 + share * moved_every * ((at / 2 + 1.0) // moved_every), "detokenizer": 0.0}}
        for at in range(int(seconds * 2))
    ]


@pytest.mark.parametrize(("seconds", "share"), [(3.0, None), (8.0, None), (12.0, 0.9), (33.0, 0.9)])
def test_the_front_ends_cpu_is_known_between_two_of_its_readings(seconds, share):
    """A level of three seconds saw one jump or none: 0 or 150 % of a core, where it was the same 90 % throughout."""
    watch = sampler.Sampler.__new__(sampler.Sampler)
    watch.samples = readings(seconds)
    found = watch.level({}, {})["frontend_cpu_share"]
    assert found == (share if share is None else pytest.approx(share, rel=0.01))


def test_metrics_of_others():
    vllm = (
        'vllm:num_requests_running{engine="0"} 5.0\nvllm:num_requests_waiting{engine="0"} 2.0\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n'
    )
    assert sampler.parse(vllm) == {"running": 5.0, "queued": 2.0, "token_usage": 0.5}
    assert sampler.parse("llamacpp:requests_processing 3\nllamacpp:tokens_predicted_total 77\n") == {
        "running": 3.0,
        "generation_tokens": 77.0,
    }
