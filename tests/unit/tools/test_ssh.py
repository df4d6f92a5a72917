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
from gpunode_tools.collect.ssh_errors import why_no_connection, why_no_key


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
                transport.start_server(threading.Event(), server)  # without waiting: a client that goes away ends nothing
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
    with pytest.raises(UnreachableError, match=r"ssh root@127\.0\.0\.1:1: nothing listens on port 1 of 127\.0\.0\.1: is sshd running"):
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


def refused(target, tmp_path):
    """The words and the exit code of a connection that is not made."""
    with pytest.raises(UnreachableError) as caught:
        SshMachine(target, str(tmp_path / "config"))
    return str(caught.value), caught.value.exit_code


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (paramiko.ssh_exception.NoValidConnectionsError({("10.0.0.1", 22): OSError(113, "No route to host")}), "No route to host: is node"),
        (socket.gaierror(-2, "Name or service not known"), "the name node is not known (Name or service not known): set ansible_host"),
        (TimeoutError("timed out"), "node does not answer: is it switched on"),
        (EOFError("closed"), "node closed the connection"),
        (OSError(101, "Network is unreachable"), "Network is unreachable: is node switched on"),
        (OSError("odd"), "odd: is node switched on"),
        (EOFError(), "node does not answer"),
    ],
)
def test_a_host_that_is_down_is_told_in_words(error, words):
    told = why_no_connection(error, "node", 22)
    assert words in told
    assert "Errno" not in told


def test_a_key_file_of_the_inventory_that_is_not_there_is_wrong_input(target, tmp_path):
    target.identities = [str(tmp_path / "none")]
    words, code = refused(target, tmp_path)
    assert words.startswith(f"the key file {tmp_path}/none does not exist: correct ansible_ssh_private_key_file in the inventory")
    assert code == 2
    target.identities = [str(tmp_path)]
    assert "is a folder" in refused(target, tmp_path)[0]


def test_key_files_of_the_configuration_may_be_missing(target, tmp_path, keys):
    (tmp_path / "config").write_text(f"IdentityFile {tmp_path}/none\nIdentityFile {keys['file']}\n")
    target.identities = []
    SshMachine(target, str(tmp_path / "config")).close()


def test_a_key_with_a_passphrase_is_named(target, tmp_path):
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked], check=True)
    target.identities = [str(locked)]
    assert f"{locked} has a passphrase: unlock it in an agent, ssh-add {locked}" in refused(target, tmp_path)[0]


@pytest.mark.parametrize(
    ("text", "locked"),
    [
        (b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", True),
        (b"-----BEGIN X-----\nabc\n", False),
        (b"\xff\x00", False),
    ],
)
def test_which_key_files_want_a_passphrase(tmp_path, text, locked):
    (tmp_path / "key").write_bytes(text)
    told = why_no_key([str(tmp_path / "key"), str(tmp_path / "none")])
    assert ("has a passphrase: unlock it" in told) == locked
    assert ("give yours to the host with ssh-copy-id" in told) != locked


def test_a_key_file_that_is_none_is_wrong_input(target, tmp_path):
    (tmp_path / "key").write_bytes(b"\xff\x00")
    target.identities = [str(tmp_path / "key")]
    words, code = refused(target, tmp_path)
    assert words.startswith(f"one of these is no private key: {tmp_path}/key")
    assert code == 2


def test_known_hosts_that_cannot_be_read_are_no_unknown_host(target, tmp_path):
    known = tmp_path / "folder"
    known.mkdir()
    target.options["userknownhostsfile"] = str(known)
    words, code = refused(target, tmp_path)
    assert words == f"known_hosts: {known} is a folder, so no host key can be verified: ls -l {known}"
    assert code == 2
    broken = tmp_path / "broken"
    broken.write_text("node ssh-ed25519 !!!notbase64\n")
    target.options["userknownhostsfile"] = str(broken)
    words, code = refused(target, tmp_path)
    assert "holds a key that cannot be read in 'node ssh-ed25519 !!!notbase64'" in words
    assert code == 2
    broken.write_bytes(b"\xff\xfe\n")
    assert "holds a key that cannot be read" in refused(target, tmp_path)[0]


def test_the_users_own_known_hosts_count_too(target, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    Path(target.options["userknownhostsfile"]).rename(tmp_path / ".ssh/known_hosts")
    target.options.clear()
    SshMachine(target, str(tmp_path / "config")).close()
    (tmp_path / ".ssh/known_hosts").unlink()
    (tmp_path / ".ssh/known_hosts").mkdir()
    assert "is a folder" in refused(target, tmp_path)[0]


def test_a_configuration_that_cannot_be_read_is_wrong_input(target, tmp_path):
    (tmp_path / "config").mkdir()
    words, code = refused(target, tmp_path)
    assert words == f"ssh's configuration {tmp_path}/config cannot be read: Is a directory"
    assert code == 2


def test_a_proxy_command_that_does_not_run_is_wrong_input(target, tmp_path):
    target.options["proxycommand"] = "/nowhere/proxy %h"
    words, code = refused(target, tmp_path)
    assert "ProxyCommand `/nowhere/proxy 127.0.0.1` of ssh's configuration does not run" in words
    assert code == 2


def test_a_session_on_a_connection_that_is_gone_is_an_os_error(machine, monkeypatch):
    def gone(*_args):
        raise paramiko.SSHException("Timeout opening channel.")

    monkeypatch.setattr(machine, "_channel", gone)
    with pytest.raises(OSError, match="Timeout opening channel"):
        machine.session(["true"])
