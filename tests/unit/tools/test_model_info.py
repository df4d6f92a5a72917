"""The command model-info on the lab's small checkpoint of GLM-5's shape."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpunode_tools.cli.model_info import command

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cache")
    subprocess.run([sys.executable, "-m", "lab.sglang.checkpoint", str(root / "hub")], cwd=ROOT, check=True, capture_output=True)
    return root


def run(*arguments: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(command, [*arguments, "--output", "json"])
    return result.exit_code, json.loads(result.stdout)


def test_a_repository_is_found_below_a_folder_with_a_cache(cache: Path) -> None:
    code, data = run("lukealonso/GLM-5-NVFP4", "--root", str(cache), "--gpu-memory-mib", "97887", "--hashes")
    assert (code, data["complete"], data["moe"]) == (0, True, {"E": 257, "N": 256})
    assert data["hashes_checked"] == 14
    assert [finding["id"] for finding in data["findings"]] == ["model-fits", "mtp-weights-missing"]  # type: ignore[attr-defined]


def test_a_path_of_the_repository_s_folder_works_too(cache: Path) -> None:
    code, data = run(str(cache / "hub/models--lukealonso--GLM-5-NVFP4"), "--no-shared-expert-fusion", "--tp", "4")
    assert (code, data["moe"]) == (0, {"E": 256, "N": 512})


def test_a_missing_shard_ends_with_1(cache: Path) -> None:
    shard = next(cache.glob("hub/models--*/snapshots/*/model-00003*"))
    target = shard.readlink()
    shard.unlink()
    code, data = run("lukealonso/GLM-5-NVFP4", "--root", str(cache))
    shard.symlink_to(target)
    assert (code, data["verdict"]) == (1, "fail")


def test_what_is_not_there_ends_with_3_and_says_where_it_looked(cache: Path) -> None:
    code, data = run("org/nothing", "--root", str(cache))
    assert code == 3
    assert str(cache) in data["findings"][0]["evidence"]  # type: ignore[index]


# --- what a path may be ---------------------------------------------------------------------------------------------


def text(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(arguments))
    return result.exit_code, result.output


def with_another(cache: Path, tmp_path: Path, *, whole: bool) -> Path:
    """A folder whose hub holds the checkpoint twice, the second one of another repository."""
    shutil.copytree(cache, tmp_path / "models", symlinks=True)
    first = tmp_path / "models/hub/models--lukealonso--GLM-5-NVFP4"
    second = first.with_name("models--org--other--x")
    shutil.copytree(first, second, symlinks=True)
    if not whole:
        next(second.glob("snapshots/*/model-00003*")).unlink()
    return tmp_path / "models"


def test_the_only_checkpoint_in_a_folder_is_used_and_that_is_said(cache: Path) -> None:
    for folder in (cache, cache / "hub"):
        code, data = run(str(folder))
        assert (code, data["complete"]) == (0, True)
        assert "lukealonso/GLM-5-NVFP4 is the only one in it and was used" in str(data["findings"])


def test_the_only_complete_one_is_used_and_the_others_are_named(cache: Path, tmp_path: Path) -> None:
    code, data = run(str(with_another(cache, tmp_path, whole=False)))
    assert (code, data["complete"]) == (0, True)
    assert "is the only complete one in it" in str(data["findings"])
    assert "incomplete: org/other--x" in str(data["findings"])


def test_several_are_listed_with_how_to_name_each(cache: Path, tmp_path: Path) -> None:
    folder = with_another(cache, tmp_path, whole=True)
    code, told = text(str(folder))
    assert code == 2
    assert f"gpunode model-info --root {folder}/hub lukealonso/GLM-5-NVFP4\n" in told
    code, data = run("--root", f"{folder}/hub", "org/other--x")
    assert (code, data["complete"]) == (0, True)


def test_folders_of_models_without_a_cache_are_listed_too(cache: Path, tmp_path: Path) -> None:
    snapshot = next(cache.glob("hub/models--*/snapshots/*"))
    for name in ("a", "org/b"):
        shutil.copytree(snapshot, tmp_path / name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/config.json").write_text("{}")  # somebody else's settings
    code, told = text(str(tmp_path))
    assert (code, "it holds 2" in told, f"gpunode model-info {tmp_path}/org/b\n" in told) == (2, True, True)


def test_snapshots_without_a_current_one_are_told_apart(cache: Path, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path / "models", symlinks=True)
    repository = tmp_path / "models/hub/models--lukealonso--GLM-5-NVFP4"
    snapshot = next(repository.glob("snapshots/*"))
    shutil.copytree(snapshot, snapshot.with_name("newer"), symlinks=True)
    (repository / "refs/main").unlink()
    code, told = text(str(tmp_path / "models"))
    assert (code, "--revision newer lukealonso/GLM-5-NVFP4\n" in told) == (2, True)


def test_a_folder_without_any_says_that_it_was_looked_at(tmp_path: Path) -> None:
    code, data = run(str(tmp_path))
    assert code == 3
    assert f"looked in {tmp_path}" in data["findings"][0]["evidence"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["/models/hub/none", "./none", "~/none-of-these", "a/b/c"])
def test_a_path_that_is_not_there_is_wrong_input(name: str) -> None:
    code, told = text(name)
    assert (code, "no such folder on this machine" in told, "/var/lib/models" in told, "find /" in told) == (2, True, True, False)


def test_a_file_is_none_but_config_json_names_its_folder(cache: Path) -> None:
    snapshot = next(cache.glob("hub/models--*/snapshots/*"))
    assert run(str(snapshot / "config.json"))[0] == 0
    code, told = text(str(snapshot / "tokenizer.json"))
    assert (code, "is a file" in told) == (2, True)


def test_usage_and_help_name_the_same() -> None:
    told = " ".join(text("--help")[1].split())
    assert "PATH|REPO_ID" in told
    assert "PATH is a folder" in told
    assert "MODEL is" not in told


def test_a_stand_in_s_checkpoint_is_labelled(cache: Path, tmp_path: Path) -> None:
    assert run(str(cache))[1]["simulated"] is True
    told = text(str(cache))[1]
    assert "simulated: a stand-in's checkpoint" in told
    assert "0.00 GB" not in told
    snapshot = next(cache.glob("hub/models--*/snapshots/*"))
    shutil.copytree(snapshot, tmp_path / "real")
    config = json.loads((tmp_path / "real/config.json").read_text())
    del config["gpunode_simulated"]
    (tmp_path / "real/config.json").write_text(json.dumps(config))
    assert run(str(tmp_path / "real"))[1]["simulated"] is False
    assert "simulated" not in text(str(tmp_path / "real"))[1]
