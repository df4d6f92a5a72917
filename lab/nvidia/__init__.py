"""NVIDIA's side of a lab node: packages, kernel modules, PCI tree, device nodes and tools, without a GPU.

What the driver would keep in the kernel is one JSON state of this boot; everything else (sysfs, /proc, kernel log) is written from it.
"""

from __future__ import annotations
