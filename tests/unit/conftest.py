"""Fixtures for unit tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of outputs of real machines, named by GPUNODE_SAMPLES; tests that need it are skipped where it is unset."""
    place = os.environ.get("GPUNODE_SAMPLES")
    if not place:
        pytest.skip("GPUNODE_SAMPLES is unset: no outputs of real machines to read")
    return Path(place)
