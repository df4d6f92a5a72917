"""Failed requests explained by the server's journal: found by its address, never deciding, honest where it may not be read."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gpunode_tools.cli.smoke import command
from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.machines import LocalMachine
from gpunode_tools.smoke import journal

OUT_OF_MEMORY = "[2026-11-30 10:00:00 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has 94.97 GiB"
XID = "2026-11-30T09:59:58+0000 node kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=7, GPU has fallen off the bus."
LOST = "2026-11-30T10:00:00+0000 glm sglang[7]: RuntimeError: CUDA error: unspecified launch failure"
ADDRESS = "10.0.0.5"


class Node(LocalMachine):
    """A node whose container 101 has the address; commands say what the test writes."""

    def __init__(self, tmp_path, kernel="", server="", config=f"/etc/pve/lxc/101.conf:net0: name=eth0,bridge=vmbr0,ip={ADDRESS}/24\n"):
        self.folder = tmp_path
        self.texts = {"kernel": kernel, "server": server}
        self.config = config
        self.asked = []

    def run(self, argv, stdin=b"", timeout=60.0):
        if argv[0] == "grep":
            return 0, self.config, ""
        if argv[:2] == ["pct", "list"]:
            return 0, "VMID Status Lock Name\n102 running  glm\n103 stopped  old\n", ""
        return (0, "10.0.0.7\n10.0.0.8\n", "") if argv[0] == "lxc-info" else (127, "", "")

    def session(self, argv):
        self.asked.append(argv)
        text = self.texts["kernel" if "--dmesg" in argv else "server"]
        place = self.folder / "text"
        place.write_text(text)
        return super().session(["cat", str(place)])


@pytest.fixture
def broken():
    """A judged result with failed requests."""
    return {
        "levels": [{"errors": {"connection-reset": 3}}],
        "started_at": "2026-11-30T10:00:00+00:00",
        "stopped": None,
        "server": {"engine": "sglang", "version": "0.5.23"},
        "findings": [{"id": "requests-failed", "severity": "error", "subject": "run", "summary": "3 failed", "evidence": "", "remedy": ""}],
        "verdict": "fail",
    }


def test_the_cause_comes_first_and_is_proved(tmp_path, broken):
    node = Node(tmp_path, kernel=XID + "\n", server=LOST + "\n")
    journal.explain(broken, ADDRESS, machine=lambda: node)
    first, second = broken["findings"]
    assert (first["id"], first["subject"], first["severity"]) == ("known-problem", "xid-fallen-off-bus", "error")
    assert "fallen off the bus" in first["evidence"]
    assert "kernel log:1" in first["evidence"]
    assert second["id"] == "requests-failed"
    assert broken["verdict"] == "fail"
    assert broken["journal"]["problems"][0]["id"] == "xid-fallen-off-bus"
    server = next(argv for argv in node.asked if "--dmesg" not in argv)
    assert server[:4] == ["pct", "exec", "101", "--"]
    assert f"--since=@{1796032800 - journal.BEFORE_S}" in server


def test_a_known_problem_does_not_turn_allowed_errors_into_a_failure(tmp_path, broken):
    broken["findings"][0]["severity"] = "warning"
    broken["verdict"] = "warn"
    journal.explain(broken, ADDRESS, machine=lambda: Node(tmp_path, kernel="x\n", server=OUT_OF_MEMORY + "\n"))
    assert broken["findings"][0]["severity"] == "warning"
    assert broken["findings"][0]["id"] == "known-problem"


def test_nothing_known_is_said(tmp_path, broken):
    journal.explain(broken, ADDRESS, machine=lambda: Node(tmp_path, kernel="a\n", server="b\nc\n"))
    assert broken["findings"][-1]["id"] == "journal-read"
    assert "3 lines of kernel log and journal of sglang.service in container 101" in broken["findings"][-1]["summary"]


def test_a_journal_without_entries_was_not_read(tmp_path, broken):
    journal.explain(broken, ADDRESS, machine=lambda: Node(tmp_path, kernel="a\n"))
    unread = broken["findings"][-1]
    assert (unread["id"], unread["severity"]) == ("journal-not-read", "unknown")
    assert "no entries" in unread["evidence"]
    assert broken["verdict"] == "fail"


def test_a_server_elsewhere_and_a_node_out_of_reach(broken):
    journal.explain(broken, "192.0.2.7")
    assert "--journal-host" in broken["findings"][-1]["evidence"]

    def gone():
        raise UnreachableError("ssh root@node:22: no route")

    journal.explain(broken, ADDRESS, machine=gone)
    assert [finding["evidence"] for finding in broken["findings"] if "no route" in finding["evidence"]]


def test_healthy_runs_read_nothing():
    result = {"levels": [{"errors": {}}], "stopped": "interrupted", "findings": []}
    journal.explain(result, ADDRESS, machine=lambda: pytest.fail("nothing failed"))
    assert result["findings"] == []


def test_a_server_that_never_answered_is_read_to_its_end(tmp_path, broken):
    broken["levels"] = []
    node = Node(tmp_path, kernel="a\n", server=OUT_OF_MEMORY + "\n")
    journal.explain(broken, ADDRESS, machine=lambda: node, unit="other.service")
    assert "--boot" in node.asked[-1]
    assert node.asked[-1][-1] == "--unit=other.service"
    assert broken["findings"][0]["subject"] == "gpu-memory-request"


def test_the_container_is_found_by_its_address(tmp_path):
    assert journal.container_at(Node(tmp_path), ADDRESS) == 101
    assert journal.container_at(Node(tmp_path, config=""), "10.0.0.8") == 102
    assert journal.container_at(Node(tmp_path, config=""), ADDRESS) is None


def test_the_command_line_says_what_was_not_read():
    unit = "gpunode-no-such.service"
    asked = ["--url", "http://127.0.0.1:9", "--journal-unit", unit, "--output", "json", "--deadline", "5"]
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 3
    unread = next(finding for finding in json.loads(done.stdout)["findings"] if finding["id"] == "journal-not-read")
    assert unit in unread["evidence"]
