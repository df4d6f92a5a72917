"""What binds sglang's record of peer access: driver, options, kernel command line, topology and IOMMU, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
GPU = "proc/driver/nvidia/gpus/0000:01:00.0/information"
FILES = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n",
    "proc/driver/nvidia/params": "EnableResizableBar: 1\n",
    "proc/cmdline": "root=/dev/sda amd_iommu=off\n",
    GPU: "Model: NVIDIA RTX PRO 6000\nIRQ: 100\nGPU UUID: GPU-1\nBus Location: 0000:01:00.0\nGPU Excluded: No\n",
}


def fabric(root: Path) -> str:
    """What the role's task prints on a machine whose /proc and /sys lie below a folder."""
    tasks = yaml.safe_load((ROOT / "roles/sglang_server/tasks/p2p_cache.yml").read_text())
    code = tasks[0]["look_at"]["commands"]["fabric"][2].replace('"/proc/', f'"{root}/proc/').replace('"/sys/', f'"{root}/sys/')
    return subprocess.run([sys.executable, "-c", code.replace("text.append(path", f"text.append(path[{len(str(root))}:]")],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "iommu_group").symlink_to("../../kernel/iommu_groups/7")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("proc/driver/nvidia/version", "580.159.04", "580.200.01"),
        ("proc/driver/nvidia/params", "Bar: 1", "Bar: 0"),
        ("proc/cmdline", "amd_iommu=off", "iommu=pt"),
        (GPU, "0000:01:00.0", "0000:02:00.0"),
        (GPU, "GPU-1", "GPU-2"),
    ],
)
def test_a_change_of_the_fabric_is_seen(machine: Path, name: str, old: str, new: str) -> None:
    before = fabric(machine)
    (machine / name).write_text(FILES[name].replace(old, new))
    assert fabric(machine) != before


def test_a_change_of_iommu_groups_or_of_the_number_of_gpus_is_seen(machine: Path) -> None:
    seen = [fabric(machine)]
    group = machine / "sys/bus/pci/devices/0000:01:00.0/iommu_group"
    group.unlink()
    seen.append(fabric(machine))
    group.symlink_to("../../kernel/iommu_groups/9")
    seen.append(fabric(machine))
    second = machine / GPU.replace("01", "41")
    second.parent.mkdir(parents=True)
    second.write_text("Model: NVIDIA RTX PRO 6000\n")
    seen.append(fabric(machine))
    assert len(set(seen)) == 4


def test_interrupts_do_not_count(machine: Path) -> None:
    before = fabric(machine)
    (machine / GPU).write_text(FILES[GPU].replace("IRQ: 100", "IRQ: 164"))
    assert fabric(machine) == before
