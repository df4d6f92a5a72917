"""The boot of a lab node, run inside it: cgroups for nested containers, the kernel that boots, the parts' own hooks."""

from __future__ import annotations
