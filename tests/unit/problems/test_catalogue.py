"""The catalogue proves itself: every entry's own examples, in the forms in which logs are written and posted."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest

from gpunode.problems import BY_ID, CATALOGUE, match
from gpunode.problems.catalogue import container, harmless, host, kernel, models, network, runtime, server, server_memory, xids
from gpunode.problems.model import CONFIDENCES, LAYERS, SUBJECTS, Problem
from gpunode.problems.pattern import alternatives

SHOWS = [pytest.param(problem, text, id=f"{problem.id}-{number}") for problem in CATALOGUE for number, text in enumerate(problem.shows)]
UNLIKE = [pytest.param(problem, text, id=f"{problem.id}-{number}") for problem in CATALOGUE for number, text in enumerate(problem.unlike)]
PREFIXES = {
    "journal": "Nov 30 10:00:01 gpu-node-01 sglang[4711]: ",
    "journal-iso": "2026-11-30T10:00:01+0000 gpu-node-01 python3[4711]: ",
    "docker-compose": "sglang-1  | ",
    "rank": "[2026-11-30 10:00:01 TP3] ",
    "vllm": "(Worker_TP1 pid=1470744) ERROR 11-30 10:00:01 [multiproc_executor.py:690] ",
    "quoted": "> ",
    "kernel": "Nov 30 10:00:01 gpu-node-01 kernel: ",
    "colour": "\x1b[31m",
}


def first(text: str) -> str | None:
    found = match(text.split("\n"))
    return found[0].id if found else None


@pytest.mark.parametrize(("problem", "text"), SHOWS)
def test_an_example_leads_to_its_entry_first(problem: Problem, text: str) -> None:
    assert first(text) == problem.id


@pytest.mark.parametrize(("problem", "text"), UNLIKE)
def test_a_counterexample_does_not(problem: Problem, text: str) -> None:
    assert problem.id not in {found.id for found in match(text.split("\n"))}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_prefixes_of_loggers_change_nothing(prefix: str) -> None:
    wrong = {}
    for problem in CATALOGUE:
        for text in problem.shows:
            found = first("\n".join(prefix + line for line in text.split("\n")))
            if found != problem.id:
                wrong[text] = (problem.id, found)
    assert not wrong


def test_messages_inside_json_lines_are_found() -> None:
    wrong = {}
    for problem in CATALOGUE:
        for text in problem.shows:
            line = json.dumps({"log": f"{text}\n", "stream": "stderr", "time": "2026-11-30T10:00:01.000000001Z"})
            if (found := first(line)) != problem.id and '"' not in text and "\n" not in text and "\t" not in text and "\\" not in text:
                wrong[text] = (problem.id, found)
    assert not wrong


def test_messages_wrapped_at_any_blank_are_found() -> None:
    """As they are pasted into notes and mails. A wrap inside `near` evidence or a one-line gap may cost the finer entry, not the event."""
    missed = {}
    wraps = 0
    for problem in CATALOGUE:
        for text in problem.shows:
            if "\n" in text or problem.id == "pcie-corrected":
                continue
            for blank in re.finditer(r"(?<=\S) (?=\S)", text):
                wraps += 1
                found = {item.id for item in match([text[: blank.start()], text[blank.end() :]])}
                if problem.id not in found:
                    missed[f"{text[: blank.start()]}<>{text[blank.end() :]}"] = problem.id
    assert wraps > 1500
    assert len(missed) / wraps < 0.05, missed


def test_ids_are_stable_words() -> None:
    assert len(BY_ID) == len(CATALOGUE)
    for problem in CATALOGUE:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", problem.id)


def test_there_are_enough_entries_with_sources() -> None:
    assert sum(not problem.harmless for problem in CATALOGUE) >= 90
    for problem in CATALOGUE:
        assert problem.sources, problem.id
        for source in problem.sources:
            assert urlsplit(source).scheme == "https", (problem.id, source)


@pytest.mark.parametrize("problem", CATALOGUE, ids=lambda problem: problem.id)
def test_an_entry_is_complete(problem: Problem) -> None:
    assert problem.layer in LAYERS
    assert problem.confidence in CONFIDENCES
    assert problem.shows
    assert problem.unlike
    assert problem.signs
    for text in (problem.title, problem.cause, problem.remedy):
        assert text
        assert "\n" not in text
    assert problem.cause.endswith((".", ")"))
    for span in problem.affects:
        assert span.subject in SUBJECTS
        assert span.since or span.until


def test_relations_name_what_exists() -> None:
    names = set(BY_ID) | {tag for problem in CATALOGUE for tag in problem.tags} | {"*"}
    for problem in CATALOGUE:
        unknown = {*problem.explains, *problem.refines} - names
        assert not unknown, (problem.id, unknown)
        assert problem.id not in {*problem.explains, *problem.refines}


def test_every_pattern_has_words_to_be_found_by() -> None:
    for problem in CATALOGUE:
        for sign in problem.signs:
            for text in (*(() if sign.source else (sign.text,)), *sign.also, *sign.unless):
                assert all(len(alternative.anchor) >= 3 for alternative in alternatives(text))


def test_every_file_of_the_catalogue_is_in_it() -> None:
    files = (host, kernel, xids, container, runtime, models, server, server_memory, network, harmless)
    assert sum(len(file.PROBLEMS) for file in files) == len(CATALOGUE)


def test_every_pattern_compiles() -> None:
    for problem in CATALOGUE:
        for sign in problem.signs:
            for text in (sign.text, *sign.near, *sign.not_near, *sign.also, *sign.unless):
                for alternative in alternatives(text, wordless=True):
                    assert alternative.regex.pattern
