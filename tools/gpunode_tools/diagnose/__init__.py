"""Diagnosing: texts from files, standard input, snapshots and nodes, searched for known problems."""

from __future__ import annotations
