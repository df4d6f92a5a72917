"""Nodes as LXC containers of the machine: image, network, life cycle."""

from __future__ import annotations
