"""Running commands on a node: here, or over ssh with verified host keys."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .base import ApiError, DeadlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",  # English texts, and UTF-8 arguments that pvesh decodes by the locale
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
}


class Shell(Protocol):
    """A place where commands run as root of the node."""

    name: str

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        """Exit status, output and error output. Raises ``DeadlineError`` after ``timeout`` seconds; the command is left running."""

    def close(self) -> None:
        """Give back what was opened."""


class LocalShell:
    """Commands on this machine.

    They run in a session of their own with output into files: pvesh runs a task as its child and kills it when it is
    interrupted, so that a lost ssh connection or an expired deadline would leave half a container.
    """

    name = "local"

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        """See ``Shell.run``."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
            given.write(data.encode("utf-8", "surrogateescape"))
            given.seek(0)
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **ENVIRONMENT},
                    start_new_session=True,
                    preexec_fn=_ignore_hangup,  # noqa: PLW1509 - one thread
                )
            except OSError as error:
                raise ApiError(f"{argv[0]} cannot be run: {error.strerror}: is this a Proxmox VE node?") from None
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise DeadlineError(f"`{' '.join(argv[:3])}` did not end in {timeout:.0f} s; it runs on as pid {process.pid}") from None
            return process.returncode, _text(out), _text(err)

    def close(self) -> None:
        """Nothing is open."""


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _text(handle: Any) -> str:
    handle.seek(0)
    return str(handle.read().decode("utf-8", "surrogateescape"))


def read_file(path: str) -> str | None:
    """A file's text, bytes that are no UTF-8 kept; None when it does not exist."""
    try:
        return Path(path).read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
