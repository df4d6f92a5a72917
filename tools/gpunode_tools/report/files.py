"""What a command leaves: its standard output, and files that others read while they are written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class OutputError(click.ClickException):
    """Raised when something asked for could not be written: wrong input, not a verdict."""

    exit_code = 2


def write_atomically(path: str, text: str, mode: int = 0o644) -> None:
    """Write ``text`` to ``path`` whole or not at all, by way of a file beside it and a rename; folders are made. Raises OutputError.

    What is no regular file (/dev/stdout, a pipe) is written to as it is: a rename would put a file in its place.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_text(text, encoding="utf-8")
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(mode)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror or error}") from None


def show(text: str) -> None:
    """Print a result. Raises OutputError where standard output takes nothing; a reader that has gone away ends the program quietly."""
    try:
        click.echo(text, nl=False, color=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output could not be written: {error.strerror or error}") from None


def do_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step although one fails, then raise OutputError with all that failed: a full disk costs a file, not the verdict."""
    failed = []
    for step in steps:
        try:
            step()
        except OutputError as error:
            failed.append(error.message)
    if failed:
        raise OutputError("; ".join(failed))
