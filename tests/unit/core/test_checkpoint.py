"""Checkpoints: found in every layout, complete or not."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from gpunode.checkpoint.complete import check, expected_size
from gpunode.checkpoint.locate import AmbiguousRevisionError, cache_roots, locate

COMMIT = "6944a23f9ffb9668ac970901526c6cc72c34f4e2"


def shard(path: Path, names: list[str], size: int = 16) -> None:
    header = {name: {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]} for i, name in enumerate(names)}
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size * len(names)))


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    shard(folder / "model-00001-of-00002.safetensors", ["a", "b"])
    shard(folder / "model-00002-of-00002.safetensors", ["c"])
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def cache(root: Path, commit: str = COMMIT, ref: bool = True) -> Path:
    repository = root / "models--org--Model"
    folder = checkpoint(repository / "snapshots" / commit)
    if ref:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
    return folder


def test_roots_follow_the_order_of_huggingface_hub() -> None:
    environment = {"HF_HUB_CACHE": "/a", "HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}
    assert cache_roots(environment, Path("/root")) == [Path("/a"), Path("/b/hub"), Path("/c/huggingface/hub")]
    assert cache_roots({}, Path("/root")) == [Path("/root/.cache/huggingface/hub")]


@pytest.mark.parametrize("below", ["", "hub"])
def test_a_snapshot_is_found_through_refs(tmp_path: Path, below: str) -> None:
    folder = cache(tmp_path / below)
    cache(tmp_path / below, "0" * 40, ref=False)
    found = locate("org/Model", [tmp_path / "empty", tmp_path])
    assert found is not None
    assert (found.path, found.revision, found.layout) == (folder, COMMIT, "cache")


def test_a_named_revision_wins_and_a_wrong_one_finds_nothing(tmp_path: Path) -> None:
    cache(tmp_path)
    other = cache(tmp_path, "1" * 40, ref=False)
    found = locate("org/Model", [tmp_path], "1" * 40)
    assert found is not None
    assert found.path == other
    assert locate("org/Model", [tmp_path], "2" * 40) is None


def test_several_snapshots_without_a_ref_are_ambiguous(tmp_path: Path) -> None:
    cache(tmp_path, ref=False)
    assert locate("org/Model", [tmp_path]) is not None
    cache(tmp_path, "1" * 40, ref=False)
    with pytest.raises(AmbiguousRevisionError, match="several snapshots"):
        locate("org/Model", [tmp_path])


def test_folders_and_paths(tmp_path: Path) -> None:
    flat = checkpoint(tmp_path / "Model")
    for name in ("org/Model", "Model", str(flat)):
        found = locate(name, [tmp_path])
        assert found is not None
        assert found.layout == "folder"
        assert found.path == flat
    assert locate("/nowhere", [tmp_path]) is None
    assert locate("org/Other", [tmp_path]) is None
    folder = cache(tmp_path / "hub")
    found = locate(str(tmp_path / "hub" / "models--org--Model"), [tmp_path])
    assert found is not None
    assert found.path == folder


def test_a_whole_checkpoint_is_complete(tmp_path: Path) -> None:
    result = check(checkpoint(tmp_path))
    assert result.complete
    assert result.problems == ()
    assert result.shards == 2
    assert result.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert check(tmp_path).problems == ("model-00002-of-00002.safetensors is missing",)
    (tmp_path / "model-00002-of-00002.safetensors").symlink_to("nowhere")
    assert "dangling link" in check(tmp_path).problems[0]


@pytest.mark.parametrize(
    ("cut", "problem"), [(-1, "its header asks for"), (4, "shorter than a header"), (20, "cut within the header"), (None, "not JSON")]
)
def test_a_cut_or_broken_shard_is_named(tmp_path: Path, cut: int | None, problem: str) -> None:
    checkpoint(tmp_path)
    path = tmp_path / "model-00001-of-00002.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:cut] if cut is not None else data[:8] + b"x" * (len(data) - 8))
    result = check(tmp_path)
    assert not result.complete
    assert problem in result.problems[0]


def test_a_tensor_that_the_index_names_must_be_in_its_shard(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    shard(tmp_path / "model-00002-of-00002.safetensors", ["d"])
    assert check(tmp_path).problems == ("1 tensors are not in the shard that the index names, first c",)


def test_half_a_download_is_not_complete(tmp_path: Path) -> None:
    folder = cache(tmp_path)
    blobs = tmp_path / "models--org--Model" / "blobs"
    blobs.mkdir()
    (blobs / "abc.incomplete").touch()
    assert check(folder).problems == ("abc.incomplete is half-downloaded",)


def test_weights_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert check(tmp_path).problems[0].startswith("no weights")
    shard(tmp_path / "model.safetensors", ["a"])
    assert check(tmp_path).complete
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    assert "is missing beside sharded weights" in check(tmp_path).problems[0]
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert "cannot be read" in check(tmp_path).problems[0]
    (tmp_path / "config.json").unlink()
    assert "config.json is missing" in check(tmp_path).problems


def test_expected_size_refuses_what_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for raw, message in ((b"[]", "no object"), (b'{"a": {"dtype": "U8"}}', "no offsets")):
        path.write_bytes(struct.pack("<Q", len(raw)) + raw)
        with pytest.raises(ValueError, match=message):
            expected_size(path)
    path.write_bytes(struct.pack("<Q", 2**40))
    with pytest.raises(ValueError, match="header of"):
        expected_size(path)
