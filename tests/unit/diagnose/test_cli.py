"""`gpunode diagnose`: sources, forms of output, exit codes; and the page and filters that come from the same catalogue."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpunode.problems import CATALOGUE
from gpunode_tools.cli import main
from gpunode_tools.cli.diagnose import command
from gpunode_tools.collect import ssh
from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.diagnose import node as nodes

ROOT = Path(__file__).resolve().parents[3]
XID = "[ 8123.4] NVRM: Xid (PCI:0000:c1:00): 79, pid=4411, name=python3, GPU has fallen off the bus."
OOM = "[ 8124.0] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
IGNORED = "[2026-11-30 10:00:00 TP0] Ignore import error when loading sglang.srt.models.x: No module named 'y'"


def run(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=text)


def test_a_file_with_an_error(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text(f"{XID}\nnoise\n{OOM}\n")
    result = run(log)
    assert result.exit_code == 1
    assert "fallen off the bus" in result.stdout
    assert f"{log}:1: {XID}" in result.stdout
    assert "follows: error  GPU memory ran out" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("FAIL  1 known problem in 3 lines")


def test_standard_input_and_json() -> None:
    result = run("-", "--output", "json", text=f"{XID}\n{OOM}\n")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["schema"] == "gpunode.diagnose/1"
    assert data["verdict"] == "fail"
    assert [(problem["id"], problem["because_of"]) for problem in data["problems"]] == [
        ("xid-fallen-off-bus", None),
        ("gpu-memory-request", "xid-fallen-off-bus"),
    ]
    assert data["problems"][0]["details"]["gpu"] == "0000:c1:00"
    assert data["problems"][0]["evidence"][0] == {"source": "standard input", "line": 1, "text": XID}
    assert data["sources"] == [{"name": "standard input", "lines": 2, "bytes": len(XID) + len(OOM) + 2}]
    assert data["simulated"] is False


def test_nothing_found_is_said() -> None:
    result = run("-", text="all is well\n")
    assert result.exit_code == 0
    assert result.stdout == "PASS  No known problem found in 1 line of standard input.\n"


def test_harmless_lines_are_known_and_shown_when_asked() -> None:
    result = run("-", text=IGNORED + "\n")
    assert result.exit_code == 0
    assert "1 kind of harmless lines (--all shows them)" in result.stdout
    assert "harmless-ignored-import" not in result.stdout
    shown = run("-", "--all", text=IGNORED + "\n")
    assert shown.exit_code == 0
    assert "harmless-ignored-import" in shown.stdout


def test_warnings_alone_exit_0() -> None:
    result = run("-", "--output", "json", text="KV cache pool is full. Retract requests. #retracted_reqs: 4\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdict"] == "warn"


def test_what_cannot_be_read_is_3_unless_an_error_is_found(tmp_path: Path) -> None:
    missing = tmp_path / "missing.log"
    result = run(missing)
    assert result.exit_code == 3
    assert f"Not read: {missing}: No such file or directory" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("UNKNOWN")
    log = tmp_path / "kern.log"
    log.write_text(XID)
    assert run(log, missing).exit_code == 1
    assert run(tmp_path).exit_code == 3
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b no more")
    assert run(broken).exit_code == 3


def test_compressed_files(tmp_path: Path) -> None:
    packed = tmp_path / "kern.log.2.gz"
    packed.write_bytes(gzip.compress(f"{XID}\n".encode()))
    tighter = tmp_path / "journal.xz"
    tighter.write_bytes(lzma.compress(f"{XID}\n".encode()))
    for path in (packed, tighter):
        assert run(path).exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpu", "blackwell"),
        ("--sglang", "new"),
        ("x", "--host", "node"),
        ("x", "--container", "200"),
        ("--output", "xml"),
        ("--nonsense",),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_versions_narrow_the_answer() -> None:
    line = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376.\n"
    assert "triton-extend-attention" in run("-", "--sglang", "0.5.8", text=line).stdout
    newer = run("-", "--sglang", "0.5.12", text=line).stdout
    assert "triton-extend-attention" not in newer
    assert "triton-shared-memory" in newer


def test_a_snapshot_is_read_by_its_parts(tmp_path: Path) -> None:
    saved = tmp_path / "snapshot.json"
    snapshot: dict[str, Any] = {
        "schema": "gpunode.snapshot/1",
        "host": "gpu-node-01",
        "commands": {
            "dmesg": {"rc": 0, "stdout": XID + "\n", "stderr": ""},
            "lspci -vvv": {"rc": 0, "stdout": "ACSCtl: ReqRedir+", "stderr": ""},
        },
        "files": {"/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N\n", "/proc/cmdline": None},
        "container": {
            "vmid": 200,
            "commands": {"nvidia-smi -L": {"rc": 255, "stdout": "", "stderr": "Failed to initialize NVML: Unknown Error"}},
        },
    }
    saved.write_text(json.dumps(snapshot))
    data = json.loads(run(saved, "--output", "json").stdout)
    found = {problem["id"]: problem["evidence"][0]["source"] for problem in data["problems"]}
    assert found == {
        "xid-fallen-off-bus": f"{saved}: dmesg",
        "hmm-enabled": f"{saved}: /sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
        "container-nvml-lost": f"{saved}: container 200: nvidia-smi -L",
    }


def test_what_the_lab_printed_is_labelled() -> None:
    data = json.loads(run("-", "--output", "json", text="GPU 0: NVIDIA RTX PRO 6000 (simulated) (UUID: GPU-0)\n").stdout)
    assert data["simulated"] is True
    assert run("-", text="NVIDIA RTX PRO 6000 (simulated)\n").stdout.startswith("Simulated:")


class FakeSession:
    def __init__(self, text: str, status: int = 0, said: str = "") -> None:
        self.lines = text.splitlines(keepends=True)
        self.status, self.said = status, said

    def send(self, program: bytes) -> None:
        assert program == b""

    def readline(self, timeout: float) -> bytes:
        assert timeout > 0
        return self.lines.pop(0).encode() if self.lines else b""

    def interrupt(self) -> None:
        raise AssertionError

    def close(self) -> tuple[int, str]:
        return self.status, self.said


class FakeMachine:
    """A Proxmox node with container 200 in words; ``answers`` by a piece of the command line."""

    name = "gpu-node-01"

    def __init__(self, answers: dict[str, FakeSession]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def session(self, argv: list[str]) -> FakeSession:
        line = " ".join(argv)
        self.asked.append(line)
        return next((session for piece, session in self.answers.items() if piece in line), FakeSession(""))

    def run(self, argv: list[str], stdin: bytes = b"", timeout: float = 60.0) -> tuple[int, str, str]:
        if argv == ["pct", "list"]:
            return 0, "VMID Status Lock Name\n200 running glm\n", ""
        return 0, json.dumps({"commands": {"nvidia-smi -L": {"rc": 0, "stdout": "", "stderr": ""}}}), ""

    def close(self) -> None:
        self.asked.append("closed")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    snapshot = {
        "schema": "gpunode.snapshot/1",
        "files": {"/etc/pve/lxc/200.conf": "dev0: /dev/nvidia0\n"},
        "commands": {"dmesg": {"rc": 0, "stdout": XID + "\n", "stderr": ""}},
    }
    monkeypatch.setattr(nodes, "read_machine", lambda machine: dict(snapshot))
    state: dict[str, Any] = {"snapshot": snapshot}

    def connect(host: str | None, inventory: str | None) -> Any:
        assert (host, inventory) == ("gpu-node-01", None)
        return state["machine"]

    monkeypatch.setattr("gpunode_tools.cli.verify_p2p.connect", connect)
    return state


def test_a_node_is_read_over_its_machine(node: dict[str, Any]) -> None:
    machine = FakeMachine(
        {
            "--dmesg": FakeSession(
                "2026-11-30T10:00:00+0000 gpu-node-01 kernel: NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n"
            ),
            "pct exec 200": FakeSession("2026-11-30T10:00:05+0000 glm sglang[1]: torch.OutOfMemoryError: CUDA out of memory.\n"),
        }
    )
    node["machine"] = machine
    result = run("--host", "gpu-node-01", "--since", "yesterday", "--output", "json")
    assert result.exit_code == 1, result.output
    data = json.loads(result.stdout)
    assert [(problem["id"], problem["because_of"]) for problem in data["problems"]] == [
        ("xid-fallen-off-bus", None),
        ("gpu-memory-request", "xid-fallen-off-bus"),
    ]
    assert data["problems"][1]["evidence"][0]["source"] == "journal of sglang.service in container 200"
    assert any(
        line.startswith("pct exec 200 -- journalctl") and "--since=yesterday" in line and "--unit=sglang.service" in line
        for line in machine.asked
    )
    assert machine.asked[-1] == "closed"


def test_the_kernel_buffer_serves_where_the_journal_has_no_kernel_log(node: dict[str, Any]) -> None:
    machine = FakeMachine({"--dmesg": FakeSession("", 1, "No journal files were found."), "dmesg": FakeSession(XID + "\n")})
    node["machine"] = machine
    data = json.loads(run("--host", "gpu-node-01", "--output", "json").stdout)
    assert [problem["id"] for problem in data["problems"]] == ["xid-fallen-off-bus"]
    assert "dmesg" in machine.asked


def test_a_journal_that_cannot_be_read_is_not_fine(node: dict[str, Any]) -> None:
    node["machine"] = FakeMachine(
        {"--dmesg": FakeSession("[1.0] all is well\n"), "pct exec 200": FakeSession("", 255, "CT 200 not running")}
    )
    node["snapshot"]["commands"] = {}
    result = run("--host", "gpu-node-01", "--output", "json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert data["verdict"] == "unknown"
    assert [source["error"] for source in data["sources"] if "error" in source] == [
        "`pct exec 200 -- journalctl --no-pager --quiet --output=short-iso --boot --unit=sglang.service` ended with 255: CT 200 not running"
    ]


def test_a_journal_without_entries_is_not_fine_either(node: dict[str, Any]) -> None:
    node["machine"] = FakeMachine({"--dmesg": FakeSession("[1.0] all is well\n")})
    node["snapshot"]["commands"] = {}
    result = run("--host", "gpu-node-01")
    assert result.exit_code == 3
    assert "Not read: journal of sglang.service in container 200: no entries" in result.stdout


def test_the_page_is_up_to_date() -> None:
    page = ROOT / "plugins/module_utils/gpunode/problems/README.md"
    assert run("--list").stdout == page.read_text(encoding="utf-8"), f"gpunode diagnose --list > {page.relative_to(ROOT)}"
    for problem in CATALOGUE:
        assert f"`{problem.id}`" in page.read_text(encoding="utf-8")


def test_remedies_name_variables_that_exist() -> None:
    import re

    known = set()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        known |= set(re.findall(r"^      ([a-z_]+):", path.read_text(encoding="utf-8"), re.MULTILINE))
    roles = "|".join(path.parent.parent.name for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
    for problem in CATALOGUE:
        named = set(re.findall(rf"\b(?:{roles})_[a-z_]+", f"{problem.cause} {problem.remedy} {problem.consequence}"))
        assert named <= known, (problem.id, named - known)


@pytest.mark.parametrize("command_", ["diagnose", "verify-p2p"])
def test_a_host_out_of_reach_says_which_inventory_was_read(command_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise UnreachableError("ssh root@node-x:22: the name node-x is not known")

    monkeypatch.setattr(ssh, "SshMachine", refuse)
    monkeypatch.chdir(tmp_path)

    def told(*more: str) -> str:
        result = CliRunner().invoke(main, [command_, "--host", "node-x", *more])
        assert result.exit_code == 3
        return result.stderr

    assert "no inventory was read, inventory/hosts.yml and inventory/hosts.yaml are not here: -i INVENTORY" in told()
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text("all: {hosts: {other: {}}}\n")
    assert "inventory inventory/hosts.yml was read and has no host node-x: -i INVENTORY for another one" in told()
    (tmp_path / "mine.yml").write_text("all: {hosts: {node-x: {}}}\n")
    assert "node-x is in inventory mine.yml: -i INVENTORY for another one" in told("-i", "mine.yml")
