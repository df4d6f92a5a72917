"""Check a launch against a release and a GPU architecture before anything is started."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ..findings import ERROR, INFO, UNKNOWN, WARNING, Finding
from .flags import FORK_ONLY, Flag, flags_of, history, index_of, nearest, prefix_matches
from .gpu_faults import FAULTS, NO_OP_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPECULATION_CAP = 48
"""Speculative decoding resets max_running_requests to this unless it is set (sglang, srt/server_args.py)."""

_VARIABLE = re.compile(r"\$(\{[^}]*\}|\w+|\()")
_INT_TYPES = {"int", "human_readable_int"}


def check_launch(arguments: Sequence[str], environment: Mapping[str, str], version: str, architecture: str) -> list[Finding]:
    """Findings for the arguments of one launch, in reading order.

    ``arguments`` are the words after the entry point, ``architecture`` is like ``sm120`` (empty skips what depends on it). Raises
    UnknownVersionError for a release without a table. An error means that the server would not start, or not serve.
    """
    flags = flags_of(version)
    values, findings = _read(arguments, flags, version)
    findings += _contradictions(values)
    findings += _gpu(values, environment, version, architecture)
    findings += _environment(environment)
    return findings


def resolve(arguments: Sequence[str], version: str) -> dict[str, list[str]]:
    """Flags by their primary spelling with their values, as far as this release knows them."""
    return _read(arguments, flags_of(version), version)[0]


def _read(arguments: Sequence[str], flags: Mapping[str, Flag], version: str) -> tuple[dict[str, list[str]], list[Finding]]:
    values: dict[str, list[str]] = {}
    findings: list[Finding] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        if not word.startswith("--"):
            findings += _stray(word)
            continue
        name, equals, attached = word.partition("=")
        found = prefix_matches(name, flags)
        targets = {flags[spelling].name for spelling in found}
        taken: list[str] = [attached] if equals else []
        if not found or len(targets) > 1:
            while not equals and position < len(arguments) and not _is_flag(arguments[position]):
                taken.append(arguments[position])
                position += 1
            findings.append(_ambiguous(name, found, version) if found else _unknown(name, flags, version))
            continue
        flag = flags[found[0]]
        if not equals and not flag.switch:
            while position < len(arguments) and not _is_flag(arguments[position]):
                taken.append(arguments[position])
                position += 1
                if not flag.many:
                    break
        values.setdefault(flag.name, []).extend(taken)
        findings += _judge(name, flag, taken, version, attached=bool(equals))
    return values, findings


def _is_flag(word: str) -> bool:
    return bool(re.match(r"^--?[A-Za-z]", word))


def _stray(word: str) -> list[Finding]:
    if _VARIABLE.search(word):
        summary = f"{word} is a variable of a shell: what it adds to the launch cannot be told."
        return [Finding("launch-variable", UNKNOWN, word, summary, word, "Check the launch with the variable's value in its place.")]
    if word == "--":
        return []
    return [
        Finding(
            "launch-stray-word", ERROR, word, f"{word} belongs to no flag: sglang ends with `unrecognized arguments`.", word, "Remove it."
        )
    ]


def _unknown(name: str, flags: Mapping[str, Flag], version: str) -> Finding:
    if name in FORK_ONLY:
        summary = f"{name} exists only in {FORK_ONLY[name]}, in no release of sglang."
        return Finding("flag-fork-only", ERROR, name, summary, name, "Leave it out; from 0.5.22 on set SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1.")
    past = history(name)
    if past is not None and index_of(past.last) < index_of(version):
        summary = f"{name} was removed after sglang {past.last}; {version} ends with `unrecognized arguments`."
        return Finding("flag-removed", ERROR, name, summary, name, f"Use {past.instead}." if past.instead else "Leave it out.")
    if past is not None:
        summary = f"{name} came with sglang {past.first}; {version} does not know it."
        return Finding("flag-too-new", ERROR, name, summary, name, f"Use sglang {past.first} or newer, or leave it out.")
    meant = nearest(name, flags)
    if meant:
        summary = f"sglang {version} does not know {name}; {meant} was probably meant."
        return Finding("flag-misspelt", ERROR, name, summary, name, f"Write {meant}.")
    return Finding("flag-unknown", ERROR, name, f"sglang {version} does not know {name}.", name, "Leave it out.")


def _ambiguous(name: str, found: Sequence[str], version: str) -> Finding:
    past = history(name)
    summary = (
        f"{name} is short for {', '.join(found[:4])}{' and more' if len(found) > 4 else ''}: sglang {version} ends with `ambiguous option`."
    )
    if past is not None and past.instead:
        return Finding("flag-removed", ERROR, name, summary, name, f"{name} was removed after {past.last}; use {past.instead}.")
    return Finding("flag-ambiguous", ERROR, name, summary, name, f"Write one of {', '.join(found[:4])} in full.")


def _judge(name: str, flag: Flag, taken: Sequence[str], version: str, *, attached: bool) -> list[Finding]:
    findings: list[Finding] = []
    if flag.error:
        return [Finding("flag-removed", ERROR, name, f"sglang {version} refuses {name}: {flag.error}", name, "Leave it out.")]
    if flag.deprecated:
        use = f"Use {flag.instead}." if flag.instead else "Leave it out before the next upgrade."
        findings.append(Finding("flag-deprecated", WARNING, name, f"{name} is deprecated in sglang {version}.", name, use))
    if name not in flag.spellings:
        summary = f"{name} works only as an abbreviation of {flag.name}; the next release may have a second flag that begins so."
        findings.append(Finding("flag-abbreviated", INFO, name, summary, name, f"Write {flag.name}."))
    if flag.switch and attached:
        findings.append(Finding("flag-value", ERROR, name, f"{name} takes no value.", f"{name}={taken[0]}", f"Write {name} alone."))
    if not flag.switch and not taken and not flag.optional:
        findings.append(Finding("flag-value", ERROR, name, f"{name} wants a value.", name, f"Write {name} VALUE."))
    for value in taken if not flag.switch else ():
        findings += _value(name, flag, value)
    return findings


def _value(name: str, flag: Flag, value: str) -> list[Finding]:
    if _VARIABLE.search(value):
        return []
    evidence = f"{name} {value}"
    if flag.choices is not None and value not in flag.choices:
        close = nearest(value, dict.fromkeys(flag.choices, flag))
        use = f"Write {close}." if close else f"Choose one of {', '.join(flag.choices)}."
        return [Finding("flag-value", ERROR, name, f"{value} is no choice of {name}: {', '.join(flag.choices)}.", evidence, use)]
    if flag.type in _INT_TYPES and not re.fullmatch(r"-?\d+([.]\d+)?[kKmMgG]?" if flag.type != "int" else r"[-+]?\d+", value):
        return [Finding("flag-value", ERROR, name, f"{name} wants a whole number.", evidence, f"Write {name} NUMBER.")]
    if flag.type == "float":
        try:
            float(value)
        except ValueError:
            return [Finding("flag-value", ERROR, name, f"{name} wants a number.", evidence, f"Write {name} NUMBER.")]
    if name.endswith(("-extra-config", "-override-args")) and value.lstrip().startswith("{"):
        try:
            json.loads(value)
        except ValueError as error:
            return [
                Finding("flag-value", ERROR, name, f"The JSON of {name} is broken: {error}.", evidence, "Mend the JSON and its quotes.")
            ]
    return []


def _contradictions(values: Mapping[str, list[str]]) -> list[Finding]:
    findings: list[Finding] = []
    if not {"--model-path", "--model", "--config"} & set(values):
        findings.append(Finding("flag-missing", ERROR, "--model-path", "No model is named.", "", "Add --model-path."))
    speculative = {"--speculative-algorithm", "--speculative-algo"} & set(values)
    if speculative and "--max-running-requests" not in values:
        summary = f"Speculative decoding caps running requests at {SPECULATION_CAP} unless --max-running-requests is set; the rest queues."
        remedy = "Set --max-running-requests to the concurrency that you want."
        findings.append(
            Finding("speculation-caps-requests", WARNING, "--speculative-algorithm", summary, "", remedy, "sglang, srt/server_args.py")
        )
    if "--disable-cuda-graph" in values and {"--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"} & set(values):
        summary = "--disable-cuda-graph makes the CUDA graph sizes meaningless."
        findings.append(Finding("flag-conflict", WARNING, "--disable-cuda-graph", summary, "", "Keep one of the two."))
    if int(_last(values, "--nnodes", "1") or 1) > 1 and not {"--dist-init-addr", "--nccl-init-addr"} & set(values):
        summary = "A server over several nodes needs --dist-init-addr."
        findings.append(
            Finding("flag-missing", ERROR, "--dist-init-addr", summary, "", "Add --dist-init-addr HOST:PORT, equal on every node.")
        )
    pairs = (("--node-rank", "--nnodes"),)
    for lower, upper in pairs:
        rank, size = _last(values, lower, ""), _last(values, upper, "")
        if rank.isdigit() and size.isdigit() and int(rank) >= int(size):
            findings.append(
                Finding(
                    "flag-conflict", ERROR, lower, f"{lower} {rank} is not below {upper} {size}.", "", f"Ranks run from 0 to {upper} - 1."
                )
            )
    return findings


def _last(values: Mapping[str, list[str]], name: str, default: str) -> str:
    found = values.get(name) or [default]
    return found[-1] if not _VARIABLE.search(found[-1]) and found[-1].lstrip("-").isdigit() else default


def _gpu(values: Mapping[str, list[str]], environment: Mapping[str, str], version: str, architecture: str) -> list[Finding]:
    if not architecture:
        return []
    index = index_of(version)
    spellings = dict(values)
    for name, found in values.items():
        for flag in flags_of(version).values():
            if flag.name == name:
                spellings.update(dict.fromkeys(flag.spellings, found))
    return [
        Finding(fault.id, fault.severity, architecture, fault.summary, "", fault.remedy, fault.source)
        for fault in FAULTS
        if architecture in fault.architectures
        and index_of(fault.since) <= index
        and (not fault.until or index <= index_of(fault.until))
        and fault.applies(spellings, environment)
    ]


def _environment(environment: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            "environment-no-effect",
            WARNING,
            name,
            f"No release of sglang reads {name}.",
            f"{name}={value}",
            f"Use {NO_OP_ENVIRONMENT[name]}.",
        )
        for name, value in environment.items()
        if name in NO_OP_ENVIRONMENT
    ]
