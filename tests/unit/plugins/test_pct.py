"""The connection ``pct`` with a program in the place of ssh: what reaches the container, and what comes back."""

from __future__ import annotations

import os
import stat
import textwrap
from pathlib import Path
from typing import Any

import ansible.plugins.connection.ssh
import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader

ROOT = Path(__file__).resolve().parents[3]
SSH = """\
#!/bin/sh
# The last argument is the command of the node.
for last; do :; done
exec /bin/sh -c "$last"
"""
PCT = """\
#!/bin/sh
state=$(cat "$(dirname "$0")/state")
[ "$state" != missing ] || { echo "Configuration file 'nodes/pve/lxc/$2.conf' does not exist" >&2; exit 255; }
case $1 in
status) echo "status: $state" ;;
exec)
    [ "$state" = running ] || { echo "CT $2 not running" >&2; exit 255; }
    [ "$2" = 101 ] && [ "$3" = -- ] || exit 9
    shift 3
    exec "$@" ;;
esac
"""


@pytest.fixture(scope="module", autouse=True)
def _loader() -> None:
    init_plugin_loader()
    connection_loader.add_directory(str(ROOT / "plugins/connection"))


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, text in (("ssh", SSH), ("pct", PCT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("running")
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", str(tmp_path))
    found = connection_loader.get("pct", PlayContext(), os.devnull)
    found.set_options(
        direct={
            "vmid": 101,
            "host": "node",
            "ssh_executable": str(tmp_path / "ssh"),
            "pct_executable": str(tmp_path / "pct"),
            "pipelining": True,
        }
    )
    return found


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 137, 253, 254, 255])
def test_exit_codes_are_exact(connection: Any, code: int) -> None:
    assert connection.exec_command(f"echo out; echo err >&2; exit {code}") == (code, b"out\n", b"err\n")


def test_any_byte_of_a_command_survives(connection: Any) -> None:
    signs = "".join(chr(code) for code in range(1, 256)) + "$HOME `id` \\ \"' ! * ? ~ ü漢\udce9"
    assert connection.exec_command(f"printf %s {signs_quoted(signs)}")[1] == signs.encode("utf-8", "surrogateescape")


def signs_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def test_standard_input_is_binary_safe(connection: Any) -> None:
    data = bytes(range(256)) * 1000
    assert connection.exec_command("cat", in_data=data)[1] == data


def test_the_environment_is_the_containers(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKED", "1")
    out = connection.exec_command("env")[1].decode().splitlines()
    assert "HOME=/root" in out
    assert "container=lxc" in out
    assert not any(line.startswith(("LEAKED", "SSH_", "TERM=xterm")) for line in out)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("stopped", r"container 101 on node is not running \(stopped\): `pct start 101`"),
        ("missing", r"container 101 does not exist on node \(Configuration file"),
    ],
)
@pytest.mark.parametrize("data", [None, b"x"])
def test_a_container_that_is_not_there_is_unreachable(connection: Any, tmp_path: Path, state: str, told: str, data: bytes | None) -> None:
    (tmp_path / "state").write_text(state)
    with pytest.raises(AnsibleConnectionFailure, match=told):
        connection.exec_command("true", in_data=data)
    (tmp_path / "file").touch()
    with pytest.raises(AnsibleConnectionFailure, match=told):
        connection.put_file(str(tmp_path / "file"), "/nowhere")


def test_a_container_that_stops_meanwhile_is_unreachable(connection: Any) -> None:
    with pytest.raises(AnsibleConnectionFailure, match="it stopped meanwhile"):
        connection.exec_command("echo 'lxc-attach: 101: ../src/lxc/attach.c: Connection refused - Failed to get init pid' >&2; exit 1")


def test_output_that_looks_like_the_mark_is_output(connection: Any) -> None:
    code, _, err = connection.exec_command("echo gpunode-pct-status:x >&2; exit 255")
    assert (code, err) == (255, b"gpunode-pct-status:x\n")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_files_both_ways_with_their_modes(connection: Any, tmp_path: Path, mode: int) -> None:
    data = os.urandom(3_000_000)
    source, there, back = tmp_path / "a b'c", tmp_path / "in $x", tmp_path / "back"
    source.write_bytes(data)
    source.chmod(mode)
    connection.put_file(str(source), str(there))
    connection.fetch_file(str(there), str(back))
    assert there.read_bytes() == back.read_bytes() == data
    assert [stat.S_IMODE(path.stat().st_mode) for path in (there, back)] == [mode, mode]


def test_an_empty_file(connection: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    connection.put_file(str(tmp_path / "empty"), str(tmp_path / "there"))
    assert (tmp_path / "there").read_bytes() == b""


def test_transfers_that_fail_say_why(connection: Any, tmp_path: Path) -> None:
    with pytest.raises(AnsibleFileNotFound, match="does not exist: /none"):
        connection.put_file("/none", "/x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(AnsibleError, match=r"sending .* in container 101 failed with status [12]: .*[Dd]irectory"):
        connection.put_file(str(tmp_path / "file"), "/none/there")
    with pytest.raises(AnsibleError, match=r"fetching /none to .* failed with status 1: .*No such file"):
        connection.fetch_file("/none", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    with pytest.raises(AnsibleError, match=r"failed with status 1: cat: .*[Ii]s a directory"):
        connection.fetch_file(str(tmp_path), str(tmp_path / "x"))


def test_a_secret_is_nobody_elses_while_it_arrives(connection: Any, tmp_path: Path) -> None:
    (tmp_path / "pct").write_text(PCT.replace("shift 3", f'shift 3; stat -c %a "{tmp_path}/secret" > "{tmp_path}/seen"'))
    (tmp_path / "source").write_text("x")
    (tmp_path / "source").chmod(0o604)
    connection.fetch_file(str(tmp_path / "source"), str(tmp_path / "secret"))
    assert (tmp_path / "seen").read_text() == "600\n"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o604


def test_no_vmid_is_told(connection: Any) -> None:
    connection.set_option("vmid", None)
    with pytest.raises(AnsibleError, match="set gpu_container_vmid"):
        connection.exec_command("true")


def options(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(textwrap.dedent(text))["options"])


def sources(option: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: [{key: value for key, value in item.items() if key != "version_added"} for item in option.get(kind, [])]
        for kind in ("ini", "env", "vars", "cli", "keyword")
    }


def test_every_option_of_ssh_is_ours_from_the_same_places(connection: Any) -> None:
    import importlib

    module = importlib.import_module(type(connection).__module__)
    theirs, ours = options(ansible.plugins.connection.ssh.DOCUMENTATION), options(module.DOCUMENTATION)
    assert set(ours) - set(theirs) == {"vmid", "pct_executable", "pct_shortcut"}
    for name, option in theirs.items():
        assert sources(ours[name]) == sources(option), name
        if name != "use_tty":
            assert ours[name].get("default") == option.get("default"), name
