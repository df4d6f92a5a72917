"""The API calls of the stand-in, by their path in the schema."""

from __future__ import annotations
