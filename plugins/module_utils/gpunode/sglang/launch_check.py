"""Check a launch against a release and a GPU architecture before anything is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..findings import ERROR, INFO, UNKNOWN, WARNING, Finding
from .equivalents import OLDER, OTHERS, VALUES
from .flag_values import FLOATS, INTEGERS, SECRET_FLAGS, templated, wrong
from .flags import Flag, flags_of, history, index_of, nearest, prefix_matches
from .flags_data import VERSIONS
from .forks import CHOICES, at_home, owner_of_flag
from .launch import Launched
from .launch_rules import rules
from .serve import SERVE, serve_words
from .variables import expand_words, unresolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TRUTH = {"true", "false", "yes", "no", "on", "off", "1", "0"}
_DASHES = re.compile("^[\u2010-\u2015\u2212]+(?=[A-Za-z])")
"""Dashes that word processors and web pages make of ``--``."""
_QUOTES = re.compile("^[\u2018\u2019\u201c\u201d]|[\u2018\u2019\u201c\u201d]$")


def check_launch(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    version: str,
    architecture: str,
    *,
    stock: bool = False,
    patches: Iterable[str] = (),
    entry: str = "",
    defines: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Findings for the arguments of one launch, in reading order.

    ``arguments`` are the words after the entry point, ``architecture`` is like ``sm120`` (empty skips what depends on it), ``patches``
    are ids of patches that the installed release has, ``defines`` are values of shell variables. An error means that the server would
    not start, or not serve. A flag that only a fork has is an error when the build is known to be ``stock``, else unknown: nothing here
    says which build the line is for. Raises UnknownVersionError for a release without a table.
    """
    flags = flags_of(version)
    if not arguments:
        summary = "No flag is visible: the launch reads them from somewhere else, or a wrapper script adds them."
        remedy = "Check the script that is started, or the running server: `tr '\\0' ' ' </proc/PID/cmdline | gpunode check-launch -`."
        return [Finding("launch-hidden", UNKNOWN, entry or "launch", summary, entry, remedy, required=True)]
    reader = _Reader(flags, version, entry, stock=stock)
    words = expand_words(arguments, {**environment, **(defines or {})})
    if entry == SERVE:
        words, found, ours = serve_words(words, version)
        if not ours:
            return found
        reader.findings += found
    reader.read(words)
    launched = Launched(_all_spellings(reader.values, flags), environment, frozenset(patches), open_ended=reader.open_ended)
    return reader.findings + rules(launched, version, architecture)


def resolve(arguments: Sequence[str], version: str) -> dict[str, list[str]]:
    """Flags by their primary spelling with their values, as far as this release knows them."""
    reader = _Reader(flags_of(version), version, "", stock=False)
    reader.read(arguments)
    return reader.values


def _all_spellings(values: Mapping[str, list[str]], flags: Mapping[str, Flag]) -> dict[str, list[str]]:
    spellings = dict(values)
    for flag in flags.values():
        if flag.name in values:
            spellings.update(dict.fromkeys(flag.spellings, values[flag.name]))
    return spellings


def _is_flag(word: str) -> bool:
    return bool(re.match(r"^--?[A-Za-z]", word))


def _ends_values(word: str) -> bool:
    return word == "--" or _is_flag(word)


class _Reader:
    """Reads words as argparse would and keeps what it finds on the way."""

    def __init__(self, flags: Mapping[str, Flag], version: str, entry: str, *, stock: bool) -> None:
        self.flags = flags
        self.version = version
        self.entry = entry
        self.stock = stock
        self.values: dict[str, list[str]] = {}
        self.findings: list[Finding] = []
        self.open_ended = False
        """Whether a variable may add flags that are not seen here."""

    def read(self, arguments: Sequence[str]) -> None:
        position = 0
        while position < len(arguments):
            word = self._dashed(arguments[position])
            position += 1
            if not _is_flag(word):
                self._stray(word)
                continue
            name, equals, attached = word.partition("=")
            found = prefix_matches(name, self.flags) if name.startswith("--") else []
            targets = {self.flags[spelling].name for spelling in found}
            flag = self.flags[found[0]] if len(targets) == 1 else None
            taken = [attached] if equals else []
            limit = 0 if equals or (flag and flag.switch) else (None if flag is None or flag.many else 1)
            while position < len(arguments) and not _ends_values(arguments[position]) and (limit is None or len(taken) < limit):
                taken.append(arguments[position])
                position += 1
            if flag is None:
                self.findings.append(self._ambiguous(name, found) if found else self._unknown(name))
                # What was probably meant counts for the rules over the whole launch: one slip makes one finding.
                meant = self._meant(name)
                rest = name.partition(" ")[2]
                taken = [rest, *taken] if rest else taken
                if meant is not None:
                    self.values[meant.name] = taken
                continue
            if flag.switch and not equals and position < len(arguments) and arguments[position].lower() in _TRUTH:
                self._truth(name, arguments[position])
                position += 1
            self._repeated(name, flag, taken)
            self.values[flag.name] = taken
            self._judge(name, flag, taken, attached=bool(equals))

    def _meant(self, name: str) -> Flag | None:
        if name.startswith("--"):
            past = history(name)
            name = name.partition(" ")[0]
            return self.flags.get(nearest(name, self.flags)) if past is None and not owner_of_flag(name) else None
        found = {self.flags[spelling].name for spelling in prefix_matches(f"-{name}", self.flags)}
        return self.flags[found.pop()] if len(found) == 1 else None

    def _dashed(self, word: str) -> str:
        """The flag that was meant where a blank or typographic dashes stand before its name, which is a finding."""
        if word[:1].isspace() and _is_flag(word.lstrip()):
            summary = (
                f"{word.lstrip()} has a blank before it, as a backslash makes it that no line end follows"
                " (in folded YAML, `>`, there is none): sglang ends with `unrecognized arguments`."
            )
            remedy = "Leave the backslashes out of folded text, or use a list of words."
            self.findings.append(Finding("launch-continuation", ERROR, word.lstrip(), summary, word.lstrip(), remedy))
            return word.lstrip()
        plain = _DASHES.sub("--", word)
        if plain != word:
            summary = f"{word} begins with a typographic dash, as web pages make it of two: sglang ends with `unrecognized arguments`."
            self.findings.append(Finding("flag-misspelt", ERROR, word, summary, word, f"Write {plain}."))
        return plain

    def _repeated(self, name: str, flag: Flag, taken: Sequence[str]) -> None:
        before = self.values.get(flag.name)
        if before and before != taken and flag.name not in SECRET_FLAGS:
            summary = f"{flag.name} is given twice, as {' '.join(before)} and as {' '.join(taken)}: the last one counts."
            self.findings.append(Finding("flag-repeated", INFO, name, summary, name, "Keep one of them."))

    def _truth(self, name: str, value: str) -> None:
        off = value.lower() in {"false", "no", "off", "0"}
        summary = f"{name} takes no value: sglang ends with `unrecognized arguments: {value}`."
        remedy = f"Leave {name} out." if off else f"Write {name} alone."
        self.findings.append(Finding("flag-value", ERROR, name, summary, f"{name} {value}", remedy))

    def _stray(self, word: str) -> None:
        if not word:
            summary = "An empty word in quotes, as a variable without a value leaves it, is an argument: `unrecognized arguments`."
            self.findings.append(
                Finding("launch-stray-word", ERROR, '""', summary, '""', "Leave the variable out, or write it without quotes.")
            )
        elif not word.strip():
            summary = (
                "A blank or a comment follows a backslash at the end of a line: the line is not continued, sglang gets a blank as an "
                "argument and ends with `unrecognized arguments`; the flags on the lines below are never passed."
            )
            remedy = "Let nothing follow the backslash, and put comments on lines of their own above the command."
            self.findings.append(Finding("launch-continuation", ERROR, "line", summary, "", remedy))
        elif unresolved(word):
            self.open_ended = True
            summary = f"{word} is a variable: what it adds to the launch cannot be told."
            remedy = "Give its value with --define NAME=VALUE, or check the line that really runs."
            self.findings.append(Finding("launch-variable", UNKNOWN, word, summary, word, remedy, required=True))
        elif word == "--":
            self.findings.append(
                Finding("launch-stray-word", ERROR, word, "What follows -- is no flag to sglang: it ends the start.", word, "Remove it.")
            )
        else:
            summary = f"{word} belongs to no flag: sglang ends with `unrecognized arguments`."
            self.findings.append(Finding("launch-stray-word", ERROR, word, summary, word, "Remove it."))

    def _unknown(self, name: str) -> Finding:
        version = self.version
        first, blank, rest = name.partition(" ")
        if blank and prefix_matches(first, self.flags):
            summary = f"`{name}` is one word here, flag and value together: sglang ends with `unrecognized arguments`."
            return Finding("launch-one-word", ERROR, first, summary, name, f"Make two items of it, or write {first}={rest.strip()}.")
        past = history(name)
        if past is not None and index_of(past.last) < index_of(version):
            summary = f"{name} was removed after sglang {past.last}; {version} ends with `unrecognized arguments`."
            return Finding("flag-removed", ERROR, name, summary, name, f"Use {past.instead}." if past.instead else "Leave it out.")
        if past is not None and index_of(past.first) > index_of(version):
            summary = f"{name} came with sglang {past.first}; {version} does not know it."
            return Finding("flag-too-new", ERROR, name, summary, name, f"Use sglang {past.first} or newer, or leave it out.")
        for engine, table in OTHERS:
            if name in table:
                summary = f"{name} is a flag of {engine}: sglang {version} ends with `unrecognized arguments`."
                return Finding("flag-unknown", ERROR, name, summary, name, table[name])
        if name in OLDER:
            summary = f"{name} was removed before sglang {VERSIONS[0]}; {version} ends with `unrecognized arguments`."
            return Finding("flag-removed", ERROR, name, summary, name, OLDER[name])
        owner = owner_of_flag(name)
        if owner and at_home(name, self.entry):
            return Finding("flag-of-wrapper", INFO, name, f"{name} belongs to {owner}.", name)
        if owner:
            return self._foreign(name, f"{name} exists only in {owner}, in no release of sglang", name)
        flag = self._meant(name)
        meant = (nearest(name, self.flags) if name.startswith("--") else flag.name) if flag else ""
        if meant:
            summary = f"sglang {version} does not know {name}; {meant} was probably meant."
            return Finding("flag-misspelt", ERROR, name, summary, name, f"Write {meant}.")
        summary = f"sglang {version} does not know {name}, nor does any release from {VERSIONS[0]} on."
        return Finding("flag-unknown", ERROR, name, summary, name, "Leave it out.")

    def _foreign(self, subject: str, what: str, evidence: str) -> Finding:
        if self.stock:
            summary = f"{what}: the release from PyPI that is installed here refuses it."
            return Finding("flag-fork-only", ERROR, subject, summary, evidence, "Leave it out.")
        summary = f"{what}: {self.version} from PyPI refuses it, and nothing here tells whether the line is for that build."
        remedy = "Leave it out for a release from PyPI (--stock makes this an error); with that build, ask its own parser."
        return Finding("flag-fork-only", UNKNOWN, subject, summary, evidence, remedy, required=True)

    def _ambiguous(self, name: str, found: Sequence[str]) -> Finding:
        past = history(name)
        some = f"{', '.join(found[:4])}{' and more' if len(found) > 4 else ''}"
        summary = f"{name} is short for {some}: sglang {self.version} ends with `ambiguous option`."
        if past is not None and past.instead:
            return Finding("flag-removed", ERROR, name, summary, name, f"{name} was removed after {past.last}; use {past.instead}.")
        return Finding("flag-ambiguous", ERROR, name, summary, name, f"Write one of {some} in full.")

    def _judge(self, name: str, flag: Flag, taken: Sequence[str], *, attached: bool) -> None:
        add = self.findings.append
        if flag.error:
            add(Finding("flag-removed", ERROR, name, f"sglang {self.version} refuses {name}: {flag.error}", name, "Leave it out."))
            return
        if flag.deprecated:
            past = history(name)
            instead = flag.instead or (past.instead if past else "")
            use = f"Use {instead}." if instead else "Leave it out before the next upgrade."
            add(Finding("flag-deprecated", WARNING, name, f"{name} is deprecated in sglang {self.version}.", name, use))
        if name not in flag.spellings:
            summary = f"{name} works only as an abbreviation of {flag.name}; the next release may have a second flag that begins so."
            add(Finding("flag-abbreviated", INFO, name, summary, name, f"Write {flag.name}."))
        if flag.switch and attached:
            add(Finding("flag-value", ERROR, name, f"{name} takes no value.", f"{name}={taken[0]}", f"Write {name} alone."))
        if not flag.switch and not taken and not flag.optional:
            add(Finding("flag-value", ERROR, name, f"{name} wants a value.", name, f"Write {name} VALUE."))
        if flag.name == "--config" and (attached or name != "--config"):
            # sglang looks for the word itself before its parser runs (prepare_server_args).
            summary = f"sglang reads the file of --config only where the flag stands in full as a word of its own: {name} is ignored."
            add(Finding("flag-value", ERROR, name, summary, name, "Write --config FILE, in two words."))
        elif flag.name == "--config" and taken and not unresolved(taken[0]) and not taken[0].lower().endswith((".yaml", ".yml")):
            summary = f"sglang takes a file of --config only when its name ends with .yaml or .yml, not {taken[0]}."
            add(Finding("flag-value", ERROR, name, summary, taken[0], "Rename the file."))
        for value in taken if not flag.switch else ():
            finding = self._value(name, flag, value)
            if finding is not None:
                add(finding)

    def _value(self, name: str, flag: Flag, value: str) -> Finding | None:
        evidence = f"{name} {value}"
        if unresolved(value) or (flag.type in INTEGERS | FLOATS and templated(value)):
            summary = f"The value of {name} is a variable, {value}: it could not be checked."
            remedy = "Give its value with --define NAME=VALUE, or check the line that really runs."
            return Finding("launch-variable", UNKNOWN, name, summary, evidence, remedy, required=True)
        if _QUOTES.search(value):
            summary = f"The value of {name} stands in typographic quotes, which no shell takes for quotes."
            return Finding("flag-value", ERROR, name, summary, evidence, "Write plain quotes, ' or \".")
        if flag.choices is not None and value not in flag.choices:
            owner = CHOICES.get((flag.name, value), "")
            if owner:
                return self._foreign(name, f"{value} as a choice of {name} exists only in {owner}", evidence)
            usual = next((VALUES[spelling, value.lower()] for spelling in flag.spellings if (spelling, value.lower()) in VALUES), "")
            close = usual if usual in flag.choices else nearest(value.lower(), dict.fromkeys(flag.choices, flag))
            use = f"Write {close}." if close else f"Choose one of {', '.join(flag.choices)}."
            return Finding("flag-value", ERROR, name, f"{value} is no choice of {name}: {', '.join(flag.choices)}.", evidence, use)
        told = wrong(name if name in flag.spellings else flag.name, flag.type, value)
        return Finding("flag-value", ERROR, name, told[0], evidence, told[1]) if told else None
