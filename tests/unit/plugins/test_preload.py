"""What the callback `preload` is for: no task's process has to load filters and tests by itself."""

from __future__ import annotations

import configparser
import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def preload() -> Any:
    spec = importlib.util.spec_from_file_location("preload", ROOT / "plugins/callback/preload.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_filters_and_tests_are_loaded_before_the_first_task(preload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    preload.CallbackModule().v2_playbook_on_start(None)

    def late(*_: object, **__: object) -> None:
        pytest.fail("loaded after the start")

    for loader, names in ((preload.filter_loader, ("regex_replace", "b64decode")), (preload.test_loader, ("match", "version"))):
        monkeypatch.setattr(loader, "_load_module_source", late)
        assert all(loader.get(name) is not None for name in names)


def test_every_plugin_that_is_named_exists(preload: Any) -> None:
    preload.connection_loader.add_directory(str(ROOT / "plugins/connection"))
    for loader, names in preload.PLUGINS:
        for name in names:
            assert loader.get(name, class_only=True) is not None, name


def test_it_is_switched_on() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "ansible.cfg")
    assert "preload" in settings["defaults"]["callbacks_enabled"].split(", ")
