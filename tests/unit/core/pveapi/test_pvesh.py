"""pvesh: what it prints before its data, how it reports errors, and that a failed task is not taken for a success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpunode.pve import errors
from gpunode.pveapi.base import ApiError, Deadline, TaskError, follow
from gpunode.pveapi.pvesh import PveshApi, error_of, parse_output

if TYPE_CHECKING:
    from collections.abc import Sequence

UPID = "UPID:pve:0000017D:000365BC:6B0D9893:vzcreate:101:root@pam:"
LIMIT = 60.0


class Shell:
    name = "local"

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        assert data == ""
        assert timeout <= LIMIT
        self.asked.append(argv)
        return self.answers.pop(0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": 1}', {"a": 1}),
        ("trying to acquire lock...\n OK\n[1,\n2]\n", [1, 2]),
        ("", None),
        ("Formatting ...\nno data\n", None),
    ],
)
def test_data_after_progress(text: str, data: object) -> None:
    assert parse_output(text) == data


def test_parameters_become_arguments_that_may_begin_with_a_dash() -> None:
    shell = Shell((0, "null", ""))
    PveshApi(shell).call("PUT", "/nodes/pve/lxc/101/config", {"description": "-x", "memory": "1"})
    assert shell.asked == [["pvesh", "set", "/nodes/pve/lxc/101/config", "--output-format", "json", "--description=-x", "--memory=1"]]


def test_errors_by_parameter() -> None:
    text = "400 Parameter verification failed.\nmemory: type check ('integer') failed - got 'x'\ndev0: bad\n\npvesh set <api_path>\n"
    error = error_of(text)
    assert (error.status, error.kind) == (400, errors.PARAMETER)
    assert error.errors == {"memory": "type check ('integer') failed - got 'x'", "dev0": "bad"}
    assert "dev0: bad; memory: type check" in error.explain()


def test_errors_in_plain_words() -> None:
    error = error_of("trying to acquire lock...\ncan't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout\n")
    assert error.kind == errors.LOCKED
    assert "pct unlock 101" in error.explain(101, "pve")
    assert error_of("").text == "pvesh failed and said nothing"


def test_a_failed_task_ends_with_0_and_is_still_a_failure() -> None:
    log = '[{"n":1,"t":"extracting"},{"n":2,"t":"TASK ERROR: no"}]'
    shell = Shell(
        (0, f'extracting\n"{UPID}"\n', "unable to create CT 101 - no\n"),
        (0, '{"status":"stopped","exitstatus":"unable to create CT 101 - no"}', ""),
        (0, log, ""),
    )
    api = PveshApi(shell)
    upid = api.start("POST", "/nodes/pve/lxc", {"vmid": "101"}, Deadline(LIMIT))
    assert upid == UPID
    with pytest.raises(TaskError) as caught:
        follow(api, "pve", upid, Deadline(LIMIT))
    assert caught.value.result.as_dict() == {
        "upid": UPID,
        "exitstatus": "unable to create CT 101 - no",
        "log": ["extracting", "TASK ERROR: no"],
    }


def test_a_refused_task_is_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        PveshApi(Shell((255, "", "CT 101 already exists on node 'pve'\n"))).start("POST", "/nodes/pve/lxc", {}, Deadline(LIMIT))
    assert caught.value.kind == errors.EXISTS
    with pytest.raises(ApiError, match="started no task"):
        PveshApi(Shell((0, "", ""))).start("POST", "/nodes/pve/lxc", {}, Deadline(LIMIT))


def test_the_silence_of_restarting_daemons_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpunode.pveapi.base.POLL_S", (0.001,))
    shell = Shell(
        (255, "", "599 Connection refused\n"),
        (0, '{"status":"running"}', ""),
        (0, '{"status":"stopped","exitstatus":"WARNINGS: 2"}', ""),
        (0, "[]", ""),
    )
    result = follow(PveshApi(shell), "pve", UPID, Deadline(LIMIT))
    assert result.ok
    assert result.warnings == ["WARNINGS: 2"]


def test_a_task_that_does_not_end_is_left_alone_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpunode.pveapi.base.POLL_S", (0.001,))
    shell = Shell(*[(0, '{"status":"running"}', "")] * 1000)
    with pytest.raises(ApiError, match=r"still runs after 0 s.*pvesh get /nodes/pve/tasks/UPID"):
        follow(PveshApi(shell), "pve", UPID, Deadline(0.02))
