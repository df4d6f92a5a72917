"""The lab's command line: up, down, status, shell, reboot, fault."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

from lab.console import LabError, locked, say
from lab.instance import BOOT_LOADERS, DEFAULT_NODE, Instance, Node
from lab.node import container, network, parts, ssh


def _nodes(instance: Instance, names: list[str]) -> list[Node]:
    return [instance.node(name) for name in names] or [instance.node(DEFAULT_NODE)]


def up(instance: Instance, options: argparse.Namespace) -> int:
    """Bring nodes up; quick when they are."""
    start = time.monotonic()
    nodes = _nodes(instance, options.nodes)
    with locked(instance.home.with_name(f"{instance.index}.lock"), "another command on this lab"):
        network.up(instance)
        parts.publish(instance)
        for node in nodes:
            if container.state(node) == "absent":
                say(f"{node.name}: new, {options.boot_loader}")
                container.create(node, options.boot_loader)
        starting = [node for node in nodes if container.state(node) != "running"]
        for node in starting:
            container.start(node)
        for node in nodes:
            container.wait(node)
            say(f"{node.name}: up at {node.address}")
    say(f"ready after {time.monotonic() - start:.1f} s; log in: python -m lab shell {nodes[0].name}")
    return 0


def down(instance: Instance, options: argparse.Namespace) -> int:
    """Remove nodes; all of them and the network when none is named."""
    with locked(instance.home.with_name(f"{instance.index}.lock"), "another command on this lab"):
        for node in [instance.node(name) for name in options.nodes] or instance.existing():
            if container.state(node) != "absent":
                say(f"{node.name}: removing")
                container.remove(node)
        if not options.nodes:
            network.down(instance)
            shutil.rmtree(instance.home, ignore_errors=True)
    return 0


def status(instance: Instance, options: argparse.Namespace) -> int:
    """Say what exists and how it is."""
    rows = [{"name": node.name, "address": node.address, "state": container.state(node)} for node in instance.existing()]
    if options.json:
        key, hosts = instance.home / "ssh/id_ed25519", ssh.known_hosts(instance)
        print(json.dumps({"index": instance.index, "home": str(instance.home), "key": str(key), "known_hosts": str(hosts), "nodes": rows}))
        return 0
    print(f"lab {instance.index}: bridge {instance.bridge} {'up' if network.exists(instance.bridge) else 'absent'}, {instance.subnet}")
    for row in rows:
        print(f"  {row['name']}  {row['address']}  {row['state']}")
    return 0


def shell(instance: Instance, options: argparse.Namespace) -> int:
    """Run a command on a node over ssh, or open a shell there."""
    node = instance.node(options.node)
    if container.state(node) != "running":
        raise LabError(f"{node.name} is {container.state(node)}: python -m lab up {node.name}")
    words = ssh.command(node, options.command, terminal=not options.command and sys.stdin.isatty())
    return subprocess.run(words, check=False).returncode


def console(instance: Instance, options: argparse.Namespace) -> int:
    """Run a command inside a node without ssh: for nodes that do not come up."""
    node = instance.node(options.node)
    words = [str(word) for word in container.lxc(node, "attach", "--clear-env", "--", *(options.command or ["bash", "-l"]))]
    os.execvp(words[0], words)


def reboot(instance: Instance, options: argparse.Namespace) -> int:
    """Reboot a node from inside and wait until it is back."""
    node = instance.node(options.node)
    before = _boot_id(node)
    subprocess.run(ssh.command(node, ["systemctl", "reboot"]), check=False)
    deadline = time.monotonic() + container.START_TIMEOUT_S
    while (now := _boot_id(node)) in {"", before}:
        if time.monotonic() > deadline:
            raise LabError(f"{node.name} has not rebooted after {container.START_TIMEOUT_S} s: python -m lab console {node.name}")
        time.sleep(0.3)
    container.wait(node)
    say(f"{node.name}: rebooted, boot id {now}")
    return 0


def _boot_id(node: Node) -> str:
    words = ssh.command(node, ["cat", "/proc/sys/kernel/random/boot_id"])
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout.strip()


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    top = argparse.ArgumentParser(
        prog="python -m lab", description="A Proxmox node with 8 GPUs on this machine; GPUNODE_LAB_INDEX selects the instance."
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, job: object, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(job=job)
        return command

    command = add("up", up, "create and start nodes, whatever of it is missing")
    command.add_argument("nodes", nargs="*", metavar="NODE", help=f"default: {DEFAULT_NODE}")
    command.add_argument("--boot-loader", choices=BOOT_LOADERS, default="grub", help="of nodes that are created now")
    command = add("down", down, "remove nodes (all, and the network, when none is named)")
    command.add_argument("nodes", nargs="*", metavar="NODE")
    command = add("status", status, "what exists and how it is")
    command.add_argument("--json", action="store_true")
    for name, job, text in (("shell", shell, "a shell or a command on a node, over ssh"), ("console", console, "the same without ssh")):
        command = add(name, job, text)
        command.add_argument("node", metavar="NODE")
        command.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    command = add("reboot", reboot, "reboot a node and wait for it")
    command.add_argument("node", metavar="NODE")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run a command of the lab; 0 good, 1 a LabError, 2 wrong usage."""
    options = parser().parse_args(arguments)
    try:
        instance = Instance.from_environment()
        if os.geteuid() != 0:
            raise LabError("the lab makes containers, a bridge and mounts: run it as root")
        return int(options.job(instance, options))
    except (LabError, ValueError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again")
        return 130
