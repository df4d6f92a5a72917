"""Machines over ssh: host keys are verified, deadlines hold, commands arrive as they are meant."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import paramiko
import pytest

from gpunode_tools.collect import machines
from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.ssh import SshMachine, Target


class Server(paramiko.ServerInterface):
    """Lets one key in and runs what is asked with a shell, as sshd does."""

    def __init__(self, key):
        self.key = key

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL if key == self.key else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username):
        return "publickey"

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=self.serve, args=(channel, command), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.destination = destination
        return paramiko.OPEN_SUCCEEDED

    def serve(self, channel, command):
        data = bytearray()
        while piece := channel.recv(65536):
            data += piece
        done = subprocess.run(["sh", "-c", command.decode()], input=bytes(data), capture_output=True, check=False)
        with contextlib.suppress(OSError):
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()


def forward(transport, server):
    """Serve direct-tcpip channels: what a jump host does."""
    while transport.is_active():
        channel = transport.accept(1)
        destination = getattr(server, "destination", None)
        if channel is None or destination is None:
            continue
        with socket.create_connection(destination) as target:
            pump = threading.Thread(target=copy, args=(channel, target), daemon=True)
            pump.start()
            copy(target, channel)


def copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    pair = {}
    for name in ("host", "other", "user"):
        pair[name] = paramiko.ECDSAKey.generate()
    pair["user"].write_private_key_file(str(folder / "user"))
    pair["file"] = folder / "user"
    return pair


@pytest.fixture
def port(keys):
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                transport = paramiko.Transport(connection)
                transport.add_server_key(keys["host"])
                server = Server(keys["user"])
                transport.start_server(server=server)
                threading.Thread(target=forward, args=(transport, server), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def target(keys, port, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {keys['host'].get_name()} {keys['host'].get_base64()}\n")
    options = {"userknownhostsfile": str(known)}
    return Target("node", "127.0.0.1", "root", port, identities=[str(keys["file"])], options=options)


@pytest.fixture
def machine(target, tmp_path):
    found = SshMachine(target, str(tmp_path / "config"))
    yield found
    found.close()


def test_runs_a_command_as_it_is_meant(machine):
    assert machine.run(["printf", "%s|", "a b", "$HOME", "'"]) == (0, "a b|$HOME|'|", "")
    assert machine.run(["sh", "-c", "cat; echo no >&2; exit 3"], b"in" * 100_000) == (3, "in" * 100_000, "no\n")


def test_deadline_holds(machine):
    began = time.monotonic()
    code, _, said = machine.run(["sleep", "20"], timeout=0.5)
    assert (code, said) == (None, "no answer for 0.5 s")
    assert time.monotonic() - began < 5


def test_reads_a_machine_through_it(machine):
    data = machines._remote_gather(machine, [sys.executable, "-I", "-"], inside=True)
    assert "nvidia-smi -L" in data["commands"]


def test_session_reads_line_by_line(machine):
    session = machine.session(["sh", "-c", "cat; echo end"])
    session.send(b"first\n")
    assert [session.readline(5), session.readline(5), session.readline(5)] == [b"first\n", b"end\n", b""]
    assert session.close()[0] == 0


def test_unknown_host_key_is_refused(target, tmp_path):
    target.options["userknownhostsfile"] = str(tmp_path / "none")
    with pytest.raises(UnreachableError, match=r"not found in known_hosts.*add it to known_hosts after comparing it"):
        SshMachine(target, str(tmp_path / "config"))


def test_changed_host_key_is_refused(target, keys, port):
    Path(target.options["userknownhostsfile"]).write_text(f"[127.0.0.1]:{port} {keys['other'].get_name()} {keys['other'].get_base64()}\n")
    with pytest.raises(UnreachableError, match=r"is not the one in known_hosts.*find out why it changed"):
        SshMachine(target, "/nowhere")


def test_wrong_key_and_nobody_there(target, tmp_path):
    closed = Target("node", "127.0.0.1", "root", 1, options=target.options)
    with pytest.raises(UnreachableError, match=r"ssh root@127\.0\.0\.1:1"):
        SshMachine(closed, "/nowhere")
    stranger = tmp_path / "stranger"
    paramiko.ECDSAKey.generate().write_private_key_file(str(stranger))
    target.identities = [str(stranger)]
    with pytest.raises(UnreachableError, match="no key was accepted"):
        SshMachine(target, "/nowhere")


def test_configuration_of_ssh_is_read(target, keys, port, tmp_path):
    config = tmp_path / "config"
    known = target.options["userknownhostsfile"]
    config.write_text(
        f"Host mynode\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {keys['file']}\n  UserKnownHostsFile {known}\n"
    )
    machine = SshMachine(Target("mynode", "mynode"), str(config))
    assert machine.run(["true"])[0] == 0
    machine.close()


def test_configuration_that_the_inventory_names(target, keys, port, tmp_path):
    config = tmp_path / "named"
    config.write_text(f"Host mynode\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {keys['file']}\n")
    options = {"configfile": str(config), "userknownhostsfile": target.options["userknownhostsfile"]}
    machine = SshMachine(Target("mynode", "mynode", options=options), "/nowhere")
    assert machine.run(["true"])[0] == 0
    machine.close()


def test_proxy_command_of_the_inventory(target):
    program = (
        "import os,socket,sys,threading as t;s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "r=lambda:[os.write(1,d) for d in iter(lambda:s.recv(65536),b'')];t.Thread(target=r,daemon=True).start();"
        "[s.sendall(d) for d in iter(lambda:os.read(0,65536),b'')]"
    )
    target.options["proxycommand"] = f'{sys.executable} -c "{program}" %h %p'
    machine = SshMachine(target, "/nowhere")
    assert machine.run(["echo", "through"])[1] == "through\n"
    machine.close()


def test_jump_host(target, tmp_path):
    config = tmp_path / "config"
    config.write_text(f"Host *\n  IdentityFile {target.identities[0]}\n  UserKnownHostsFile {target.options['userknownhostsfile']}\n")
    target.options["proxyjump"] = f"root@127.0.0.1:{target.port}"
    machine = SshMachine(target, str(config))
    assert machine.run(["echo", "through"])[1] == "through\n"
    machine.close()


def test_without_root_sudo_is_asked_without_a_password(target):
    target.become = True
    machine = SshMachine(target, "/nowhere")
    assert machine._line(["cat", "a b"]) == "sudo -n cat 'a b'"
    machine.close()


def test_connection_that_is_gone(machine):
    machine.client.close()
    code, _, said = machine.run(["true"])
    assert code == 255
    assert "is gone" in said
