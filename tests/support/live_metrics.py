"""Names of metrics on standard input, as Prometheus' API lists them: end with 1 where a panel or an alert names one that is not there.

python -m tests.support.live_metrics [NAME-OR-PREFIX-THAT-MAY-BE-MISSING...] <label-values.json
"""

from __future__ import annotations

import json
import sys

from tests.support.monitoring import USED


def main() -> int:
    """Compare."""
    there = set(json.load(sys.stdin)["data"])
    missing = {
        name: where for name, where in sorted(USED.items()) if name not in there and not name.startswith(tuple(sys.argv[1:]) or ("\0",))
    }
    for name, where in missing.items():
        print(f"{name} is not in Prometheus; {where} needs it")
    print(f"{len(USED) - len(missing)} of {len(USED)} metrics are there or may be missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
