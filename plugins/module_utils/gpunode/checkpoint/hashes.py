"""Content of a checkpoint in a Hugging Face cache against the hashes that its blobs are named by."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 16 * 2**20


def verify_hashes(snapshot: Path) -> tuple[int, list[str]]:
    """Read every blob that is named by its SHA-256 (large files) or git SHA-1 (small ones); returns how many, and what is wrong.

    A folder that is no snapshot has no names to compare with: 0 files.
    Source: https://huggingface.co/docs/hub/local-cache, huggingface_hub's file_download.py
    """
    checked = 0
    problems: list[str] = []
    for file in sorted(path for path in snapshot.rglob("*") if path.is_symlink() and path.exists()):
        blob = file.resolve()
        name = blob.name
        if re.fullmatch(r"[0-9a-f]{64}", name):
            digest = hashlib.sha256()
        elif re.fullmatch(r"[0-9a-f]{40}", name):
            digest = hashlib.sha1(f"blob {blob.stat().st_size}\0".encode(), usedforsecurity=False)
        else:
            continue
        with blob.open("rb") as content:
            while chunk := content.read(CHUNK):
                digest.update(chunk)
        checked += 1
        if digest.hexdigest() != name:
            problems.append(
                f"{file.relative_to(snapshot)}: its content has the hash {digest.hexdigest()[:16]}..., the hub's is {name[:16]}..."
            )
    return checked, problems
