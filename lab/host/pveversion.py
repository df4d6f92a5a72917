"""pveversion: the version of Proxmox VE and of its packages, as the real tool prints them."""

from __future__ import annotations

import os
import subprocess
import sys

from lab.host import versions
from lab.host.pve_packages import PVE_PACKAGES

# pve-manager's build stamp: the first letters of a commit.
STAMP = "14a22df359550000"


def installed() -> dict[str, str]:
    """Return name -> version of the installed packages."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"], check=False, capture_output=True, text=True
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[1]: row[2] for row in rows if row and row[0] == "installed"}


def text(packages: dict[str, str], running: str, *, verbose: bool) -> str:
    """Return what the tool prints for these packages under that kernel."""
    manager = packages.get("pve-manager", "unknown")
    if not verbose:
        return f"pve-manager/{manager}/{STAMP} (running kernel: {running})\n"
    lines = [
        f"proxmox-ve: {packages.get('proxmox-ve', 'not correctly installed')} (running kernel: {running})",
        f"pve-manager: {manager} (running version: {manager}/{STAMP})",
        f"proxmox-kernel-helper: {packages.get('proxmox-kernel-helper', 'not correctly installed')}",
    ]
    kernels = [name for name in packages if name.startswith(("proxmox-kernel-", "pve-kernel-")) and name != "proxmox-kernel-helper"]
    lines += [f"{name}: {packages[name]}" for name in versions.newest_first(kernels)]
    names = [name for name in PVE_PACKAGES if name != "pve-manager"]
    lines += [f"{name}: {packages[name]}" for name in names if name in packages]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    """Run the command line: nothing, or -v, --verbose."""
    verbose = any(word in {"-v", "-verbose", "--verbose"} for word in sys.argv[1:])
    print(text(installed(), os.uname().release, verbose=verbose), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
