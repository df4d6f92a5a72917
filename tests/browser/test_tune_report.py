"""The comparison of variants in Chromium: no outside resource, charts drawn, light and dark, readable on a phone."""

from __future__ import annotations

import pytest

from gpunode import tuning
from gpunode_tools.report.tune_html import render


def variant(name, *totals, status="measured", cause="", findings=()):
    levels = [
        {
            "concurrency": streams, "completed": streams, "steady_total_tps": total, "steady_output_tps": total / 3,
            "ttft_ms": {"p99": 90.0 * streams}, "itl_ms": {"p99": 20.0 + streams / 8},
        }
        for streams, total in zip((1, 64, 512), totals, strict=False)
    ]  # fmt: skip
    return {
        "name": name, "key": name, "variant": {"flags": {"max-running-requests": 512}}, "status": status, "cause": cause,
        "result": {"levels": levels, "findings": list(findings), "plateau": {"cause": "request-cap"}, "simulated": True},
    }  # fmt: skip


@pytest.fixture
def report(tmp_path):
    bound = {"id": "client-bound", "severity": "unknown", "subject": "512 streams"}
    records = [
        variant("as-is", 33, 757, 913),
        variant("cap-512 <b>&", 150, 2000, 3740),
        variant("doubted", 300, 4000, 9000, findings=(bound,)),
        variant("gone", status="failed", cause="sglang.service has ended.\n" + "a long line " * 40),
    ]
    path = tmp_path / "tune.html"
    path.write_text(render(tuning.rank(records, {"max_itl_ms": 200}, "as-is")))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_fits_and_tells(open_page, report, width, scheme):
    page = open_page(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "cap-512 <b>& serves best: 3,740 tokens/s" in page.inner_text("body")
    assert page.locator("figure svg").count() >= 3
    assert page.locator("tbody tr").first.inner_text().startswith("★ cap-512 <b>&")
    assert "not believed" in page.inner_text("body")
    assert "Simulated" in page.inner_text("body")
