#!/usr/bin/env python3
"""Run a playbook and, where asked, kill it with SIGKILL at a step: as a controller that loses power, nothing is cleaned up.

    cut_playbook.py [--at STEP [--after SECONDS]] PLAYBOOK [ansible-playbook's arguments]

Ends with ansible-playbook's status, 137 when it was killed, 99 when the step never began.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run, copy the output, kill when the step's task begins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", metavar="STEP")
    parser.add_argument("--after", metavar="SECONDS", type=float, default=0)
    options, rest = parser.parse_known_args()
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *rest]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    if process.stdout is None:
        return 99
    timer: threading.Timer | None = None
    for line in process.stdout:
        print(line, end="", flush=True)
        if options.at and timer is None and line.startswith(f"TASK [kernel_update : Do the step {options.at}]"):
            timer = threading.Timer(options.after, os.killpg, (process.pid, signal.SIGKILL))
            timer.start()
    status = process.wait()
    if timer is not None:
        timer.cancel()
        return 137 if status == -signal.SIGKILL else 99
    return 99 if options.at else status


if __name__ == "__main__":
    sys.exit(main())
