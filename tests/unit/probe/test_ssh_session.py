"""The probe over a real ssh channel: paramiko at both ends, the command run by a small server on a socket pair."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import threading
import time
from pathlib import Path

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_SUCCESS
from tests.unit.probe.conftest import statuses
from tests.unit.probe.test_watching import gone, workers_of

from gpunode_tools.probe import ChannelSession, command


class Server(paramiko.ServerInterface):
    """Lets everybody in and runs what is asked for."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.accepted = threading.Event()

    def check_auth_none(self, username):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        self.process = subprocess.Popen(
            shlex.split(command.decode()), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, close_fds=True
        )
        for target in (self.feed, self.answer):
            threading.Thread(target=target, args=(channel, self.process), daemon=True).start()
        return True

    @staticmethod
    def feed(channel, process):
        with contextlib.suppress(OSError):  # the command may end before it has read all
            while data := channel.recv(1 << 16):
                process.stdin.write(data)
            process.stdin.close()

    def answer(self, channel, process):
        self.accepted.wait()  # sshd says yes to the request before the command's first word, and before its end
        while data := os.read(process.stdout.fileno(), 1 << 16):
            try:
                channel.sendall(data)
            except OSError:
                break
        process.stdout.close()  # as sshd does when the connection is gone
        said = process.stderr.read()
        process.stderr.close()
        status = process.wait()
        with contextlib.suppress(OSError, paramiko.SSHException):  # the connection may be gone at any of these
            channel.sendall_stderr(said)
            channel.send_exit_status(status)
            channel.close()


class Transport(paramiko.Transport):
    """The server's side: tells the server when its yes to a request is on the wire."""

    def _send_user_message(self, data):
        super()._send_user_message(data)
        if data.asbytes().startswith(cMSG_CHANNEL_SUCCESS):
            self.server_object.accepted.set()


@pytest.fixture
def ssh():
    """A channel to a server of this process, and that server."""
    here, there = socket.socketpair()
    server, transport = Server(), Transport(there)
    transport.add_server_key(paramiko.ECDSAKey.generate())
    threading.Thread(target=transport.start_server, kwargs={"server": server, "event": threading.Event()}, daemon=True).start()
    client = paramiko.Transport(here)
    client.start_client(timeout=10)
    client.auth_none("root")
    yield client.open_session(timeout=10), server
    client.close()
    transport.close()
    here.close()
    there.close()


def test_measuring_over_ssh(lab, ssh):
    channel, _ = ssh
    lab.fabric()
    channel.exec_command(shlex.join(command()))
    result = lab.measure(start=lambda: ChannelSession(channel))
    assert statuses(result) == {(0, 1): "ok", (1, 0): "ok"}
    assert result["complete"] is True


def test_a_command_that_fails_there_says_why(lab, ssh):
    channel, _ = ssh
    channel.exec_command("sh -c 'echo \"CT 101 does not exist\" >&2; exit 2'")
    result = lab.measure(start=lambda: ChannelSession(channel), pairs=((0, 1),))
    assert "CT 101 does not exist" in result["fatal"]["summary"]
    assert "exit status 2" in result["fatal"]["summary"]


def test_nothing_stays_there_when_the_connection_breaks(lab, ssh):
    channel, server = ssh
    lab.fabric("fault 0:1 hang")
    seen = []

    def cut(event):
        if event["event"] == "start" and "src" in event:
            seen.extend(workers_of(event_pid["watcher"]))
            channel.get_transport().close()
        if event["event"] == "hello":
            event_pid["watcher"] = event["pid"]

    event_pid = {}
    channel.exec_command(shlex.join(command()))
    before = time.monotonic()
    result = lab.measure(start=lambda: ChannelSession(channel), on_event=cut)
    assert time.monotonic() - before < 10
    assert statuses(result) == {(0, 1): "skipped", (1, 0): "skipped"}
    assert result["complete"] is False
    assert result["fatal"]
    assert seen
    assert all(gone(pid, 6) for pid in seen)
    server.process.wait(timeout=6)
    assert not Path(f"/proc/{event_pid['watcher']}").exists()
