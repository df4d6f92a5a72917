"""`nvbandwidth`, text and JSON: matrices of what somebody else measured. A waived test is lost peer-to-peer, not a pass."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from .text import NotUnderstoodError, excerpt, lines_of, plain

WHAT: Final = "nvbandwidth"
PASSED: Final = "Passed"
WAIVED: Final = "Waived"


@dataclass
class TestCase:
    """One test: matrix in GB/s (ns for latencies), None for N/A; ``arrow`` of 'GPU(row) <- GPU(column)' says which way data went."""

    name: str
    status: str
    description: str = ""
    matrix: list[list[float | None]] | None = None
    total: float | None = None
    complete: bool = True

    @property
    def arrow(self) -> str | None:
        """'<-', '->' or '<->'; None when the description has none."""
        match = re.search(r"<->|<-|->", self.description)
        return match[0] if match else None


@dataclass
class NvBandwidth:
    """The whole run; ``error`` holds what the program itself complained about."""

    version: str | None = None
    driver: str | None = None
    tests: dict[str, TestCase] = field(default_factory=dict)
    error: str | None = None
    complete: bool = True


def parse_nvbandwidth(text: str) -> NvBandwidth:
    """Read nvbandwidth's output, text or JSON (``-j``), whichever it is. Raises NotUnderstoodError for anything else."""
    source = plain(text)
    begin = source.find("{")
    if begin >= 0 and '"nvbandwidth"' in source[begin : begin + 200]:
        return _parse_json(source[begin:])
    return _parse_text(text)


def _cell(raw: Any) -> float | None:
    """Cells are strings in JSON; N/A stands on the diagonal and where a pair cannot be measured."""
    try:
        return float(raw)
    except (TypeError, ValueError):
        return None


def _parse_json(source: str) -> NvBandwidth:
    try:
        root, _ = json.JSONDecoder().raw_decode(source)
    except ValueError as error:
        raise NotUnderstoodError(f"{WHAT} -j", f"JSON that is cut or broken: {error}") from None
    body = root.get("nvbandwidth")
    if not isinstance(body, dict):
        raise NotUnderstoodError(f"{WHAT} -j", "no object named nvbandwidth")
    run = NvBandwidth(_text(body.get("version")), _text(body.get("Driver Version")), error=_text(body.get("error")))
    # A failing test's entry lands at the root and a change of status appends a second one (json_output.cpp of v0.8).
    for entry in [*_list(body.get("testcases")), *_list(root.get("testcases"))]:
        if not isinstance(entry, dict) or "name" not in entry:
            continue
        case = TestCase(str(entry["name"]), str(entry.get("status", "Error")), str(entry.get("bandwidth_description", "")))
        rows = entry.get("bandwidth_matrix")
        if isinstance(rows, list):
            case.matrix = [[_cell(cell) for cell in _list(row)] for row in rows]
        case.total = _cell(entry.get("sum"))
        before = run.tests.get(case.name)
        if before is None or before.status == PASSED:
            run.tests[case.name] = case
    return run


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parse_text(text: str) -> NvBandwidth:
    run = NvBandwidth()
    case: TestCase | None = None
    columns = 0
    for line in lines_of(text):
        words = line.split()
        if match := re.match(r"nvbandwidth Version: (\S+)", line):
            run.version = match[1]
        elif match := re.match(r"Driver Version: (\S+)", line):
            run.driver = match[1]
        elif match := re.match(r"(?:Waiving|Waived:?) (\w+)", line):
            run.tests[match[1]] = TestCase(match[1], WAIVED)
        elif match := re.match(r"Running (\w+)", line):
            case = run.tests[match[1]] = TestCase(match[1], "Running", complete=False)
            columns = 0
        elif match := re.match(r"(?:ERROR|\[.*ERROR.*\]|CUDA_ERROR)(.*)", line):
            run.error = run.error or line.strip()
        elif case is not None and re.search(r"\(row\).*\(column\)", line):
            case.description = line.strip()
        elif case is not None and match_sum(case, words):
            case = None
        elif case is not None and words and all(word.isdecimal() for word in words) and not columns:
            columns = len(words) if [int(word) for word in words] == [*range(len(words))] else 0
            case.matrix = []
        elif case is not None and columns and words and words[0].isdecimal() and len(words) == columns + 1:
            _text_row(case, words, columns)
    if not run.tests:
        raise NotUnderstoodError(WHAT, excerpt(text))
    run.complete = all(test.complete for test in run.tests.values()) and run.error is None
    return run


def match_sum(case: TestCase, words: list[str]) -> bool:
    """Take the line 'SUM test value' that ends a test; False for any other line."""
    if len(words) < 3 or words[0] != "SUM" or words[1] != case.name:
        return False
    case.total = _cell(words[2])
    return True


def _text_row(case: TestCase, words: list[str], columns: int) -> None:
    rows = case.matrix if case.matrix is not None else []
    decimals = {len(word.partition(".")[2]) for word in words[1:] if word != "N/A"}
    if int(words[0]) != len(rows) or len(decimals) > 1:
        return
    rows.append([_cell(word) for word in words[1:]])
    wanted = columns if "GPU(row)" in case.description else 1
    if len(rows) == wanted:
        case.complete, case.status = True, PASSED
