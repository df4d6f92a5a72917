"""A lab node's world below a temporary folder."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class World:
    """The NVIDIA part of the lab, imported with its root moved."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def module(self, name: str):
        return importlib.import_module(f"lab.nvidia.{name}")


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A node's world without a booted machine: nothing of this machine is touched."""
    monkeypatch.setenv("GPUNODE_LAB_ROOT", str(tmp_path))
    before = {name: module for name, module in sys.modules.items() if name.startswith("lab.nvidia")}
    for name in before:
        del sys.modules[name]
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("gpu-node-01\n")
    (tmp_path / "run/lab").mkdir(parents=True)
    (tmp_path / "run/lab/kernel-release").write_text("7.0.14-14-pve\n")
    yield World(tmp_path)
    for name in [name for name in sys.modules if name.startswith("lab.nvidia")]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def samples() -> Path:
    """Outputs of real machines; skipped where GPUNODE_SAMPLES names no folder."""
    folder = os.environ.get("GPUNODE_SAMPLES")
    if not folder:
        pytest.skip("GPUNODE_SAMPLES names no folder of real outputs")
    return Path(folder)
