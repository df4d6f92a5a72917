"""The streaming search: nothing is lost at the seams, memory stays bounded, floods are counted as such."""

from __future__ import annotations

import dataclasses
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.problems import CATALOGUE, Context, Diagnosis, Problem, Range, Sign, diagnosis, match
from gpunode.problems import block as blocks
from gpunode.problems import scan as scanning
from gpunode.problems.judge import match_lines
from gpunode.problems.lines import clock, message

XID = "[ 8123.441100] NVRM: Xid (PCI:0000:c1:00): 79, pid=4411, name=python3, GPU has fallen off the bus."
OOM = "[2026-11-30 10:00:09 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
NOISE = "[2026-11-30 10:00:01 TP0] Decode batch, #running-req: 12, #token: 4711, token usage: 0.12, cuda graph: True"
API = (
    "[9.4] NVRM: API mismatch: the client has the version 570.148.08, but\n"
    "[9.4] NVRM: this kernel module has the version 570.148.06.  Please\n"
    "[9.4] NVRM: make sure that this kernel module and all NVIDIA driver\n[9.4] NVRM: components have the same version."
)


def entry(name: str, *signs: Sign, **more: object) -> Problem:
    fields: dict[str, object] = {"layer": "host", "title": name, "cause": "c.", "remedy": "r", "shows": (), "unlike": (), "sources": ("s",)}
    return Problem(id=name, signs=signs, **(fields | more))  # type: ignore[arg-type]


def ids(catalogue: tuple[Problem, ...], text: str, context: Context | None = None) -> list[str]:
    found = Diagnosis(catalogue, context)
    found.read("log", text)
    return [item.id for item in found.matches()]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 40), st.lists(st.integers(1, 400), max_size=60), st.integers(0, 3))
def test_the_size_of_pieces_changes_nothing(before: int, cuts: list[int], which: int) -> None:
    example = [XID, OOM, API, "no more"][which]
    text = "\n".join([NOISE] * before + [example] + [NOISE] * 20).encode()
    whole = [(found.id, found.evidence) for found in match(text.decode().split("\n"), source="log")]
    found = diagnosis()
    scanner = found.open("log")
    at = 0
    for cut in cuts:
        scanner.feed(text[at : at + cut])
        at += cut
    scanner.feed(text[at:])
    scanner.close()
    assert [(item.id, item.evidence) for item in found.matches()] == whole


@pytest.mark.parametrize("shift", range(-260, 261, 13))
def test_a_message_across_the_seam_of_two_blocks_is_found(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    monkeypatch.setattr(scanning, "BLOCK", 8192)
    monkeypatch.setattr(scanning, "REACH", 2048)
    monkeypatch.setattr(blocks, "REACH", 2048)
    head = (NOISE + "\n") * (8192 // (len(NOISE) + 1) - 2)
    text = head + "x" * max(0, 8192 - len(head) + shift) + "\n" + API + "\n" + (NOISE + "\n") * 200
    found = match(text.split("\n"))
    assert [item.id for item in found] == ["driver-container-mismatch"]
    assert found[0].count == 1
    number = text[: text.index("NVRM: API")].count("\n") + 1
    assert [place.line for place in found[0].evidence[:2]] == [number, number + 1]


def test_lines_are_numbered_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK", 4096)
    monkeypatch.setattr(scanning, "REACH", 1024)
    lines = [NOISE] * 5000
    for number in (17, 1234, 4999):
        lines[number] = XID
    (found,) = match(lines)
    assert [place.line for place in found.evidence] == [18, 1235, 5000]
    assert found.count == 3


def test_a_flood_is_counted_as_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK", 65536)
    found = match([XID] * 20_000)
    assert 200 <= found[0].count <= 20_000
    assert found[0].evidence[-1].line > 10_000


def test_memory_does_not_grow_with_the_log() -> None:
    piece = ((NOISE + "\n") * 7000 + XID + "\n").encode()

    def peak(pieces: int) -> int:
        tracemalloc.start()
        found = diagnosis()
        scanner = found.open("log")
        for _ in range(pieces):
            scanner.feed(piece)
        scanner.close()
        assert found.matches()
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return held

    small, large = peak(4), peak(16)
    assert large < small * 1.2
    assert large < 30 << 20


def test_a_line_that_never_ends_is_searched() -> None:
    line = "[AutoTuner]: Tuning fp4_gemm 5%|# |" * 5_000 + XID + "[AutoTuner]: Tuning" * 5_000
    assert [item.id for item in match([line])] == ["xid-fallen-off-bus"]


def test_progress_bars_do_not_count_as_lines() -> None:
    (found,) = match(["one", "two" + "\rCapturing batches: 5%" * 3000 + "\r" + XID, "three"])
    assert (found.id, found.evidence[0].line, found.evidence[0].text) == ("xid-fallen-off-bus", 2, XID)


def test_near_and_not_near_and_within() -> None:
    catalogue = (
        entry("close", Sign("pears fell", near=("apples grew",), within=3)),
        entry("alone", Sign("pears fell", not_near=("apples grew",), within=3)),
    )
    assert ids(catalogue, "apples grew\nx\npears fell") == ["close"]
    assert ids(catalogue, "pears fell\nx\napples grew") == ["close"]
    assert ids(catalogue, "apples grew\nx\nx\nx\nx\npears fell") == ["alone"]


def test_also_and_unless_look_everywhere() -> None:
    catalogue = (entry("both", Sign("pears fell", also=("apples grew",))), entry("only", Sign("pears fell", unless=("apples grew",))))
    far = "\n".join(["pears fell", *["x"] * 3000, "apples grew"])
    assert ids(catalogue, far) == ["both"]
    assert ids(catalogue, "pears fell") == ["only"]


def test_times_and_differ() -> None:
    catalogue = (
        entry("often", Sign("pears fell", times=3)),
        entry("mismatch", Sign(r"module (?P<one>\d+) client (?P<two>\d+)", differ=("one", "two"))),
    )
    assert ids(catalogue, "pears fell\n" * 2) == []
    assert ids(catalogue, "pears fell\n" * 3) == ["often"]
    assert ids(catalogue, "module 5 client 5") == []
    assert ids(catalogue, "module 5 client 6") == ["mismatch"]


def test_a_named_source_is_judged_by_its_name() -> None:
    found = diagnosis()
    found.read("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")
    assert [item.id for item in found.matches()] == ["hmm-enabled"]
    found = diagnosis()
    found.read("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n")
    found.read("answers", "N\n")
    assert found.matches() == []


def test_versions_and_architectures_exclude() -> None:
    catalogue = (
        entry("old", Sign("pears fell"), affects=(Range("sglang", "0.5.8", "0.5.10"),)),
        entry("card", Sign("pears fell"), archs=("sm120",)),
    )
    assert ids(catalogue, "pears fell") == ["old", "card"]
    assert ids(catalogue, "pears fell", Context({"sglang": "0.5.9.post1"}, "sm120")) == ["old", "card"]
    assert ids(catalogue, "pears fell", Context({"sglang": "0.5.10"}, "sm90")) == []
    assert ids(catalogue, "sglang==0.5.23\npears fell on NVIDIA H200") == []
    assert ids(catalogue, "sglang==0.5.23\nsglang==0.5.9\npears fell") == ["old", "card"], "a log that contradicts itself excludes nothing"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Jan 29 19:10:10 proxmox kernel: [36785137.211208] audit: type=1400", "audit: type=1400"),
        ("<6>[   14.952018] mlx5_core 0000:41:00.0: Link up", "mlx5_core 0000:41:00.0: Link up"),
        ("kern  :warn  : 2025-01-21T08:41:30,287197+00:00 oom_reaper: reaped process 1", "oom_reaper: reaped process 1"),
        ("[Sun Feb 23 16:24:18 2025] NVRM: GPU Board Serial Number: 1", "GPU Board Serial Number: 1"),
        ("[2026-01-28 22:45:58 PP0 TP0] Scheduler hit", "Scheduler hit"),
        ("2026-11-30T10:00:01+0000 gpu-node-01 sglang[4711]: [2026-11-30 10:00:01] ready", "ready"),
        ("sglang-1  | [2026-11-30 10:00:01 TP3] ready", "ready"),
        ("(Worker_TP1 pid=14) ERROR 11-30 10:00:01 [multiproc.py:690] ended", "ended"),
        ("[rank3]:[E1130 10:01:02.123456789 ProcessGroupNCCL.cpp:685] [Rank 3] Watchdog", "[Rank 3] Watchdog"),
        ("plain words", "plain words"),
    ],
)
def test_prefixes_are_taken_off(line: str, expected: str) -> None:
    assert message(line) == expected


def test_clocks() -> None:
    assert clock("[2026-11-30 10:00:01 TP0] x")[0] == "wall"
    assert clock("[Sun Feb 23 16:24:18 2025] x") == clock("2025-02-23T16:24:18+00:00 x")
    assert clock("[ 8957.099615] x") == ("boot", 8957.099615)
    assert clock("Jan 29 19:10:10 host kernel: x")[0] == "yearless"
    assert clock("Feb 31 19:10:10 host x")[0] == "yearless"
    assert clock("words") == ("", 0.0)


MMU_FAULT = "NVRM: Xid (PCI:0000:41:00): 31, pid={0}, Ch {0:08x}, intr 0. MMU Fault: ENGINE GRAPHICS @ 0x{0:x}"


def flood(number: int) -> list[str]:
    return [f"[{index}.000001] " + MMU_FAULT.format(index * 7919) for index in range(number)]


def test_one_line_of_another_kind_is_found_in_a_flood() -> None:
    lines = flood(4000)
    lines[3100] = "[3100.5] NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."
    found = {problem.id: problem for problem in match(lines)}
    assert found["xid-fallen-off-bus"].evidence[0].line == 3101
    assert found["xid-application"].count >= scanning.FLOOD


def test_a_flood_does_not_try_every_pattern_on_every_line(monkeypatch) -> None:
    tried = []
    plain = blocks.Block.match
    monkeypatch.setattr(blocks.Block, "match", lambda block, *place: tried.append(1) or plain(block, *place))
    match(flood(1000))
    few = len(tried)
    tried.clear()
    match(flood(4000))
    assert len(tried) < 2 * few  # four times the lines; without telling shapes apart nearly four times the tries


def test_what_stands_near_still_decides_late_in_a_flood() -> None:
    sign = Sign("server fell silent", near=("detector spoke",), within=3)
    entry = dataclasses.replace(CATALOGUE[0], id="late", signs=(sign,), explains=(), refines=(), affects=(), archs=())
    lines = [f"[{index}.1] server fell silent after {index * 7919} requests" for index in range(3000)]
    assert match_lines((entry,), lines) == []
    lines += [line for index in range(20) for line in (*lines[:10], f"[{index}.2] detector spoke")]
    assert [found.id for found in match_lines((entry,), lines)] == ["late"]
