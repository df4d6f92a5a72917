"""The core of gpunode: parsers and rules, pure functions over plain data, standard library only."""

from __future__ import annotations

__version__ = "0.1.0"
