"""A Proxmox VE stand-in: configuration files, pvesh, pct and the HTTPS API over one engine and real nested containers."""

from __future__ import annotations
