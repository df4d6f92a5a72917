"""What collecting can fail with."""

from __future__ import annotations


class UnreachableError(RuntimeError):
    """Raised when a machine cannot be reached or does not run what is asked; the message says what to look at."""
