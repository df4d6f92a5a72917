"""Patterns: which words every match must contain, and what blanks stand for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.problems import CATALOGUE
from gpunode.problems.pattern import PatternError, alternatives, plain


def words(text: str) -> list[set[str]]:
    return [{word.decode() for word in alternative.words} for alternative in alternatives(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU has fallen off the bus", [{"gpu", "has", "fallen", "off", "the", "bus"}]),
        (r"version `?GLIBC_[\d.]+' not found", [{"version", "glibc", "not", "found"}]),
        (r"CUDA_ERROR_\w+ happened", [{"cuda", "error", "happened"}]),
        (r"fallen\w* off", [{"off"}]),
        (r"devices? vanished", [{"vanished"}]),
        ("apples fell|pears fell", [{"apples", "fell"}, {"pears", "fell"}]),
        (r"(?:apples|pears) (?:fell)", [{"fell"}]),
        (r"cuda (?:apples|pears)", [{"cuda", "apples"}, {"cuda", "pears"}]),
        (r"dropped(?: quickly)? away", [{"away"}]),
        (r"abcd(?!efg) hij", [{"hij"}]),
        (r"cuda(?: quickly)? error", [{"cuda", "error"}, {"cuda", "quickly", "error"}]),
        (r"[Oo]dd words", [{"words"}]),
    ],
)
def test_words_of_a_pattern(text: str, expected: list[set[str]]) -> None:
    assert sorted(map(sorted, words(text))) == sorted(map(sorted, expected))


@pytest.mark.parametrize("text", [r"\d+", "ab", r"a(b", r"a)b", r"[ab", r"(?i)abc def", r".*"])
def test_what_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        alternatives(text)


def test_a_blank_is_any_white_space() -> None:
    assert plain("shared memory").search("out of shared \n  memory")
    assert plain("exit ?code").search("exitcode")
    assert plain("exit ?code").search("exit code")
    assert not plain("exit ?code").search("exits code")


def test_the_anchor_is_a_telling_word() -> None:
    assert alternatives("CUDA error: fallen")[0].anchor == b"fallen"


def test_whole_words_are_meant() -> None:
    assert not plain("fallen off").search("fallen offside")
    assert plain("fallen off").search("has_fallen off_2")


@settings(deadline=None)
@given(st.sampled_from([(problem, text) for problem in CATALOGUE for text in problem.shows]))
def test_a_matching_text_contains_the_words(example: tuple[object, str]) -> None:
    """The words are necessary: where an alternative matches a text, all of them stand in it."""
    _, text = example
    lower = "".join(char.lower() if char.isascii() and char.isalpha() else " " for char in text).split()
    for problem in CATALOGUE:
        for sign in problem.signs:
            options = alternatives(sign.text, wordless=True)
            if options[0].regex.search(text) and len({option.source for option in options}) == 1:
                assert any({word.decode() for word in option.words} <= set(lower) for option in options), (sign.text, text)
