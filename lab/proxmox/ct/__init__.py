"""Containers: what a configuration means, and what is done with it."""

from __future__ import annotations
