#!/usr/bin/env python3
"""Pack core and tools for a node: a reproducible archive named by its content; prints its path."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = {"gpunode": ROOT / "plugins/module_utils/gpunode", "gpunode_tools": ROOT / "tools/gpunode_tools"}


def main() -> None:
    """Write ``.cache/gpunode-<hash>.tar`` unless it is there."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, folder in PARTS.items():
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    _add(archive, f"lib/{name}/{file.relative_to(folder)}", file.read_bytes())
        _add(archive, "node.txt", (ROOT / "tools/locks/node.txt").read_bytes())
    content = buffer.getvalue()
    target = ROOT / ".cache" / f"gpunode-{hashlib.sha256(content).hexdigest()[:12]}.tar"
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        partial = target.with_suffix(".partial")
        partial.write_bytes(content)
        partial.replace(target)
    print(target)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    main()
