"""Results of other tools: sglang JSONL, vLLM JSON, guidellm JSON, CSV."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import plateau
from gpunode_tools.cli.smoke import command
from gpunode_tools.smoke import sweeps

SGLANG = "\n".join(
    json.dumps({"max_concurrency": c, "concurrency": c * 0.97, "output_throughput": t / 3, "total_throughput": t, "median_ttft_ms": 9.0})
    for c, t in [(32, 438), (64, 757), (128, 806), (256, 880), (512, 913)]
)


def points(text, key="total_tps"):
    return [(level["concurrency"], level[key]) for level in sweeps.read(text)]


def test_sglang_jsonl_uses_the_limit_that_was_set():
    assert points(SGLANG) == [(32, 438), (64, 757), (128, 806), (256, 880), (512, 913)]


def test_repeated_levels_become_their_median():
    lines = "\n".join(json.dumps({"max_concurrency": 8, "total_throughput": value}) for value in (90, 100, 130))
    assert points(lines) == [(8, 100)]


def test_vllm_json():
    assert points('{"max_concurrency": 4, "output_throughput": 10.5, "total_token_throughput": 31.5}') == [(4, 31.5)]


def test_guidellm_json():
    def bench(streams, mean):
        metrics = {
            "output_tokens_per_second": {"successful": {"mean": mean}},
            "request_concurrency": {"successful": {"mean": streams - 0.2}},
        }
        return {"config": {"strategy": {"type_": "concurrent", "streams": streams}}, "metrics": metrics}

    document = {"benchmarks": [bench(1, 50.0), bench(8, 300.0)]}
    assert points(json.dumps(document), "output_tps") == [(1, 50.0), (8, 300.0)]
    for one in document["benchmarks"]:
        del one["config"]
    assert points(json.dumps(document), "output_tps") == [(1, 50.0), (8, 300.0)]


@pytest.mark.parametrize(
    "text",
    [
        "concurrency,throughput\n1,10\n2,19\n",
        "1,10\n2,19\n",
        "Concurrency;tok/s\n2;19\n1;10\n",
        "# by hand\nconcurrency\toutput_tps\n1\t10\n2\t19\n",
    ],
)
def test_csv(text):
    assert points(text, "output_tps") == [(1, 10), (2, 19)]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "{}", '{"max_concurrency": 3}', "{bad", "[1, 2]"])
def test_what_is_no_sweep(text):
    with pytest.raises(sweeps.NotASweep):
        sweeps.read(text)


def test_analyse_tells_the_knee(tmp_path):
    file = tmp_path / "sweep.jsonl"
    file.write_text(SGLANG)
    shown = CliRunner().invoke(command, ["analyse", str(file)])
    assert shown.exit_code == 0
    assert "knee at 64 streams" in shown.output
    found = json.loads(CliRunner().invoke(command, ["analyse", "--output", "json", str(file)]).output)
    assert found["sweeps"][0]["plateau"]["gains_pct"] == [72.8, 6.5, 9.2, 3.8]


def test_files_of_one_level_each_are_one_sweep(tmp_path):
    files = []
    for concurrency, value in ((1, 100), (2, 190), (4, 200), (8, 150)):
        file = tmp_path / f"{concurrency}.json"
        file.write_text(json.dumps({"max_concurrency": concurrency, "output_throughput": value}))
        files.append(str(file))
    shown = CliRunner().invoke(command, ["analyse", *files])
    assert "collapse from 8 streams" in shown.output


def test_exit_codes_of_analyse(tmp_path):
    file = tmp_path / "one.csv"
    file.write_text("1,10\n")
    assert CliRunner().invoke(command, ["analyse", str(file)]).exit_code == 3
    file.write_text("nonsense")
    assert CliRunner().invoke(command, ["analyse", str(file)]).exit_code == 2
    assert CliRunner().invoke(command, ["analyse", str(tmp_path / "missing")]).exit_code == 2


# ---- the same sweeps in every form ----
def as_sglang(levels):
    return "\n".join(
        json.dumps({"max_concurrency": c, "concurrency": c * 0.9, "output_throughput": t / 3, "total_throughput": t}) for c, t in levels
    )


def as_vllm(levels):
    return json.dumps([{"max_concurrency": c, "output_throughput": t / 3, "total_token_throughput": t} for c, t in levels])


def as_guidellm(levels):
    def metrics(value):
        return {"tokens_per_second": {"successful": {"mean": value}}, "output_tokens_per_second": {"successful": {"mean": value / 3}}}

    return json.dumps({"benchmarks": [{"config": {"strategy": {"streams": c}}, "metrics": metrics(t)} for c, t in levels]})


def as_csv(levels):
    return "concurrency,output_tps,total_tps\n" + "".join(f"{c},{t / 3},{t}\n" for c, t in levels)


FORMS = [as_sglang, as_vllm, as_guidellm, as_csv]
GROWTH = [(1, 100), (2, 198), (4, 390), (8, 770), (16, 1500), (32, 2900)]
SWEEPS = {
    "knee": ([*GROWTH, (64, 5600), (128, 5900), (256, 6000)], 64, None),
    "knee under noise of two percent": ([*GROWTH, (64, 5600), (128, 5510), (256, 5690), (512, 5600)], 64, None),
    "collapse": ([*GROWTH, (64, 5600), (128, 5700), (256, 5200), (512, 3000)], 64, 256),
    "a dip that recovers is no collapse": ([*GROWTH, (64, 5600), (128, 5200), (256, 5590)], 64, None),
    "collapse to nothing": ([*GROWTH, (64, 5600), (128, 0)], 64, 128),
    "no knee yet": (GROWTH, None, None),
    "falls from the first level on": ([(1, 100), (2, 90), (4, 70)], 1, 2),
    "one level only": ([(32, 2900)], None, None),
}


def told(text):
    found = plateau.analyse(sweeps.read(text))
    return found["knee_concurrency"], found["collapse_concurrency"], found["gains_pct"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SWEEPS)
def test_knee_and_collapse_in_every_form_in_any_order(form, name):
    levels, knee, fell = SWEEPS[name]
    expected = told(form(levels))
    assert expected[:2] == (knee, fell)
    for seed in range(3):
        shuffled = random.Random(seed).sample(levels, len(levels))
        assert told(form(shuffled)) == expected
        # Runs above and below, and one that failed where others did not: the median is the level.
        more = [(c, t * factor) for c, t in shuffled for factor in (1.07, 1, 0.96)] + [(c, 0) for c, _ in levels[:2]]
        assert told(form(more)) == expected


@given(
    values=st.lists(st.floats(1, 1e6), min_size=1, max_size=9),
    form=st.sampled_from(FORMS),
    power=st.integers(-3, 3),
)
def test_a_verdict_depends_on_neither_form_nor_unit(values, form, power):
    levels = [(1 << index, round(value, 3)) for index, value in enumerate(values)]
    expected = told(as_csv(levels))
    assert told(form(levels)) == expected
    knee, fell, gains = told(form([(c, t * 2**power) for c, t in levels]))
    assert (knee, fell) == expected[:2]
    assert gains == pytest.approx(expected[2], abs=0.11)


ODD = st.one_of(
    st.floats(),
    st.integers(-3, 600),
    st.sampled_from([10**400, -(10**400), None, True, False, "12", "x", [], {}, 1e308, 5e-324]),
)


@given(
    pairs=st.lists(st.tuples(ODD, ODD, ODD), max_size=6),
    server=st.dictionaries(st.sampled_from(["max_running_requests", "max_total_num_tokens", "engine"]), ODD),
    form=st.sampled_from(["lines", "benchmarks", "levels", "csv"]),
)
def test_nothing_odd_ends_in_anything_but_a_verdict_or_wrong_input(pairs, server, form):
    if form == "csv":
        text = "c,tps,total\n" + "".join(f"{c},{t},{more}\n" for c, t, more in pairs)
    elif form == "lines":
        flat = ({"max_concurrency": c, "total_throughput": t, "output_throughput": more, "server_info": server} for c, t, more in pairs)
        text = "\n".join(map(json.dumps, flat))
    elif form == "benchmarks":
        metrics = [{"tokens_per_second": {"mean": t}, "request_concurrency": {"mean": c}} for c, t, _ in pairs]
        text = json.dumps({"benchmarks": [{"metrics": one} for one in metrics]})
    else:
        gauges = [{"running_max": more, "queued_max": more, "token_usage_max": more} for _, _, more in pairs]
        levels = [{"concurrency": c, "steady_total_tps": t, "server": one} for (c, t, _), one in zip(pairs, gauges, strict=True)]
        text = json.dumps({"levels": levels, "server": server})
    try:
        levels = sweeps.read(text)
    except sweeps.NotASweep:
        return
    json.dumps(plateau.analyse(levels, server), allow_nan=False)


def test_all_levels_are_judged_by_the_same_measure():
    rows = "concurrency,output_tps,total_tps\n1,10,30\n2,19,\n4,36,110\n"
    assert [plateau.throughput(level) for level in sweeps.read(rows)] == [10, 19, 36]
    assert [plateau.throughput(level) for level in sweeps.read(rows.replace("2,19,", "2,,57"))] == [30, 57, 110]


def test_files_of_the_same_level_are_its_runs(tmp_path):
    files = []
    for number, (concurrency, value) in enumerate([(1, 100), (2, 180), (2, 190), (2, 260), (4, 195)]):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"max_concurrency": concurrency, "output_throughput": value}))
        files.append(str(file))
    shown = CliRunner().invoke(command, ["analyse", "--output", "json", *files])
    assert shown.exit_code == 0
    assert json.loads(shown.output)["sweeps"][0]["points"] == [[1, 100], [2, 190], [4, 195]]


def test_runs_of_our_own_are_judged_by_the_median_of_their_steady_states():
    runs = [{"levels": [{"concurrency": 8, "steady_total_tps": value, "total_tps": value - 9}]} for value in (90, 100, 130)]
    assert [plateau.throughput(level) for level in sweeps.read("\n".join(map(json.dumps, runs)))] == [100]
