"""Faults: what they leave, and that clearing takes it back."""

from __future__ import annotations

import pytest

from lab.proxmox import faults, pctconf
from lab.proxmox.api import registry
from lab.proxmox.errors import PveError

MINE = "arch: amd64\nhostname: mine\nmemory: 512\n\n[snap]\nhostname: older\n"


@pytest.fixture
def node(ctx, monkeypatch):
    monkeypatch.setenv("LAB_PVE_ROOT", str(ctx.world.root))
    monkeypatch.setattr(faults, "_HIDDEN", ctx.world.path("/hidden"))
    monkeypatch.setattr(faults, "_TEMPLATES", ctx.world.path("/templates"))
    monkeypatch.setattr(faults, "_HOLDER", str(ctx.world.path("/holder")))
    ctx.world.path("/templates").mkdir()
    ctx.world.path("/templates/a.tar.zst").touch()
    ctx.world.lxc_config(101).write_text(MINE)
    return ctx


def test_every_fault_is_taken_back(node):
    faults.FAULTS["vmid-taken-by-foreign"]("102")
    faults.FAULTS["lock-held"]("101", "snapshot")
    faults.FAULTS["template-missing"]()
    faults.FAULTS["storage-full"]()
    faults.FAULTS["slow-task"]("5")
    faults.FAULTS["vm-claims-gpu"]("201", "0000:11:00.0")
    with pytest.raises(PveError, match=r"CT is locked \(snapshot\)"):
        pctconf.check_lock(pctconf.load(node.world, node.schema, 101))
    assert pctconf.load(node.world, node.schema, 102)["hostname"] == "somebody-elses"
    assert not node.world.path("/templates/a.tar.zst").exists()
    assert (node.world.fault("storage-full"), node.world.fault("slow-task")) == ("local", 5.0)
    path = "/nodes/pve-a/qemu/201/config"
    assert registry.call(node, "GET", path, {})["hostpci0"] == "0000:11:00.0,pcie=1"
    registry.call(node, "PUT", path, {"delete": "hostpci0"})
    assert "hostpci0" not in registry.call(node, "GET", path, {})
    faults.clear()
    assert node.world.lxc_config(101).read_text() == MINE
    assert not node.world.lxc_config(102).exists()
    assert not node.world.qemu_config(201).exists()
    assert node.world.path("/templates/a.tar.zst").exists()
    assert node.world.fault("storage-full") is None


def test_a_number_in_use_is_not_overwritten(node):
    with pytest.raises(ValueError, match="exists already"):
        faults.FAULTS["vmid-taken-by-foreign"]("101")
    assert node.world.lxc_config(101).read_text() == MINE


def test_each_fault_says_what_it_does():
    assert all((function.__doc__ or "").strip() for function in faults.FAULTS.values())
