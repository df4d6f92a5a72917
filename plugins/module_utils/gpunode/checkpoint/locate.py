"""Find a checkpoint: a folder, or a snapshot in a Hugging Face cache in any of its layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .complete import INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_REPOSITORY = "models--"
DEPTH = 3
"""Folders that `checkpoints_in` goes down: ~/.cache holds huggingface/hub/models--org--name, a folder of models org/name."""


@dataclass(frozen=True)
class Location:
    """``path`` holds config.json. ``revision`` is the commit for a snapshot, else empty. ``layout`` is ``folder`` or ``cache``."""

    path: Path
    revision: str
    layout: str


@dataclass(frozen=True)
class Found:
    """A checkpoint that a folder holds. ``name`` is the repository id in a cache, else the path below the folder; ``root`` holds it."""

    name: str
    root: Path
    location: Location


class AmbiguousRevisionError(ValueError):
    """Several snapshots are there and nothing says which one is meant."""


def cache_roots(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Folders that hold ``models--org--name``, the one that huggingface_hub would use first.

    Order of huggingface_hub: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE (legacy), HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache.
    Source: https://huggingface.co/docs/hub/local-cache
    """
    path = type(home)
    roots = [path(environment[key]) for key in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") if environment.get(key)]
    if environment.get("HF_HOME"):
        roots.append(path(environment["HF_HOME"]) / "hub")
    cache = path(environment["XDG_CACHE_HOME"]) if environment.get("XDG_CACHE_HOME") else home / ".cache"
    roots.append(cache / "huggingface" / "hub")
    return list(dict.fromkeys(roots))


def repo_folder(repo_id: str) -> str:
    """Folder name of a repository in the cache: ``models--org--name``."""
    return _REPOSITORY + repo_id.replace("/", "--")


def _snapshot(repository: Path, revision: str) -> Location | None:
    snapshots = repository / "snapshots"
    if not snapshots.is_dir():
        return None
    ref = repository / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    if commit and (snapshots / commit).is_dir():
        return Location(snapshots / commit, commit, "cache")
    if revision:
        return None
    found = sorted(folder for folder in snapshots.iterdir() if folder.is_dir())
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise AmbiguousRevisionError(f"{repository} has several snapshots ({names}) and no refs/main; name the revision")
    return Location(found[0], found[0].name, "cache") if found else None


def _is_checkpoint(folder: Path) -> bool:
    """Many folders have a config.json; weights, or a download of them, make it a checkpoint's."""
    return (folder / "config.json").is_file() and any(next(folder.glob(f"*{end}"), None) for end in (".safetensors", INDEX, ".incomplete"))


def checkpoints_in(folder: Path, revision: str = "", depth: int = DEPTH) -> list[Found]:
    """Every checkpoint in the folder: snapshots of the caches in it, and folders with config.json and weights, in the names' order.

    Looks ``depth`` folders deep; what this user may not read holds nothing. Each snapshot of a repository whose current one is not known
    is a checkpoint of its own.
    """
    found: list[Found] = []

    def look(here: Path, left: int) -> None:
        try:
            inside = sorted(path for path in here.iterdir() if path.is_dir() and not path.name.startswith("."))
        except OSError:
            return
        for path in inside:
            try:
                if path.name.startswith(_REPOSITORY):
                    name = path.name[len(_REPOSITORY) :].replace("--", "/", 1)
                    found.extend(Found(name, here, location) for location in _snapshots(path, revision))
                elif _is_checkpoint(path):
                    found.append(Found(str(path.relative_to(folder)), folder, Location(path, "", "folder")))
                elif left > 1:
                    look(path, left - 1)
            except OSError:
                continue

    look(folder, depth)
    return found


def _snapshots(repository: Path, revision: str) -> list[Location]:
    try:
        location = _snapshot(repository, revision)
    except AmbiguousRevisionError:
        folders = sorted(path for path in (repository / "snapshots").iterdir() if path.is_dir())
        return [Location(path, path.name, "cache") for path in folders]
    return [location] if location else []


def locate(name: str, roots: list[Path], revision: str = "") -> Location | None:
    """Find a checkpoint by path or by repository id.

    ``roots`` may be caches themselves or folders that hold one (``hub`` below them is looked into too). Returns None when nothing
    is there. Raises AmbiguousRevisionError when several snapshots could be meant.
    """
    for root in roots:
        path = type(root)(name)
        if path.is_absolute():
            if (path / "config.json").exists():
                return Location(path, "", "folder")
            found = _snapshot(path, revision)
            if found:
                return found
            return None
        for folder in (root, root / "hub"):
            found = _snapshot(folder / repo_folder(name), revision)
            if found:
                return found
        flat = root / name.rsplit("/", 1)[-1]
        for folder in (root / name, flat):
            if (folder / "config.json").exists():
                return Location(folder, "", "folder")
    return None
