"""The plateau rules and the readers against sweeps and pages that real servers produced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gpunode import plateau
from gpunode_tools.smoke import sampler, sweeps

SAMPLES = os.environ.get("GPUNODE_SAMPLES")
pytestmark = pytest.mark.skipif(not SAMPLES, reason="GPUNODE_SAMPLES names no folder of samples")


def expected():
    """(name, expectation) of every series of every sweep."""
    if not SAMPLES:
        return []
    found = []
    for file in sorted(Path(SAMPLES).glob("sweeps/*.meta.yml")):
        meta = yaml.safe_load(file.read_text(encoding="utf-8"))["expected"]
        series = meta.get("series") or [meta]
        found += [pytest.param(one, id=f"{file.stem.split('.')[0]}:{one.get('label', index)}") for index, one in enumerate(series)]
    return found


@pytest.mark.parametrize("series", expected())
def test_knee_collapse_and_gains(series):
    levels = [{"concurrency": point[0], "steady_total_tps": point[1]} for point in series["points"]]
    found = plateau.analyse(levels)
    assert found["knee_concurrency"] == series["knee"]
    assert found["collapse_concurrency"] == series["collapse"]
    if "gain_per_doubling_percent" in series:
        assert found["gains_pct"] == pytest.approx(series["gain_per_doubling_percent"], abs=0.11)


@pytest.mark.parametrize(("name", "levels"), [("sweep-cap32.jsonl", 6), ("sweep-cap256.jsonl", 5)])
def test_jsonl_of_sglang(name, levels):
    text = (Path(SAMPLES) / "sglang-0.5.17-h200" / name).read_text(encoding="utf-8")
    read = sweeps.read(text)
    assert len(read) == levels
    assert all(level["total_tps"] > 1000 for level in read)


def test_metrics_page_of_sglang():
    found = sampler.parse((Path(SAMPLES) / "sglang-0.5.17-h200/metrics.http").read_text(encoding="utf-8"))
    assert found["generation_tokens"] == 8.0
    assert found["cpu"]["tokenizer"] == pytest.approx(0.08)
    assert {"running", "queued", "token_usage"} <= set(found)
