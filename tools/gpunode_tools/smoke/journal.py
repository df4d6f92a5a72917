"""Why requests failed, in the server's own words: its journal and the kernel's log, where they may be read, searched for known problems.

A journal explains, it never decides: verdict and exit code are those of the requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
import socket
from typing import TYPE_CHECKING, Any, Final

from gpunode import problems
from gpunode.findings import ERROR, INFO, UNKNOWN, WARNING, Finding, by_consequence
from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.machines import LocalMachine, running_containers
from gpunode_tools.diagnose.node import stream
from gpunode_tools.report.terminal import plural
from gpunode_tools.smoke.gpu import local
from gpunode_tools.smoke.judging import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpunode_tools.collect.machines import Machine
    from gpunode_tools.diagnose.sources import Source

UNIT: Final = "sglang.service"
BEFORE_S: Final = 60
"""Read from so long before the run: clocks differ, and what broke the server may stand just before its first failed request."""
LAST_LINES: Final = 2000
"""Of a server that never answered: its last start with every rank's traceback."""
_ADDRESS: Final = re.compile(r"^/etc/pve/lxc/(\d+)\.conf:net\d+:.*?\bip6?=([0-9a-fA-F.:]+)/", re.MULTILINE)


class NotReadError(RuntimeError):
    """Raised when no journal may be read; the message says what would help."""


def explain(
    result: dict[str, Any], address: str, *, machine: Callable[[], Machine] = LocalMachine, container: int | None = None, unit: str = UNIT
) -> None:
    """Add to a judged result what the journal of the server at ``address`` says: known problems with their proof, or that there are none.

    ``machine`` connects to where the server or its container runs. Exit code and verdict stay; ``journal`` tells what was read.
    """
    if not failed(result):
        return
    worst = {finding["severity"] for finding in result["findings"]}
    try:
        found, sources = _read(result, address, machine, container, unit)
    except (NotReadError, UnreachableError) as error:
        _add(result, [], [_unread(str(error))])
        return
    result["journal"] = {"sources": [source.to_dict() for source in sources], "problems": [match.to_dict() for match in found]}
    severity = ERROR if ERROR in worst else WARNING
    told = [dataclasses.replace(match.to_finding(), severity=severity) for match in found if not match.because_of]
    unread = [_unread(f"{source.name}: {source.error}") for source in sources if source.error]
    if not told and not unread:
        lines = sum(source.lines for source in sources)
        names = " and ".join(source.name for source in sources)
        told = [
            Finding(
                "journal-read",
                INFO,
                "journal",
                f"no known problem in {plural(lines, 'line')} of {names}",
                "the catalogue of `gpunode diagnose`",
                f"read its end: journalctl -u {unit} -n 200",
            )
        ]
    _add(result, told, unread)


def _add(result: dict[str, Any], causes: Sequence[Finding], unread: Sequence[Finding]) -> None:
    """Put causes before what they caused, and what was not read last, within each severity."""
    held = [Finding(**{"source": "", **entry}) for entry in result["findings"]]
    result["findings"] = [finding.to_dict() for finding in by_consequence([*causes, *held, *unread])]


def _unread(why: str) -> Finding:
    return Finding(
        "journal-not-read",
        UNKNOWN,
        "journal",
        "why requests failed was not looked up in the server's journal",
        why,
        "gpunode diagnose --host NODE, or with the journal as a file",
    )


def _read(
    result: dict[str, Any], address: str, connect: Callable[[], Machine], container: int | None, unit: str
) -> tuple[list[problems.Match], list[Source]]:
    here = connect is LocalMachine
    machine = connect()
    try:
        vmid = container if container is not None else container_at(machine, address)
        if vmid is None and here and not local(address):
            raise NotReadError(
                f"{address} is neither this machine nor one of its containers: --container VMID on the node, or --journal-host NODE"
            )
        context = problems.Context({"sglang": version} if (version := _version(result)) else {})
        diagnosis = problems.diagnosis(context)
        started = result.get("started_at")
        span = ["--boot", f"--lines={LAST_LINES}"]
        if started and result["levels"]:
            span = [f"--since=@{int(dt.datetime.fromisoformat(started).timestamp()) - BEFORE_S}"]
        journal = ["journalctl", "--no-pager", "--quiet", "--output=short-iso", *span]
        inside = ["pct", "exec", str(vmid), "--"] if vmid is not None else []
        where = f" in container {vmid}" if vmid is not None else ""
        kernel = stream(diagnosis, machine, "kernel log", [*journal, "--dmesg"], required=False)
        server = stream(diagnosis, machine, f"journal of {unit}{where}", [*inside, *journal, f"--unit={unit}"])
        return [match for match in diagnosis.matches() if not match.problem.harmless], [kernel, server]
    finally:
        machine.close()


def _version(result: dict[str, Any]) -> str:
    """The server's version when it is sglang's."""
    version = str(result["server"].get("version") or "")
    return version if re.match(r"\d+\.\d+", version) and result["server"].get("engine") == "sglang" else ""


def container_at(machine: Machine, address: str) -> int | None:
    """The machine's container that has this address, by its configuration, else by what LXC says of those that run."""
    wanted = {address}
    with contextlib.suppress(OSError):
        wanted |= {str(info[4][0]) for info in socket.getaddrinfo(address, None)}
    _, out, _ = machine.run(["grep", "-rsE", "^net[0-9]+:", "/etc/pve/lxc"], timeout=20)
    for vmid, has in _ADDRESS.findall(out):
        if has in wanted:
            return int(vmid)
    running: set[int] = set()
    with contextlib.suppress(UnreachableError):  # no Proxmox there
        running = running_containers(machine)
    for vmid in sorted(running):
        _, out, _ = machine.run(["lxc-info", "-n", str(vmid), "-iH"], timeout=20)
        if wanted & set(out.split()):
            return vmid
    return None
