#!/usr/bin/env python3
"""Download a repository of a model hub with `hf`, after a look at the space it needs, and say how far it is.

Runs with the Python that holds huggingface_hub, as a unit of systemd. Files that are there whole are not fetched again; huggingface_hub 2
goes on within a file while it runs, and begins a file anew after it was killed, so what a killed run left of one is removed. Exit code:
0 complete, 1 the download was cut (another start goes on), 3 it cannot work (no such repository or revision, no access, not enough space).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

GIB = 2**30
STEP_S = 15
"""Seconds between two lines of progress."""
QUIET_S = 60
"""A half file that nobody wrote to for so long belongs to no running download."""


def say(text: str) -> None:
    """One line of the journal."""
    print(text, flush=True)


def on_disk(repository: Path) -> int:
    """Bytes of blobs, half-downloaded ones included."""
    return sum(file.stat().st_blocks * 512 for file in (repository / "blobs").glob("*") if file.is_file())


def remove_leftovers(repository: Path) -> int:
    """Remove half files of runs that were killed (nothing goes on from them); returns the bytes that came free."""
    freed = 0
    for file in (repository / "blobs").glob("*.incomplete"):
        status = file.stat()
        if time.time() - status.st_mtime > QUIET_S:
            freed += status.st_blocks * 512
            file.unlink()
    return freed


def main() -> int:
    """Look, download, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository")
    parser.add_argument("--revision", default=None)
    parser.add_argument("--space-gib", type=float, default=10)
    options = parser.parse_args()
    try:
        info = HfApi().model_info(options.repository, revision=options.revision, files_metadata=True)
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        say(f"gpunode: {options.repository} {options.revision or 'main'}: {str(error).strip().splitlines()[0]}")
        return 3 if status in {401, 403, 404} else 1
    except OSError as error:
        say(f"gpunode: {constants.ENDPOINT} cannot be reached: {error}")
        return 1
    total = sum(file.size or 0 for file in info.siblings or [])
    cache = Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    repository = cache / f"models--{options.repository.replace('/', '--')}"
    freed = remove_leftovers(repository)
    if freed:
        say(f"gpunode: removed {freed / GIB:.2f} GiB of half files of an earlier run")
    there = on_disk(repository)
    free = shutil.disk_usage(cache).free
    needed = max(0, total - there)
    told = f"{total / GIB:.2f} GiB, {there / GIB:.2f} GiB there, {free / GIB:.2f} GiB free in {cache}"
    say(f"gpunode: {options.repository} at {info.sha}: {told}")
    if needed and needed + options.space_gib * GIB > free:
        say(
            f"gpunode: {needed / GIB:.2f} GiB are missing and {options.space_gib:g} GiB shall stay free, {free / GIB:.2f} GiB are free in "
            f"{cache}: make room, or point model_store_cache at a larger disk."
        )
        return 3
    command = [str(Path(sys.executable).with_name("hf")), "download", options.repository, "--revision", str(info.sha), "--quiet"]
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_COLOR": "1"}
    began = time.monotonic()
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                code = process.wait(timeout=STEP_S)
                break
            except subprocess.TimeoutExpired:
                now = on_disk(repository)
                rate = max(1.0, (now - there) / (time.monotonic() - began))
                left = max(0, total - now) / rate / 60
                say(f"gpunode: {now / GIB:.2f} of {total / GIB:.2f} GiB, {rate / 1e6:.0f} MB/s, {left:.0f} min left")
    if code:
        full = shutil.disk_usage(cache).free < options.space_gib * GIB / 10 or shutil.disk_usage(cache).free < max(
            0, total - on_disk(repository)
        )
        say(f"gpunode: hf ended with {code}; {'the disk is full' if full else 'the next start goes on from what is there'}.")
        return 3 if full else 1
    if options.revision in {None, "main"}:
        # `hf` was given the commit, so that one download is one revision; whoever asks for main must find it too.
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(str(info.sha))
    say(f"gpunode: complete after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
