"""Logs of real machines: the right answer first, and silence on harmless ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gpunode.problems import match

SAMPLES = os.environ.get("GPUNODE_SAMPLES", "")
LOGS = sorted(Path(SAMPLES, "logs").glob("*.log")) if SAMPLES else []
pytestmark = pytest.mark.skipif(not LOGS, reason="GPUNODE_SAMPLES names no folder with logs")


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_is_named_right(path: Path) -> None:
    meta = yaml.safe_load(path.with_suffix(".meta.yml").read_text(encoding="utf-8"))
    found = [
        item
        for item in match(path.read_text(encoding="utf-8", errors="replace").split("\n"), source=path.name)
        if not item.problem.harmless
    ]
    if meta["negative"]:
        assert not found
        return
    assert found
    first = found[0]
    assert not first.because_of
    assert first.problem.layer == meta["expected"]["layer"]
    assert first.problem.severity == "error"
    assert "aftermath" not in first.problem.tags


def test_a_healthy_start_is_silent() -> None:
    start = Path(SAMPLES, "sglang-0.5.17-h200/server-start.log").read_text(encoding="utf-8")
    assert not [item.id for item in match(start.split("\n")) if not item.problem.harmless]


def test_a_crash_by_a_token_beyond_the_vocabulary_is_named() -> None:
    crash = Path(SAMPLES, "sglang-0.5.17-h200/server-crash-token-out-of-vocabulary.log").read_text(encoding="utf-8")
    found = [item.id for item in match(crash.split("\n")) if not item.because_of and not item.problem.harmless]
    assert found == ["cuda-device-assert"]
