"""Rules over speculative decoding: what it refuses, what does nothing without it, how many requests it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import ERROR, INFO, UNKNOWN, WARNING, Finding
from .flags import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .launch import Launched

SPECULATION_CAP = 48
"""Speculative decoding resets max_running_requests to this unless it is set (sglang, srt/server_args.py)."""

_SOURCE = "sglang, srt/server_args.py"
_HOOK = "sglang wheels 0.5.8.post1 to 0.5.23, the handler of speculative decoding"
_EAGLE_FAMILY = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"}
_NEEDS_DRAFT = {"EAGLE3", "STANDALONE", "DFLASH"}
_KNOWN = {*_EAGLE_FAMILY, "DFLASH", "DSPARK", "FROZEN_KV_MTP", "NGRAM", "NONE", "UNO"}
"""Algorithms of all releases; a plugin may register more (srt/speculative/spec_info.py)."""
_ELSEWHERE = {
    "MTP": "NEXTN",
    "DEEPSEEK_MTP": "NEXTN",
    "EAGLE2": "EAGLE",
    "DRAFT_MODEL": "STANDALONE",
    "LOOKAHEAD": "NGRAM",
    "PROMPT_LOOKUP": "NGRAM",
}
"""What other engines call an algorithm."""
_PIPELINE_SINCE = "0.5.21"
"""First release in which pipeline parallelism and EAGLE go together, on nodes of disaggregated prefill (arg_groups/validation_hook.py)."""
_SHAPE = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")


def speculation_rules(launched: Launched, version: str) -> list[Finding]:
    """Findings about speculative decoding, in reading order."""
    algorithm = launched.last("--speculative-algorithm").upper()
    if not algorithm:
        return list(_without(launched))
    return [*_named(algorithm), *_shape(launched, algorithm), *_company(launched, algorithm, version), *_requests(launched)]


def _without(launched: Launched) -> Iterator[Finding]:
    idle = [flag for flag in (*_SHAPE, "--speculative-draft-model-path") if launched.has(flag)]
    if idle and not launched.open_ended and not launched.has("--speculative-algorithm"):
        summary = f"{', '.join(idle)}: nothing is speculated without --speculative-algorithm."
        yield Finding("flag-no-effect", WARNING, idle[0], summary, "", "Add --speculative-algorithm, or leave them out.", _SOURCE)


def _named(algorithm: str) -> Iterator[Finding]:
    flag = "--speculative-algorithm"
    if algorithm in _ELSEWHERE:
        summary = f"{algorithm} is no algorithm of sglang: the start ends with `Unknown speculative algorithm name`."
        yield Finding("flag-value", ERROR, flag, summary, algorithm, f"Write {_ELSEWHERE[algorithm]}.", _HOOK)
    elif algorithm not in _KNOWN and "$" not in algorithm and "{{" not in algorithm:
        summary = f"{algorithm} is no algorithm of sglang's own; only a plugin that is installed beside it could bring it."
        remedy = f"Choose one of {', '.join(sorted(_KNOWN - {'NONE', 'FROZEN_KV_MTP'}))}."
        yield Finding("flag-value", UNKNOWN, flag, summary, algorithm, remedy, _HOOK, required=True)


def _shape(launched: Launched, algorithm: str) -> Iterator[Finding]:
    if launched.open_ended or "$" in algorithm:
        return
    if algorithm in _NEEDS_DRAFT and not launched.has("--speculative-draft-model-path", "--enable-return-aux-hidden-states"):
        summary = f"{algorithm} needs a draft model of its own."
        remedy = "Add --speculative-draft-model-path; NEXTN and EAGLE take the draft layers of a checkpoint that has them."
        yield Finding("flag-missing", ERROR, "--speculative-draft-model-path", summary, "", remedy, _HOOK)
    if algorithm not in _EAGLE_FAMILY or launched.has("--speculative-adaptive"):
        return
    steps, topk, tokens = (launched.has(flag) for flag in _SHAPE)
    if (topk or tokens) and not steps:
        yield _missing("--speculative-num-steps", "sglang chooses all three or none")
    elif steps and not topk:
        yield _missing("--speculative-eagle-topk", "sglang compares it with 1 and ends with a TypeError")
    count, width, drafted = (launched.number(flag) for flag in _SHAPE)
    if count is not None and width == 1 and drafted is not None and drafted != count + 1:
        summary = f"With --speculative-eagle-topk 1 sglang sets --speculative-num-draft-tokens {drafted} to the steps + 1, {count + 1}."
        yield Finding("flag-no-effect", INFO, "--speculative-num-draft-tokens", summary, "", f"Write {count + 1}.", _HOOK)


def _missing(flag: str, why: str) -> Finding:
    summary = f"{flag} is missing beside the other numbers of speculation: {why}."
    return Finding("flag-missing", ERROR, flag, summary, "", f"Add {flag}, or leave {', '.join(_SHAPE)} out altogether.", _HOOK)


def _company(launched: Launched, algorithm: str, version: str) -> Iterator[Finding]:
    stages = launched.number("--pp-size") or 1
    if stages > 1:
        prefill = launched.last("--disaggregation-mode") == "prefill" or "SGLANG_ENABLE_PP_SPEC" in launched.environment
        if index_of(version) < index_of(_PIPELINE_SINCE) or algorithm not in {"EAGLE", "NEXTN", "DSPARK"} or not prefill:
            summary = f"Pipeline parallelism (--pp-size {stages}) and speculative decoding exclude each other in sglang {version}."
            yield Finding("flag-conflict", ERROR, "--pp-size", summary, "", "Keep one of the two.", _SOURCE)
    if launched.has("--enable-mixed-chunk") and algorithm in _EAGLE_FAMILY | {"NGRAM"}:
        summary = "Speculative decoding switches --enable-mixed-chunk off, or refuses it."
        yield Finding("flag-conflict", WARNING, "--enable-mixed-chunk", summary, "", "Leave --enable-mixed-chunk out.", _SOURCE)


def _requests(launched: Launched) -> Iterator[Finding]:
    if not launched.has("--max-running-requests"):
        summary = f"Speculative decoding caps running requests at {SPECULATION_CAP} unless --max-running-requests is set; the rest queues."
        remedy = "Set --max-running-requests to the concurrency that you want."
        yield Finding("speculation-caps-requests", WARNING, "--speculative-algorithm", summary, "", remedy, _SOURCE)
