"""Prometheus text exposition, for node_exporter's textfile collector."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


class Metrics:
    """Gauges gathered under their names, so that each family stands together with its HELP and TYPE."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, list[str]]] = {}

    def gauge(self, name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Add one sample; ``text`` is the family's help."""
        _, samples = self._families.setdefault(name, (text, []))
        shown = ",".join(f'{key}="{_escape(item)}"' for key, item in (labels or {}).items())
        samples.append(f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}")

    def render(self) -> str:
        """Return the text, one family after the other."""
        lines = []
        for name, (text, samples) in self._families.items():
            lines += [f"# HELP {name} {text.replace(chr(92), chr(92) * 2)}", f"# TYPE {name} gauge", *samples]
        return "\n".join(lines) + "\n"
