"""Run the parts of the test suite one after the other and close with ``N passed, N failed``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
TEST_LAB_INDEX = "20"
"""The scenarios use a lab of their own: a lab that somebody looks at stays as it is."""
REPEAT = ("--reruns", "3", "--reruns-delay", "5")
"""Tests marked serial measure against a clock: on a machine that was just busy they are measured again, a fault fails four times."""
MESSAGE_SHOWN = 600
"""Characters of a failure's message repeated at the end: an assertion with its values."""


@dataclass
class Tally:
    """What was run."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def count(self, name: str, ok: bool) -> None:
        """Count one check."""
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            self.failures.append(name)


def run(name: str, command: list[str], **environment: str) -> bool:
    """Run one command with its output shown; True when it ended well."""
    print(f"--- {name}: {' '.join(command)}", flush=True)
    began = time.monotonic()
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | environment
    ok = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0
    print(f"--- {name}: {'ok' if ok else 'FAILED'} after {time.monotonic() - began:.1f} s", flush=True)
    return ok


def pytest(name: str, tally: Tally, *arguments: str, markers: str = "") -> None:
    """Run pytest and add its counts; a run that collects nothing is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        ok = run(name, [str(BIN / "pytest"), f"--junitxml={report}", *_markers(markers), *arguments])
        if not report.exists():
            tally.count(name, ok=False)
            return
        root = ET.parse(report).getroot()
        total = failed = skipped = 0
        for suite in root.iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
        tally.passed += total - failed - skipped
        tally.skipped += skipped
        tally.failed += failed
        tally.failures += [f"{name}: {failure}" for failure in _failures(root)]
        if not failed and (not ok or total == 0):
            tally.count(f"{name} (ended badly or ran nothing)", ok=False)


def _failures(root: ET.Element) -> list[str]:
    """Name each test that failed with the start of what it said, so that the end of a long log is enough."""
    found = []
    for case in root.iter("testcase"):
        for kind in ("failure", "error"):
            for element in case.findall(kind):
                said = (element.get("message") or "").strip()[:MESSAGE_SHOWN]
                where = (element.text or "").strip().splitlines()[-1:]
                found.append(f"{case.get('classname')}::{case.get('name')}: {said} {' '.join(where)}")
    return found


def _markers(wanted: str) -> list[str]:
    chosen = [wanted] if wanted else []
    if not os.environ.get("GPUNODE_LONG"):
        chosen.append("not long")
    return ["-m", " and ".join(chosen)] if chosen else []


def lint(tally: Tally) -> None:
    """Every linter, each a check."""
    scripts = ["tools/setup.sh", ".ci/run"]
    checks = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy"],
        "yamllint": ["yamllint", "--strict", "."],
        "ansible-lint": ["ansible-lint", "--offline", "-q"],
        "shellcheck": ["shellcheck", *scripts],
        "syntax of site.yml": ["ansible-playbook", "-i", "inventory/lab", "--syntax-check", "site.yml"],
    }
    for name, command in checks.items():
        tally.count(name, run(name, command))


def unit(tally: Tally) -> None:
    """Unit tests, on all cores."""
    pytest("unit", tally, "tests/unit", "-n", "auto", "-q", markers="not serial")
    pytest("unit, one at a time", tally, "tests/unit", "-q", *REPEAT, markers="serial")


def contract(tally: Tally) -> None:
    """Contract tests."""
    pytest("contract", tally, "tests/contract", "-q")


def browser(tally: Tally) -> None:
    """HTML reports in Chromium."""
    pytest("browser", tally, "tests/browser", "-q")


def bench(tally: Tally) -> None:
    """Benches print ratios; a bench that cannot run is a failure, a figure never is."""
    for file in sorted((ROOT / "tests/bench").glob("bench_*.py")):
        tally.count(file.name, run(file.name, [str(BIN / "python"), str(file)]))


def molecule(tally: Tally) -> None:
    """Each scenario on a lab of its own, which is taken down at the end."""
    scenarios = sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))
    if not os.environ.get("GPUNODE_LONG"):
        scenarios = [name for name in scenarios if not (ROOT / "molecule" / name / "LONG").exists()]
    chosen = os.environ.get("GPUNODE_SCENARIOS", "").split() or scenarios
    index = os.environ.get("GPUNODE_TEST_LAB_INDEX", TEST_LAB_INDEX)
    try:
        for name in chosen:
            # What molecule remembers of a run that was cut, or of a checkout of the same name, is none of this one's business.
            with tempfile.TemporaryDirectory(prefix="gpunode-molecule-") as folder:
                environment = {"GPUNODE_LAB_INDEX": index, "MOLECULE_EPHEMERAL_DIRECTORY": folder}
                tally.count(f"molecule {name}", run(f"molecule {name}", ["molecule", "test", "-s", name], **environment))
    finally:
        run("lab down", [sys.executable, "-m", "lab", "down"], GPUNODE_LAB_INDEX=index)


PARTS = {"lint": lint, "unit": unit, "contract": contract, "browser": browser, "molecule": molecule, "bench": bench}


def main() -> int:
    """Run the parts named on the command line."""
    parts = sys.argv[1:] or ["lint", "unit"]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"unknown part: {', '.join(unknown)} (one of {', '.join(PARTS)})", file=sys.stderr)
        return 2
    tally = Tally()
    for part in parts:
        PARTS[part](tally)
    for failure in tally.failures:
        print(f"failed: {failure}")
    print(f"{tally.passed} passed, {tally.failed} failed" + (f", {tally.skipped} skipped" if tally.skipped else ""))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
