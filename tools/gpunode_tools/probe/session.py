"""Where the probe's program runs: a process of this machine, of a container, or a channel of an ssh connection."""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import time
from typing import Any, Protocol

PYTHON = ("python3", "-I", "-S", "-")  # no user's or site's packages: only the standard library is used, and 10 ms are saved
STDERR_KEPT = 4000


def command(container: int | None = None) -> list[str]:
    """The command that reads the program from standard input, here or in container ``container`` of this Proxmox node."""
    prefix = [] if container is None else ["pct", "exec", str(container), "--"]
    return [*prefix, *PYTHON]


class Session(Protocol):
    """A started command: its standard input is written once, its output read line by line."""

    def send(self, program: bytes) -> None:
        """Write all of standard input and end it."""

    def readline(self, timeout: float) -> bytes:
        """The next line of standard output, b"" at its end. Raises TimeoutError after ``timeout`` seconds of silence."""

    def interrupt(self) -> None:
        """Ask the program to end; what it still says can be read."""

    def close(self) -> tuple[int | None, str]:
        """End the session whatever state it is in: exit status if known, last of standard error."""


class LocalSession:
    """A command on this machine."""

    def __init__(self, argv: list[str]) -> None:
        """Start it. Raises OSError when the program is not there."""
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is ours to pass on, once
        )
        assert self.process.stdin  # noqa: S101
        assert self.process.stdout  # noqa: S101
        assert self.process.stderr  # noqa: S101
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self.lines: list[bytes] = []
        self.rest = b""
        self.said = b""
        self.poll = select.poll()
        self.poll.register(self.stdout, select.POLLIN)
        self.poll.register(self.stderr, select.POLLIN)

    def send(self, program: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended early; its standard error says why
            view = memoryview(program)
            while view:
                view = view[self.stdin.write(view) or 0 :]
        self.stdin.close()

    def readline(self, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while not self.lines:
            ready = {fd for fd, _ in self.poll.poll(max(0, end - time.monotonic()) * 1000)}
            if not ready:
                raise TimeoutError(f"no word for {timeout:g} s")
            if self.stderr.fileno() in ready:
                self.hear()
            if self.stdout.fileno() in ready:
                data = self.stdout.read(1 << 16)
                if not data:
                    return b""
                *self.lines, self.rest = (self.rest + data).split(b"\n")
        return self.lines.pop(0) + b"\n"

    def hear(self) -> None:
        data = self.stderr.read(1 << 16)
        self.said = (self.said + (data or b""))[-STDERR_KEPT:]
        if not data:
            self.poll.unregister(self.stderr)

    def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def close(self) -> tuple[int | None, str]:
        self.stdout.close()  # a program that still runs sees this and ends its worker
        status: int | None
        try:
            status = self.process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(timeout=1)
        while select.select([self.stderr], [], [], 0)[0]:
            data = self.stderr.read(1 << 16)
            if not data:
                break
            self.said = (self.said + data)[-STDERR_KEPT:]
        self.stderr.close()
        return status, self.said.decode("utf-8", "replace").strip()


class ChannelSession:
    """A command over ssh: a paramiko channel on which it was started with ``exec_command`` and without a terminal."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.lines: list[bytes] = []
        self.rest = b""
        self.ended = False

    def send(self, program: bytes) -> None:
        with contextlib.suppress(OSError):  # closed early; its standard error says why
            self.channel.sendall(program)
            self.channel.shutdown_write()

    def readline(self, timeout: float) -> bytes:
        self.channel.settimeout(timeout)
        while not self.lines:
            data = self.channel.recv(1 << 16)  # raises TimeoutError
            if not data:
                self.ended = True
                return b""
            *self.lines, self.rest = (self.rest + data).split(b"\n")
        return self.lines.pop(0) + b"\n"

    def interrupt(self) -> None:
        """Close the channel, as nothing can be sent any more: the program sees its output close and ends its worker."""
        self.channel.close()

    def close(self) -> tuple[int | None, str]:
        status = None
        if self.channel.status_event.wait(2 if self.ended else 0) and self.channel.exit_status >= 0:  # it follows the end of the output
            status = self.channel.exit_status
        said = b""
        while self.channel.recv_stderr_ready() and (data := self.channel.recv_stderr(1 << 16)):
            said = (said + data)[-STDERR_KEPT:]
        self.channel.close()
        return status, said.decode("utf-8", "replace").strip()
