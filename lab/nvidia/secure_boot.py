"""Secure Boot of a node: mokutil's answers, enrolled keys, and whether a module's signature counts.

Keys are recognised by the name that modinfo shows as signer. A key asked for with --import is enrolled at the next boot only when somebody
stood at the console; the lab's fault `mok-enroll` is that person.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import kernel, paths, state

_STORE = paths.DISK / "mok.json"


def _load() -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(_STORE.read_text())
    except (OSError, ValueError):
        stored = {}
    return {"enrolled": [], "pending": []} | stored


def _save(stored: dict[str, Any]) -> None:
    paths.DISK.mkdir(parents=True, exist_ok=True)
    _STORE.write_text(json.dumps(stored, indent=1) + "\n")


def certificate(path: Path) -> dict[str, str]:
    """Name and fingerprint of a DER certificate; raises ValueError when it is none."""
    done = subprocess.run(
        ["openssl", "x509", "-inform", "DER", "-in", str(path), "-noout", "-subject", "-fingerprint", "-sha1"],
        capture_output=True,
        text=True,
        check=False,
    )
    name = re.search(r"CN ?= ?([^,\n]+)", done.stdout)
    fingerprint = re.search(r"Fingerprint=(\S+)", done.stdout)
    if done.returncode or not name or not fingerprint:
        raise ValueError(f"{path} is not a DER certificate")
    return {"name": name.group(1).strip(), "fingerprint": fingerprint.group(1)}


def trusted(path: Path) -> bool:
    """Whether a module is signed by an enrolled key."""
    signer = (kernel.modinfo(path, "signer") or [""])[0].strip()
    return bool(signer) and signer in {key["name"] for key in _load()["enrolled"]}


def enroll_pending() -> None:
    """What the person at the console does: the keys asked for become enrolled at the next boot."""
    stored = _load()
    stored["confirmed"] = True
    _save(stored)


def power_on() -> None:
    """MOK Manager's turn: without a person it waits a few seconds and forgets nothing."""
    stored = _load()
    if stored.pop("confirmed", False):
        stored["enrolled"] += [key for key in stored["pending"] if key not in stored["enrolled"]]
        stored["pending"] = []
        _save(stored)


def main(arguments: list[str]) -> int:
    """The mokutil command."""
    on = bool(state.read()["secure_boot"])
    match arguments:
        case ["--sb-state" | "--sb"]:
            print(f"SecureBoot {'enabled' if on else 'disabled'}")
            return 0
        case ["--list-enrolled" | "-l", *_]:
            for number, key in enumerate(_load()["enrolled"], 1):
                print(f"[key {number}]\nSHA1 Fingerprint: {key['fingerprint'].lower()}\n        Subject: CN={key['name']}")
            return 0
        case ["--list-new" | "-N", *_]:
            for number, key in enumerate(_load()["pending"], 1):
                print(f"[key {number}]\nSHA1 Fingerprint: {key['fingerprint'].lower()}\n        Subject: CN={key['name']}")
            return 0
        case ["--test-key" | "-t", path]:
            key = certificate(Path(path))
            enrolled = key in _load()["enrolled"]
            print(f"{path} is {'already enrolled' if enrolled else 'not enrolled'}")
            return 1 if enrolled else 0
        case ["--import" | "-i", path, *_]:
            stored = _load()
            key = certificate(Path(path))
            if key in stored["enrolled"]:
                print(f"SKIP: {path} is already enrolled")
            elif key in stored["pending"]:
                print(f"SKIP: {path} is already in the enrollment request")
            else:
                stored["pending"].append(key)
                _save(stored)
            return 0
        case ["--revoke-import", *_]:
            _save(_load() | {"pending": []})
            return 0
        case _:
            tool = shutil.which("mokutil.lab-real")
            return subprocess.run([tool, *arguments], check=False).returncode if tool else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
