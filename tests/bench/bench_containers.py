"""Tasks a second and a 200 MB copy through ``pct``, and a no-change ``pve_lxc``, against community.proxmox, in one run on the lab.

Both sides use the same node, the same container and Ansible's settings of this project. The figures that matter are the ratios.
Words on the command line choose parts: module, tasks, copy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "bench"
BUNDLE = "14.5.0"
"""Version of the Ansible bundle that carries community.proxmox."""
INDEX = os.environ.get("GPUNODE_LAB_INDEX", "21")
FEW, MANY = 2, 14
"""Tasks of a short and of a long run; their difference leaves out what every run costs."""
COPY_MB = 200
WANTED = {"tasks a second": 1.8, "transfer of 200 MB": 3.0, "no-change run": 1 / 0.6}

CONTAINER = "vmid: 101, hostname: bench, memory: 512, swap: 0, cores: 1, onboot: true, tags: [bench]"
PLAY = """\
- hosts: gpu_nodes
  gather_facts: false
  vars:
    gpu_container_vmid: 101
    proxmox_vmid: 101
    ansible_python_interpreter: /usr/bin/python3
    {connection}
  tasks:
{tasks}
"""
OURS = "ansible_connection: pct"
# It knows no file of host keys but the user's own; without the check it is not slower.
THEIRS = "ansible_connection: community.proxmox.proxmox_pct_remote\n    ansible_host_key_checking: false"
PLAIN = "plain: true"
COMMAND = "    - ansible.builtin.command: 'true'\n      changed_when: false\n"


def community() -> Path:
    """A collections folder with community.proxmox, from the bundle on PyPI."""
    folder = CACHE / f"community.proxmox-of-ansible-{BUNDLE}"
    if not (folder / "ansible_collections/community/proxmox/MANIFEST.json").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(CACHE / "pip")], check=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            pip = [str(CACHE / "pip/bin/python"), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*pip, "--python-version", "3.12", "--dest", scratch, f"ansible=={BUNDLE}"], check=True)
            with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
                wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("ansible_collections/community/proxmox/")])
    return folder


def lab(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=ROOT,
        env=os.environ | {"GPUNODE_LAB_INDEX": INDEX},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def play(folder: Path, connection: str, tasks: str) -> float:
    """Seconds of one run of a playbook."""
    book = folder / "play.yml"
    book.write_text(PLAY.format(connection=connection, tasks=tasks))
    environment = os.environ | {
        "GPUNODE_LAB_INDEX": INDEX,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(community()),
        "ANSIBLE_HOME": str(folder / "ansible"),
    }
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(ROOT / "inventory/lab"), "-l", "gpu-node-01", str(book)]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-2000:])
    return seconds


def each(folder: Path, sides: tuple[tuple[str, str], tuple[str, str]]) -> tuple[float, float]:
    """Seconds a task of two sides (connection and task): the difference of a long and a short run.

    The sides take turns, and the best of three counts: what else the machine does meets both.
    """
    best = [float("inf"), float("inf")]
    for _ in range(3):
        for side, (connection, task) in enumerate(sides):
            seconds = play(folder, connection, task * MANY) - play(folder, connection, task * FEW)
            best[side] = min(best[side], seconds / (MANY - FEW))
    return best[0], best[1]


def copy_task(source: Path, name: str) -> str:
    return f"    - ansible.builtin.copy: {{src: {source}, dest: /root/{name}, mode: '0644'}}\n"


def copies(folder: Path, source: Path) -> tuple[float, float]:
    """Seconds of a copy task of a large file beyond those of a small one, the sides by turns, the best of three each.

    Ansible reads the file once here and twice there for its checksums, whatever carries it.
    """
    small = folder / "small"
    small.write_bytes(b"x")
    best = {(side, file): float("inf") for side in (OURS, THEIRS) for file in (small, source)}
    for number in range(3):
        for (side, file), before in list(best.items()):
            best[side, file] = min(before, play(folder, side, copy_task(file, f"copied-{number}-{len(side)}-{file.name}")))
    return best[OURS, source] - best[OURS, small], best[THEIRS, source] - best[THEIRS, small]


def transfers(source: Path, address: str) -> tuple[float, float]:
    """Seconds of a file's way into the container through either connection plugin alone, the better of two each."""
    os.environ |= {"ANSIBLE_COLLECTIONS_PATH": str(community()), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    from ansible.playbook.play_context import PlayContext
    from ansible.plugins.loader import connection_loader, init_plugin_loader

    init_plugin_loader([str(community())])
    connection_loader.add_directory(str(ROOT / "plugins/connection"))
    home = Path("/var/lib/gpunode-lab") / INDEX / "ssh"
    key, known = str(home / "id_ed25519"), f"-o UserKnownHostsFile={home / 'known_hosts'} -o IdentitiesOnly=yes"
    ours = {"vmid": 101, "host": address, "remote_user": "root", "private_key_file": key, "ssh_common_args": known}
    theirs = {"vmid": 101, "remote_addr": address, "remote_user": "root", "private_key_file": key, "host_key_checking": False}
    seconds = []
    for name, options in (("pct", ours), ("community.proxmox.proxmox_pct_remote", theirs)):
        connection = connection_loader.get(name, PlayContext(), os.devnull)
        connection.set_options(direct=options)
        connection._connect()
        connection.exec_command("true")
        rounds = []
        for _ in range(2):
            began = time.perf_counter()
            connection.put_file(str(source), "/root/transferred")
            rounds.append(time.perf_counter() - began)
        seconds.append(min(rounds))
        connection.close()
    return seconds[0], seconds[1]


def module_tasks(password: str, address: str) -> tuple[str, str]:
    ours = f"    - pve_lxc: {{{CONTAINER}, rootfs: 'local:2', features: {{nesting: true}}, state: started}}\n"
    theirs = (
        "    - community.proxmox.proxmox:\n"
        f"        {{api_host: {address}, api_user: root@pam, api_password: '{password}', validate_certs: false, node: gpu-node-01,\n"
        "         vmid: 101, hostname: bench, memory: 512, swap: 0, cores: 1, onboot: true, tags: [bench], update: true,\n"
        "         features: ['nesting=1'], cmode: tty, state: present}\n"
        "      delegate_to: localhost\n"
        "      vars: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}\n"
    )
    return ours, theirs


def main() -> None:
    """Print each pair of figures with its ratio."""
    lab("up")
    try:
        address = f"10.213.{INDEX}.11"
        password = lab("shell", "gpu-node-01", "cat /etc/pve/priv/lab-root-password").strip()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            ours, theirs = module_tasks(password, address)
            made = ours.replace("rootfs:", "ostemplate: 'local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst', rootfs:")
            play(folder, PLAIN, made)
            wanted = sys.argv[1:] or ["module", "tasks", "copy"]
            results = {}
            if "module" in wanted:
                results["no-change run"] = each(folder, ((PLAIN, ours), (PLAIN, theirs)))
            if "tasks" in wanted:
                results["tasks a second"] = each(folder, ((OURS, COMMAND), (THEIRS, COMMAND)))
            if "copy" in wanted:
                source = folder / "big"
                source.write_bytes(os.urandom(COPY_MB * 10**6))
                results["copy task of 200 MB, checksums included"] = copies(folder, source)
                results["transfer of 200 MB"] = transfers(source, address)
        for name, (mine, other) in results.items():
            wanted = f", wanted {WANTED[name]:.2f}" if name in WANTED else ""
            print(f"{name}: ours {mine:.3f} s, community.proxmox {other:.3f} s, ratio {other / mine:.2f}{wanted}")
    finally:
        lab("down")


if __name__ == "__main__":
    main()
