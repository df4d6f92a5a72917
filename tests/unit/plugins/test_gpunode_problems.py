"""Filters over known problems, as a role's failure path uses them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "plugins/filter"))

from gpunode_problems import FilterModule

FILTERS = FilterModule().filters()
JOURNAL = """[2026-11-30 10:00:00 TP0] Ignore import error when loading sglang.srt.models.x: No module named 'y'
launch_server.py: error: unrecognized arguments: --reasoning_parser kimi_k2"""


def test_a_journal_gives_mappings() -> None:
    found = FILTERS["known_problems"](JOURNAL)
    assert [(problem["id"], problem["because_of"]) for problem in found] == [("flag-underscore", None), ("flag-unknown", "flag-underscore")]
    assert FILTERS["known_problems"](JOURNAL.split("\n")) == found
    assert [problem["id"] for problem in FILTERS["known_problems"](JOURNAL, harmless=True)][-1] == "harmless-ignored-import"


def test_advice_for_a_failure_message() -> None:
    advice = FILTERS["problems_advice"](FILTERS["known_problems"](JOURNAL))
    assert advice.count("Known problem") == 1
    assert "--reasoning_parser" in advice
    assert FILTERS["problems_advice"]([]) == ""


def test_advice_is_over_problems_not_text() -> None:
    with pytest.raises(AnsibleFilterError):
        FILTERS["problems_advice"](JOURNAL)


def test_versions_narrow() -> None:
    line = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376."
    assert FILTERS["known_problems"](line)[0]["id"] == "triton-extend-attention"
    assert FILTERS["known_problems"](line, sglang="0.5.12", gpu="sm120")[0]["id"] == "triton-shared-memory"
