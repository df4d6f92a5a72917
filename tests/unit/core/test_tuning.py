"""Which variant wins, and which cannot, whatever its figures say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import tuning
from gpunode_tools.cli import main

KNOWN = "as-is"
NONE: dict = {}


def level(concurrency: int, total: float, ttft: float = 200.0, itl: float = 20.0, output: float | None = None) -> dict:
    return {
        "concurrency": concurrency, "completed": 2 * concurrency, "steady_total_tps": total,
        "steady_output_tps": total / 3 if output is None else output, "ttft_ms": {"p99": ttft}, "itl_ms": {"p99": itl},
    }  # fmt: skip


def record(name: str, *levels: dict, status: str = "measured", findings: tuple = (), **more) -> dict:
    result = {"levels": list(levels), "findings": list(findings), "plateau": {"cause": "request-cap"}, "verdict": "pass", "simulated": True}
    variant = {} if name == KNOWN else {"flags": {"x": name}}
    return {"name": name, "key": name, "variant": variant, "status": status, "cause": "", "result": result | more}


def finding(name: str, severity: str = "unknown", subject: str = "512 streams") -> dict:
    return {"id": name, "severity": severity, "subject": subject, "summary": "", "evidence": "", "remedy": ""}


SMALL = record(KNOWN, level(1, 33, output=11), level(64, 757), level(512, 913))
RAISED = record("cap-512", level(1, 150, output=50), level(64, 2000), level(512, 3740))


def order(result: dict) -> list[str]:
    return [row["name"] for row in result["rows"]]


def test_the_highest_throughput_wins_and_says_what_it_gains() -> None:
    result = tuning.rank([SMALL, RAISED], NONE, KNOWN)
    assert (result["winner"], result["verdict"], result["worth_a_change"], result["simulated"]) == ("cap-512", "pass", True, True)
    assert result["rows"][0]["against_known_pct"] == pytest.approx(309.6)
    assert result["rows"][0]["concurrency"] == 512


@pytest.mark.parametrize(
    "mark",
    [
        finding("client-bound"),
        finding("cut-short"),
        finding("counters-differ", "warning"),
        finding("request-failed", "warning", "http-500"),
    ],
)
def test_a_variant_that_is_not_believed_does_not_win(mark: dict) -> None:
    doubted = record("fast", level(1, 300, output=100), level(512, 9000), findings=(mark,))
    result = tuning.rank([SMALL, doubted, RAISED], NONE, KNOWN)
    assert result["winner"] == "cap-512"
    assert order(result) == ["cap-512", KNOWN, "fast"]
    assert result["verdict"] == "warn"
    assert [entry["subject"] for entry in result["findings"] if entry["id"] == "maybe-better"] == ["fast"]


def test_a_note_of_the_client_is_no_doubt() -> None:
    late = record(
        "cap-512", level(1, 150, output=50), level(512, 3740), findings=(finding("client-late", "info"), finding("plateau", "info"))
    )
    assert tuning.rank([SMALL, late], NONE, KNOWN)["winner"] == "cap-512"


def test_without_a_believed_variant_there_is_no_winner() -> None:
    doubted = record(KNOWN, level(1, 1), findings=(finding("client-bound"),))
    result = tuning.rank([doubted], NONE, KNOWN)
    assert (result["winner"], result["verdict"], result["worth_a_change"]) == (None, "unknown", False)
    assert tuning.rank([], NONE, KNOWN)["verdict"] == "unknown"


def test_the_verdict_client_bound_alone_is_enough() -> None:
    assert tuning.rank([record(KNOWN, level(1, 9), verdict="client-bound")], NONE, KNOWN)["winner"] is None


def test_throughput_counts_at_the_best_level_within_the_limits() -> None:
    queue = record("deep", level(1, 150, output=50), level(64, 2000, ttft=900), level(512, 3900, ttft=60_000))
    result = tuning.rank([SMALL, queue], {"max_ttft_ms": 1000}, KNOWN)
    row = result["rows"][0]
    assert (row["name"], row["concurrency"], row["total_tps"]) == ("deep", 64, 2000)


def test_a_limit_missed_everywhere_keeps_a_variant_from_winning_and_an_unmeasured_one_too() -> None:
    slow = record("slow", level(1, 150, ttft=5000), level(512, 9000, ttft=5000))
    silent = record("silent", {**level(512, 9000), "ttft_ms": None}, level(1, 10))
    silent["result"]["levels"][1]["ttft_ms"] = None
    result = tuning.rank([SMALL, slow, silent], {"max_ttft_ms": 1000, "max_itl_ms": 50}, KNOWN)
    assert result["winner"] == KNOWN
    assert {row["name"]: row["standing"] for row in result["rows"]} == {KNOWN: "compared", "slow": "limit", "silent": "limit"}
    assert "was not measured" in next(row["why"] for row in result["rows"] if row["name"] == "silent")


def test_a_single_stream_below_its_limit_keeps_a_variant_from_winning() -> None:
    result = tuning.rank([SMALL, RAISED], {"min_single_stream_tps": 40}, KNOWN)
    assert result["winner"] == "cap-512"
    assert "11.0 tokens/s, 40 are wanted" in result["rows"][1]["why"]


def test_a_single_stream_that_was_not_measured_is_unknown_not_fine() -> None:
    result = tuning.rank([record(KNOWN, level(64, 900))], {"min_single_stream_tps": 40}, KNOWN)
    assert (result["winner"], result["rows"][0]["standing"]) == (None, "disbelieved")


def test_among_equals_the_fastest_single_stream_wins() -> None:
    one = record("a", level(1, 90, output=30), level(512, 1000))
    two = record("b", level(1, 120, output=40), level(512, 975))
    far = record("c", level(1, 300, output=100), level(512, 960))
    assert order(tuning.rank([one, two, far], NONE, KNOWN)) == ["b", "a", "c"]


def test_a_gain_within_the_noise_is_not_worth_a_change() -> None:
    result = tuning.rank(
        [record(KNOWN, level(1, 30, output=10), level(64, 1000)), record("b", level(1, 33, output=11), level(64, 1010))], NONE, KNOWN
    )
    assert (result["winner"], result["worth_a_change"]) == ("b", False)


def test_what_did_not_come_up_is_told_with_its_cause() -> None:
    failed = {**record("tp16", status="failed"), "cause": "sglang.service has ended. CUDA out of memory", "result": {}}
    refused = {**record("typo", status="refused"), "cause": "--max-runing is not known", "result": {}}
    result = tuning.rank([refused, failed, SMALL], NONE, KNOWN)
    assert order(result) == [KNOWN, "tp16", "typo"]
    assert {entry["id"]: entry["evidence"] for entry in result["findings"]} == {
        "variant-failed": failed["cause"], "variant-refused": refused["cause"],
    }  # fmt: skip


def test_settings_in_use_that_failed_are_a_warning() -> None:
    result = tuning.rank([{**record(KNOWN, status="failed"), "result": {}}, RAISED], NONE, KNOWN)
    assert (result["winner"], result["verdict"], result["worth_a_change"]) == ("cap-512", "warn", True)


def test_a_record_of_another_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="status 'running'"):
        tuning.rank([record("a", status="running")], NONE, KNOWN)


@given(
    st.permutations(
        [SMALL, RAISED, record("b", level(1, 60), level(512, 3000)), record("c", level(64, 3000), findings=(finding("client-bound"),))]
    )
)
def test_the_order_of_records_does_not_matter(records: list[dict]) -> None:
    assert order(tuning.rank(records, NONE, KNOWN)) == ["cap-512", "b", KNOWN, "c"]


# --- variants ---------------------------------------------------------------------------------------------------------


def test_the_key_is_the_content_not_the_name() -> None:
    one = tuning.key({"name": "a", "flags": {"x": 1, "y": 2}}, {"model": "m"})
    assert one == tuning.key({"name": "b", "flags": {"y": 2, "x": 1}, "environment": {}}, {"model": "m"})
    others = [({"flags": {"x": 2, "y": 2}}, {"model": "m"}), ({"flags": {"x": 1, "y": 2}}, {"model": "n"}),
              ({"flags": {"x": 1, "y": 2}, "power_limit_w": 450}, {"model": "m"})]  # fmt: skip
    assert len({one, *(tuning.key(*other) for other in others)}) == 4


@pytest.mark.parametrize(
    ("variants", "text"),
    [
        ("no list", "must be a list"),
        ([{"flags": {"x": 1}}], "variant 1 has no name"),
        ([{"name": "a"}], "changes nothing"),
        ([{"name": "as-is", "flags": {"x": 1}}], "stands for the settings in use"),
        ([{"name": "a", "flags": {"x": 1}}, {"name": "a", "flags": {"x": 2}}], "two variants are named a"),
        ([{"name": "a", "flag": {"x": 1}}], "has flag; a variant knows"),
        ([{"name": "a", "flags": ["x"]}], "flags of variant a must be a mapping"),
        ([{"name": "a", "power_limit_w": "450"}], "must be whole watts"),
    ],
)
def test_variants_that_are_wrong_are_named(variants: object, text: str) -> None:
    assert any(text in problem for problem in tuning.problems(variants, KNOWN))


def test_variants_that_are_right() -> None:
    good = [{"name": "a", "flags": {"tp-size": 4}}, {"name": "b", "environment": {"NCCL_PROTO": "LL"}}, {"name": "c", "power_limit_w": 450}]
    assert tuning.problems(good, KNOWN) == []
    assert tuning.settings(good[0], {"tp-size": 8, "x": 1}, {}) == {"sglang_server_flags": {"tp-size": 4, "x": 1}}
    assert tuning.settings(good[2], {"x": 1}, {"y": "2"}) == {"nvidia_driver_power_limit_w": 450}


# --- the command ------------------------------------------------------------------------------------------------------


def run(folder: Path, *records: dict, arguments: tuple[str, ...] = ()):
    files = []
    for number, one in enumerate(records):
        path = folder / f"{number}.json"
        path.write_text(json.dumps({"schema": tuning.RECORD_SCHEMA, **one}))
        files.append(str(path))
    return CliRunner().invoke(main, ["tune-report", *files, *arguments])


def test_the_command_writes_one_comparison_in_three_forms(tmp_path: Path) -> None:
    failed = {**record("<tp16>", status="failed"), "cause": "ended & gone", "result": {}}
    html, text, data = (tmp_path / name for name in ("t.html", "t.txt", "t.json"))
    done = run(
        tmp_path, SMALL, RAISED, failed, arguments=("--report", str(html), "--text", str(text), "--result", str(data), "--max-itl-ms", "99")
    )
    assert done.exit_code == 0, done.output
    assert done.output == text.read_text()
    assert (
        "cap-512 serves best: 3,740 tokens/s in all at 512 streams, 50.0 for a single one (+309.6 % against the settings in use)"
        in done.output
    )
    assert "time between tokens (p99) at most 99 ms" in done.output
    assert json.loads(data.read_text())["winner"] == "cap-512"
    page = html.read_text()
    assert "★ cap-512" in page
    assert "&lt;tp16&gt;" in page
    assert "Simulated" in page
    assert page.count("<figure") == 3
    assert "<script" not in page


def test_the_command_ends_with_3_without_a_winner_and_with_2_on_nonsense(tmp_path: Path) -> None:
    assert run(tmp_path, record(KNOWN, level(1, 1), findings=(finding("client-bound"),))).exit_code == 3
    (tmp_path / "x.json").write_text('{"schema": "gpunode.smoke/1"}')
    done = CliRunner().invoke(main, ["tune-report", str(tmp_path / "x.json")])
    assert (done.exit_code, "no record of a variant" in done.output) == (2, True)


# --- why a level is slow --------------------------------------------------------------------------------------------


def with_cap(entry: dict, cap: int, cause: str = "request-cap", knee: int | None = None, evidence: str = "what was seen") -> dict:
    plateau = {"cause": cause, "evidence": evidence, "knee_concurrency": knee, "collapse_concurrency": None}
    return {**entry, "result": {**entry["result"], "server": {"max_running_requests": cap}, "plateau": plateau}}


def reasons(result: dict, name: str) -> dict:
    return {level["concurrency"]: level["reason"] for row in result["rows"] if row["name"] == name for level in row["slow_levels"]}


def test_a_cap_explains_only_the_levels_that_it_limits() -> None:
    slow = with_cap(record("slow", level(1, 33, output=11), level(64, 757), level(512, 913)), 64, knee=64)
    result = tuning.rank([slow, RAISED, record(KNOWN, level(1, 140), level(64, 1900))], NONE, KNOWN)
    assert reasons(result, "slow") == {1: None, 64: None, 512: "request-cap"}
    (found,) = [entry for entry in result["findings"] if entry["id"] == "slow-unexplained"]
    assert (found["subject"], found["severity"], "reason not known from these figures" in found["summary"]) == ("slow", "info", True)
    assert "at 64: 757 tokens/s, cap-512 has 2000 (the cap of 64 does not limit 64 streams)" in found["evidence"]
    assert result["verdict"] == "pass"


def test_the_plateau_explains_the_levels_from_its_knee_on() -> None:
    slow = with_cap(record("slow", level(1, 33), level(64, 757), level(512, 913)), 512, "prefill-bound", knee=64)
    result = tuning.rank([slow, RAISED], NONE, KNOWN)
    assert reasons(result, "slow") == {1: None, 64: "prefill-bound", 512: "prefill-bound"}


def test_a_cause_that_is_none_explains_nothing_and_noise_is_not_slow() -> None:
    slow = with_cap(record("slow", level(64, 757), level(512, 3700)), 512, "unknown", knee=64)
    assert reasons(tuning.rank([slow, RAISED], NONE, KNOWN), "slow") == {64: None}
    bound = record("bound", {**level(64, 757), "client_bound": "its CPU was full"})
    assert reasons(tuning.rank([bound, RAISED], NONE, KNOWN), "bound") == {64: "client-bound"}


def test_every_form_shows_causes_with_evidence_and_says_where_there_is_none(tmp_path: Path) -> None:
    slow = with_cap(record("slow", level(64, 757), level(512, 913)), 64, knee=64, evidence="64 requests ran, the cap is 64")
    odd = with_cap(record("odd", level(64, 2000), level(512, 3700)), 512, "unknown", evidence="not read: GPU power")
    html = tmp_path / "t.html"
    done = run(tmp_path, slow, odd, RAISED, arguments=("--report", str(html)))
    for told in (" ".join(done.output.split()), html.read_text()):
        assert "request-cap: 64 requests ran, the cap is 64" in told
        assert "reason not known from these figures (not read: GPU power)" in told
        assert "at 64 streams 757 tokens/s, 38% of" in told
        assert "2,000: reason not known from these figures (the cap of 64 does not limit 64 streams)" in told
