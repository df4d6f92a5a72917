"""systemd-modules-load of a node: the modules of /etc/modules-load.d and its siblings, through modprobe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from . import state

FOLDERS = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/local/lib/modules-load.d", "/usr/lib/modules-load.d")
# Modules that this stand-in answers for. Others may be built into the machine's kernel or not: they are left to it.
OURS = re.compile(r"^(nvidia|nouveau|nova)")


def wanted(folders: tuple[str, ...] = FOLDERS) -> list[str]:
    """Names in the order of files by name, a file of an earlier folder hiding its namesakes; links to /dev/null hide too."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*.conf")):
            files.setdefault(path.name, path)
    names: list[str] = []
    for _, path in sorted(files.items()):
        names += [line.strip() for line in path.read_text().splitlines() if line.strip() and line.strip()[0] not in "#;"]
    return names


def main() -> int:
    """Load them; a missing module is an error that does not stop the others."""
    failed = 0
    for name in dict.fromkeys(wanted()):
        if not OURS.match(name):
            continue
        done = subprocess.run(["modprobe", "-b", name], capture_output=True, text=True, check=False)
        if done.returncode:
            print(
                f"Failed to find module '{name}'"
                if "not found" in done.stderr
                else f"Failed to insert module '{name}': {done.stderr.strip()}",
                file=sys.stderr,
            )
            failed = 1
        elif name.replace("-", "_") in state.read()["loaded"]:
            print(f"Inserted module '{name}'")
    return failed


if __name__ == "__main__":
    sys.exit(main())
