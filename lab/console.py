"""What the lab says and how it runs commands."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class LabError(Exception):
    """Something a person has to know; the text says what was found and what to run next."""


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], *, check: bool = True, stdin: str | None = None, timeout: float | None = None) -> str:
    """Run a command and return its stdout; LabError with its last lines when it fails and ``check`` is set."""
    try:
        done = subprocess.run(
            [str(word) for word in command], check=False, capture_output=True, text=True, input=stdin, errors="replace", timeout=timeout
        )
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed: run tools/setup.sh lab") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(str(word) for word in command)}` has not ended after {timeout:.0f} s") from error
    if check and done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise LabError(f"`{' '.join(str(word) for word in command)}` ended with {done.returncode}:\n{tail}")
    return done.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    """Tell whether a command ends with 0, whatever it prints."""
    return subprocess.run([str(word) for word in command], check=False, capture_output=True).returncode == 0


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took when that was more than a second."""
    say(what)
    start = time.monotonic()
    yield
    if (took := time.monotonic() - start) > 1:
        say(f"  took {took:.1f} s")


@contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Hold an exclusive lock on a file; says what it waits for when somebody else holds it. A killed holder loses it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {waiting} (lock {path})")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def free(path: Path) -> Iterator[bool]:
    """Take a lock without waiting and tell whether that worked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
