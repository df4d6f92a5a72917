"""Talking to Proxmox VE: backends and a container's life. The one part of the core that touches the world."""

from __future__ import annotations
