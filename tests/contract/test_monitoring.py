"""Alert rules through promtool, and every metric of every panel and alert looked up in what really serves it."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import jinja2
import pytest
import yaml
from tests.support.debian import program
from tests.support.monitoring import DASHBOARDS, ROOT, RULES, USED, expressions, lacking, served
from tests.support.promql import grouped, matched, metrics
from tests.support.published import locked, published
from tests.unit.lab.sglang_release import Release

from gpunode_tools.report import p2p_machine, smoke_machine

sys.path.insert(0, str(ROOT / "tools"))
from sglang_wheels import wheel

OWN = {"up", "ALERTS"}
"""Prometheus makes these itself."""
SAMPLES = os.environ.get("GPUNODE_SAMPLES")


def of(prefix: str) -> set[str]:
    return {name for name in USED if name.startswith(prefix)}


def bare(names: set[str]) -> set[str]:
    """Names of families: without what a histogram adds."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_metrics_of_an_expression_are_found() -> None:
    text = 'sum by (a, b) (rate(x:y_total{c="d{e}"}[5m])) > 0.9 * max(f) and on (g) h unless time() - i offset 5m > 1e3'
    assert metrics(text) == {"x:y_total", "f", "h", "i"}
    assert matched(text) == {("x:y_total", "c")}
    assert grouped(text) == {"a", "b", "g"}


def test_every_metric_has_a_source() -> None:
    known = of("gpunode_") | of("sglang:") | of("smg_") | of("node_") | of("gpu_") | OWN
    assert set(USED) - known == set()
    assert all((of("gpunode_"), of("sglang:"), of("smg_"), of("node_"), of("gpu_")))


# --- promtool ---------------------------------------------------------------------------------------------------------


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("prometheus", "promtool"), *arguments], capture_output=True, text=True, check=False)


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_fire_and_stay_silent_as_told() -> None:
    done = promtool("test", "rules", str(ROOT / "tests/promtool/gpunode_test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    cases = yaml.safe_load((ROOT / "tests/promtool/gpunode_test.yml").read_text())["tests"]
    fired = {test["alertname"] for case in cases for test in case["alert_rule_test"] if test["exp_alerts"]}
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert fired == rules


def test_promtool_accepts_the_expressions_of_the_dashboards(tmp_path: Path) -> None:
    rules = [{"record": f"r{index}", "expr": text.replace("$__rate_interval", "5m")} for index, text in enumerate(expressions().values())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = promtool("check", "rules", "--lint=none", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


# --- gpunode's own metrics, read by the real node_exporter ------------------------------------------------------------


def results() -> dict[str, str]:
    """Files as the checks leave them side by side on one node."""
    finding = {"id": "hmm-enabled", "severity": "error", "subject": "host", "summary": "", "evidence": "", "remedy": ""}
    pair = {"src": 0, "dst": 1, "path": "NODE", "status": "ok", "copy_gbps": 50.0, "read_latency_us": 0.5}
    p2p = {
        "verdict": "fail",
        "findings": [finding],
        "gpus": [{}, {}],
        "pairs": [pair],
        "simulated": True,
        "collected_at": "2026-11-30T12:00:00Z",
    }
    level = {
        "concurrency": 8, "completed": 16, "failed": 0, "steady_total_tps": 900.0, "steady_output_tps": 300.0,
        "ttft_ms": {"p50": 90.0, "p99": 200.0}, "itl_ms": {"p50": 11.0, "p99": 30.0},
    }  # fmt: skip
    row = {"concurrency": 8, "figure": "steady_total_tps", "before": 1000.0, "now": 900.0, "change_pct": -10.0}
    smoke = {
        "verdict": "pass", "model": "glm-5", "simulated": True, "finished_at": "2026-11-30T12:00:00+00:00", "levels": [level],
        "plateau": {"knee_concurrency": 8}, "baseline": {"rows": [row]},
    }  # fmt: skip
    return {
        **{f"gpunode_{check}.prom": p2p_machine.prometheus(p2p, check) for check in ("state", "measured", "boot")},
        **{f"gpunode_smoke_{run}.prom": smoke_machine.prometheus(smoke, run) for run in ("daily", "deploy")},
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What Debian's node_exporter serves with the files of all checks in its folder."""
    exporter = program("prometheus-node-exporter", "prometheus-node-exporter")
    folder = tmp_path_factory.mktemp("textfiles")
    for name, text in results().items():
        (folder / name).write_text(text)
    port = free_port()
    command = [exporter, f"--web.listen-address=127.0.0.1:{port}", f"--collector.textfile.directory={folder}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for _ in range(100):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                        return answer.read().decode()
                except OSError:
                    assert running.poll() is None, "node_exporter ended"
                    time.sleep(0.1)
            raise AssertionError("node_exporter does not answer")
        finally:
            running.terminate()


def test_node_exporter_takes_the_files_of_all_checks_at_once(exported: str) -> None:
    assert "node_textfile_scrape_error 0" in exported.splitlines()
    assert 'gpunode_p2p_finding{check="boot",id="hmm-enabled",severity="error"} 1' in exported
    assert 'gpunode_p2p_finding{check="state",id="hmm-enabled",severity="error"} 1' in exported


def test_metrics_of_the_checks_and_of_the_machine(exported: str) -> None:
    assert lacking("gpunode_", served(exported)) + lacking("node_", served(exported)) == []


# --- sglang, router, GPUs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.5.9", "0.5.17", "0.5.23"])
def test_metrics_of_sglang_stand_in_the_published_wheel(version: str) -> None:
    with zipfile.ZipFile(wheel(version)) as archive:
        text = "".join(
            archive.read(name).decode() for name in archive.namelist() if name.startswith("sglang/srt/") and name.endswith(".py")
        )
    written = set(re.findall(r"sglang:[a-z0-9_]+", text))
    assert bare(of("sglang:")) - written == set()


@pytest.mark.skipif(not SAMPLES, reason="GPUNODE_SAMPLES names no folder of samples")
def test_metrics_of_sglang_in_what_a_real_server_answered() -> None:
    text = (Path(str(SAMPLES)) / "sglang-0.5.17-h200/metrics.http").read_text()
    # Counted from the second token of a stream, from an abort, from a hit on: none of these had happened on that server.
    later = {"sglang:inter_token_latency_seconds", "sglang:num_aborted_requests_total", "sglang:cached_tokens_total"}
    assert bare(of("sglang:")) - later - set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == set()
    there = served(text)
    assert lacking("sglang:", there, of("sglang:") - set(there)) == []


CLIENT = """
import sys, time
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
registry = CollectorRegistry()
for name in sys.argv[2:]:
    if name.endswith("_bucket"):
        Histogram(name.removesuffix("_bucket"), "-", registry=registry).observe(1)
    elif name.endswith("_total"):
        Counter(name, "-", registry=registry).inc()
    else:
        Gauge(name, "-", registry=registry).set(1)
start_http_server(int(sys.argv[1]), "127.0.0.1", registry)
time.sleep(600)
"""


def scraped(folder: Path, port: int) -> set[str]:
    """Names under which Debian's Prometheus, configured as the role does, keeps what a server of job sglang tells."""
    (folder / "targets").mkdir()
    (folder / "targets/sglang.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": "gpu-node-01"}}]))
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    environment.filters |= {"to_json": json.dumps, "to_nice_yaml": yaml.safe_dump}
    listen = free_port()
    text = environment.from_string((ROOT / "roles/monitoring/templates/prometheus.yml.j2").read_text()).render(
        ansible_managed="test", inventory_hostname="watch-1", _monitoring_etc=folder, monitoring_interval_s=1, monitoring_alertmanagers=[],
        monitoring_scrape_configs=[], monitoring_address="127.0.0.1", monitoring_port=listen,
    )  # fmt: skip
    (folder / "prometheus.yml").write_text(text)
    command = [program("prometheus", "prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{listen}")
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    with urllib.request.urlopen(
                        f"http://127.0.0.1:{listen}/api/v1/query?query=count({{job='sglang'}})by(__name__)"
                    ) as answer:
                        names = {row["metric"]["__name__"] for row in json.load(answer)["data"]["result"]}
                except OSError:
                    assert running.poll() is None, (folder / "log").read_text()
                else:
                    # `up` is there from the first scrape on, and what it brought with it.
                    if any("num_running_reqs" in name for name in names):
                        return names
                time.sleep(0.3)
            raise AssertionError((folder / "log").read_text()[-2000:])
        finally:
            running.terminate()


def test_prometheus_keeps_the_names_that_sglang_s_client_library_changes(tmp_path: Path) -> None:
    """The library of sglang's locks, asked for OpenMetrics, writes `sglang_` for `sglang:`: no alert and no panel found anything."""
    port = free_port()
    library = {"PYTHONPATH": str(published(locked("roles/sglang_venv/files/locks/sglang-0.5.23.txt", "prometheus-client")))}
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(port), *sorted(of("sglang:"))], env=os.environ | library) as server:
        try:
            assert of("sglang:") - scraped(tmp_path, port) == set()
        finally:
            server.terminate()


def test_the_stand_in_s_metrics_arrive_under_the_same_names(tmp_path: Path) -> None:
    release = Release(tmp_path / "release")
    try:
        url = release.serve()
        body = json.dumps({"text": "a b c d", "sampling_params": {"max_new_tokens": 4}, "stream": True}).encode()
        for _ in range(2):  # the second one hits the cache
            request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
        there = scraped(tmp_path, int(url.rsplit(":", 1)[1]))
        assert of("sglang:") - there == {"sglang:num_aborted_requests_total"}, "nobody aborted a request"
    finally:
        release.stop()


def test_metrics_of_the_gpus_stand_in_the_locked_exporter() -> None:
    exporter = published(locked("roles/node_metrics/files/nvitop-exporter.txt", "nvitop-exporter"))
    tree = ast.parse((exporter / "nvitop_exporter/exporter.py").read_text())
    served = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Gauge":
            said = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            served.add(f"{said['name']}_{said['unit']}")
    assert of("gpu_") - served == set()


def test_the_dashboards_are_built_from_their_description() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools/dashboards.py"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_what_grafana_needs(path: Path) -> None:
    data = json.loads(path.read_text())
    assert data["uid"] == path.stem
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in data["panels"]]
    assert len(places) == len(set(places)) == len({panel["id"] for panel in data["panels"]})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in data["panels"])
    assert {target["datasource"]["uid"] for panel in data["panels"] for target in panel["targets"]} == {"${source}"}
    assert {variable["name"] for variable in data["templating"]["list"]} == {"source", "instance"}
