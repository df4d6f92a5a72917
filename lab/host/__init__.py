"""The Proxmox host without its guests: kernels and their packages, boot loaders, what the running kernel looks like, pveversion."""

from __future__ import annotations
