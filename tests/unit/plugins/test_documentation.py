"""Every plugin's documentation is YAML that ansible-doc can read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"


@pytest.mark.parametrize("file", sorted([*PLUGINS.glob("modules/*.py"), *PLUGINS.glob("connection/*.py")]), ids=lambda file: file.stem)
def test_documentation_is_read(file):
    texts = {
        node.targets[0].id: node.value.value
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }
    documented = yaml.safe_load(texts["DOCUMENTATION"])
    assert documented["short_description"]
    for name in ("EXAMPLES", "RETURN"):
        assert yaml.safe_load(texts.get(name, "{}")) is not None
