"""What lab-boot.service runs early in a node's boot."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
import traceback
from pathlib import Path

from lab.boot import cgroups

STATE = Path("/run/lab")


def parts(root: Path) -> list[str]:
    """Return the parts of the lab that take part in the boot: folders with a ``boot.py``, by name."""
    return sorted(path.parent.name for path in root.glob("*/boot.py"))


def main() -> int:
    """Prepare the node, then call every part's ``boot.main()``; a part that fails is reported and does not stop the others."""
    STATE.mkdir(mode=0o755, exist_ok=True)
    (STATE / "guest.d").mkdir(exist_ok=True)
    for name in cgroups.prepare():
        print(f"cgroup hierarchy {name} mounted")
    failed = 0
    for part in parts(Path(__file__).resolve().parents[1]):
        start = time.monotonic()
        try:
            importlib.import_module(f"lab.{part}.boot").main()
        except Exception:  # noqa: BLE001 - whatever a part does wrong, the node boots and says so
            failed += 1
            print(f"part {part} failed:", flush=True)
            traceback.print_exc()
        else:
            print(f"part {part} took {1000 * (time.monotonic() - start):.0f} ms")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
