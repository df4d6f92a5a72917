"""The parts of the lab as the machine sees them, found by file name: their repositories, and the root file system made of them."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from lab import apt
from lab.console import locked
from lab.instance import cache_home
from lab.node import image

if TYPE_CHECKING:
    from types import ModuleType

    from lab.instance import Instance

_WITHDRAWN = "apt-withdrawn"
_ROOT = Path(__file__).resolve().parents[1]


def modules(name: str) -> dict[str, ModuleType]:
    """Return ``lab.<part>.<name>`` of every part that has such a file, by part."""
    return {path.parent.name: importlib.import_module(f"lab.{path.parent.name}.{name}") for path in sorted(_ROOT.glob(f"*/{name}.py"))}


def repositories() -> list[apt.Repository]:
    """Return every part's repository."""
    return [module.repository() for module in modules("repository").values()]


def node_image() -> tuple[image.Recipe, image.Recipe]:
    """Return the recipes of guest and node; the node holds what parts name in ``repository.INSTALLED``, from ``INSTALLED_COMPONENT``."""
    guest = image.guest_recipe(image.NODE_SUITE)
    names: list[str] = []
    lines: list[str] = []
    keys: list[str] = []
    for module in modules("repository").values():
        if not (wanted := getattr(module, "INSTALLED", ())):
            continue
        repository = module.repository()
        place = f"file:/usr/lib/gpunode-lab-apt/{repository.name}"
        names += wanted
        lines += [f"deb [signed-by=/usr/lib/gpunode-lab-apt/{apt.KEYRING}] {place} {repository.suite} {module.INSTALLED_COMPONENT}"]
        keys += [package.key for packages in repository.components.values() for package in packages]
    key = hashlib.sha256(" ".join(keys).encode()).hexdigest()
    return guest, image.node_recipe(image.debian_recipe(guest), tuple(names), "\n".join(lines), key)


def build() -> tuple[image.Recipe, image.Recipe]:
    """Build guest and node where the cache lacks them and return their recipes."""
    guest, node = node_image()
    if not node.folder.is_dir():
        # The build reads the published repositories to its end.
        with locked(cache_home() / "locks" / "lab-apt", "another build of a node's root file system"):
            for module in modules("repository").values():
                if getattr(module, "INSTALLED", ()):
                    apt.publish(module.repository(), image.repositories())
            image.build(node)
    image.build(node)
    return guest, node


def publish(instance: Instance) -> None:
    """Publish every part's repository under the instance's home; packages that a fault withdrew stay out."""
    root = instance.home / "apt"
    for repository in repositories():
        apt.publish(repository, root, without=withdrawn(instance))


def withdrawn(instance: Instance) -> frozenset[str]:
    """Return the names of packages that a fault took out of the repositories."""
    path = instance.home / _WITHDRAWN
    return frozenset(path.read_text(encoding="utf-8").split()) if path.exists() else frozenset()


def withdraw(instance: Instance, names: set[str] | None) -> None:
    """Take packages out of the repositories, besides those taken out before (``None``: put all back)."""
    path = instance.home / _WITHDRAWN
    if names is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text("".join(f"{name}\n" for name in sorted(names | withdrawn(instance))), encoding="utf-8")
    publish(instance)
