"""The lab's command line: up, down, status, shell, console, reboot, fault."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import faults
from lab.console import LabError, locked, say
from lab.instance import BOOT_LOADERS, DEFAULT_NODE, Instance, Node
from lab.node import container, image, network, parts, ssh, units

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_ANSWER_S = 15.0  # for a node that is asked which boot it is in


def _alone(instance: Instance) -> AbstractContextManager[None]:
    return locked(Path(f"/run/lock/gpunode-lab-{instance.index}"), "another command on this lab")


def up(instance: Instance, options: argparse.Namespace) -> int:
    """Bring nodes up; quick when they are."""
    start = time.monotonic()
    nodes = [instance.node(name) for name in options.nodes] or [instance.node(DEFAULT_NODE)]
    with _alone(instance):
        network.up(instance)
        parts.publish(instance)
        for node in nodes if options.fresh else []:
            if container.state(node) != "absent":
                say(f"{node.name}: removing")
                container.remove(node)
        for node in nodes:
            if container.state(node) == "absent":
                say(f"{node.name}: new, {options.boot_loader}")
                container.create(node, options.boot_loader)
            elif (have := container.boot_loader(node)) != options.boot_loader and options.boot_loader_given:
                raise LabError(f"{node.name} exists with {have}: python -m lab down {node.name}, then up again")
            for suite in options.template:
                container.place_template(node, image.guest_recipe(suite))
        for node in nodes:
            if container.state(node) == "running":
                continue
            if options.boot_entry:
                container.choose_boot_entry(node, options.boot_entry)
            container.start(node)
        for node in nodes:
            container.wait(node)
            say(f"{node.name}: up at {node.address}")
    say(f"ready after {time.monotonic() - start:.1f} s; log in: python -m lab shell {nodes[0].name}")
    return 0


def down(instance: Instance, options: argparse.Namespace) -> int:
    """Remove nodes; all of them and the network when none is named."""
    with _alone(instance):
        for node in [instance.node(name) for name in options.nodes] or instance.existing():
            if container.state(node) != "absent":
                say(f"{node.name}: removing")
                container.remove(node)
        if not options.nodes:
            network.down(instance)
            shutil.rmtree(instance.home, ignore_errors=True)
    if not options.nodes:
        Path(f"/run/lock/gpunode-lab-{instance.index}").unlink(missing_ok=True)
    return 0


def _row(node: Node) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": node.name,
        "address": node.address,
        "state": container.state(node),
        "boot_loader": container.boot_loader(node),
    }
    if row["state"] == "running":
        code = f"PYTHONPATH={units.CODE} python3 -m lab.faults active"
        script = f"cat /run/lab/kernel-release; systemctl is-system-running; pct list 2>/dev/null | tail -n +2 | wc -l; {code}"
        lines = container.inside(node, ["sh", "-c", script]).splitlines()
        row |= dict(zip(("kernel", "systemd", "guests"), lines, strict=False)) | {"faults": [line for line in lines[3:] if line]}
    return row


def status(instance: Instance, options: argparse.Namespace) -> int:
    """Say what exists and how it is."""
    rows = [_row(node) for node in instance.existing()]
    key, hosts = instance.home / "ssh/id_ed25519", ssh.known_hosts(instance)
    if options.json:
        place = {"index": instance.index, "home": str(instance.home), "subnet": instance.subnet, "key": str(key), "known_hosts": str(hosts)}
        print(json.dumps(place | {"nodes": rows}, indent=2))
        return 0
    print(f"lab {instance.index}: bridge {instance.bridge} {'up' if network.exists(instance.bridge) else 'absent'}, {instance.subnet}")
    for row in rows:
        print(f"  {row['name']:<14} {row['address']:<14} {row['state']:<8} boots with {row['boot_loader']}")
        if row["state"] == "running":
            print(f"    kernel {row.get('kernel', '?')}, systemd {row.get('systemd', '?')}, {row.get('guests', '?')} guests")
            print(f"    faults: {', '.join(row['faults']) or 'none'}")
    if rows:
        print(f"  ssh -i {key} -o UserKnownHostsFile={hosts} root@{rows[0]['address']}")
    else:
        print("  no nodes: python -m lab up")
    return 0


def _running(instance: Instance, name: str) -> Node:
    node = instance.node(name)
    if (state := container.state(node)) != "running":
        raise LabError(f"{node.name} is {state}: python -m lab up {node.name}")
    return node


def shell(instance: Instance, options: argparse.Namespace) -> int:
    """Run a command on a node over ssh, or open a shell there."""
    words = ssh.command(_running(instance, options.node), options.command, terminal=not options.command and sys.stdin.isatty())
    return subprocess.run(words, check=False).returncode


def console(instance: Instance, options: argparse.Namespace) -> int:
    """Run a command inside a node without ssh: for nodes that do not come up."""
    node = _running(instance, options.node)
    words = container.lxc(node, "attach", "--clear-env", "--", *(options.command or ["bash", "-l"]))
    return subprocess.run([str(word) for word in words], check=False).returncode


def reboot(instance: Instance, options: argparse.Namespace) -> int:
    """Reboot a node from inside and wait until it is back."""
    node = _running(instance, options.node)
    before = _boot_id(node)
    if options.boot_entry:
        container.choose_boot_entry(node, options.boot_entry)
    subprocess.run(ssh.command(node, ["systemctl", "reboot"]), check=False, capture_output=True)
    deadline = time.monotonic() + container.START_TIMEOUT_S
    while (now := _boot_id(node)) in {"", before}:
        if time.monotonic() > deadline:
            raise LabError(f"{node.name} has not rebooted after {container.START_TIMEOUT_S} s: python -m lab console {node.name}")
        if container.state(node) == "stopped":
            raise LabError(f"{node.name} went off and did not come back; python -m lab up {node.name} [--boot-entry KERNEL]")
        time.sleep(0.3)
    container.wait(node)
    say(f"{node.name}: rebooted, boot id {now}")
    return 0


def _boot_id(node: Node) -> str:
    words = ssh.command(node, ["cat", "/proc/sys/kernel/random/boot_id"])
    try:
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=_ANSWER_S).stdout.strip()
    except subprocess.TimeoutExpired:
        return ""  # a connection that a node took just before it went down is never closed


def fault(instance: Instance, options: argparse.Namespace) -> int:
    """Set a fault, list them all, or take all back."""
    node = instance.node(options.node)
    outside = list(parts.modules("machine_faults").values())
    known = {name: function for module in outside for name, function in module.FAULTS.items()}
    if options.list:
        for name, text in sorted({**faults.listing(), **{name: faults.describe(function) for name, function in known.items()}}.items()):
            print(f"{name:<22} {text}")
        return 0
    runner = [f"PYTHONPATH={units.CODE}", "python3", "-m", "lab.faults"]
    if options.clear:
        for module in outside:
            module.clear(node)
        return subprocess.run(ssh.command(_running(instance, node.name), ["env", *runner, "clear"]), check=False).returncode
    if not options.name:
        raise LabError("name a fault, or --list or --clear")
    if options.name in known:
        subprocess.run(
            ssh.command(_running(instance, node.name), ["env", *runner, "remember", options.name, *options.arguments]), check=True
        )
        known[options.name](node, *options.arguments)
        return 0
    words = ssh.command(_running(instance, node.name), ["env", *runner, "apply", options.name, *options.arguments])
    return subprocess.run(words, check=False).returncode


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    text = "A Proxmox node with 8 GPUs on this machine. GPUNODE_LAB_INDEX (0 to 255) selects the instance, several live side by side."
    top = argparse.ArgumentParser(prog="python -m lab", description=text)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, job: object, text: str, *, node: bool = False) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(job=job)
        if node:
            command.add_argument("node", metavar="NODE")
        return command

    entry = "kernel release to pick at the boot menu of this start"
    command = add("up", up, "create and start nodes, whatever of it is missing")
    command.add_argument("nodes", nargs="*", metavar="NODE", help=f"default: {DEFAULT_NODE}")
    command.add_argument("--fresh", action="store_true", help="remove these nodes first")
    command.add_argument("--boot-loader", choices=BOOT_LOADERS, help=f"of nodes that are created now (default {BOOT_LOADERS[0]})")
    command.add_argument("--boot-entry", metavar="KERNEL", help=entry)
    older = [suite for suite in image.GUEST_TEMPLATES if suite != image.NODE_SUITE]
    text = "a further container template (built when the cache lacks it)"
    command.add_argument("--template", action="append", default=[], choices=older, help=text)
    command = add("down", down, "remove nodes (all, and the network, when none is named)")
    command.add_argument("nodes", nargs="*", metavar="NODE")
    command = add("status", status, "what exists and how it is")
    command.add_argument("--json", action="store_true")
    for name, job, summary in (("shell", shell, "a shell or a command on a node, over ssh"), ("console", console, "the same without ssh")):
        command = add(name, job, summary, node=True)
        command.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    command = add("reboot", reboot, "reboot a node from inside and wait for it", node=True)
    command.add_argument("--boot-entry", metavar="KERNEL", help=entry)
    command = add("fault", fault, "set a fault on a node, list the faults, or clear all", node=True)
    command.add_argument("name", nargs="?", metavar="NAME")
    command.add_argument("arguments", nargs="*", metavar="ARG")
    command.add_argument("--list", action="store_true", help="every fault and what it does")
    command.add_argument("--clear", action="store_true", help="take every fault back")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run a command of the lab; 0 good, 1 a LabError, 2 wrong usage."""
    options = parser().parse_args(arguments)
    if "boot_loader" in options:
        options.boot_loader_given = options.boot_loader is not None
        options.boot_loader = options.boot_loader or BOOT_LOADERS[0]
    try:
        instance = Instance.from_environment()
        if os.geteuid() != 0:
            raise LabError("the lab makes containers, a bridge and mounts: run it as root")
        return int(options.job(instance, options))
    except (LabError, ValueError, subprocess.CalledProcessError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again")
        return 130
