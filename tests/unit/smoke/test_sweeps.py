"""Results of other tools: sglang JSONL, vLLM JSON, guidellm JSON, CSV."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

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
