"""Whether a checkpoint is complete: index against shards, sizes against safetensors headers, nothing half-downloaded."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_HEADER = 100_000_000
"""The format's own limit of a header's length in bytes (safetensors)."""


@dataclass(frozen=True)
class Completeness:
    """``complete`` only when every shard is there, as long as its header says, and nothing is half-downloaded.

    ``problems`` names each fault with its file. ``shards`` counts the files of weights, ``size_bytes`` what they hold.
    """

    complete: bool
    problems: tuple[str, ...]
    shards: int
    size_bytes: int


def read_header(path: Path) -> dict[str, dict[str, object]]:
    """The header of a safetensors file: tensor name to ``{"dtype", "shape", "data_offsets"}``; raises ValueError when broken."""
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise ValueError("shorter than a header")
        (length,) = struct.unpack("<Q", prefix)
        if length > MAX_HEADER:
            raise ValueError(f"header of {length} bytes")
        raw = file.read(length)
    if len(raw) < length:
        raise ValueError("cut within the header")
    try:
        header = json.loads(raw)
    except ValueError as error:
        raise ValueError("header is not JSON") from error
    if not isinstance(header, dict):
        raise ValueError("header is no object")  # noqa: TRY004 - one error for a broken file
    header.pop("__metadata__", None)
    return header


def expected_size(path: Path) -> int:
    """Length in bytes that a safetensors file must have, by its own header; raises ValueError when the header is broken."""
    header = read_header(path)
    end = 0
    for name, tensor in header.items():
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(isinstance(offset, int) for offset in offsets):
            raise ValueError(f"tensor {name} has no offsets")
        end = max(end, offsets[1])
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
    return 8 + int(length) + end


def check(path: Path) -> Completeness:
    """Check a checkpoint folder or snapshot; reads headers, not weights."""
    problems: list[str] = []
    if not (path / "config.json").is_file():
        problems.append("config.json is missing")
    index = path / INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text())["weight_map"]
            names = sorted(set(weight_map.values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            return Completeness(complete=False, problems=(*problems, f"{INDEX} cannot be read"), shards=0, size_bytes=0)
    else:
        weight_map = {}
        names = sorted(file.name for file in path.glob("*.safetensors"))
        if not names:
            problems.append(f"no weights: neither {INDEX} nor a .safetensors file")
        elif any("-of-" in name for name in names):
            problems.append(f"{INDEX} is missing beside sharded weights")
    size = 0
    tensors: dict[str, set[str]] = {}
    for name in names:
        shard = path / name
        if not shard.exists():
            problems.append(f"{name} is missing" + (" (dangling link)" if shard.is_symlink() else ""))
            continue
        actual = shard.stat().st_size
        size += actual
        try:
            wanted = expected_size(shard)
            tensors[name] = set(read_header(shard))
        except (ValueError, OSError) as error:
            problems.append(f"{name}: {error}")
            continue
        if actual != wanted:
            problems.append(f"{name} has {actual} bytes, its header asks for {wanted}")
    lost = sorted(tensor for tensor, name in weight_map.items() if name in tensors and tensor not in tensors[name])
    if lost:
        problems.append(f"{len(lost)} tensors are not in the shard that the index names, first {lost[0]}")
    problems.extend(f"{file.name} is half-downloaded" for file in _incomplete(path))
    return Completeness(complete=not problems, problems=tuple(problems), shards=len(names), size_bytes=size)


def _incomplete(path: Path) -> list[Path]:
    """Half-downloaded files; what a killed download left beside a blob that came whole later is no fault."""
    found = list(path.glob("*.incomplete"))
    blobs = path.parent.parent / "blobs"
    if path.parent.name == "snapshots" and blobs.is_dir():
        found.extend(file for file in blobs.glob("*.incomplete") if not (blobs / file.name.partition(".")[0]).exists())
    return sorted(found)
