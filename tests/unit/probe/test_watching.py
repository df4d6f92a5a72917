"""Whatever hangs, dies, cannot be killed or is interrupted: the report is complete and no process stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.probe.conftest import ROOT, statuses

from gpunode_tools.probe import LocalSession, command

pytestmark = pytest.mark.serial


def workers_of(watcher: int) -> list[int]:
    """Processes whose parent is the watcher."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(fields[1]) == watcher and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def gone(pid: int, within: float = 3.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.02)
    return False


def test_a_copy_that_never_ends(lab):
    lab.fabric("fault 0:1 hang", gpus=3)
    result = lab.measure(pair_timeout_s=0.5)
    assert statuses(result) == {(a, b): "hang" if (a, b) == (0, 1) else "ok" for a in range(3) for b in range(3) if a != b}
    assert result["pairs"][0]["step"] == "copy"
    assert "within 0.5 s" in result["pairs"][0]["reason"]
    assert [worker["why"] for worker in result["workers"]] == ["hang"]


def test_after_three_hangs_the_rest_is_skipped(lab):
    lab.fabric("fault 0:1 hang", "fault 1:0 hang", "fault 0:2 hang", gpus=3)
    result = lab.measure(pair_timeout_s=0.3)
    assert list(statuses(result).values()).count("hang") == 3
    skipped = [pair for pair in result["pairs"] if pair["status"] == "skipped"]
    assert len(skipped) == 3
    assert "3 pairs hung before" in skipped[0]["reason"]


def test_a_deadline_of_one_millisecond(lab):
    lab.fabric(gpus=3)
    result = lab.measure(pair_timeout_s=0.001, light=False)
    assert set(statuses(result).values()) == {"hang", "skipped"}
    assert len(result["pairs"]) == 6
    assert result["complete"] is True


def test_a_hang_in_a_pattern(lab):
    """The pair passes alone and is part of no hang then: only the pattern is lost."""
    lab.fabric(gpus=3)
    seen = {}

    def kill_in_pattern(event):
        if event["event"] == "hello":
            seen["watcher"] = event["pid"]
        if event["event"] == "start" and event.get("pattern") == "all-to-all":
            for pid in workers_of(seen["watcher"]):
                os.kill(pid, signal.SIGKILL)

    result = lab.measure(measure="full", on_event=kill_in_pattern)
    assert set(statuses(result).values()) == {"ok"}
    by_name = {pattern["name"]: pattern["status"] for pattern in result["patterns"]}
    assert by_name["all-to-all"] in {"error", "ok"}  # ok when it ended before the signal came
    assert by_name["one-to-all from GPU2"] == "ok"


def test_a_worker_that_is_killed_in_mid_copy(lab):
    lab.fabric("fault 0:1 hang")
    seen = {}

    def kill(event):
        if event["event"] == "hello":
            seen["watcher"] = event["pid"]
        if event["event"] == "start" and event.get("src") == 0:
            time.sleep(0.3)
            seen["killed"] = workers_of(seen["watcher"])
            for pid in seen["killed"]:
                os.kill(pid, signal.SIGKILL)

    result = lab.measure(on_event=kill)
    assert len(seen["killed"]) == 1
    assert statuses(result) == {(0, 1): "error", (1, 0): "ok"}
    assert "signal 9" in result["pairs"][0]["reason"]
    assert result["workers"][0]["why"] == "crash"


def test_a_worker_that_cannot_be_killed(lab):
    """A helper holds the dying worker in the kernel, as a driver that does not return would."""
    lab.fabric("fault 0:1 stuck hold=4", gpus=4)
    result = lab.measure(pair_timeout_s=0.3, kill_grace_s=0.5)
    found = statuses(result)
    assert found[0, 1] == "hang"
    assert {found[pair] for pair in found if set(pair) & {0, 1} and pair != (0, 1)} == {"skipped"}
    assert (found[2, 3], found[3, 2]) == ("ok", "ok")
    stuck = result["stuck"][0]
    assert stuck["gpus"] == [0, 1]
    assert stuck["step"] == "copy"
    assert Path(f"/proc/{stuck['pid']}").exists()
    assert f"process {stuck['pid']} survived SIGKILL" in next(p["reason"] for p in result["pairs"] if p["status"] == "skipped")
    assert gone(stuck["pid"], 8)


@pytest.mark.parametrize(
    ("then", "words", "others"),
    [
        ("absent", "is gone: the driver no longer lists it", "ok"),
        ("unavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE (46)", "ok"),
        ("init-fails", "CUDA_ERROR_UNKNOWN (999)", "error"),
    ],
)
def test_a_gpu_falls_off_the_bus(lab, then, words, others):
    lab.fabric(f"fault gpu 1 gone after=3 then={then}", gpus=4)
    result = lab.measure()
    found = statuses(result)
    assert found[0, 1] == "error"
    assert result["pairs"][0]["error"]["code"] == 719
    assert {found[pair] for pair in found if 1 in pair} == {"error"}
    assert {found[pair] for pair in found if 1 not in pair} == {others}
    assert words in next(pair["reason"] for pair in result["pairs"] if (pair["src"], pair["dst"]) == (1, 3))


def test_ctrl_c_gives_what_there_is(lab):
    lab.fabric("fault 1:2 hang", gpus=3)

    def interrupt(event):
        if event["event"] == "start" and event.get("src") == 1 and event["dst"] == 2:
            signal.raise_signal(signal.SIGINT)

    before = time.monotonic()
    # A test run that was started in the background has inherited an ignored SIGINT.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = lab.measure(on_event=interrupt)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert time.monotonic() - before < 30  # a second as a rule; on a machine at its limit never much beyond a pair's own deadline
    assert result["interrupted"] is True
    assert result["complete"] is False
    found = statuses(result)
    assert found[0, 1] == "ok"
    assert found[1, 2] == "skipped"
    assert next(p for p in result["pairs"] if (p["src"], p["dst"]) == (1, 2))["reason"] == "interrupted"


def test_nothing_stays_when_the_caller_is_killed(lab):
    lab.fabric("fault 0:1 hang")
    caller = subprocess.Popen([sys.executable, "-m", "gpunode_tools.probe"], cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        watcher = worker = 0
        while not worker and time.monotonic() < end:
            watcher = next(iter(workers_of(caller.pid)), 0)
            worker = next(iter(workers_of(watcher)), 0) if watcher else 0
            time.sleep(0.02)
        assert worker
    finally:
        caller.kill()
        caller.wait()
    assert gone(worker, 5)
    assert gone(watcher, 5)


def test_nothing_stays_when_the_watcher_is_killed(lab):
    lab.fabric("fault 0:1 hang")
    seen = {}

    def kill(event):
        if event["event"] == "hello":
            seen["watcher"] = event["pid"]
        if event["event"] == "start":
            seen["workers"] = workers_of(seen["watcher"])
            os.kill(seen["watcher"], signal.SIGKILL)

    result = lab.measure(on_event=kill)
    assert seen["workers"]
    assert all(gone(pid) for pid in seen["workers"])
    assert statuses(result) == {(0, 1): "skipped", (1, 0): "skipped"}
    assert "ended without a result" in result["fatal"]["summary"]


def test_no_python_there(lab):
    result = lab.measure(start=lambda: LocalSession(["/nonexistent/python3", "-"]), pairs=((0, 1),))
    assert "could not be started" in result["fatal"]["summary"]
    assert statuses(result) == {(0, 1): "skipped"}


def test_the_way_there_says_why_it_failed(lab):
    result = lab.measure(start=lambda: LocalSession(["sh", "-c", "echo 'CT 101 not running' >&2; exit 255"]))
    assert "CT 101 not running" in result["fatal"]["summary"]
    assert "255" in result["fatal"]["summary"]


def test_the_driver_never_answers(lab):
    lab.fabric("set init_ms 60000")
    result = lab.measure(init_timeout_s=0.5)
    assert result["fatal"]["where"] == "cuInit"
    assert "0.5 s" in result["fatal"]["summary"]


def test_a_context_that_never_comes(lab):
    lab.fabric("set context_ms 60000")
    result = lab.measure(init_timeout_s=0.7)
    assert set(statuses(result).values()) == {"hang"}
    assert [copies["status"] for copies in result["host"]] == ["hang", "hang"]
    assert "GPU0 gave no context within 0.7 s" in result["pairs"][0]["reason"]


def test_the_command_inside_a_container():
    assert command(101) == ["pct", "exec", "101", "--", "python3", "-I", "-S", "-"]
