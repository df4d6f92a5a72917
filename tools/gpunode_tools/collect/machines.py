"""Machines to read from and to measure on: this one, or one over ssh; and the containers of either, through `pct exec`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpunode.pve.conffile import parse
from gpunode.pve.passthrough import passthrough
from gpunode_tools.collect.errors import UnreachableError

if TYPE_CHECKING:
    from gpunode_tools.probe import Session

GATHER: Final = Path(__file__).with_name("gather.py")
GATHER_DEADLINE_S: Final = 90.0
"""Reading takes a second or two; with a hanging driver each batch of commands takes its own deadline."""
OPTIONS_MARK: Final = "options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}"


class Machine(Protocol):
    """Where commands run."""

    name: str

    def run(self, argv: list[str], stdin: bytes = b"", timeout: float = 60.0) -> tuple[int | None, str, str]:
        """Run a command: (exit status or None after the deadline, standard output, standard error)."""

    def session(self, argv: list[str]) -> Session:
        """Start a command whose output is read line by line."""

    def close(self) -> None:
        """End the connection."""


class LocalMachine:
    """This machine."""

    name = "this machine"

    def run(self, argv: list[str], stdin: bytes = b"", timeout: float = 60.0) -> tuple[int | None, str, str]:
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return None, "", f"no answer for {timeout:g} s"
        except OSError as error:
            return 127, "", f"{argv[0]}: {error.strerror}"
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def session(self, argv: list[str]) -> Session:
        from gpunode_tools.probe import LocalSession

        return LocalSession(argv)

    def close(self) -> None:
        """Nothing to end."""


def gather_program(*, inside: bool) -> bytes:
    """The reading program for `python3 -`: options travel inside it, nothing on a command line."""
    source = GATHER.read_text(encoding="utf-8")
    return source.replace(OPTIONS_MARK, f"options = {{'inside': {inside}}}").encode()


def read_machine(machine: Machine) -> dict[str, Any]:
    """Return the snapshot of a machine. Raises UnreachableError when nothing at all could be read."""
    if isinstance(machine, LocalMachine):
        from gpunode_tools.collect.gather import gather

        return gather()
    return _remote_gather(machine, ["python3", "-I", "-"], inside=False)


def read_container(machine: Machine, vmid: int) -> dict[str, Any]:
    """Return a container's part of the snapshot; where it cannot be entered, ``commands`` says why."""
    try:
        part = _remote_gather(machine, ["pct", "exec", str(vmid), "--", "python3", "-I", "-"], inside=True)
    except UnreachableError as error:
        part = {"commands": {"nvidia-smi -L": {"rc": 255, "stdout": "", "stderr": str(error)}}}
    return {"vmid": vmid, **part}


def _remote_gather(machine: Machine, argv: list[str], *, inside: bool) -> dict[str, Any]:
    code, out, err = machine.run(argv, gather_program(inside=inside), GATHER_DEADLINE_S)
    start = out.find("{")
    with contextlib.suppress(ValueError):
        if code == 0 and start >= 0:
            data = json.loads(out[start:])
            if isinstance(data, dict):
                return data
    said = (err.strip() or out.strip()).splitlines()
    where = f"{shlex.join(argv)} on {machine.name}"
    raise UnreachableError(f"{where} ended with {code}: {said[-1] if said else 'no output'}")


def gpu_containers(snapshot: dict[str, Any]) -> dict[int, int]:
    """Container number to the number of GPUs that the live section of its configuration passes."""
    found = {}
    for path, text in snapshot.get("files", {}).items():
        match = re.fullmatch(r"/etc/pve/lxc/(\d+)\.conf", path)
        if match and text and (gpus := passthrough(parse(text)).gpus):
            found[int(match[1])] = len(gpus)
    return found


def running_containers(machine: Machine) -> set[int]:
    """Numbers of the containers that run, by `pct list`. Raises UnreachableError where that cannot be told."""
    code, out, error = machine.run(["pct", "list"], timeout=20)
    if code != 0:
        raise UnreachableError(f"`pct list` ended with {code}: {error.strip() or 'no output'}")
    rows = [line.split() for line in out.splitlines()]
    return {int(row[0]) for row in rows if len(row) > 1 and row[0].isdecimal() and row[1] == "running"}
