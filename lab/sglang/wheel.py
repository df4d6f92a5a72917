"""The wheel `gpunode-lab-sglang`: an import hook that puts the stand-in in front of two modules of the real sglang.

`python3 -m lab.sglang.wheel FOLDER` writes it. Installed beside the real wheel (without dependencies) it lets
`python -m sglang.launch_server` and `sglang serve` start the stand-in, while every other file of the release stays the real one.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

NAME = "gpunode_lab_sglang"
VERSION = "1.0"
FILE = f"{NAME}-{VERSION}-py3-none-any.whl"

HOOK = '''"""Puts the lab's stand-in in front of sglang.launch_server and sglang.cli.main; the code itself lies with the lab."""

import importlib.machinery
import importlib.util
import os
import sys

ROOT = os.environ.get("GPUNODE_LAB_ROOT", "/usr/lib/gpunode-lab")
ENTRIES = {"sglang.launch_server": "entry_launch_server.py", "sglang.cli.main": "entry_cli.py"}


class Finder:
    """Finds the stand-in's modules, and sglang itself as a package that runs no code of its own (it would import torch)."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "sglang":
            for entry in sys.path:
                folder = os.path.join(entry or os.getcwd(), "sglang")
                if os.path.isdir(os.path.join(folder, "srt")):
                    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
                    spec.submodule_search_locations = [folder]
                    return spec
            return None
        if name in ENTRIES:
            file = os.path.join(ROOT, "lab", "sglang", ENTRIES[name])
            if not os.path.isfile(file):
                raise ImportError(f"sglang stand-in: {file} is missing; set GPUNODE_LAB_ROOT to the folder that holds lab/")
            return importlib.util.spec_from_file_location(name, file)
        return None


sys.meta_path.insert(0, Finder)
'''

METADATA = f"""Metadata-Version: 2.1
Name: gpunode-lab-sglang
Version: {VERSION}
Summary: Stand-in for the sglang server, for the lab of gpunode only
License: Apache-2.0
Requires-Python: >=3.10
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: gpunode-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build(folder: Path) -> Path:
    """Write the wheel into a folder and return its path; the same bytes each time."""
    info = f"{NAME}-{VERSION}.dist-info"
    files = {
        f"{NAME}.py": HOOK,
        f"{NAME}.pth": f"import {NAME}\n",
        f"{info}/METADATA": METADATA,
        f"{info}/WHEEL": WHEEL,
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text.encode())}"
        for name, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / FILE
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
    part.replace(target)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
