#!/usr/bin/env python3
"""Lock what releases of sglang depend on, with hashes, for Linux on x86-64 and every Python that the release takes.

    tools/sglang_lock.py VERSION...       write roles/sglang_venv/files/locks/sglang-VERSION.txt
    tools/sglang_lock.py router-VERSION   write roles/llm_gateway/files/locks/sglang-router-VERSION.txt, the router itself included

A developer's tool; it asks the package index that uv is configured with, and writes no address of it. The requirements are those of the
wheel with the patches for GLM-5 applied, so that transformers is one that knows glm_moe_dsa. The compiler of CUDA comes in the version of
torch's runtime: a newer nvcc refuses the older headers that lie beside it in one folder.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from gpunode.sglang.profiles import profile
from gpunode.wheelpatch.catalogue import PATCHES
from gpunode.wheelpatch.edit import apply_edit, selected
from gpunode.wheelpatch.wheel import METADATA
from sglang_wheels import ROOT, wheel

TARGET: Final = ROOT / "roles/sglang_venv/files/locks"
ROUTER_TARGET: Final = ROOT / "roles/llm_gateway/files/locks"
ROUTER: Final = "router-"
ROUTER_PYTHON: Final = "3.11"
"""Python of the oldest Debian that the role supports."""
SETTINGS: Final = """[project]
name = "lock"
version = "0"
[tool.uv]
environments = ["sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.14'"]
"""


TOOLKIT: Final = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl")
"""Packages of the compiler; what torch pins of the toolkit (cuda-toolkit in its METADATA) has no say in their version."""


def metadata(version: str) -> str:
    """METADATA of the published wheel with the patches for GLM-5."""
    with zipfile.ZipFile(wheel(version)) as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))).decode()
    for patch in selected(PATCHES, "sglang", version, "sm120", "glm_moe_dsa"):
        for edit in patch.edits:
            if edit.path == METADATA:
                text, _ = apply_edit(text, edit)
    return text


def requirements(version: str) -> list[str]:
    """What the patched wheel requires, extras left out."""
    found = email.message_from_string(metadata(version)).get_all("Requires-Dist") or []
    return [requirement for requirement in found if "extra ==" not in requirement]


def lock(version: str, uv: str) -> Path:
    """Write the lock of one release."""
    constraints: list[str] = []
    if version.startswith(ROUTER):
        wanted, python, target = [f"sglang-router=={version.removeprefix(ROUTER)}"], ROUTER_PYTHON, ROUTER_TARGET / f"sglang-{version}.txt"
    else:
        wanted, python = requirements(version), re.sub(r"[^0-9.]", "", profile(version).python)
        target = TARGET / f"sglang-{version}.txt"
        constraints = [f"{package}=={profile(version).cuda}.*" for package in TOOLKIT]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text(SETTINGS)
        source = Path(folder) / "requirements.in"
        source.write_text("\n".join(wanted) + "\n")
        held = Path(folder) / "constraints.txt"
        held.write_text("".join(f"{constraint}\n" for constraint in constraints))
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", python]
        command += ["--prerelease=if-necessary-or-explicit", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        command += ["--constraint", str(held), str(source), "--output-file", str(target)]
        subprocess.run(command, check=True, cwd=folder)
    head = f"# Locked by tools/sglang_lock.py for sglang {version}; do not edit.\n"
    target.write_text(head + target.read_text())
    return target


def main() -> int:
    """Lock each version that is named."""
    uv = shutil.which("uv")
    if uv is None or not sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    for version in sys.argv[1:]:
        path = lock(version, uv)
        print(f"{path.relative_to(ROOT)}: {sum(1 for line in path.read_text().splitlines() if '==' in line)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
