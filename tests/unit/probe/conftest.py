"""The shipped probe, unchanged, against the stand-in libcuda with a fabric written for each test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpunode_tools.probe import Options, measure

ROOT = Path(__file__).parents[3]
BUS_IDS = [f"0000:{bus:02x}:00.0" for bus in (0x01, 0x11, 0x61, 0x71, 0x81, 0x91, 0xE1, 0xF1, *range(0xA0, 0xA8))]


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory):
    """The folder that holds the stand-in libcuda.so.1."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the stand-in libcuda.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("libcuda")
    subprocess.run([sys.executable, "-m", "lab.nvidia.libcuda", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


class Lab:
    """Writes the fabric and measures on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []

    def fabric(self, *lines: str, gpus: int = 2, gpu: str = "") -> None:
        text = [f"gpu {BUS_IDS[n]} numa={n * 2 // gpus} {gpu}" for n in range(gpus)]
        text += [
            "set init_ms 1",
            "set context_ms 1",
            "set module_ms 1",
            f"set state {self.folder}",
            "link near copy=53",
            "link far copy=40",
        ]
        (self.folder / "fabric.conf").write_text("\n".join([*text, *lines]) + "\n", encoding="utf-8")

    def measure(self, *, start: Any = None, on_event: Any = None, **options: Any) -> dict[str, Any]:
        def seen(event: dict[str, Any]) -> None:
            self.events.append(event)
            if on_event:
                on_event(event)

        return measure(Options(**{"light": True, **options}), start, seen)


@pytest.fixture
def lab(libcuda, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libcuda))
    monkeypatch.setenv("GPUNODE_LAB_FABRIC", str(tmp_path / "fabric.conf"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Lab(tmp_path)


def statuses(result: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {(pair["src"], pair["dst"]): pair["status"] for pair in result["pairs"]}
