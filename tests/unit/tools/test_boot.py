"""Boots: the container measures and leaves a file, the node judges it and tells the journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.healthy import make_node

from gpunode_tools import boot
from gpunode_tools.cli import boot_check

ROOT = Path(__file__).parents[3]


def result(*statuses, gpus=2, fatal=None, simulated=False):
    pairs = [{"src": 0, "dst": 1, "status": status} for status in statuses]
    return {"pairs": pairs, "gpus": [{}] * gpus, "fatal": fatal, "simulated": simulated, "elapsed_s": 1.5}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (result("ok", "ok"), 0),
        (result("ok", "corrupt"), 1),
        (result("ok", "skipped"), 3),
        (result("skipped", "hang"), 1),
        (result(gpus=1), 0),
        (result(gpus=2), 3),
        (result(gpus=0, fatal={"summary": "cuInit failed"}), 3),
    ],
)
def test_exit_code_of_the_measuring_unit(data, code):
    assert boot.exit_code(data) == code


def test_line_for_the_journal():
    assert boot.summary(result("ok", "hang")) == "1 of 2 pairs ok, 2 GPUs, 1.5 s"
    assert boot.summary(result(fatal={"summary": "no driver"}, simulated=True)).endswith("2 GPUs (simulated), 1.5 s: no driver")


def test_measures_without_a_driver_and_leaves_the_reason(tmp_path):
    """On the standard library alone, as in a container where nothing is installed."""
    out = tmp_path / "run" / "measured.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "LD_LIBRARY_PATH": "/nowhere"}
    argv = ["/usr/bin/python3", "-S", "-m", "gpunode_tools.boot", "--out", str(out)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd="/")
    if (data := json.loads(out.read_text()))["fatal"] is None:
        pytest.skip("this machine has an NVIDIA driver")
    assert done.returncode == 3
    assert data["fatal"]["summary"] in done.stderr
    assert list(out.parent.iterdir()) == [out]


def test_deadline_keeps_what_was_measured(tmp_path, monkeypatch):
    def slow(options):
        try:
            signal.pause()
        except KeyboardInterrupt:
            return {**result("ok", "skipped"), "interrupted": True}
        raise AssertionError

    monkeypatch.setattr(boot, "measure", slow)
    before = signal.getsignal(signal.SIGTERM)
    assert boot.main(["--out", str(tmp_path / "m.json"), "--deadline", "0.2"]) == 3
    signal.signal(signal.SIGTERM, before)
    assert json.loads((tmp_path / "m.json").read_text())["interrupted"] is True


class Machine:
    """A node whose container answers."""

    name = "this machine"
    baseline = (44, "", "")

    def __init__(self, unit=(0, "", ""), measured=(0, "", "")):
        self.unit, self.measured = unit, measured

    def run(self, argv, stdin=b"", timeout=60.0):
        if argv[-2] == "start":
            return self.unit
        if argv[-1] == boot.DEFAULT_OUT:
            assert argv[:4] == ["pct", "exec", "101", "--"]
            return self.measured
        return self.baseline

    def close(self):
        pass


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Run boot-check on a healthy node with what its container measured."""

    def run(machine, *args, spoil=None):
        data = make_node(4)
        measured = data.pop("measured")
        data["container"] = {"vmid": 101}
        if spoil:
            spoil(measured)
        if machine.measured == (0, "", ""):
            machine.measured = (0, json.dumps({"pairs": measured, "gpus": [], "measure": "quick"}), "")
        monkeypatch.setattr("gpunode_tools.collect.machines.LocalMachine", lambda: machine)
        monkeypatch.setattr("gpunode_tools.collect.node.read_node", lambda *_: data)
        done = CliRunner().invoke(boot_check.command, ["--result", str(tmp_path / "boot.json"), *args])
        done.result = json.loads((tmp_path / "boot.json").read_text()) if (tmp_path / "boot.json").exists() else None
        return done

    return run


def test_healthy_boot(check, tmp_path):
    done = check(Machine(), "--metrics", str(tmp_path / "m.prom"), "--report", str(tmp_path / "r.html"))
    assert done.exit_code == 0
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    lines = done.stderr.splitlines()
    assert lines[0] == f"gpunode: verdict pass: 4 x {name}, 12 of 12 pairs ok, 1 not known"
    assert [line.split(":")[1].strip() for line in lines[1:]] == ["unknown not-readable container 101"]  # nothing of it is in this snapshot
    assert done.result["verdict"] == "pass"
    assert 'gpunode_p2p_verdict{check="boot",verdict="pass"} 1' in (tmp_path / "m.prom").read_text()
    assert (tmp_path / "r.html").exists()


def test_a_baseline_that_cannot_be_read_is_told(check):
    machine = Machine()
    machine.baseline = (1, "", "head: /var/lib/gpunode/baseline.json: Permission denied\n")
    done = check(machine)
    assert done.exit_code == 0
    assert "baseline.json could not be read, so nothing is compared: head: /var/lib/gpunode/baseline.json: Permission denied" in done.stderr


def test_broken_boot_tells_the_journal_with_priorities(check, monkeypatch):
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    done = check(Machine(), spoil=lambda pairs: pairs[0].update(status="hang"))
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0].endswith(", 11 of 12 pairs ok, 1 not known")
    assert lines[0].startswith("<3>gpunode: verdict fail: 4 x ")
    assert lines[1].startswith("<3>gpunode: error p2p-hang GPU0->GPU1: a peer copy did not end before its deadline")


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(unit=(None, "", ""), measured=(1, "", "cat: no such file")), "did not end within 90 s"),
        (Machine(unit=(1, "", "Job failed.\nSee status"), measured=(1, "", "")), "gpunode-measure.service failed: Job failed."),
        (Machine(unit=(5, "", ""), measured=(1, "", "")), "failed: 5"),
        (Machine(measured=(1, "", "cat: /run/gpunode/measured.json: No such file")), "No such file"),
        (Machine(measured=(0, "garbage", "")), "no result of the probe"),
    ],
)
def test_boot_without_a_measurement_could_not_tell(check, machine, words):
    done = check(machine)
    assert done.exit_code == 3
    assert words in done.stderr


def test_unit_that_failed_because_pairs_did_is_judged_by_its_file(check):
    done = check(Machine(unit=(1, "", "failed")), spoil=lambda pairs: pairs[0].update(status="corrupt"))
    assert done.exit_code == 1
    assert "p2p-corrupt" in done.stderr


def test_node_that_cannot_be_read(check, monkeypatch):
    from gpunode_tools.collect.errors import UnreachableError

    def fails(*_):
        raise UnreachableError("python3 ended with 1")

    monkeypatch.setattr("gpunode_tools.collect.node.read_node", fails)
    done = CliRunner().invoke(boot_check.command, ["--unit", ""])
    assert (done.exit_code, done.stderr) == (3, "boot-check: python3 ended with 1\n")


def test_module_runs_by_itself():
    done = subprocess.run([sys.executable, "-m", "gpunode_tools.boot", "--help"], capture_output=True, text=True, check=True)
    assert "--deadline" in done.stdout
