"""The verify-p2p report in Chromium: no outside resource, light and dark, readable on a phone."""

from __future__ import annotations

import pytest
from tests.support.healthy import make_node

from gpunode.judge import judge
from gpunode.rules.baseline import build
from gpunode.snapshot import Snapshot
from gpunode.state import State
from gpunode_tools.report.p2p_html import render


def broken(count):
    data = make_node(count)
    for pair in data["measured"]:
        pair["bidirectional_gbps"] = pair["copy_gbps"] * 1.9
        if 3 in {pair["src"], pair["dst"]}:
            pair["copy_gbps"] = 13.1
        if (pair["src"], pair["dst"]) == (2, 1):
            pair.update(status="corrupt", data_ok=False)
    data["measurement"]["patterns"] = [{"name": "all-to-all", "pairs": 56, "status": "ok", "data_ok": True, "total_gbps": 301.4}]
    data["files"]["/sys/class/dmi/id/bios_version"] = "9.9\n"
    return data


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Path of a report with everything in it: findings, baseline, heat maps, patterns."""
    made = {}

    def of(count):
        if count not in made:
            baseline = build(State(Snapshot(make_node(count))), "2026-11-01T00:00:00Z")
            path = tmp_path_factory.mktemp("report") / f"{count}.html"
            path.write_text(render(judge(Snapshot(broken(count)), None, baseline).to_dict()), encoding="utf-8")
            made[count] = path
        return made[count]

    return of


def luminance(colour):
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("width", [360, 390, 768, 1100])
@pytest.mark.parametrize("count", [4, 8, 16])
def test_page_never_scrolls_sideways(report, open_page, width, count):
    page = open_page(report(count), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg").count() == 2


def test_eight_gpus_fit_a_phone(report, open_page):
    page = open_page(report(8), 390)
    box = page.locator(".scroll:has(table.heat)").first
    assert box.evaluate("node => node.scrollWidth <= node.clientWidth")


def test_content(report, open_page):
    page = open_page(report(8))
    assert page.locator(".verdict").inner_text() == "FAIL"
    assert page.locator(".finding.error").first.inner_text().startswith("ERROR p2p-corrupt GPU2->GPU1")
    assert "BIOS" in page.locator("section:has(h2:text('Changed since the baseline'))").inner_text()
    heat = page.locator("table.heat").first
    assert heat.locator("td").count() == 64
    assert heat.locator("tr").nth(3).locator("td").nth(1).inner_text() == "CORR"
    assert page.locator("svg .bad").count() >= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_every_text(report, open_page, scheme):
    """At least 4.5 to 1 (WCAG AA) for words and for cells of the heat maps."""
    page = open_page(report(8), scheme=scheme)
    pairs = page.evaluate(
        """() => [...document.querySelectorAll('p, td, th, h1, h2, code, .sev, .verdict')].filter(node => node.innerText.trim())
            .map(node => { let behind = node;
            while (getComputedStyle(behind).backgroundColor.startsWith('rgba(0, 0, 0, 0')) behind = behind.parentElement;
            return [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor, node.innerText.slice(0, 30)]; })"""
    )
    assert len(pairs) > 100
    low = sorted({(round(contrast(ink, paper), 2), text) for ink, paper, text in pairs if contrast(ink, paper) < 4.5})
    assert low == []


def test_schemes_differ(report, open_page):
    papers = {
        scheme: open_page(report(8), scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert luminance(papers["light"]) > 0.8
    assert luminance(papers["dark"]) < 0.05
