"""nvidia-smi of the lab: the forms that people and tools use, in the real one's formats."""

from __future__ import annotations
