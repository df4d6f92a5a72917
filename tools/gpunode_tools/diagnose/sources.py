"""Where the text comes from: files (also gzip and xz), standard input, snapshots; each read as a stream."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpunode.problems import Diagnosis

CHUNK: Final = 1 << 20
SNAPSHOT_MARK: Final = b'"gpunode.snapshot/'
SNAPSHOT_LIMIT: Final = 64 << 20
"""A snapshot is read as a whole: a larger file that begins like one is taken for text."""
SKIPPED: Final = frozenset({"lspci -vvv", "nvidia-smi -q -x"})
"""Parts of a snapshot that verify-p2p judges with the topology at hand: a bridge that leads to no GPU may redirect as it likes."""


@dataclass
class Source:
    """One source and what became of it; ``error`` says why it could not be read."""

    name: str
    lines: int = 0
    bytes: int = 0
    error: str = ""
    required: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the result's ``sources``."""
        data: dict[str, Any] = {"name": self.name, "lines": self.lines, "bytes": self.bytes}
        if self.error:
            data["error"] = self.error
        return data


def read_files(diagnosis: Diagnosis, names: Iterable[str]) -> list[Source]:
    """Search files, ``-`` being standard input; one that cannot be read is reported, not skipped in silence."""
    found: list[Source] = []
    for name in names:
        try:
            with _opened(name) as stream:
                found += _read(diagnosis, "standard input" if name == "-" else name, stream)
        except (OSError, EOFError, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            found.append(Source("standard input" if name == "-" else name, error=reason))
    return found


def _read(diagnosis: Diagnosis, name: str, stream: IO[bytes]) -> list[Source]:
    first = stream.read(CHUNK)
    if first.lstrip()[:1] == b"{" and SNAPSHOT_MARK in first[:4096]:
        whole = first + stream.read(SNAPSHOT_LIMIT)
        with contextlib.suppress(ValueError):
            data = json.loads(whole)
            return read_snapshot(diagnosis, data, prefix=f"{name}: ")
        first = whole
    return [feed(diagnosis, name, _chunks(first, stream))]


def _chunks(first: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    data = first
    while data:
        yield data
        data = stream.read(CHUNK)


def feed(diagnosis: Diagnosis, name: str, chunks: Iterable[bytes], *, required: bool = True) -> Source:
    """Search one stream of bytes."""
    scanner = diagnosis.open(name)
    for chunk in chunks:
        scanner.feed(chunk)
    scanner.close()
    return Source(name, scanner.lines, scanner.bytes, required=required)


def read_snapshot(diagnosis: Diagnosis, data: dict[str, Any], *, prefix: str = "", skip: frozenset[str] = frozenset()) -> list[Source]:
    """Search the texts of a snapshot: outputs of commands and files, those of the container too. Each is a source by its own name."""
    found = []
    parts: list[tuple[str, dict[str, Any]]] = [(prefix, data)]
    container = data.get("container")
    if isinstance(container, dict):
        parts.append((f"{prefix}container {container.get('vmid', '')}: ", container))
    for label, part in parts:
        texts: dict[str, str] = {}
        for line, result in (part.get("commands") or {}).items():
            if isinstance(result, dict) and line not in SKIPPED and line not in skip:
                texts[line] = "\n".join(str(result.get(key) or "") for key in ("stdout", "stderr"))
        texts |= {path: text for path, text in (part.get("files") or {}).items() if isinstance(text, str)}
        for name, text in texts.items():
            scanned = diagnosis.read(label + name, text, as_name=name)
            found.append(Source(label + name, scanned.lines, scanned.bytes, required=False))
    return found


@contextlib.contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
    with opener(name, "rb") as stream:
        yield stream
