"""Tasks: names, logs, ends, and workers that die."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lab.proxmox import tasks
from lab.proxmox.errors import ParamError, PveError
from lab.proxmox.upid import Upid


def wait(upid: Upid) -> None:
    os.waitpid(upid.pid, 0)


def start(world, work) -> Upid:
    found = Upid.parse(tasks.start(world, "vztest", "101", "root@pam", work, foreground=False))
    assert found is not None
    return found


def test_a_upid_has_the_real_form(world):
    upid = start(world, lambda: print("hello"))
    wait(upid)
    fields = str(upid).split(":")
    assert fields[0] == "UPID"
    assert [len(field) for field in fields[2:5]] == [8, 8, 8]
    assert fields[1::6] == ["pve-a", "root@pam"]
    assert str(upid).endswith(":vztest:101:root@pam:")
    assert tasks.log_file(world, upid).parent.name == fields[4][-1]
    assert tasks.read_log(world, upid, 0, 50)[0] == [{"n": 1, "t": "hello"}, {"n": 2, "t": "TASK OK"}]
    assert tasks.read_status(world, upid) == "OK"


def test_errors_and_warnings_are_the_end_of_the_log(world):
    def fail() -> None:
        raise PveError("no luck")

    failed = start(world, fail)
    wait(failed)
    assert tasks.read_status(world, failed) == "no luck"
    assert tasks.is_error("no luck")
    warned = start(world, lambda: tasks.warn("mind the gap"))
    wait(warned)
    assert tasks.read_status(world, warned) == "WARNINGS: 1"
    assert not tasks.is_error("WARNINGS: 1")


def test_a_worker_that_was_killed_has_an_unexpected_status(world):
    upid = start(world, lambda: time.sleep(30))
    assert upid.running
    assert [str(one) for one in tasks.listed(world)[0]] == [str(upid)]
    os.kill(upid.pid, signal.SIGKILL)
    wait(upid)
    assert not upid.running
    running, ended = tasks.listed(world)
    assert running == []
    assert [(one, status) for one, _end, status in ended] == [(upid, "unexpected status")]


def test_a_task_that_is_told_to_stop_says_so(world):
    def work() -> None:
        print("ready")
        time.sleep(30)

    upid = start(world, work)
    deadline = time.monotonic() + 5
    while tasks.log_file(world, upid).stat().st_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(upid.pid, signal.SIGTERM)
    wait(upid)
    assert tasks.read_status(world, upid) == "received interrupt"


def test_in_the_foreground_the_log_is_shown_and_the_error_goes_to_stderr(world, capfd):
    def work() -> None:
        print("working")
        raise PveError("it broke")

    name = tasks.start(world, "vztest", "7", "root@pam", work, foreground=True)
    shown = capfd.readouterr()
    assert shown.out == "working\n"
    assert shown.err == "it broke\n"
    assert tasks.read_status(world, Upid.parse(name)) == "it broke"


@pytest.mark.parametrize(
    ("name", "words"), [("nonsense", "unable to parse worker upid"), (str(Upid("a", 1, 2, 3, "x", "", "u@pam")), "no such task")]
)
def test_names_that_are_none(world, name, words):
    with pytest.raises(ParamError) as caught:
        tasks.find(world, name)
    assert caught.value.errors == {"upid": words}
