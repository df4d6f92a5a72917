#!/usr/bin/env python3
"""Run a playbook and, where asked, cut it short when a task begins: with SIGKILL, as a controller that loses power, or as Ctrl-C does.

    cut_playbook.py [--at STEP | --task PATTERN [--count N]] [--after SECONDS] [--interrupt] PLAYBOOK [ansible-playbook's arguments]

STEP is a step of kernel_update, PATTERN a regular expression for a task's headline, which counts when it comes for the N-th time. Ends with
ansible-playbook's status, 137 when it was killed, 130 when it was interrupted, 99 when the task never began or the run ended by itself
before the cut.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run, copy the output, cut when the task begins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", metavar="STEP")
    parser.add_argument("--task", metavar="PATTERN")
    parser.add_argument("--count", metavar="N", type=int, default=1)
    parser.add_argument("--after", metavar="SECONDS", type=float, default=0)
    parser.add_argument("--interrupt", action="store_true")
    options, rest = parser.parse_known_args()
    wanted = options.task or (options.at and rf"kernel_update : Do the step {re.escape(options.at)}\]")
    cut = signal.SIGINT if options.interrupt else signal.SIGKILL
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background would hand down that it is ignored
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *rest]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    if process.stdout is None:
        return 99
    done = threading.Event()

    def end() -> None:
        if process.poll() is None:
            os.killpg(process.pid, cut)
            done.set()

    timer: threading.Timer | None = None
    left = options.count
    for line in process.stdout:
        print(line, end="", flush=True)
        if wanted and timer is None and line.startswith("TASK [") and re.search(wanted, line):
            left -= 1
            if left:
                continue
            timer = threading.Timer(options.after, end)
            timer.start()
    status = process.wait()
    if timer is not None:
        timer.cancel()
    if done.is_set() and status != 0:
        return 130 if options.interrupt else 137
    return 99 if wanted else status


if __name__ == "__main__":
    sys.exit(main())
