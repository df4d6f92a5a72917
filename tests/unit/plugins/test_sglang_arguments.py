"""The filter that turns a mapping of flags into arguments."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[3] / "plugins/filter/sglang_arguments.py"
SPEC = importlib.util.spec_from_file_location("sglang_arguments", PATH)
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)


def test_every_kind_of_value() -> None:
    flags = {
        "tp-size": 8,
        "trust-remote-code": True,
        "disable-x": False,
        "none": None,
        "--cuda-graph-bs-decode": [1, 2],
        "json": '{"a": 1}',
    }
    expected = ["--tp-size", "8", "--trust-remote-code", "--cuda-graph-bs-decode", "1", "2", "--json", '{"a": 1}']
    assert MODULE.sglang_arguments(flags) == expected
    assert MODULE.FilterModule().filters()["sglang_arguments"](flags) == expected


def test_a_mapping_is_refused() -> None:
    with pytest.raises(TypeError, match="write its JSON as text"):
        MODULE.sglang_arguments({"model-loader-extra-config": {"a": 1}})
