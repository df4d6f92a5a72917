"""A node's files in a temporary folder, with the real API schema from the development dependency."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.proxmox import install, schema
from lab.proxmox.context import Context
from lab.proxmox.world import World


@pytest.fixture(scope="session")
def api_schema() -> str:
    """The lab's part of the schema of Proxmox VE 9.2 as JSON text."""
    try:
        return schema.extract(install.capture())
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def world(tmp_path: Path, api_schema: str) -> World:
    (tmp_path / "etc/lab").mkdir(parents=True)
    (tmp_path / "etc/lab/pve-schema.json").write_text(api_schema)
    (tmp_path / "etc/hostname").write_text("pve-a\n")
    (tmp_path / "etc/pve/nodes/pve-a/lxc").mkdir(parents=True)
    (tmp_path / "etc/pve/nodes/pve-a/qemu-server").mkdir(parents=True)
    return World(tmp_path)


@pytest.fixture
def ctx(world: World) -> Context:
    return Context(world, schema.Schema(world))


@pytest.fixture
def fault(world: World):
    def set_fault(**faults: object) -> None:
        world.path("/etc/lab/proxmox-faults.json").write_text(json.dumps({name.replace("_", "-"): value for name, value in faults.items()}))

    return set_fault
