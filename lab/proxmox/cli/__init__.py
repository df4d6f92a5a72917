"""The command line tools over the API."""

from __future__ import annotations
