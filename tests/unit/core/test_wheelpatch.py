"""Declarative patches of a wheel: applied once, refused when an anchor moved, with a RECORD that is right."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from gpunode.wheelpatch.catalogue import PATCHES, applied_in
from gpunode.wheelpatch.edit import AnchorError, Edit, Patch, apply_edit, selected
from gpunode.wheelpatch.wheel import MANIFEST, WheelError, patch_wheel, patched_version, record_line, verify_record

FILE = "pkg/kernel.py"
SOURCE = "def block():\n    return 128\n"


def patch(old: str = "return 128", new: str = "return 64", present: str = "return 64") -> Patch:
    edit = Edit(path=FILE, old=old, new=new, present=present)
    return Patch(id="block", package="pkg", versions=("1.0",), architectures=("sm120",), why="too big", upstream="pkg#1", edits=(edit,))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    files = {
        FILE: SOURCE.encode(),
        "pkg-1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: pkg\nVersion: 1.0\n\nVersion: not this one\n",
        "pkg-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        rows = [",".join(record_line(name, data)) for name, data in files.items()]
        archive.writestr("pkg-1.0.dist-info/RECORD", "\n".join([*rows, "pkg-1.0.dist-info/RECORD,,"]) + "\n")
    return path


def test_apply_edit_is_exact_and_idempotent() -> None:
    edit = patch().edits[0]
    text, changed = apply_edit(SOURCE, edit)
    assert (text, changed) == (SOURCE.replace("128", "64"), True)
    assert apply_edit(text, edit) == (text, False)


@pytest.mark.parametrize("text", ["return 256", "return 128 return 128"])
def test_an_anchor_that_does_not_match_once_is_refused(text: str) -> None:
    with pytest.raises(AnchorError, match=r"occurs [02] times"):
        apply_edit(text, patch().edits[0])


def test_the_patched_wheel_is_whole(wheel: Path, tmp_path: Path) -> None:
    manifest = patch_wheel(wheel, tmp_path / "out", [patch()])
    target = tmp_path / "out" / manifest["wheel"]
    assert manifest["version"] == patched_version("1.0", [patch()])
    assert manifest["version"].startswith("1.0+gpunode.")
    assert manifest["patches"][0]["state"] == "applied"
    assert verify_record(target) == []
    with zipfile.ZipFile(target) as archive:
        info = f"pkg-{manifest['version']}.dist-info"
        assert archive.read(FILE).decode() == SOURCE.replace("128", "64")
        assert archive.read(f"{info}/METADATA").decode().count(f"Version: {manifest['version']}") == 1
        assert json.loads(archive.read(f"{info}/{MANIFEST}")) == manifest
    assert not list((tmp_path / "out").glob("*.partial"))


def test_the_same_input_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    name = patch_wheel(wheel, tmp_path / "a", [patch()])["wheel"]
    patch_wheel(wheel, tmp_path / "b", [patch()])
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_upstream_has_is_skipped_and_said(wheel: Path, tmp_path: Path) -> None:
    manifest = patch_wheel(wheel, tmp_path / "out", [patch(present="return 128")])
    assert manifest["patches"][0]["state"] == "present"


def test_a_moved_anchor_writes_nothing(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(AnchorError, match="patch block"):
        patch_wheel(wheel, tmp_path / "out", [patch(old="return 129")])
    assert not (tmp_path / "out").exists()


def test_a_patch_that_breaks_the_file_is_refused(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(SyntaxError):
        patch_wheel(wheel, tmp_path / "out", [patch(new="return (")])
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "pkg-1.0-py3-none-any.whl"
    broken.write_bytes(b"not a zip")
    with pytest.raises(WheelError, match="not a wheel"):
        patch_wheel(broken, tmp_path, [patch()])


def test_verify_record_names_every_fault(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("pkg/extra.py", "x = 1\n")
    assert verify_record(wheel) == ["pkg/extra.py: not in RECORD"]


@pytest.mark.parametrize("architecture", ["sm120", "sm121", "sm90", ""])
@pytest.mark.parametrize("model", ["glm_moe_dsa", "deepseek_v3", ""])
@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_a_label_tells_which_patches_it_stands_for(version: str, architecture: str, model: str) -> None:
    patches = selected(PATCHES, "sglang", version, architecture, model)
    assert applied_in(patched_version(version, patches)) == patches


def test_a_label_of_somebody_else_tells_nothing() -> None:
    assert applied_in("0.5.23") == []
    assert applied_in("0.5.23+gpunode.00000000") is None
    assert applied_in("0.5.23+cu130") is None


def test_selected_looks_at_version_and_architecture() -> None:
    patches = (patch(),)
    assert selected(patches, "pkg", "1.0", "sm120") == [patches[0]]
    assert selected(patches, "pkg", "1.1", "sm120") == []
    assert selected(patches, "pkg", "1.0", "sm90") == []
