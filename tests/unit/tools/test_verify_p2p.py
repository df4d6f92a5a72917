"""`gpunode verify-p2p`: what goes in, what comes out, how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.healthy import make_node

from gpunode.judge import judge
from gpunode.snapshot import Snapshot
from gpunode_tools.cli import main
from gpunode_tools.cli.verify_p2p import command
from gpunode_tools.report.metrics import Metrics

ROOT = Path(__file__).parents[3]


@pytest.fixture
def healthy(tmp_path):
    path = tmp_path / "healthy.json"
    path.write_text(json.dumps(make_node(4)))
    return path


@pytest.fixture
def broken(tmp_path):
    data = make_node(4)
    data["measured"][0].update(status="corrupt", data_ok=False)
    data["commands"]["lspci -vvv"] = None
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    return path


def run(*args, **options):
    return CliRunner().invoke(command, [str(arg) for arg in args], **options)


def test_healthy(healthy):
    done = run("--snapshot", healthy)
    assert done.exit_code == 0
    assert done.stdout.startswith("node1: PASS (healthy)\n  4 x NVIDIA RTX PRO 6000")
    assert "\x1b" not in done.stdout
    assert "12 of 12 pairs ok" in done.stdout


def test_light_measurement_says_so(healthy):
    data = json.loads(healthy.read_text())
    for pair in data["measured"][:5]:
        pair["light"] = True
    healthy.write_text(json.dumps(data))
    assert "12 of 12 pairs ok (5 of them measured lightly on GPUs in use" in run("--snapshot", healthy).stdout


def test_broken(broken):
    done = run("--snapshot", broken)
    assert done.exit_code == 1
    assert "error p2p-corrupt GPU0->GPU1" in done.stdout
    assert "CORR" in done.stdout
    assert done.stdout.index("error p2p-corrupt") < done.stdout.index("unknown not-readable")


def test_could_not_tell(tmp_path):
    (tmp_path / "none.json").write_text('{"schema": "gpunode.snapshot/1"}')
    assert run("--snapshot", tmp_path / "none.json").exit_code == 3


@pytest.mark.parametrize("text", ["{}", '{"host": "node1"}', '{"nvidia-smi": {}}'])
def test_an_object_that_is_no_snapshot_is_refused(tmp_path, text):
    (tmp_path / "none.json").write_text(text)
    done = run("--snapshot", tmp_path / "none.json")
    assert done.exit_code == 2
    assert "it has no schema and none of commands, container, files, links, measured, nodes: no snapshot" in " ".join(done.stderr.split())


def test_standard_input(healthy):
    assert run("--snapshot", "-", input=healthy.read_text()).exit_code == 0


def test_json(broken):
    done = run("--snapshot", broken, "--output", "json")
    result = json.loads(done.stdout)
    assert (result["schema"], result["verdict"]) == ("gpunode.p2p/1", "fail")
    assert result["findings"][0]["id"] == "p2p-corrupt"


def test_junit(broken):
    suite = ET.fromstring(run("--snapshot", broken, "--output", "junit").stdout)[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("3", "1")  # the finding, the pair, the verdict; lspci is unknown
    assert int(suite.get("tests")) == len(suite)


def test_prometheus(broken):
    lines = run("--snapshot", broken, "--output", "prometheus").stdout.splitlines()
    assert 'gpunode_p2p_verdict{check="measured",verdict="fail"} 1' in lines
    assert 'gpunode_p2p_finding{check="measured",id="p2p-corrupt",severity="error"} 1' in lines
    assert 'gpunode_p2p_pair_ok{check="measured",src="0",dst="1",path="NODE"} 0' in lines
    assert 'gpunode_p2p_copy_gbps{check="measured",src="0",dst="2",path="SYS"} 40' in lines
    assert 'gpunode_p2p_checked_timestamp_seconds{check="measured"} 1796040000' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_metrics_escape():
    metrics = Metrics()
    metrics.gauge("a", "a \\ b", 0.5, {"x": 'quote " back \\ line \n'})
    metrics.gauge("b", "b", float("nan"))
    assert (
        metrics.render()
        == '# HELP a a \\\\ b\n# TYPE a gauge\na{x="quote \\" back \\\\ line \\n"} 0.5\n# HELP b b\n# TYPE b gauge\nb NaN\n'
    )


def test_every_form_beside_the_one_on_standard_output(healthy, tmp_path):
    files = {name: tmp_path / "new" / name for name in ("r.html", "r.json", "r.prom")}
    done = run("--snapshot", healthy, "--report", files["r.html"], "--result", files["r.json"], "--metrics", files["r.prom"])
    assert done.exit_code == 0
    assert json.loads(files["r.json"].read_text())["verdict"] == "pass"
    assert files["r.prom"].read_text().endswith("\n")
    page = files["r.html"].read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(files)  # nothing half-written stays


def test_report_escapes_what_a_node_says(tmp_path):
    data = make_node(2)
    data["host"] = "<script>alert(1)</script>"
    data["commands"]["nvidia-smi topo -m"]["stdout"] = "<b>&</b>"
    (tmp_path / "evil.json").write_text(json.dumps(data))
    run("--snapshot", tmp_path / "evil.json", "--report", tmp_path / "evil.html")
    page = (tmp_path / "evil.html").read_text()
    assert "<script>" not in page
    assert "<b>" not in page


def test_save_snapshot_redacted(healthy, tmp_path):
    run("--snapshot", healthy, "--save-snapshot", tmp_path / "s.json", "--redact")
    assert json.loads((tmp_path / "s.json").read_text())["host"] == "host"
    assert run("--snapshot", tmp_path / "s.json").exit_code == 0


def test_baseline_saved_only_when_healthy(healthy, broken, tmp_path):
    place = tmp_path / "baseline.json"
    done = run("--snapshot", broken, "--save-baseline", place)
    assert not place.exists()
    assert "not saved" in done.stderr
    assert run("--snapshot", broken, "--save-baseline", place, "--force").exit_code == 1
    assert place.exists()
    assert run("--snapshot", healthy, "--save-baseline", place).exit_code == 0
    assert run("--snapshot", healthy, "--baseline", place).exit_code == 0


def test_a_baseline_of_some_pairs_is_saved_with_a_word(healthy, tmp_path):
    place = tmp_path / "baseline.json"
    assert "it has rates" not in run("--snapshot", healthy, "--save-baseline", place).stderr
    data = json.loads(healthy.read_text())
    del data["measured"][2:]
    data["measurement"]["pairs"] = "0:1,0:2"
    healthy.write_text(json.dumps(data))
    assert (
        "it has rates of 2 of 12 pairs, later runs are compared for those only"
        in run("--snapshot", healthy, "--save-baseline", place).stderr
    )


def test_baseline_names_what_became_slower(healthy, tmp_path):
    place = tmp_path / "baseline.json"
    run("--snapshot", healthy, "--save-baseline", place)
    data = json.loads(healthy.read_text())
    data["commands"]["uname -r"]["stdout"] = "7.0.14-15-pve\n"
    for pair in data["measured"]:
        if 3 in {pair["src"], pair["dst"]}:
            pair["copy_gbps"] /= 2
    healthy.write_text(json.dumps(data))
    done = run("--snapshot", healthy, "--baseline", place)
    assert done.exit_code == 1
    assert done.stdout.index("changed kernel: 7.0.14-14-pve -> 7.0.14-15-pve") < done.stdout.index("error p2p-slower-than-baseline GPU3")


def test_measurement_from_a_file(healthy, tmp_path):
    pair = {"src": 0, "dst": 1, "can_access": True, "copy_gbps": 53.0, "status": "ok", "data_ok": True}
    place = tmp_path / "measured.json"
    place.write_text(json.dumps({"pairs": [pair], "gpus": [], "measure": "quick"}))
    assert "11 pairs are not in the measurement" in run("--snapshot", healthy, "--measured", place).stdout
    events = [{"event": "plan", "pairs": [[0, 1], [1, 0]], "patterns": []}, {"event": "pair", "pair": pair, "done": 1, "total": 2}]
    place.write_text("noise\n" + "\n".join(json.dumps(event, separators=(",", ":")) for event in events) + '\n{"event":"pai')
    done = run("--snapshot", healthy, "--measured", place)
    assert "1 of 2 pairs were not measured (GPU1->GPU0)" in done.stdout
    place.write_text("nonsense")
    done = run("--snapshot", healthy, "--measured", place)
    assert done.exit_code == 2
    assert f"{place}: the measurement is no result of the probe, of nvbandwidth or of p2pBandwidthLatencyTest" in done.stderr


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-Infinity", "-53.0", '"53"', "true"])
@pytest.mark.parametrize("key", ["copy_gbps", "staged_gbps", "read_latency_us", "elapsed_ms"])
def test_a_rate_that_no_measurement_gives_is_refused(healthy, tmp_path, key, rate):
    place = tmp_path / "measured.json"
    place.write_text(f'{{"pairs": [{{"src": 0, "dst": 1, "{key}": {rate}}}], "measure": "quick"}}')
    done = run("--snapshot", healthy, "--measured", place)
    assert done.exit_code == 2
    assert f"{place}: measured[0].{key} is " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["host", "patterns"])
def test_rates_beside_the_pairs_are_refused_too(healthy, tmp_path, kind):
    place = tmp_path / "measured.json"
    place.write_text(f'{{"pairs": [], "{kind}": [{{}}, {{"total_gbps": NaN}}]}}')
    assert f"measurement.{kind}[1].total_gbps is nan" in run("--snapshot", healthy, "--measured", place).stderr


@pytest.mark.parametrize("cell", ["nan", "inf", "-53.00"])
def test_others_rates_are_refused_too(healthy, tmp_path, cell):
    place = tmp_path / "nvbandwidth.txt"
    rows = "           0          1\n 0       N/A      53.00\n 1     CELL        N/A\n".replace("CELL", cell)
    place.write_text(f"Running device_to_device_memcpy_write_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n{rows}\n")
    done = run("--snapshot", healthy, "--measured", place)
    assert done.exit_code == 2
    assert "copy_gbps is " in done.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "is a folder: name the file in it"),
        (lambda _path: None, "does not exist: look at the name"),
        (lambda path: path.write_bytes(b"\x1f\x8b\x08\xff"), "is no text: it is binary, compressed"),
        (lambda path: path.write_text(""), "it is empty"),
        (lambda path: path.write_text("<html>\n"), "it begins '<html>'"),
        (lambda path: path.write_text("[" * 100_000), "is no snapshot: not JSON"),
    ],
)
def test_files_that_cannot_be_read_are_told_in_words(tmp_path, make, words):
    make(tmp_path / "s.json")
    done = run("--snapshot", tmp_path / "s.json")
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Errno" not in done.stderr


def test_errors_of_reading_are_told_in_words(tmp_path, monkeypatch):
    def fails(error):
        def opened(*_args, **_options):
            raise error

        monkeypatch.setattr(Path, "open", opened)
        return run("--snapshot", "s.json").stderr

    assert "s.json may not be read by this user: chmod it" in fails(PermissionError(13, "Permission denied"))
    assert "s.json could not be read: Input/output error" in fails(OSError(5, "Input/output error"))


def test_a_file_larger_than_any_of_ours_is_refused(healthy, monkeypatch):
    monkeypatch.setattr("gpunode_tools.cli.verify_p2p.INPUT_LIMIT", 1 << 10)
    for place, text in ((healthy, None), ("-", healthy.read_text())):
        done = run("--snapshot", place, input=text)
        assert done.exit_code == 2
        assert "is larger than 0 MiB: no snapshot, baseline or measurement of a node is" in done.stderr


def test_what_is_not_known_stands_beside_the_verdict(healthy, tmp_path):
    data = json.loads(healthy.read_text())
    del data["files"]["/proc/cmdline"]
    del data["files"]["/proc/driver/nvidia/params"]
    healthy.write_text(json.dumps(data))
    report = tmp_path / "r.html"
    done = run("--snapshot", healthy, "--report", report)
    assert done.exit_code == 0
    assert done.stdout.startswith("node1: PASS, 2 not known (healthy in all that was read)\n")
    assert "healthy in all that was read, 2 not known" in report.read_text()


def test_what_the_baseline_does_not_keep_is_told(healthy, tmp_path):
    place, report = tmp_path / "baseline.json", tmp_path / "r.html"
    run("--snapshot", healthy, "--save-baseline", place)
    baseline = json.loads(place.read_text())
    del baseline["environment"]["acs"]
    baseline["environment"]["vbios"] = baseline["environment"]["gsp_firmware"] = "1"
    place.write_text(json.dumps(baseline))
    data = json.loads(healthy.read_text())
    data["files"].pop("/sys/class/dmi/id/bios_version")
    healthy.write_text(json.dumps(data))
    done = run("--snapshot", healthy, "--baseline", place, "--report", report)
    assert "not kept in that baseline, so not compared: ACS redirection" in done.stdout
    assert "kept there, not readable now: BIOS" in done.stdout
    assert "Not kept in that baseline, so not compared: ACS redirection." in report.read_text()
    baseline["environment"]["vbios"], baseline["environment"]["gsp_firmware"] = "98.02.81.00.01", "595.58.03"
    place.write_text(json.dumps(baseline))
    run("--snapshot", healthy, "--baseline", place, "--report", report)
    assert "Not kept in that baseline, so not compared: ACS redirection." in report.read_text()


def test_a_gpu_that_is_gone_is_not_counted_as_there(healthy):
    data = json.loads(healthy.read_text())
    text = data["commands"]["nvidia-smi -q"]["stdout"]
    data["commands"]["nvidia-smi -q"]["stdout"] = text.replace(": P8", ": GPU is lost", 1)
    healthy.write_text(json.dumps(data))
    assert "  4 x NVIDIA RTX PRO 6000 Blackwell Server Edition, 3 of them answer," in run("--snapshot", healthy).stdout
    lines = run("--snapshot", healthy, "--output", "prometheus").stdout.splitlines()
    assert 'gpunode_gpus{check="measured"} 4' in lines
    assert 'gpunode_gpus_answering{check="measured"} 3' in lines
    report = healthy.with_suffix(".html")
    run("--snapshot", healthy, "--report", report)
    assert report.read_text().count("Server Edition: does not answer") == 1
    assert "ACS redirection</span> <code>off</code>" in report.read_text()


def test_junit_tells_how_long_it_took(healthy):
    data = json.loads(healthy.read_text())
    for pair in data["measured"]:
        pair["elapsed_ms"] = 50.0
    data["measurement"]["elapsed_s"] = 2.5
    healthy.write_text(json.dumps(data))
    suite = ET.fromstring(run("--snapshot", healthy, "--output", "junit").stdout)[0]
    assert (suite.get("time"), suite[0].get("time"), suite[-1].get("time")) == ("2.500", "0.050", "1.900")
    del data["measurement"]["elapsed_s"]
    healthy.write_text(json.dumps(data))
    assert ET.fromstring(run("--snapshot", healthy, "--output", "junit").stdout)[0].get("time") == "0.600"


@pytest.mark.parametrize(
    "args",
    [
        ("--snapshot", "/nowhere/s.json"),
        ("--snapshot", "{folder}/broken-json"),
        ("--snapshot", "{folder}/no-snapshot"),
        ("--snapshot", "{healthy}", "--host", "a"),
        ("--snapshot", "{healthy}", "--container", "101"),
        ("--snapshot", "{healthy}", "--save-baseline"),
        ("--snapshot", "{healthy}", "--baseline", "/nowhere/b.json"),
        ("--snapshot", "{healthy}", "--baseline", "{folder}/no-snapshot"),
        ("--snapshot", "{healthy}", "--baseline", "{healthy}", "--no-baseline"),
        ("--snapshot", "{healthy}", "--redact"),
        ("--snapshot", "{healthy}", "--pairs", "0-1"),
        ("--snapshot", "{healthy}", "--pairs", "1:1"),
        ("--snapshot", "{healthy}", "--expect-gpus", "0"),
        ("--snapshot", "{healthy}", "--output", "yaml"),
        ("--snapshot", "{healthy}", "--container", "99"),
        ("surplus",),
    ],
)
def test_wrong_usage_and_input_end_with_2(args, healthy, tmp_path):
    (tmp_path / "broken-json").write_text("{")
    (tmp_path / "no-snapshot").write_text('{"schema": "other/1"}')
    done = run(*(arg.format(healthy=healthy, folder=tmp_path) for arg in args))
    assert done.exit_code == 2
    assert "Error:" in done.stderr


def test_unwritable_file_says_so(healthy):
    done = run("--snapshot", healthy, "--report", "/proc/nowhere/r.html")
    assert done.exit_code == 2
    assert "PASS (healthy)" in done.stdout
    assert "/proc/nowhere/r.html could not be written" in done.stderr


def test_runs_from_a_checkout_as_it_is(healthy):
    done = subprocess.run(
        [ROOT / "tools/verify_p2p.py", "--snapshot", healthy, "--output", "json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "pass")
    assert done.stderr == ""


def test_judging_a_file_imports_nothing_it_does_not_need(healthy):
    """The start stays quick: no ssh, no YAML, no process is needed to judge a file."""
    code = (
        "import sys; sys.argv[1:] = ['--snapshot', sys.argv[1]];"
        "from gpunode_tools.cli.verify_p2p import command;"
        "\ntry: command()\nexcept SystemExit: pass\n"
        "print(sorted({'paramiko', 'yaml', 'asyncio', 'statistics', 'xml.etree', 'socket'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, healthy], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_colour_where_it_is_wanted(healthy, monkeypatch):
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[30;48;5;77m" in run("--snapshot", healthy).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("--snapshot", healthy).stdout


def test_listed_by_gpunode():
    done = CliRunner().invoke(main, ["--help"])
    assert "verify-p2p" in done.stdout
    assert "boot-check" in done.stdout
    assert CliRunner().invoke(main, ["verify-p2p", "--help"]).exit_code == 0


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_report_draws_any_number_of_gpus(count):
    from gpunode_tools.report.p2p_html import render

    data = make_node(count)
    data["commands"].pop("nvidia-smi -q")
    page = render(judge(Snapshot(data)).to_dict())
    assert page.count("<rect") >= count
    empty = render(judge(Snapshot({})).to_dict())
    assert "None was found." in empty


@pytest.mark.parametrize("option", ["--result", "--report", "--metrics", "--save-snapshot", "--save-baseline"])
def test_a_pipe_stays_a_pipe(healthy, tmp_path, option):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert run("--snapshot", healthy, option, pipe).exit_code == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.read(reader, 1 << 20)
    os.close(reader)


def test_a_full_standard_output_is_told(healthy):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [ROOT / "tools/verify_p2p.py", "--snapshot", healthy], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "standard output could not be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_output_is_tried(healthy, tmp_path):
    done = run("--snapshot", healthy, "--report", "/proc/nowhere/r.html", "--result", tmp_path / "r.json", "--metrics", tmp_path)
    assert done.exit_code == 2
    assert "/proc/nowhere/r.html could not be written" in done.stderr
    assert f"{tmp_path} could not be written" in done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "pass"


def test_the_baseline_of_another_node_is_refused(healthy, tmp_path):
    other = json.loads(json.dumps(make_node(4)).replace("GPU-", "GPU-f"))
    other["host"] = "node77"
    (tmp_path / "other.json").write_text(json.dumps(other))
    done = run("--snapshot", healthy, "--baseline", tmp_path / "other.json")
    assert done.exit_code == 2
    assert "the baseline is one of node77: none of its GPUs is here" in done.stderr


def test_an_inventory_without_the_host_is_wrong_input(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {hosts: {other: {}}}\n")
    assert run("--host", "node1", "-i", tmp_path / "hosts.yml").exit_code == 2
    assert run("--host", "node1", "-i", tmp_path / "none.yml").exit_code == 2


def test_an_interrupt_while_reading_is_no_verdict(monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpunode_tools.cli.verify_p2p.connect", interrupted)
    done = run()
    assert done.exit_code == 3
    assert "interrupted before anything could be judged" in done.stderr
