"""Waiting for a server: a failure names the known problem of the last start first, then the journal's end."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[3]
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 94.97 GiB"
NO_SUCH_FLAG = "launch_server.py: error: unrecognized arguments: --reasoning_parser glm45"
FAKE_SYSTEMCTL = """#!/bin/sh
cat "$FAKES/state"
"""
FAKE_JOURNALCTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$FAKES/asked"
case "$*" in
    *_SYSTEMD_INVOCATION_ID=*) cat "$FAKES/invocation" ;;
    *--since=*) cat "$FAKES/since" ;;
    *) cat "$FAKES/unit" ;;
esac
"""


@pytest.fixture(scope="module")
def module():
    """The module, its core found where Ansible would put it."""
    from ansible.module_utils import __path__ as places

    places.append(str(ROOT / "plugins/module_utils"))
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("server_ready", ROOT / "plugins/modules/server_ready.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    yield loaded
    places.remove(str(ROOT / "plugins/module_utils"))
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A machine with systemctl and journalctl that say what the test writes."""
    for name, text in (("systemctl", FAKE_SYSTEMCTL), ("journalctl", FAKE_JOURNALCTL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("invocation", "since", "unit", "asked"):
        (tmp_path / name).write_text("")
    tell(tmp_path, "failed", 0)
    monkeypatch.setenv("FAKES", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def tell(node, active, restarts, invocation="6b2f"):
    (node / "state").write_text(f"ActiveState={active}\nSubState=x\nResult=exit-code\nNRestarts={restarts}\nInvocationID={invocation}\n")


def wait(module, capsys, **more):
    arguments = {"unit": "sglang.service", "url": "http://127.0.0.1:9/health", "timeout_s": 0, "delay_s": 0.01, **more}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def test_the_known_cause_stands_first_and_the_journals_end_last(module, node, capsys):
    noise = [f"Loading safetensors checkpoint shards: {number}%" for number in range(60)]
    (node / "invocation").write_text("\n".join([NO_SUCH_FLAG, *noise, "sglang.service: Main process exited, code=exited, status=2"]))
    said = wait(module, capsys)
    first, cause, do, *_ = said["msg"].splitlines()
    assert first == "sglang.service has ended."
    assert cause.startswith("Known problem flag-underscore: ")
    assert "--reasoning-parser" in do
    assert said["msg"].splitlines()[-1].endswith("status=2")
    assert NO_SUCH_FLAG not in said["msg"].split("The end of `journalctl", 1)[1]
    assert [(problem["id"], problem["because_of"]) for problem in said["problems"]] == [
        ("flag-underscore", None),
        ("flag-unknown", "flag-underscore"),
        ("server-ended", "flag-underscore"),
    ]
    assert NO_SUCH_FLAG in said["journal"]


def test_the_fault_of_an_earlier_server_is_not_told(module, node, capsys):
    (node / "invocation").write_text("a new kind of end\n")
    (node / "unit").write_text(f"{OUT_OF_MEMORY}\na new kind of end\n")
    said = wait(module, capsys)
    assert said["problems"] == []
    assert said["msg"].startswith("sglang.service has ended; its journal shows no problem that is known.")
    assert "a new kind of end" in said["msg"]


def test_a_server_started_again_and_again_is_judged_by_all_starts_since(module, node, capsys):
    (node / "invocation").write_text("starting\n")
    (node / "since").write_text(f"{OUT_OF_MEMORY}\nstarting\n")
    tell(node, "failed", 5)
    said = wait(module, capsys)
    assert said["problems"][0]["id"] == "gpu-memory-request"
    assert "--since=@" in (node / "asked").read_text()


def test_versions_and_architecture_narrow(module, node, capsys):
    line = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376."
    (node / "invocation").write_text(line)
    assert wait(module, capsys)["problems"][0]["id"] == "triton-extend-attention"
    narrowed = wait(module, capsys, versions={"sglang": "0.5.12"}, gpu_arch="sm120")
    assert narrowed["problems"][0]["id"] == "triton-shared-memory"


def test_a_journal_that_cannot_be_read_is_no_journal_without_problems(module, node, capsys):
    (node / "journalctl").write_text("#!/bin/sh\necho 'No journal files were opened due to insufficient permissions.' >&2\nexit 1\n")
    said = wait(module, capsys)
    assert "could not be read" in said["msg"]
    assert "insufficient permissions" in said["msg"]
    assert "no problem that is known" not in said["msg"]


def test_bytes_that_are_no_text_and_endless_lines_do_no_harm(module, node, capsys):
    (node / "invocation").write_bytes(b"\xff\xfe ServerArgs(" + b"x" * 20_000 + b")\n" + OUT_OF_MEMORY.encode() + b"\n")
    said = wait(module, capsys)
    assert said["problems"][0]["id"] == "gpu-memory-request"
    assert max(map(len, said["msg"].splitlines())) < 2000


class Healthy(BaseHTTPRequestHandler):
    """Answers every health check with 200."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_server_that_answers_is_ready(module, node, capsys):
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        said = wait(module, capsys, url=f"http://127.0.0.1:{server.server_port}/health")
    with contextlib.suppress(KeyError):
        assert not said["failed"]
    assert said["waited_s"] >= 0
    assert not (node / "asked").read_text()


def test_nodes_of_a_server_that_do_not_answer_are_named(module, node, capsys):
    with HTTPServer(("127.0.0.1", 0), Healthy) as there:
        threading.Thread(target=there.serve_forever, daemon=True).start()
        members = {"gpu-node-01": f"http://127.0.0.1:{there.server_port}/health", "gpu-node-02": "http://127.0.0.1:9/health"}
        said = wait(module, capsys, members=members)
        there.shutdown()
    line = next(line for line in said["msg"].splitlines() if line.startswith("Of the 2 nodes of this server"))
    assert "gpu-node-02 (http://127.0.0.1:9/health: " in line
    assert "gpu-node-01" not in line
    assert "nodes of this server" not in wait(module, capsys)["msg"]
