"""Collecting: deadlines, missing programs, secrets, containers, inventories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.healthy import make_node

from gpunode.snapshot import Snapshot
from gpunode_tools.collect import gather, inventory, machines, measuring, node
from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.ssh import target_from_variables

GATHER = Path(gather.__file__)


def test_this_machine_is_a_snapshot():
    data = gather.gather(timeout=10)
    snapshot = Snapshot(data)
    assert snapshot.host.command("uname -r").text.strip() == os.uname().release
    assert snapshot.host.file("/proc/sys/kernel/osrelease").ok
    assert {"nvidia-smi -q", "nvidia-smi topo -p2p a", "lspci -vvv", "dkms status", "dmesg"} <= set(data["commands"])


def test_streamed_program_does_the_same_and_takes_no_argument():
    program = machines.gather_program(inside=True)
    done = subprocess.run([sys.executable, "-I", "-"], input=program, capture_output=True, check=True)
    part = json.loads(done.stdout)
    assert set(part["commands"]) == {"nvidia-smi -L"}
    assert "host" not in part


def test_command_that_does_not_exist_fails_or_hangs():
    assert gather.run_command("gpunode-no-such-program", 5) is None
    assert gather.run_command("/", 5)["rc"] == 126
    assert gather.run_command("false", 5)["rc"] == 1
    began = time.monotonic()
    hung = gather.run_command("sleep 30", 0.2)
    assert time.monotonic() - began < 5
    assert (hung["rc"], hung["stderr"]) == (None, "ended after 0.2 s without an answer")


def test_hanging_command_leaves_no_child(tmp_path):
    script = tmp_path / "hang"
    script.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/pid\nwait\n")
    script.chmod(0o755)
    assert gather.run_command(str(script), 0.5)["rc"] is None
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_files_links_and_nodes(tmp_path):
    found = gather.Gatherer()
    (tmp_path / "there").write_text("text\n")
    (tmp_path / "link").symlink_to("there")
    assert found.file(str(tmp_path / "there")) == "text\n"
    assert found.file(str(tmp_path / "not-there")) is None
    assert found.file(str(tmp_path)) is None
    assert found.link(str(tmp_path / "link")) == "there"
    assert found.link(str(tmp_path / "link"), whole=True) == str(tmp_path / "there")
    assert found.link(str(tmp_path / "gone")) is None
    assert found.link(str(tmp_path / "there")) is None
    found.node("/dev/null")
    found.node("/dev/gpunode-none")
    found.node(str(tmp_path / "there"))
    assert found.part["nodes"]["/dev/null"]["major"] == 1
    assert found.part["nodes"]["/dev/gpunode-none"] is None
    assert found.part["files"][str(tmp_path / "not-there")] is None
    assert str(tmp_path) not in found.part["files"]  # not readable as a file is not the same as not there
    assert set(found.errors) == {str(tmp_path), str(tmp_path / "there")}


def test_nothing_secret_is_kept(monkeypatch, tmp_path):
    assert gather.SECRET.sub(r"\1***", "root=/dev/sda1 cryptkey=/x:y nfs.password=abc rd.luks.key=/k iommu=pt") == (
        "root=/dev/sda1 cryptkey=*** nfs.password=*** rd.luks.key=*** iommu=pt"
    )
    log = "NVRM: loading\nIN=eth0 SRC=10.0.0.1 password guess\npci 0000:01:00.0: BAR 1\nsudo: user : COMMAND=/bin/x\n"
    monkeypatch.setattr(gather, "run_command", lambda line, timeout: {"rc": 0, "stdout": log, "stderr": ""})
    found = gather.Gatherer()
    found.commands(("dmesg",), 1)
    assert found.part["commands"]["dmesg"]["stdout"] == "NVRM: loading\npci 0000:01:00.0: BAR 1\n"
    conf = (
        "# root password is abc\nenv: TOKEN=secret\nhostname: x\ndev0: /dev/nvidia0\nlxc.environment: A=secret\n"
        "lxc.mount.entry: /dev/nvidia1 dev/nvidia1\n[snap]\n"
    )
    kept = [line for line in conf.splitlines() if gather.CONFIG_LINE.match(line)]
    assert kept == ["dev0: /dev/nvidia0", "lxc.mount.entry: /dev/nvidia1 dev/nvidia1", "[snap]"]


def test_every_line_that_a_rule_reads_passes_the_filter_of_the_log():
    lines = [
        "NVRM: fallen off the bus and is not responding to commands.",
        "nvidia-uvm: uvm_pmm_gpu.c:3176 request_free_mem_region() err -34",
        "pci 0000:01:00.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s",
        "Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA",
        "Loading of unsigned module is rejected",
        "modprobe: Key was rejected by service",
        "AMD-Vi: Event logged [IO_PAGE_FAULT]",
        "DMAR: [DMA Read] fault addr",
        "pcieport 0000:00:01.1: AER: Corrected error received",
        "Command line: ro",
        "Linux version 7.0",
        "nouveau 0000:01:00.0: NVIDIA GB202",
        "vfio-pci 0000:01:00.0: enabling",
    ]
    assert all(gather.LOG.search(line) for line in lines)


class Fake:
    """A machine that answers from a table."""

    name = "fake"

    def __init__(self, answers):
        self.answers = answers
        self.asked: list[list[str]] = []
        self.told: list[bytes] = []
        self.guard = [b"armed\n", b""]

    def session(self, argv):
        """What starts the server again: its first word, and what it says at its end."""
        machine = self

        class Session:
            def readline(self, timeout):
                if isinstance(machine.guard[0], Exception):
                    raise machine.guard[0]
                return machine.guard[0]

            def send(self, program):
                machine.told.append(program)

            def close(self):
                return 1, machine.guard[1].decode()

        return Session()

    def run(self, argv, stdin=b"", timeout=60.0):
        self.asked.append(argv)
        for prefix, answer in self.answers.items():
            if " ".join(argv).startswith(prefix):
                return answer(stdin) if callable(answer) else answer
        return 1, "", "no such thing"

    def close(self):
        pass


def here(stdin):
    """Run what is streamed on this machine."""
    done = subprocess.run([sys.executable, "-I", "-"], input=stdin, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


CONFIGS = {
    "/etc/pve/lxc/101.conf": "dev0: /dev/nvidia0,mode=0666\ndev1: path=/dev/nvidia1\n",
    "/etc/pve/lxc/102.conf": "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\n",
    "/etc/pve/lxc/103.conf": "cores: 4\n[old]\ndev0: /dev/nvidia0\n",
}


def test_containers_with_gpus_in_their_live_section():
    assert machines.gpu_containers({"files": CONFIGS}) == {101: 2, 102: 1}


@pytest.mark.parametrize(
    ("listing", "chosen", "words"),
    [
        ("VMID Status Lock Name\n101 running x\n102 stopped x\n", 101, ""),
        ("VMID Status Lock Name\n101 running x\n102 running x\n", 101, "taking 101"),
        ("VMID Status Lock Name\n101 stopped x\n", None, "does not run"),
    ],
)
def test_choice_of_the_container(listing, chosen, words):
    said: list[str] = []
    machine = Fake({"pct list": (0, listing, "")})
    assert node.choose_container({"files": CONFIGS}, machine, None, said.append) == chosen
    assert words in " ".join(said)
    assert node.choose_container({"files": CONFIGS}, machine, 777, said.append) == 777
    assert node.choose_container({"files": {}}, machine, None, said.append) is None


def test_a_container_that_cannot_be_looked_at_is_not_called_stopped():
    said: list[str] = []
    assert node.choose_container({"files": CONFIGS}, Fake({"pct list": (255, "", "please run as root\n")}), None, said.append) is None
    assert "could not be told (`pct list` ended with 255: please run as root)" in said[0]
    assert "does not run" not in said[0]


def test_container_without_python_costs_only_what_it_hides():
    machine = Fake({"python3": here, "pct exec": (127, "", "python3: not found\n")})
    data = node.read_node(machine, 101, print)
    Snapshot(data)
    assert "python3: not found" in data["container"]["commands"]["nvidia-smi -L"]["stderr"]


def test_a_container_that_is_not_there_is_wrong_input(monkeypatch):
    monkeypatch.setattr(node, "read_machine", lambda _machine: {"files": {**CONFIGS, "/proc/cmdline": ""}})
    with pytest.raises(UnreachableError, match="there is no container 777 on fake: it has 101, 102, 103") as caught:
        node.read_node(Fake({}), 777, print)
    assert caught.value.exit_code == 2


def test_container_is_read_from_inside():
    machine = Fake({"python3": here, "pct exec 101 -- python3": here})
    data = node.read_node(machine, 101, print)
    assert data["container"]["vmid"] == 101
    assert "nvidia-smi -L" in data["container"]["commands"]


def test_machine_that_answers_nothing_is_unreachable():
    with pytest.raises(UnreachableError, match="ended with 1: no such thing"):
        machines.read_machine(Fake({}))
    with pytest.raises(UnreachableError, match="no output"):
        machines.read_machine(Fake({"python3": (0, "", "")}))


def test_local_machine():
    local = machines.LocalMachine()
    assert local.run(["cat"], b"x")[:2] == (0, "x")
    assert local.run(["gpunode-no-such-program"])[0] == 127
    assert local.run(["sleep", "5"], timeout=0.1)[0] is None


def busy(used=0, pid=""):
    data = make_node(2)
    text = data["commands"]["nvidia-smi -q"]["stdout"].replace(
        "Used                              : 0 MiB", f"Used                              : {used} MiB", 1
    )
    data["commands"]["nvidia-smi -q"]["stdout"] = text.replace(
        "Processes                             : None", f"Processes\n        Process ID : {pid}" if pid else "Processes : None", 1
    )
    return data


def test_gpus_in_use():
    assert measuring.gpus_in_use(busy()) == ""
    assert measuring.gpus_in_use(busy(700)) == ""
    assert measuring.gpus_in_use(busy(90000)) == "GPU0 90000 MiB"
    assert measuring.gpus_in_use(busy(0, "4711")) == "GPU0 0 MiB"


OPTIONS = {"measure": "quick", "pairs": None, "pair_timeout": 20.0, "server_unit": "sglang.service"}


def test_refuse_measures_nothing_on_gpus_in_use():
    keys = measuring.measure_node(Fake({}), busy(90000), {**OPTIONS, "when_busy": "refuse"}, print)
    assert keys["measured"] == []
    assert "--when-busy refuse" in keys["measurement"]["fatal"]["summary"]


@pytest.mark.parametrize(
    ("data", "how", "light"),
    [
        (busy(), "light", "auto"),
        (busy(90000), "light", True),
        (busy(90000), "stop", False),
        (busy(), "stop", False),
        (busy(), "refuse", False),
    ],
)
def test_buffers_by_use(monkeypatch, data, how, light):
    seen = []
    result = {"pairs": [{"src": 0, "dst": 1, "status": "ok", "light": light is True}], "measure": "quick", "fatal": None}
    monkeypatch.setattr(measuring, "measure", lambda options, *_: seen.append(options) or result)
    keys = measuring.measure_node(Fake({}), data, {**OPTIONS, "pairs": ((0, 1),), "when_busy": how}, print)
    assert seen[0].light == light
    assert keys["measurement"]["mode"] == ("light" if light is True else "quick")
    assert (keys["measurement"]["pairs"], keys["measurement"]["where"]) == ("0:1", "fake")


@pytest.mark.parametrize("end", ["word", "nothing"])
def test_the_guard_starts_the_server_unless_it_is_told_that_somebody_did(tmp_path, end):
    """A program that is killed says nothing any more, and its end of the pipe closes."""
    mark = tmp_path / "started"
    argv = ["sh", "-c", measuring.GUARD.format(limit=30), "guard", "touch", str(mark)]
    guard = machines.LocalMachine().session(argv)
    assert guard.readline(5) == b"armed\n"
    guard.process.send_signal(1)
    guard.process.send_signal(15)
    guard.send(b"started\n" if end == "word" else b"")
    guard.process.wait(timeout=10)
    guard.close()
    assert mark.exists() == (end == "nothing")


def test_the_guard_gives_up_waiting_for_a_connection_that_is_lost(tmp_path):
    mark = tmp_path / "started"
    guard = machines.LocalMachine().session(["sh", "-c", measuring.GUARD.format(limit=0.2), "guard", "touch", str(mark)])
    guard.process.wait(timeout=10)
    assert mark.exists()
    guard.close()


def test_a_killed_tool_leaves_a_server_that_is_started_again(tmp_path):
    """The whole of it: the tool dies of SIGKILL while the server is stopped."""
    log = tmp_path / "log"
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho $1 >>{log}\necho active\n")
    systemctl.chmod(0o755)
    code = (
        "import os; from gpunode_tools.collect import machines, measuring\n"
        "with measuring.stopped_server(machines.LocalMachine(), None, 'sglang.service', print, needed=True): os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=False).returncode == -9
    deadline = time.monotonic() + 10
    while log.read_text().split() != ["is-active", "stop", "reset-failed", "start", "is-active"]:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def test_a_server_is_not_stopped_without_a_guard():
    machine = Fake({"systemctl": (0, "", "")})
    machine.guard = [b"", b"sh: not found"]
    with pytest.raises(UnreachableError, match=r"sglang.service was not stopped: .* sh: not found"):
        measuring.stopped_server(machine, None, "sglang.service", print, needed=True).__enter__()
    assert [argv[1] for argv in machine.asked] == ["is-active"]
    machine.guard = [TimeoutError(), b""]
    with pytest.raises(UnreachableError, match="no word from it"):
        measuring.stopped_server(machine, None, "sglang.service", print, needed=True).__enter__()


@pytest.mark.parametrize(("fails", "ends"), [(None, None), (RuntimeError, RuntimeError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_stopped_server_is_started_again_whatever_happens(fails, ends):
    said: list[str] = []
    machine = Fake({"pct exec 101 --": (0, "", "")})

    def body():
        with measuring.stopped_server(machine, 101, "sglang.service", said.append, needed=True):
            if fails:
                raise fails

    if ends:
        with pytest.raises(ends):
            body()
    else:
        body()
    assert [argv[5] for argv in machine.asked[:-1]] == ["is-active", "stop"]
    assert machine.asked[-1][4:] == ["sh", "-c", measuring.START, "sglang.service"]
    assert "stopping sglang.service" in said[0]
    assert machine.told == [b"started\n"]


def test_signal_while_the_server_is_stopped_starts_it_again():
    machine = Fake({"systemctl": (0, "", ""), "sh": (0, "", "")})

    def body():
        with measuring.stopped_server(machine, None, "sglang.service", print, needed=True):
            os.kill(os.getpid(), 15)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        body()
    assert machine.asked[-1] == ["sh", "-c", measuring.START, "sglang.service"]


@pytest.mark.parametrize(
    ("states", "job", "code", "asked"),
    [
        ("active", "", 0, 1),
        ("activating active", "", 0, 2),
        ("activating activating activating", "", 0, 3),
        ("inactive inactive inactive", "4711", 0, 3),
        ("inactive inactive inactive", "", 1, 3),
        ("inactive failed", "", 1, 2),
    ],
)
def test_a_start_is_seen_to_begin_whatever_was_started_within_the_hour(tmp_path, states, job, code, asked):
    """systemd counts starts: the limit of a unit of ours is four an hour, and --no-block says nothing of it."""
    log, queue = tmp_path / "log", tmp_path / "states"
    queue.write_text("\n".join(states.split()) + "\n")
    (tmp_path / "systemctl").write_text(
        f'#!/bin/sh\necho "$1" >>{log}\ncase $1 in\nis-active) head -1 {queue}; sed -i 1d {queue} ;;\nshow) echo {job} ;;\nesac\n'
    )
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    for program in ("systemctl", "sleep"):
        (tmp_path / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", measuring.START, "x.service"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, bool(done.stderr)) == (code, code == 1)
    lines = log.read_text().split()
    assert lines[:2] == ["reset-failed", "start"]
    assert lines.count("is-active") == asked


def test_server_that_does_not_run_is_left_alone():
    machine = Fake({"systemctl is-active": (3, "", "")})
    with measuring.stopped_server(machine, None, "sglang.service", print, needed=True):
        pass
    with measuring.stopped_server(machine, None, "sglang.service", print, needed=False):
        pass
    assert len(machine.asked) == 1


def test_server_that_will_not_start_again_is_shouted_about():
    said: list[str] = []
    machine = Fake({"systemctl is-active": (0, "", ""), "systemctl stop": (1, "", "stuck"), "sh": (1, "", "gone")})
    with measuring.stopped_server(machine, None, "sglang.service", said.append, needed=True):
        pass
    assert "could not be stopped: stuck" in said[1]
    assert machine.told == [b""]  # so that the guard tries as well
    assert "COULD NOT BE STARTED AGAIN: gone; run: systemctl reset-failed sglang.service; systemctl start sglang.service" in said[2]


def test_progress_on_a_terminal(capsys):
    show = measuring.Progress("container 101")
    show({"event": "gpus", "gpus": [1, 2]})
    show({"event": "pair", "pair": {"src": 0, "dst": 1, "copy_gbps": 53.04, "status": "ok"}, "done": 1, "total": 2})
    show({"event": "pair", "pair": {"src": 1, "dst": 0, "status": "hang"}, "done": 2, "total": 2})
    show({"event": "pattern", "pattern": {"name": "ring"}})
    show({"event": "alive"})
    show.end()
    told = capsys.readouterr().err
    assert "2 GPUs in container 101, starting" in told
    assert "1/2 pairs in container 101, GPU0->GPU1 53.0 GB/s" in told
    assert "GPU1->GPU0 hang" in told
    assert told.endswith("\r\x1b[K")


INVENTORY = """\
all:
  vars: {ansible_user: ops}
  children:
    gpu_nodes:
      hosts:
        gpu-node-01: {ansible_host: 10.0.0.1}
        gpu-node-02:
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "group_vars/gpu_nodes").mkdir(parents=True)
    (tmp_path / "group_vars/gpu_nodes/main.yml").write_text("ansible_port: 2222\n")
    (tmp_path / "group_vars/gpu_nodes/vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/gpu-node-02.yml").write_text("ansible_host: \"{{ '10.0.0.' ~ (1 + 1) }}\"\n")
    return tmp_path


def test_inventory_by_its_files(folder):
    assert inventory._by_files(folder / "hosts.yml", "gpu-node-01") == {
        "ansible_user": "ops",
        "ansible_port": 2222,
        "ansible_host": "10.0.0.1",
    }
    assert inventory._by_files(folder, "gpu-node-09") is None


def test_a_template_that_nobody_can_fill_in_is_named(folder):
    with pytest.raises(UnreachableError, match=r"ansible_host of gpu-node-02 .* is a template .*\.venv"):
        inventory._by_files(folder / "hosts.yml", "gpu-node-02")


def test_ansibles_tags_are_read_and_what_is_no_yaml_is_named(folder):
    place = folder / "host_vars/gpu-node-01.yml"
    place.write_text("secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\nansible_user: !unsafe 'a{{b'\n")
    with pytest.raises(UnreachableError, match="ansible_user of gpu-node-01"):
        inventory._by_files(folder, "gpu-node-01")
    place.write_text("secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\nother: '{{ lookup(1) }}'\n")
    assert inventory._by_files(folder, "gpu-node-01")["ansible_host"] == "10.0.0.1"
    place.write_text("a: [\n")
    with pytest.raises(UnreachableError, match=r"gpu-node-01\.yml is no YAML"):
        inventory._by_files(folder, "gpu-node-01")


def test_secrets_are_not_asked_for_and_what_cannot_be_filled_in_is_told(folder):
    (folder / "group_vars/gpu_nodes/vault.yml").unlink()
    place = folder / "host_vars/gpu-node-02.yml"
    place.write_text("ansible_host: \"{{ '10.0.0.' ~ 2 }}\"\nansible_become_password: \"{{ 'secret' }}\"\n")
    found = inventory.host_variables("gpu-node-02", str(folder / "hosts.yml"))
    assert found["ansible_host"] == "10.0.0.2"
    assert "secret" not in str(found)
    place.write_text('ansible_host: "{{ no_such_subnet }}.2"\n')
    with pytest.raises(UnreachableError, match=r"address of gpu-node-02 .*no_such_subnet"):
        inventory.host_variables("gpu-node-02", str(folder / "hosts.yml"))


def test_inventory_by_ansible_with_templates(folder):
    (folder / "group_vars/gpu_nodes/vault.yml").unlink()
    found = inventory.host_variables("gpu-node-02", str(folder / "hosts.yml"))
    assert (found["ansible_host"], found["ansible_user"]) == ("10.0.0.2", "ops")
    with pytest.raises(UnreachableError, match="has no host other"):
        inventory.host_variables("other", str(folder / "hosts.yml"))
    with pytest.raises(UnreachableError, match="does not exist"):
        inventory.host_variables("gpu-node-01", "/nowhere")


def test_without_an_inventory_ssh_decides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert inventory.host_variables("gpu-node-01", None) == {}


def test_target_from_variables():
    target = target_from_variables(
        "n1",
        {
            "ansible_host": "10.0.0.1",
            "ansible_user": "ops",
            "ansible_port": "2222",
            "ansible_become": True,
            "ansible_ssh_private_key_file": "/keys/a",
            "ansible_ssh_common_args": "-o UserKnownHostsFile=/k -oIdentitiesOnly=yes -J jump@bastion:2200 -v",
        },
    )
    assert (target.address, target.user, target.port, target.become, target.identities) == ("10.0.0.1", "ops", 2222, True, ["/keys/a"])
    assert target.options == {"userknownhostsfile": "/k", "identitiesonly": "yes", "proxyjump": "jump@bastion:2200"}
    flags = target_from_variables("n1", {"ansible_ssh_extra_args": "-i /keys/b -F /etc/ssh/node_config -l ops"})
    assert flags.options == {"identityfile": "/keys/b", "configfile": "/etc/ssh/node_config", "user": "ops"}
    plain = target_from_variables("n1", {})
    assert (plain.address, plain.user, plain.port, plain.become) == ("n1", None, None, False)
    assert not target_from_variables("n1", {"ansible_user": "root", "ansible_become": "true"}).become
