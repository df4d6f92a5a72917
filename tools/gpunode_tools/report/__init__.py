"""Reports: terminal text, JUnit, Prometheus textfile, and self-contained HTML pages."""

from __future__ import annotations
