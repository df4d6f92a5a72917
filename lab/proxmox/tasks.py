"""Tasks: worker processes with a UPID, a log file and an end that can be read later."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import syslog
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.proxmox.errors import ParamError, PveError
from lab.proxmox.upid import Upid, process_start
from lab.proxmox.world import World, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEPT = 2000  # ended tasks in the index; the real log rotates at about this size
_warnings = 0  # of the task that this process works on


class Interrupted(BaseException):
    """The worker was told to stop."""


def warn(text: str) -> None:
    """Say a warning in the task's log; a task with warnings ends as `WARNINGS: n`."""
    global _warnings  # noqa: PLW0603 - a worker process works on one task
    _warnings += 1
    print(f"WARN: {text}", file=sys.stderr, flush=True)


def folder(world: World) -> Path:
    """Where task logs lie."""
    return world.path("/var/log/pve/tasks")


def log_file(world: World, upid: Upid) -> Path:
    """The log of one task."""
    return folder(world) / upid.folder / str(upid)


def start(world: World, kind: str, ident: str, user: str, work: Callable[[], None], *, foreground: bool) -> str:
    """Start a worker process and return its UPID.

    In the foreground (pct, pvesh) its output is shown too and its end awaited; an error goes to standard error. In the background the
    call returns at once and the worker outlives its parent.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    output, output_end = os.pipe()
    control, control_end = os.pipe()
    go, go_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.close(control)
        os.close(go_end)
        _work(world, kind, ident, work, output_end=output_end, control_end=control_end, go=go, foreground=foreground)
    os.close(output_end)
    os.close(control_end)
    os.close(go)
    upid = Upid(world.node, pid, process_start(pid) or 0, int(time.time()), kind, ident, user)
    file = log_file(world, upid)
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    _active(world, add=str(upid))
    os.write(go_end, str(upid).encode())
    os.close(go_end)
    if foreground:
        _tee(pid, output, control, log)
        os.waitpid(pid, 0)
        _active(world)
    for descriptor in (output, control, log):
        os.close(descriptor)
    return str(upid)


def _work(
    world: World,
    kind: str,
    ident: str,
    work: Callable[[], None],
    *,
    output_end: int,
    control_end: int,
    go: int,
    foreground: bool,
) -> None:
    code = 1
    try:
        os.setsid()
        _close_all_but({output_end, control_end, go})
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        text = os.read(go, 4096).decode()
        upid = Upid.parse(text)
        if upid is None:
            os._exit(1)
        if not foreground:
            output_end = control_end = os.open(log_file(world, upid), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(f"task {kind}:{ident}"[:15])
        code, message = _run(world, work)
        sys.stdout.flush()
        sys.stderr.flush()
        if not foreground and not message.startswith("TASK OK"):
            message = "\n" + message
        os.write(control_end, message.encode())
        if not foreground:
            _active(world, end=str(upid))
    finally:
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    """Leave the parent's sockets and locks: a worker outlives the daemon that started it."""
    for number in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _run(world: World, work: Callable[[], None]) -> tuple[int, str]:
    global _warnings  # noqa: PLW0603 - a worker process works on one task
    _warnings = 0
    try:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        slow = world.fault("slow-task")
        if slow:
            time.sleep(float(slow))
        work()
    except PveError as error:
        text = error.for_terminal().rstrip("\n").replace("\n", " ")
    except Interrupted:
        text = "received interrupt"
    except Exception as error:  # noqa: BLE001 - a worker's every end is written into its log
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
    else:
        return 0, f"TASK WARNINGS: {_warnings}\n" if _warnings else "TASK OK\n"
    syslog.syslog(syslog.LOG_ERR, text)
    return 255, f"TASK ERROR: {text}\n"


def _interrupt(_number: int, _frame: Any) -> None:
    raise Interrupted


def _tee(pid: int, output: int, control: int, log: int) -> None:
    presses = 0

    def stop(_number: int, _frame: Any) -> None:
        nonlocal presses
        presses += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM if presses <= 3 else signal.SIGKILL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)}
    try:
        while True:
            ready, _, _ = select.select([output], [], [], 1)
            if ready:
                chunk = os.read(output, 4096)
                if not chunk:
                    break
                os.write(log, chunk)
                _show(chunk)
            elif process_start(pid) is None:  # some children keep the pipe open
                break
        end = os.read(control, 65536).decode(errors="replace") or "TASK ERROR: got unexpected control message: \n"
        if end.startswith("TASK ERROR: "):
            sys.stderr.write(end.removeprefix("TASK ERROR: "))
        elif end.startswith("TASK WARNINGS: "):
            sys.stderr.write(f"Task finished with {end.split()[-1]} warning(s)!\n")
        os.write(log, ("" if end.startswith("TASK OK") else "\n").encode() + end.encode())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(chunk: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def read_status(world: World, upid: Upid) -> str:
    """How an ended task ended: `OK`, `WARNINGS: n`, the error's text, or `unexpected status` when nobody wrote an end."""
    try:
        with log_file(world, upid).open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 4096))
            lines = stream.read().decode(errors="replace").rstrip("\n").split("\n")
    except OSError as error:
        return f"unable to open file - {error.strerror}"
    last = lines[-1]
    if last == "TASK OK":
        return "OK"
    for prefix, kept in (("TASK ERROR: ", ""), ("TASK WARNINGS: ", "WARNINGS: ")):
        if last.startswith(prefix):
            return kept + last.removeprefix(prefix)
    return "unexpected status"


def is_error(status: str) -> bool:
    """Whether an end counts as a failure: warnings do not."""
    return status != "OK" and not status.startswith("WARNINGS: ")


def find(world: World, text: str) -> Upid:
    """The task of this name, with a log on this node; ParamError otherwise."""
    upid = Upid.parse(text)
    if upid is None:
        raise ParamError({"upid": "unable to parse worker upid"})
    if not log_file(world, upid).exists():
        raise ParamError({"upid": "no such task"})
    return upid


@contextlib.contextmanager
def _index_lock(world: World) -> Iterator[None]:
    path = folder(world) / ".active.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _active(world: World, add: str | None = None, end: str | None = None) -> None:
    with _index_lock(world):
        file = folder(world) / "active"
        names = file.read_text().split("\n") if file.exists() else []
        kept = [add] if add else []
        ended = []
        for name in names:
            upid = Upid.parse(name)
            if upid is None or name == add:
                continue
            if upid.running and name != end:
                kept.append(name)
            else:
                log = log_file(world, upid)
                finished = int(log.stat().st_mtime) if log.exists() else upid.starttime
                ended.append(f"{name} {finished:08X} {read_status(world, upid)}\n")
        write_file(file, "".join(f"{name}\n" for name in kept), 0o644)
        if ended:
            with (folder(world) / "index").open("a") as stream:
                stream.writelines(ended)


def listed(world: World) -> tuple[list[Upid], list[tuple[Upid, int, str]]]:
    """Running tasks, and ended ones (with end time and status), newest first."""
    _active(world)
    running = [upid for name in (folder(world) / "active").read_text().split("\n") if (upid := Upid.parse(name))]
    ended = []
    index = folder(world) / "index"
    for line in index.read_text().splitlines()[-_KEPT:] if index.exists() else []:
        name, finished, status = ([*line.split(" ", 2), "", ""])[:3]
        upid = Upid.parse(name)
        if upid:
            ended.append((upid, int(finished or "0", 16), status))
    running.sort(key=lambda upid: -upid.starttime)
    ended.sort(key=lambda entry: -entry[0].starttime)
    return running, ended


def read_log(world: World, upid: Upid, first: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Lines of a task's log from `first` on, at most `limit` (0: all), with the total."""
    lines = log_file(world, upid).read_text(errors="replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    chosen = lines[first : first + limit if limit else None]
    if not lines:
        return [{"n": 1, "t": "no content"}], 1
    return [{"n": first + number, "t": line} for number, line in enumerate(chosen, 1)], len(lines)


def stop(upid: Upid) -> None:
    """Ask a running task to stop: TERM to its process group, KILL after five seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(upid.pid, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while upid.running and time.monotonic() < deadline:
        time.sleep(0.05)
    if upid.running:
        os.killpg(upid.pid, signal.SIGKILL)
