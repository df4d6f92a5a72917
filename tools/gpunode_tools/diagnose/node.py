"""Reading a node: the kernel's log, the server's journal (in its container), Proxmox's words on the container, driver and devices."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING, Final

from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.machines import read_container, read_machine
from gpunode_tools.collect.node import choose_container
from gpunode_tools.diagnose.sources import Source, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpunode.problems import Diagnosis
    from gpunode_tools.collect.machines import Machine
    from gpunode_tools.probe import Session

SILENCE_S: Final = 60.0
"""A journal that says nothing for so long is given up: journalctl searches an index, it does not think."""


def read_node(
    diagnosis: Diagnosis, machine: Machine, *, container: int | None, unit: str, since: str | None, say: Callable[[str], None]
) -> list[Source]:
    """Search what a node says. Raises UnreachableError when the node itself cannot be read."""
    data = read_machine(machine)
    vmid = choose_container(data, machine, container, say)
    if vmid is not None:
        data["container"] = read_container(machine, vmid)
    span = [f"--since={since}"] if since else ["--boot"]
    journal = ["journalctl", "--no-pager", "--quiet", "--output=short-iso", *span]
    kernel = stream(diagnosis, machine, "kernel log", [*journal, "--dmesg"])
    if not kernel.lines:  # no journal of the kernel is kept: its buffer holds what has not been overwritten
        kernel = stream(diagnosis, machine, "kernel log", ["dmesg"])
    found = [kernel]
    if vmid is None:
        found.append(stream(diagnosis, machine, f"journal of {unit}", [*journal, f"--unit={unit}"]))
    else:
        inside = ["pct", "exec", str(vmid), "--", *journal, f"--unit={unit}"]
        found.append(stream(diagnosis, machine, f"journal of {unit} in container {vmid}", inside))
        units = [f"--unit={name}" for name in (f"pve-container@{vmid}", "pve-guests", "pve-ha-lrm", "nvidia-persistenced")]
        found.append(stream(diagnosis, machine, "journal of the node's container services", [*journal, *units], required=False))
    found += read_snapshot(diagnosis, data, skip=frozenset({"dmesg"}))
    return found


def stream(diagnosis: Diagnosis, machine: Machine, name: str, argv: list[str], *, required: bool = True) -> Source:
    """Search a command's output as it comes; why it could not be read stands in the source's ``error``."""
    try:
        session = machine.session(argv)
    except (OSError, UnreachableError) as error:
        return Source(name, error=f"{argv[0]}: {error}", required=required)
    trouble = ""
    scanner = diagnosis.open(name)
    try:
        session.send(b"")
        for line in _lines(session):
            scanner.feed(line)
    except (OSError, TimeoutError) as error:
        trouble = str(error) or type(error).__name__
    scanner.close()
    status, said = session.close()
    if status not in {0, None} and not scanner.lines:
        last = said.splitlines()[-1] if said else "no output"
        trouble = trouble or f"`{shlex.join(argv)}` ended with {status}: {last}"
    if required and not scanner.lines:
        trouble = trouble or f"no entries: `{shlex.join(argv)}` says nothing; --unit names another unit, --since looks further back"
    return Source(name, scanner.lines, scanner.bytes, error=trouble, required=required)


def _lines(session: Session) -> Iterator[bytes]:
    with contextlib.suppress(EOFError):
        while line := session.readline(SILENCE_S):
            yield line
