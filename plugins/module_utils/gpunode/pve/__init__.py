"""Proxmox VE's containers as data: property strings, configuration files, desired against current. Pure: touches nothing."""

from __future__ import annotations
