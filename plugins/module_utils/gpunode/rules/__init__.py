"""Rules: pure functions from what was read and measured to findings."""

from __future__ import annotations
