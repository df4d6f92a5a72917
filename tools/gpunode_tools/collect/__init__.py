"""Collecting: what a node and its container say, as a snapshot. Touches the world and decides nothing."""

from __future__ import annotations
