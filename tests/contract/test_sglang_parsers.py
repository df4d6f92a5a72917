"""Random launch lines: what the check refuses is what the published wheel's own parser refuses."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from gpunode.findings import ERROR
from gpunode.sglang.flags import Flag, flags_of
from gpunode.sglang.launch_check import check_launch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import sglang_flags

VALUES = ("8", "-1", "0.9", "abc", "128k", "1e5", "1_000", "", "a=b", "None", "true", "-x", "-1.5", " 8", "+4", "0x10", "inf", "a b")
LEFT_OUT = (
    # Read as JSON or as a number with letters: the parser's stand-ins for those readers take anything, the check knows better.
    "--context-length", "--cuda-graph", "--decoupled-spec-connect", "--forward-hooks", "--json-model", "--max-prefill-tokens",
    "--max-total-tokens", "--model-loader", "--remote-instance", "--sidecar-args",
    # Choices that only the modules behind the stand-ins know.
    "--kv-canary", "--lora-target", "--reasoning-parser", "--tool-call-parser",
    # The check says more of these than the parser.
    "--config",
)  # fmt: skip
PARSERS = {"flag-unknown", "flag-misspelt", "flag-ambiguous", "flag-removed", "flag-value", "launch-stray-word", "flag-too-new"}
LINES = 300


def line(rng: random.Random, flags: dict[str, Flag]) -> list[str]:
    words: list[str] = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(flags))
        flag, way = flags[name], rng.random()
        if way < 0.12:
            name = name[: rng.randint(4, len(name))]
        elif way < 0.2:
            name = rng.choice([f"--{name[2:].replace('-', '_')}", name[1:], name.upper()])
        values = [rng.choice(flag.choices) if flag.choices and rng.random() < 0.7 else rng.choice(VALUES) for _ in range(3)]
        if flag.switch:
            words.append(name if rng.random() < 0.9 else f"{name}={values[0]}")
            words += ["true"] if rng.random() < 0.08 else []
        elif rng.random() < 0.25:
            words.append(f"{name}={values[0]}")
        else:
            words += [name, *values[: rng.choice([1, 1, 1, 1, 1, 0, 2])]]
    return words


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_the_check_refuses_what_the_parser_refuses(version: str) -> None:
    rng = random.Random(20261130)
    flags = {spelling: flag for spelling, flag in flags_of(version).items() if not flag.name.startswith(LEFT_OUT)}
    lines = [["--model-path", "x", *line(rng, flags)] for _ in range(LINES)]
    told = sglang_flags.run(version, sglang_flags.JUDGE, "\n".join(json.dumps(words) for words in lines)).split()
    assert len(told) == LINES
    assert min(told.count("taken"), told.count("refused")) >= 50
    wrong = []
    for words, verdict in zip(lines, told, strict=True):
        found = {
            (finding.id, finding.evidence)
            for finding in check_launch(words, {}, version, "", stock=True)
            # Rules over the whole launch have no word of it as their evidence.
            if finding.severity == ERROR and finding.id in PARSERS and finding.evidence
        }
        if bool(found) is not (verdict == "refused"):
            wrong.append((words, verdict, found))
    assert wrong == []
