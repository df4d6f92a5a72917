"""The measurement itself, against a server whose truth is known; figures are loose here, since a test machine is busy."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpunode_tools.cli import smoke as cli
from gpunode_tools.report import smoke_html, smoke_text
from gpunode_tools.smoke.dialects import Prompts, Shape

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.serial


@pytest.mark.parametrize("endpoint", ["completions", "chat", "generate"])
@pytest.mark.parametrize("per_chunk", [1, 4])
@pytest.mark.parametrize("continuous", [0, 1])
def test_tokens_and_times_of_every_endpoint(truth, smoke, endpoint, per_chunk, continuous):
    truth.reset(ttft_ms=50, itl_ms=5, per_chunk=per_chunk, continuous=continuous)
    result, code = smoke(truth.url, endpoint=endpoint, output_len=24, requests_per_level=16)
    level, true = result["levels"][0], truth.truth()
    assert code == 0, result["findings"]
    assert level["completed"] == 16
    assert true["tokens"] == level["client"]["generation_tokens"] == 20 * 24
    assert level["ttft_ms"]["p50"] == pytest.approx(true["ttft_ms"]["p50"], rel=0.15)
    assert level["itl_ms"]["p50"] == pytest.approx(5.0, rel=0.2)
    ideal = 4 * 24 / (0.050 + (24 - per_chunk) * 0.005)
    assert level["output_tps"] == pytest.approx(ideal, rel=0.25)


def test_without_any_usage_events_are_counted(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1, usage=0)
    result, _ = smoke(truth.url, requests_per_level=16)
    assert result["levels"][0]["token_count"] == "events"
    assert result["levels"][0]["completed"] == 16


def test_warm_up_is_told_apart_and_counted_apart(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1)
    result, _ = smoke(truth.url, concurrency=(4, 8), requests_per_slot=2)
    assert [(level["requested"], level["warmup_requests"]) for level in result["levels"]] == [(16, 4), (16, 8)]
    assert truth.truth()["requests"] == 44


def test_counters_of_the_server_agree(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1)
    result, _ = smoke(truth.url, requests_per_level=16)
    level = result["levels"][0]
    assert level["server"]["generation_tokens"] == level["client"]["generation_tokens"] == 200
    assert level["counters_differ"] == 0


def test_several_processes_measure_as_one(truth, smoke):
    truth.reset(ttft_ms=20, itl_ms=2)
    result, code = smoke(truth.url, concurrency=(6,), requests_per_level=30, processes=2)
    level = result["levels"][0]
    assert level["client"]["processes"] == 2
    assert (level["completed"], level["warmup_requests"], level["failed"]) == (30, 6, 0)
    assert level["counters_differ"] == 0
    assert code == 0


def test_duration_instead_of_a_number(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1)
    result, _ = smoke(truth.url, duration_s=1.0)
    level = result["levels"][0]
    assert 0.9 < level["duration_s"] < 2
    assert level["completed"] > 50


def test_every_request_is_written_where_it_is_wanted(truth, tmp_path):
    truth.reset(ttft_ms=300, itl_ms=20)
    raw, report, metrics, baseline = (tmp_path / name for name in ("r.jsonl", "r.html", "m.prom", "b.json"))
    command = [sys.executable, ROOT / "tools/smoke_test.py", "--url", truth.url, "--concurrency", "8", "--requests-per-level", "16"]
    command += ["--output-len", "8", "--vocab-size", "9000", "--output", "json"]
    files = ["--raw", raw, "--report", report, "--metrics", metrics, "--save-baseline", baseline]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict, done.returncode) in {("pass", 0), ("client-bound", 3)}, done.stderr  # the latter on a machine that is busy enough
    rows = [json.loads(line) for line in raw.read_text().splitlines()]
    assert len(rows) == 24
    assert sum(row["warmup"] for row in rows) == 8
    assert json.loads(done.stdout)["schema"] == "gpunode.smoke/1"
    assert f'gpunode_smoke_verdict{{run="smoke",model="truth",simulated="false",verdict="{verdict}"}} 1' in metrics.read_text()
    assert "<svg" in report.read_text()
    assert baseline.exists() == (verdict == "pass")


def test_the_first_baseline_of_the_same_load_stays_where_it_shall(truth, tmp_path):
    truth.reset(ttft_ms=20, itl_ms=5)
    baseline = tmp_path / "b.json"
    command = [sys.executable, ROOT / "tools/smoke_test.py", "--url", truth.url, "--concurrency", "2", "--requests-per-level", "16"]
    command += ["--vocab-size", "9000", "--repeats", "0", "--save-baseline", baseline]

    def run(*options: str) -> str:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return baseline.read_text()

    first = run("--output-len", "8")
    assert run("--output-len", "8", "--keep-baseline") == first
    assert run("--output-len", "9", "--keep-baseline") != first, "another load wants another baseline"
    second = baseline.read_text()
    assert run("--output-len", "9") != second, "whoever does not ask to keep it gets a new one"


def test_ctrl_c_ends_in_a_valid_partial_report(truth):
    truth.reset(ttft_ms=10, itl_ms=20)
    command = [
        sys.executable,
        ROOT / "tools/smoke_test.py",
        "--url",
        truth.url,
        "--concurrency",
        "1,4",
        "--output-len",
        "8",
        "--vocab-size",
        "9000",
        "--output",
        "json",
    ]
    process = subprocess.Popen([*command, "--requests-per-level", "16"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 20
    while truth.truth()["finished"] < 20 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    result = json.loads(output)
    assert process.returncode == 3
    assert result["stopped"] == "interrupted"
    assert result["levels"][0]["completed"] == 16
    assert len(result["levels"]) == 2


@pytest.mark.parametrize("endpoint", ["completions", "generate"])
def test_prompts_are_unique_exact_and_within_the_vocabulary(endpoint):
    prompts = Prompts(Shape(endpoint, "m", 64, 8, vocabulary=50, seed=3))
    seen = set()
    for _ in range(500):
        body = json.loads(prompts.body(8))
        ids = body["prompt"] if endpoint == "completions" else body["input_ids"]
        assert len(ids) == 64
        assert 0 <= min(ids) <= max(ids) < 50
        seen.add(tuple(ids[:4]))
    assert len(seen) == 500
    assert body.get("max_tokens", body.get("sampling_params", {}).get("max_new_tokens")) == 8


@pytest.mark.parametrize("length", [1, 2, 4, 5, 9])
def test_short_prompts_have_their_length(length):
    assert len(json.loads(Prompts(Shape("completions", "m", length, 8)).body(8))["prompt"]) == length


def test_prompts_of_processes_do_not_meet():
    shape = Shape("completions", "m", 8, 8, vocabulary=4000, seed=1)
    first, second = Prompts(shape, 0, 2), Prompts(shape, 1, 2)
    heads = [tuple(json.loads(prompts.body(8))["prompt"][:4]) for _ in range(300) for prompts in (first, second)]
    assert len(set(heads)) == 600


def test_prompts_use_only_ids_that_are_known():
    shape = Shape("completions", "m", 40, 8, alphabet=(3, 5, 8, 13, 21, 34, 55, 89))
    assert set(json.loads(Prompts(shape).body(8))["prompt"]) <= {3, 5, 8, 13, 21, 34, 55, 89}


def test_a_shared_prefix_is_shared():
    prompts = Prompts(Shape("completions", "m", 64, 8, shared_prefix=48, seed=5))
    one, two = (json.loads(prompts.body(8))["prompt"] for _ in range(2))
    assert one[:48] == two[:48]
    assert one[48:52] != two[48:52]
    assert len(one) == len(two) == 64


class Scripted:
    """A server that answers each request with given pieces of a stream, to say what no real one says on purpose."""

    def __init__(self, pieces):
        self.pieces = pieces

    async def __call__(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
                await reader.readexactly(length)
                if head.startswith("GET /v1/models"):
                    body = b'{"data":[{"id":"m"}]}'
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                elif not head.startswith("POST /v1"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                    for piece in self.pieces:
                        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                        await writer.drain()
                        await asyncio.sleep(0.002)
                    writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _scripted(pieces, output_len):
    from gpunode_tools.cli.smoke import target_of
    from gpunode_tools.smoke.run import Options, Run

    async def go():
        server = await asyncio.start_server(Scripted(pieces), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        options = Options(url=url, concurrency=(1,), output_len=output_len, gpu="no", vocabulary=5000, requests_per_level=2)
        try:
            return await Run(options, target_of(url, None, None)).run()
        finally:
            server.close()

    return asyncio.run(go())["levels"][0]


TEXT = b'data: {"choices":[{"index":0,"text":"%b","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"text":"c","finish_reason":"length"}],"usage":null}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("pieces", "tokens"),
    [
        ([TEXT % b"a", TEXT % b"b", LAST], 3),
        ([(TEXT % b"a") + (TEXT % b"b"), LAST], 3),  # two events in one chunk
        ([(TEXT % b"a")[:20], (TEXT % b"a")[20:] + (TEXT % b"b")[:5], (TEXT % b"b")[5:], LAST], 3),  # cut anywhere
        ([(TEXT % b"a").replace(b"\n\n", b"\r\n\r\n"), TEXT % b"b", LAST], 3),  # other line ends
        ([b": ping\n\n", TEXT % b"a", b": ping\n\n", TEXT % b"b", LAST], 3),  # comments
        ([TEXT % b"a\\n", TEXT % b'\\"', TEXT % b"\\\\", LAST], 4),  # escapes behind a learned template
        ([TEXT % b"a", TEXT % b"", LAST], 3),  # half of a character
    ],
)
def test_framing(pieces, tokens):
    level = _scripted(pieces, tokens)
    assert level["errors"] == {}
    assert level["client"]["generation_tokens"] == 3 * tokens


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([TEXT % b"a", TEXT % b"b", b'data: {"choices":[{"index":0,"text":"x"b"}]}\n\n', LAST], "malformed-event"),
        ([TEXT % b"a", b"data: nonsense\n\n", LAST], "malformed-event"),
        ([TEXT % b"a", b'data: {"hello":1}\n\n', LAST], "malformed-event"),
        ([TEXT % b"a", b'data: {"object":"error","message":"out of memory","code":500}\n\n', LAST], "stream-error"),
        ([TEXT % b"a", TEXT % b"b"], "stream-ended-early"),
        ([TEXT % b"a", LAST], "wrong-length"),
    ],
)
def test_what_is_no_answer(pieces, kind):
    assert _scripted(pieces, 5)["errors"] == {kind: 2}


# --- what is said while it runs ---------------------------------------------------------------------------------------


def test_the_plan_and_each_level_are_said_before_they_begin(truth):
    truth.reset(ttft_ms=10, itl_ms=1)
    levels = ["--concurrency", "1,6", "--requests-per-slot", "4", "--output-len", "8", "--input-len", "20", "--repeats", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "gpunode_tools", "smoke", "--url", truth.url, *levels],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    plan, *lines = [line for line in done.stderr.splitlines() if line.startswith(("plan", "level")) or "stream" in line]
    assert plan == (
        "plan: levels 1 (16 requests), 6 (24 requests), before each one warm-up request a stream; "
        "20 tokens in and 8 out of each request, completions"
    )
    assert [line.split(":")[0].strip() for line in lines] == ["level 1", "1 stream", "level 6", "6 streams"]
    assert lines[2] == "level 6: 24 requests"
    assert "run and queue: each level's maximum, at different moments" in done.stdout


def test_what_remains_is_told_only_once_the_level_knows_its_rate(monkeypatch):
    monkeypatch.setattr(cli.time, "monotonic", lambda: 110.0)
    plan = SimpleNamespace(concurrency=8, requests=40, duration_s=None)
    level = SimpleNamespace(plan=plan, in_warmup=0, data=SimpleNamespace(started=100.0, completed=7, errors={}))
    assert cli.remaining(level) == ""
    level.data.completed, level.data.errors = 9, {"http-500": 1}
    assert cli.remaining(level) == ", about 30 s left at its rate so far"
    plan.concurrency, level.data.completed = 1, 1
    assert cli.remaining(level) == ""
    level.in_warmup = 3
    assert cli.remaining(level) == ""
    timed = SimpleNamespace(plan=SimpleNamespace(concurrency=8, requests=None, duration_s=60.0), in_warmup=0, data=level.data)
    assert cli.remaining(timed) == ", 50 s left"


def test_every_report_says_what_running_and_queued_are(truth, smoke):
    truth.reset(ttft_ms=10, itl_ms=1)
    result, _ = smoke(truth.url, requests_per_level=16)
    assert "run and queue: each level's maximum, at different moments" in smoke_text.render(result, colour=False)
    assert "Running and queued: each level&#x27;s maximum, at different moments" in smoke_html.render(result)


def test_a_line_of_the_log_takes_the_place_of_the_progress(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    data = SimpleNamespace(completed=1, errors={}, started=0.0)
    cli.progress_line()(SimpleNamespace(plan=SimpleNamespace(concurrency=8, requests=40, duration_s=None), in_warmup=0, data=data))
    cli.say("level 16: 48 requests")
    assert terminal.getvalue() == "\r\x1b[K    8 streams: 1 of 40\r\x1b[Klevel 16: 48 requests\n"
    monkeypatch.setenv("TERM", "dumb")
    assert cli.progress_line() is None
