"""What collecting can fail with."""

from __future__ import annotations


class UnreachableError(RuntimeError):
    """Raised when a machine cannot be reached or does not run what is asked; the message says what to look at."""

    exit_code = 3


class InputError(UnreachableError):
    """Raised for what the user named and cannot be used: a file, a key, a setting of ssh. Wrong input, not a machine that is away."""

    exit_code = 2


class InventoryError(InputError):
    """Raised for an inventory that is not there, cannot be read or does not know the host."""
