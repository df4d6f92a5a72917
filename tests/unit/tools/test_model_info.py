"""The command model-info on the lab's small checkpoint of GLM-5's shape."""

from __future__ import annotations

import json
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
