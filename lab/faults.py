"""Faults inside a node: what `python -m lab fault NODE NAME` runs there. Each part registers its own in ``lab/<part>/faults.py``.

A part's ``FAULTS`` maps names to callables that take the command line's words; the first line of a docstring says what happens. ``clear()``
takes the part's faults back, and may return what stays until a boot, in words. What was set is remembered on the node's disk, for
`python -m lab status`; what stays, until that boot.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

ACTIVE = Path("/var/lib/lab/faults.json")
LEFT = Path("/run/lab/faults-left.json")
UNTIL_BOOT = "until the next boot"
_ROOT = Path(__file__).resolve().parent


def modules() -> list[ModuleType]:
    """Return every part's ``faults`` module."""
    return [importlib.import_module(f"lab.{path.parent.name}.faults") for path in sorted(_ROOT.glob("*/faults.py"))]


def describe(function: object) -> str:
    """Return the first line of a fault's docstring."""
    return ((getattr(function, "__doc__", None) or "").strip().splitlines() or ["(not described)"])[0]


def listing() -> dict[str, str]:
    """Return name -> description of every fault that is set inside the node."""
    return {name: describe(function) for module in modules() for name, function in module.FAULTS.items()}


def active(path: Path = ACTIVE) -> list[str]:
    """Return the faults that were set and not cleared, as they were typed."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []


def remember(words: list[str], path: Path = ACTIVE) -> None:
    """Note a fault as set; the same name replaces its predecessor."""
    kept = [line for line in active(path) if line.split()[0] != words[0]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, " ".join(words)]), encoding="utf-8")


def apply(name: str, words: list[str]) -> int:
    """Set a fault; 2 when no part knows its name."""
    for module in modules():
        if name in module.FAULTS:
            module.FAULTS[name](*words)
            remember([name, *words])
            return 0
    print(f"no such fault: {name}", file=sys.stderr)
    return 2


def clear() -> int:
    """Take back every fault of every part, and say what of it a boot takes back only."""
    left = left_over()
    for module in modules():
        left += [words for words in module.clear() or () if words not in left]
    ACTIVE.unlink(missing_ok=True)
    LEFT.parent.mkdir(parents=True, exist_ok=True)
    LEFT.write_text(json.dumps([words for words in left if words.startswith(UNTIL_BOOT)]), encoding="utf-8")
    print("\n".join(f"cleared, but {words}" for words in left) or "cleared")
    return 0


def left_over() -> list[str]:
    """What the last clearing left until the next boot."""
    return list(json.loads(LEFT.read_text(encoding="utf-8"))) if LEFT.is_file() else []


def main(words: list[str]) -> int:
    """Run ``list``, ``active``, ``clear``, ``remember NAME...`` or ``apply NAME [ARG...]``."""
    verb, *rest = words
    if verb == "list":
        print(json.dumps(listing()))
    elif verb == "active":
        print("\n".join([*active(), *(f"cleared, but {words}" for words in left_over())]))
    elif verb == "clear":
        return clear()
    elif verb == "remember":
        remember(rest)
    else:
        return apply(rest[0], rest[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
