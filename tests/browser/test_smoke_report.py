"""The smoke report in Chromium: no outside resource, charts drawn, light and dark, readable on a phone, printable."""

from __future__ import annotations

import pytest

from gpunode import plateau, smoke_baseline
from gpunode_tools.report.smoke_html import render
from gpunode_tools.smoke.judging import judge

TOTALS = {1: 33.0, 32: 438.0, 64: 757.0, 128: 806.0, 256: 880.0, 512: 913.0}


def make_level(concurrency, total):
    latency = concurrency / (total / 384)
    return {
        "concurrency": concurrency,
        "requested": 3 * concurrency,
        "completed": 3 * concurrency - (concurrency == 512),
        "failed": int(concurrency == 512),
        "errors": {"stalled": 1} if concurrency == 512 else {},
        "warmup_requests": concurrency,
        "warmup_errors": {},
        "duration_s": 90.0,
        "steady": {"start_s": 0.0, "end_s": 80.0, "share": 0.89},
        "total_tps": total * 0.97,
        "input_tps": total * 0.64,
        "output_tps": total * 0.32,
        "steady_total_tps": total,
        "steady_output_tps": total / 3,
        "peak_output_tps": total / 2.5,
        "ttft_ms": {"mean": 800.0, "p50": 90.0 * concurrency / 8 + 91, "p90": 900.0, "p99": 200.0 * concurrency / 8 + 91, "max": 9999.0},
        "itl_ms": {"mean": 220.0, "p50": 195.0, "p90": 230.0, "p99": 420.0, "max": 800.0},
        "tpot_ms": {"mean": 220.0, "p50": 210.0, "p90": 230.0, "p99": 240.0, "max": 250.0},
        "e2e_ms": {"mean": latency * 1000, "p50": latency * 1000, "p90": latency * 1100, "p99": latency * 1200, "max": latency * 1300},
        "prefill_share": 0.1,
        "server": {
            "running_max": min(64, concurrency),
            "queued_max": max(0, concurrency - 64),
            "token_usage_max": 0.08,
            "generation_tokens": 1,
        },
        "gpu": {"power_w_mean": 240.0, "power_limit_w": 600.0, "utilisation_mean": 88.0},
        "client": {"cpu_share": 0.03, "late_reads_ms_p99": 0.4, "processes": 1, "generation_tokens": 1},
        "client_bound": "",
        "counters_differ": 0.0,
        "per_second_output": [total / 3 * (0.9 + 0.2 * ((second * 7) % 5) / 5) for second in range(80)],
    }


@pytest.fixture
def result():
    levels = [make_level(*item) for item in TOTALS.items()]
    server = {"engine": "sglang", "version": "0.5.23", "models": ["glm-5"], "max_running_requests": 64, "max_total_num_tokens": 332053}
    server |= {"flags": {"tp_size": 8, "max_running_requests": 64}, "flags_digest": "ab", "unknown": []}
    made = {
        "schema": "gpunode.smoke/1",
        "url": "http://10.213.0.111:30000",
        "node": "gpu-node-01",
        "model": "glm-5 <b>&",
        "server": server,
        "load": {"endpoint": "completions", "input_len": 256, "output_len": 128, "concurrency": list(TOTALS)},
        "levels": levels,
        "error_examples": {"stalled": ["silent for 60 s after 17 of 128 tokens <script>alert(1)</script>"]},
        "plateau": plateau.analyse(levels, {**server, "request_tokens": 384}),
        "started_at": "2026-11-30T12:00:00+00:00",
        "finished_at": "2026-11-30T12:12:00+00:00",
        "stopped": None,
        "simulated": True,
    }
    before = smoke_baseline.make({**made, "levels": [make_level(c, t * 1.2) for c, t in TOTALS.items()]})
    judge(made, limits={"min_total_tps": 1000.0}, baseline=before)
    return made


def test_it_tells_what_was_measured(result, open_page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render(result), encoding="utf-8")
    page = open_page(file)
    text = page.inner_text("main")
    assert "Throughput of glm-5 <b>&" in text
    assert "Simulated" in text
    assert "request-cap" in text
    assert "--max-running-requests from 64 to 512" in text
    assert "throughput fell by 16.7 % against the baseline" in text
    assert "<script>alert(1)</script>" in text
    assert page.locator("svg[role=img]").count() == 5
    assert page.locator("svg polyline").count() >= 9 + 6
    assert page.locator("svg polyline.old").count() == 1
    dots = page.locator("svg[aria-label=Throughput] circle")
    assert dots.count() == 18
    assert page.locator("svg[aria-label=Throughput] circle title").first.text_content() == "total: 33 at 1"


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_is_readable(result, open_page, tmp_path, width, scheme):
    file = tmp_path / "report.html"
    file.write_text(render(result), encoding="utf-8")
    page = open_page(file, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lines = page.evaluate(
        """() => [...document.querySelectorAll('svg .line')].map(line => {
            const stroke = getComputedStyle(line).stroke, back = getComputedStyle(line.closest('.card')).backgroundColor;
            const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
            const light = text => {
                 const [r, g, b] = text.match(/\\d+/g).map(Number).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
            const [a, b] = [light(stroke), light(back)].sort((x, y) => y - x); return (a + .05) / (b + .05); })"""
    )
    assert min(lines) >= 3.0  # WCAG's contrast of graphics


def test_it_prints(result, open_page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render(result), encoding="utf-8")
    page = open_page(file)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000


def test_a_run_that_never_began_has_a_page_too(open_page, tmp_path):
    from gpunode_tools.smoke.http import Unreachable
    from gpunode_tools.smoke.run import Options, unreachable

    nothing = unreachable(Options(url="http://10.0.0.5:30000"), Unreachable("10.0.0.5:30000: connection refused"))
    judge(nothing, limits={})
    file = tmp_path / "report.html"
    file.write_text(render(nothing), encoding="utf-8")
    text = open_page(file).inner_text("main")
    assert "connection refused" in text
    assert "UNKNOWN" in text
