"""nvidia-persistenced: keeps the driver initialised and persistence mode on for as long as it runs."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from . import kernel, nodes, paths, state, users

_FOLDER = paths.ROOT / "run/nvidia-persistenced"


def _persistence(on: bool) -> None:
    with state.change() as now:
        for gpu in now["gpus"]:
            gpu["persistence"] = on and gpu["driver"] == "nvidia"


def main() -> int:
    """Run as the daemon does: fork, write the pid file, wait for SIGTERM."""
    parser = argparse.ArgumentParser("nvidia-persistenced", add_help=True)
    parser.add_argument(
        "-v", "--version", action="version", version=f"nvidia-persistenced:  version {os.environ.get('LAB_NVIDIA_VERSION', '')}"
    )
    parser.add_argument("-V", "--verbose", action="store_true")
    parser.add_argument("-u", "--user")
    parser.add_argument("-g", "--group")
    parser.add_argument("--persistence-mode", action="store_true", default=True)
    parser.add_argument("--no-persistence-mode", action="store_false", dest="persistence_mode")
    parser.add_argument("--uvm-persistence-mode", action="store_true")
    parser.add_argument("--nvidia-cfg-path")
    options = parser.parse_args()
    if users.persistenced():
        print("nvidia-persistenced failed to initialize. Check syslog for more details.", file=sys.stderr)
        return 1
    nodes.as_root()
    now = state.read()
    usable = [gpu for gpu in kernel.bound(now) if not gpu["lost"]]
    if "nvidia" not in now["loaded"] or not usable:
        print(
            "nvidia-persistenced: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist, "
            "and that user 0 has read and write permissions for those files.\n"
            "nvidia-persistenced failed to initialize. Check syslog for more details.",
            file=sys.stderr,
        )
        return 1
    if os.fork():
        return 0
    os.setsid()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    (_FOLDER / "nvidia-persistenced.pid").write_text(f"{os.getpid()}\n")
    if options.persistence_mode:
        _persistence(on=True)
    with state.change() as now:
        kernel.render(now)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    (_FOLDER / "nvidia-persistenced.pid").unlink(missing_ok=True)
    _persistence(on=False)
    with state.change() as now:
        kernel.render(now)
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
