"""Declarative edits to a published wheel: which file, which anchors, what instead, and why."""
