"""Files that others read while they are written: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click


def write_atomically(path: str, text: str, mode: int = 0o644) -> None:
    """Write ``text`` to ``path`` by way of a file beside it and a rename; folders are made. Raises ClickException."""
    target = Path(path)
    try:
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
        raise click.ClickException(f"{path} could not be written: {error.strerror or error}") from None
