"""A node's files: read, and a configuration written only when nobody else has."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gpunode.pve import errors
from gpunode.pveapi import node as nodes
from gpunode.pveapi.base import ApiError, Deadline, DeadlineError
from gpunode.pveapi.node import LocalNode, RemoteNode, running
from gpunode.pveapi.shells import LocalShell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(params=["local", "remote"])
def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(nodes, "LOCK", str(tmp_path / "lock/pve-config-{vmid}.lock"))
    return LocalNode() if request.param == "local" else RemoteNode(LocalShell())


def digest(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "surrogateescape")).hexdigest()


def test_files_by_pattern_whatever_bytes_they_hold(node: Any, tmp_path: Path) -> None:
    (tmp_path / "101.conf").write_bytes(b"#caf\xe9\nhostname: a\n\n")
    (tmp_path / "102.conf").write_text("hostname: b")
    found = node.read_many([f"{tmp_path}/*.conf", f"{tmp_path}/none.conf"])
    assert found == {f"{tmp_path}/101.conf": "#caf\udce9\nhostname: a\n\n", f"{tmp_path}/102.conf": "hostname: b"}


def test_what_is_no_device_is_missing(node: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    assert node.missing_devices(["/dev/null", str(plain), "/dev/none"]) == [str(plain), "/dev/none"]


def test_written_when_the_digest_is_still_this_one(node: Any, tmp_path: Path) -> None:
    path = tmp_path / "101.conf"
    path.write_text("hostname: a\n")
    node.replace_config(str(path), 101, digest("hostname: a\n"), "hostname: a\n#é\udce9\n", Deadline(5))
    assert path.read_bytes() == b"hostname: a\n#\xc3\xa9\xe9\n"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["101.conf"]


def test_not_written_over_somebody_elses_change(node: Any, tmp_path: Path) -> None:
    path = tmp_path / "101.conf"
    path.write_text("hostname: b\n")
    with pytest.raises(ApiError) as caught:
        node.replace_config(str(path), 101, digest("hostname: a\n"), "hostname: a\n", Deadline(5))
    assert caught.value.kind == errors.MODIFIED
    assert path.read_text() == "hostname: b\n"


def test_proxmoxs_own_lock_is_respected(node: Any, tmp_path: Path) -> None:
    path = tmp_path / "101.conf"
    path.write_text("hostname: a\n")
    lock = tmp_path / "lock/pve-config-101.lock"
    lock.parent.mkdir()
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ApiError) as caught:
            node.replace_config(str(path), 101, digest("hostname: a\n"), "x\n", Deadline(0.05))
    assert caught.value.kind == errors.LOCKED
    assert path.read_text() == "hostname: a\n"


class CutShort(LocalShell):
    """A connection that breaks while a file is sent."""

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        return super().run(argv, data=data[: len(data) // 2], timeout=timeout)


def test_a_connection_that_breaks_leaves_the_old_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gpunode.pveapi.node.LOCK", f"{tmp_path}/lock/pve-config-{{vmid}}.lock")
    path = tmp_path / "101.conf"
    path.write_text("hostname: a\n")
    with pytest.raises(ApiError, match="arrived cut short"):
        RemoteNode(CutShort()).replace_config(str(path), 101, digest("hostname: a\n"), "hostname: a\nlxc.autodev: 1\n", Deadline(5))
    assert path.read_text() == "hostname: a\n"
    assert [entry.name for entry in tmp_path.iterdir()] in (["101.conf", "lock"], ["lock", "101.conf"])


def test_a_pattern_is_no_shell_text() -> None:
    with pytest.raises(ValueError, match="no plain pattern"):
        RemoteNode(LocalShell()).read_many(["/etc/$(reboot)"])


def test_running_is_told_by_the_monitors_socket() -> None:
    sockets = "0000: 00000002 00000000 00010000 0001 01 123 @/var/lib/lxc/101/command\n0000: 2 0 0 1 1 9 @/var/lib/lxc/1010/command\n"
    assert [running(sockets, vmid) for vmid in (101, 1010, 10)] == [True, True, False]


def test_a_command_that_outlives_its_deadline_runs_on(tmp_path: Path) -> None:
    mark = tmp_path / "done"
    with pytest.raises(DeadlineError, match="did not end in 0 s; it runs on as pid"):
        LocalShell().run(["sh", "-c", f"sleep 0.5; echo out; touch {mark}"], timeout=0.05)
    subprocess.run(["sh", "-c", f"until [ -e {mark} ]; do sleep 0.05; done"], timeout=10, check=True)


def test_a_missing_pvesh_is_named() -> None:
    with pytest.raises(ApiError, match=r"pvesh-none cannot be run: No such file.*Proxmox VE node"):
        LocalShell().run(["pvesh-none"])


def test_bytes_and_exit_status_of_a_command() -> None:
    assert LocalShell().run(["sh", "-c", r"cat; printf '\351' >&2; exit 7"], data="é\udce9") == (7, "é\udce9", "\udce9")
