"""The probe's watcher: keeps the deadlines of the worker, beside it, wherever that is.

It is streamed together with the worker (see stream.py) and needs a Python 3.9 there. It never touches the driver itself: a worker that
hangs in it is killed and the next one goes on with the remaining pairs, and when the connection to whoever asked breaks, or a signal
comes, nothing stays on the GPUs. Events go to standard output as JSON lines.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any

ALIVE_S = 2.0  # a sign of life at least this often
EXIT_S = 30.0  # a process that has finished frees its GPU memory in the driver, where no signal reaches it
STDERR_KEPT = 4000
RESTARTS_MAX = 8  # each costs about a second; a node that needs more is not worth the wait
RESTART_EXIT = 75
PR_SET_PDEATHSIG = 1
DEFAULTS = {"pair_timeout_s": 20.0, "init_timeout_s": 90.0, "kill_grace_s": 5.0, "max_hangs": 3}


class Gone(Exception):  # noqa: N818 - not a mistake
    """Whoever asked is gone, or sent a signal."""


class Process:
    """One worker: its pid, its two pipes, and the unfinished line."""

    def __init__(self, code: Any, options: dict[str, Any]) -> None:
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.become(code, options, out_write, err_write)
        os.close(out_write)
        os.close(err_write)
        self.out, self.err = out_read, err_read
        self.rest = b""
        self.stderr = b""

    def become(self, code: Any, options: dict[str, Any], out: int, err: int) -> None:
        """In the child: be a worker of its own session that dies with the watcher and holds none of its files."""
        status = 70
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            os.setsid()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.parent:
                os._exit(status)
            null = os.open(os.devnull, os.O_RDONLY)
            for old, new in ((null, 0), (out, 1), (err, 2)):
                os.dup2(old, new)
            os.closerange(3, 256)
            namespace: dict[str, Any] = {"__name__": "gpunode_worker"}
            exec(code, namespace)  # noqa: S102 - our own source, streamed with us
            status = namespace["main"](options)
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)

    def read_lines(self) -> list[bytes] | None:
        """Whole lines that have come, or None at the end."""
        data = os.read(self.out, 1 << 16)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines

    def wait(self, seconds: float) -> int | None:
        """The exit status, negative for a signal, or None when the process still exists after ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(0.005, left))  # a signal's end cannot be awaited with a limit on every supported kernel

    def close(self) -> None:
        os.close(self.out)
        os.close(self.err)


class Watcher:
    """The state of one measurement across its workers."""

    def __init__(self, code: Any, options: dict[str, Any], out: int = 1) -> None:
        self.code, self.options, self.out = code, options, out
        self.pair_timeout, self.init_timeout, self.kill_grace = (
            float(options.get(key, DEFAULTS[key])) for key in ("pair_timeout_s", "init_timeout_s", "kill_grace_s")
        )
        self.max_hangs = int(options.get("max_hangs", DEFAULTS["max_hangs"]))
        self.pairs: list[tuple[int, int]] | None = None  # still to do; None until a worker has made the plan
        self.patterns: list[dict[str, Any]] = []
        self.alone: list[int] = []  # GPUs whose copies from and to the host are still to do
        self.total = 0
        self.bus_ids: list[str] | None = None
        self.bad: list[tuple[int, int]] = []
        self.blocked: dict[int, tuple[str, str]] = {}  # GPUs to leave alone: what becomes of their pairs, and why
        self.hangs = self.restarts = 0
        self.fatal = self.broken = False
        self.process: Process | None = None
        self.task: dict[str, Any] | None = None  # what the worker does now: src and dst, or pattern
        self.step = "start"
        self.so_far: dict[str, Any] = {}  # of the task, as far as the worker has told
        self.deadline = 0.0
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)

    # Out

    def emit(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, **data}, separators=(",", ":")).encode() + b"\n"
        self.spoke = time.monotonic()
        try:
            while line and not self.broken:
                line = line[os.write(self.out, line) :]
        except OSError:
            self.broken = True

    def emit_pair(self, pair: dict[str, Any]) -> None:
        key = (pair["src"], pair["dst"])
        if pair["status"] != "ok":
            self.bad.append(key)
        assert self.pairs is not None  # noqa: S101 - a pair comes after the plan
        self.pairs = [other for other in self.pairs if other != key]
        self.emit("pair", pair=pair, done=self.total - len(self.pairs), total=self.total)

    def give_up(self, reason: str, status: str = "skipped") -> None:
        """Report all that is left as not measured."""
        for src, dst in list(self.pairs or []):
            self.emit_pair({"src": src, "dst": dst, "status": status, "reason": reason})
        for task in self.patterns:
            self.emit("pattern", pattern={"name": task["name"], "pairs": len(task["pairs"]), "status": status, "reason": reason})
        for gpu in self.alone:
            self.emit("host", host={"gpu": gpu, "status": status, "reason": reason})
        self.patterns, self.alone = [], []

    def drop_blocked(self) -> None:
        """Report the pairs of GPUs that must be left alone, and take them out of the patterns."""
        for src, dst in list(self.pairs or []):
            blocked = self.blocked.get(src) or self.blocked.get(dst)
            if blocked:
                self.emit_pair({"src": src, "dst": dst, "status": blocked[0], "reason": blocked[1]})
        for gpu in [gpu for gpu in self.alone if gpu in self.blocked]:
            self.alone.remove(gpu)
            self.emit("host", host={"gpu": gpu, "status": self.blocked[gpu][0], "reason": self.blocked[gpu][1]})
        for task in self.patterns:
            task["pairs"] = [pair for pair in task["pairs"] if not set(pair) & set(self.blocked)]

    # The work

    def run(self) -> None:
        began = self.spoke = time.monotonic()
        interrupted = False
        signal.set_wakeup_fd(self.wake_write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self.emit("hello", schema="gpunode.probe/1", pid=os.getpid(), python=sys.version.split()[0], host=os.uname().nodename)
        try:
            while self.pairs is None or self.left():
                if not self.one_worker():
                    break
        except Gone:
            interrupted = True
            self.end_worker()
            self.give_up("interrupted")
        self.emit(
            "done",
            interrupted=interrupted,
            hangs=self.hangs,
            restarts=self.restarts,
            elapsed_s=round(time.monotonic() - began, 3),
        )

    def left(self) -> bool:
        return bool(self.pairs or self.patterns or self.alone)

    def one_worker(self) -> bool:
        """Start a worker and see it to its end; False when there is nothing more to do."""
        options = dict(self.options)
        if self.pairs is not None:
            options.update(pairs=self.pairs, patterns=self.patterns, alone=self.alone, bus_ids=self.bus_ids, bad=self.bad)
        self.process = process = Process(self.code, options)
        self.task, self.step, self.so_far = None, "start", {}
        self.deadline = time.monotonic() + self.init_timeout
        if not self.attend(process):
            return self.after_hang(self.end_worker())
        status = process.wait(EXIT_S)
        if status is None:
            self.end_worker()
            self.give_up(f"not measured: process {process.pid} does not come out of the driver")
            return False
        process.close()
        self.process = None
        if self.task is None and status == 0:
            return False
        return self.after_death(process, status)

    def attend(self, process: Process) -> bool:
        """Pass on the worker's events until it ends (True) or overruns its deadline (False). Raises Gone."""
        poll = select.poll()
        for fd, what in ((process.out, select.POLLIN), (process.err, select.POLLIN), (self.wake_read, select.POLLIN), (self.out, 0)):
            poll.register(fd, what)
        while True:
            now = time.monotonic()
            left = min(self.deadline, self.spoke + ALIVE_S) - now
            ready = dict(poll.poll(max(0, left) * 1000))
            if self.wake_read in ready or self.out in ready or self.broken:
                raise Gone
            if process.err in ready:
                data = os.read(process.err, 1 << 16)
                process.stderr = (process.stderr + data)[-STDERR_KEPT:]
                if not data:
                    poll.unregister(process.err)
            if process.out in ready:
                lines = process.read_lines()
                if lines is None:
                    return True
                for line in lines:
                    if line.startswith(b'{"event":'):  # libraries have been seen to print, too
                        self.on_event(json.loads(line))
            now = time.monotonic()
            if now >= self.deadline:
                return False
            if now >= self.spoke + ALIVE_S:
                self.emit("alive")

    def on_event(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        later = time.monotonic() + self.init_timeout
        if kind == "plan":
            if self.pairs is None:
                self.pairs = [(a, b) for a, b in event["pairs"]]
                self.patterns, self.alone = event["patterns"], event["alone"]
                self.total = len(self.pairs)
                self.emit("plan", pairs=self.pairs, patterns=[task["name"] for task in self.patterns])
        elif kind == "gpus":
            if self.bus_ids is None:
                self.bus_ids = [gpu["bus_id"] for gpu in event["gpus"]]
                self.emit("gpus", **event)
        elif kind == "start":
            self.task, self.step, self.so_far = event, "context", {}
            self.deadline = later  # contexts have the time that the start has
            self.emit("start", **event)
        elif kind == "step":
            if self.step == "context":
                self.deadline = time.monotonic() + self.pair_timeout
            self.step, self.so_far = event["step"], event["so_far"]
        elif kind in {"pair", "pattern", "host"}:
            self.task, self.step, self.deadline = None, "between pairs", later
            if kind == "pair":
                self.emit_pair(event["pair"])
            elif kind == "host":
                self.alone.remove(event["host"]["gpu"])
                self.emit("host", **event)
            else:
                self.patterns = [task for task in self.patterns if task["name"] != event["pattern"]["name"]]
                self.emit("pattern", **event)
        elif kind == "fatal":
            if self.pairs is None:
                self.fatal = True
                self.emit("fatal", **event)
            else:
                self.give_up(f"a new worker could not start: {event['summary']}", "error")
        elif kind == "init":
            self.step = event["step"]
        elif kind != "finished":
            self.emit(kind, **event)

    # When a worker does not end well

    def end_worker(self) -> int | None:
        """Kill the worker; None when it survives."""
        if self.process is None:
            return 0
        os.kill(self.process.pid, signal.SIGKILL)
        status = self.process.wait(self.kill_grace)
        if status is None:
            self.report_stuck(self.process)
        self.process.close()
        self.process = None
        return status

    def report_stuck(self, process: Process) -> None:
        task = self.task or {}
        gpus = [task[key] for key in ("src", "dst", "gpu") if key in task]
        state = "unknown"
        try:
            with open(f"/proc/{process.pid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                state = next((line.split(":", 1)[1].strip() for line in file if line.startswith("State:")), state)
        except OSError:
            pass
        self.emit("stuck", pid=process.pid, gpus=gpus, step=self.step, state=state, waited_s=self.kill_grace)
        for gpu in gpus:
            reason = f"GPU{gpu} is left alone: process {process.pid} survived SIGKILL for {self.kill_grace:g} s (state {state})"
            self.blocked[gpu] = ("skipped", reason)

    def close_task(self, status: str, reason: str) -> None:
        """Report what the dead worker was doing, with what it had measured so far."""
        task, so_far = self.task, self.so_far
        if task is None:
            return
        self.task = None
        if "src" in task:
            self.emit_pair({**so_far, "src": task["src"], "dst": task["dst"], "status": status, "step": self.step, "reason": reason})
        elif "gpu" in task:
            self.alone.remove(task["gpu"])
            self.emit("host", host={**so_far, "gpu": task["gpu"], "status": status, "reason": reason})
        else:
            name = task["pattern"]
            self.patterns = [other for other in self.patterns if other["name"] != name]
            self.emit("pattern", pattern={**so_far, "name": name, "status": status, "reason": reason})

    def after_hang(self, status: int | None) -> bool:
        self.hangs += 1
        process_survived = status is None
        limit = self.init_timeout if self.step in {"context", "start", "cuInit", "between pairs"} else self.pair_timeout
        reason = f"no end within {limit:g} s in step {self.step}; the worker was killed"
        if process_survived:
            reason = f"no end within {limit:g} s in step {self.step}; the worker survived SIGKILL for {self.kill_grace:g} s"
        if self.pairs is None:
            self.fatal = True
            self.emit("fatal", where=self.step, code=None, name="", summary=f"the driver does not answer: {reason}")
            return False
        if self.task is None:
            self.give_up(reason)
            return False
        if self.step == "context" and "gpu" in self.task:
            gpu = self.task["gpu"]
            self.blocked.setdefault(gpu, ("hang", f"GPU{gpu} gave no context within {limit:g} s; it is left alone"))
        self.close_task("hang", reason)
        self.drop_blocked()
        if self.hangs >= self.max_hangs:
            self.give_up(f"not measured: {self.hangs} pairs hung before")
        return self.again("hang", reason)

    def after_death(self, process: Process, status: int) -> bool:
        """A worker that ended by itself before all was done: by an error that cost its contexts, or by crashing."""
        if status == RESTART_EXIT:
            return self.again("error", "the worker's contexts were lost")
        if self.fatal:
            return False
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        said = process.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = f"the worker died in step {self.step} ({how})" + (f": {said[-1]}" if said else "")
        if self.pairs is None:
            self.fatal = True
            self.emit("fatal", where=self.step, code=None, name="", summary=reason)
            return False
        self.close_task("error", reason)
        return self.again("crash", reason)

    def again(self, why: str, reason: str) -> bool:
        """Whether another worker should go on."""
        if not self.left():
            return False
        if self.restarts >= RESTARTS_MAX:
            self.give_up(f"not measured: {self.restarts + 1} workers failed before")
            return False
        self.restarts += 1
        self.emit("worker", why=why, reason=reason, restarts=self.restarts)
        return True


def main(worker_source: str, options: dict[str, Any]) -> int:
    """Measure what ``options`` asks for; 0 when all events including ``done`` were written."""
    watcher = Watcher(compile(worker_source, "worker.py", "exec"), options)
    watcher.run()
    return 1 if watcher.broken else 0
