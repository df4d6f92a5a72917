"""The parts of the lab as the machine sees them: their repositories and faults, found by file name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import apt

if TYPE_CHECKING:
    from types import ModuleType

    from lab.instance import Instance

_ROOT = Path(__file__).resolve().parents[1]


def modules(name: str) -> dict[str, ModuleType]:
    """Return ``lab.<part>.<name>`` of every part that has such a file, by part."""
    return {path.parent.name: importlib.import_module(f"lab.{path.parent.name}.{name}") for path in sorted(_ROOT.glob(f"*/{name}.py"))}


def repositories() -> list[apt.Repository]:
    """Return every part's repository."""
    return [module.repository() for module in modules("repository").values()]


def publish(instance: Instance) -> None:
    """Publish every part's repository under the instance's home; packages that a fault withdrew stay out."""
    root = instance.home / "apt"
    for repository in repositories():
        apt.publish(repository, root, without=withdrawn(instance))


def withdrawn(instance: Instance) -> frozenset[str]:
    """Return the names of packages that a fault took out of the repositories."""
    path = instance.home / "apt-withdrawn"
    return frozenset(path.read_text(encoding="utf-8").split()) if path.exists() else frozenset()


def faults() -> dict[str, dict[str, Any]]:
    """Return every part's faults: part -> name -> what the part registered."""
    return {part: dict(module.FAULTS) for part, module in modules("faults").items()}
