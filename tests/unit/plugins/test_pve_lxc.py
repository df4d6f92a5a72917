"""The modules' own text: every parameter is documented as it is, and every filter does what its role asks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pve_lxc() -> Any:
    import ansible.module_utils

    ansible.module_utils.__path__.append(str(ROOT / "plugins/module_utils"))
    try:
        yield load("plugins/modules/pve_lxc.py")
    finally:
        ansible.module_utils.__path__.pop()
        for name in [name for name in sys.modules if name.startswith("ansible.module_utils.gpunode")]:
            del sys.modules[name]


def described(option: dict[str, Any]) -> dict[str, Any]:
    return {key: option.get(key) for key in ("type", "required", "choices", "aliases", "elements")} | {"default": option.get("default")}


def test_parameters_are_documented_as_they_are(pve_lxc: Any) -> None:
    documented = yaml.safe_load(pve_lxc.DOCUMENTATION)["options"]
    spec = pve_lxc.argument_spec()
    assert set(documented) == set(spec)
    for name, about in spec.items():
        assert described(documented[name]) == described(about), name
        assert documented[name]["description"], name
        for part, inner in (about.get("options") or {}).items():
            assert described(documented[name]["suboptions"][part]) == described(inner), (name, part)


def test_secrets_are_in_no_log(pve_lxc: Any) -> None:
    spec = pve_lxc.argument_spec()
    assert {name for name, about in spec.items() if about.get("no_log")} == {
        "password",
        "api_password",
        "api_otp",
        "api_totp_secret",
        "api_token_secret",
    }


def test_examples_are_valid(pve_lxc: Any) -> None:
    spec = pve_lxc.argument_spec()
    for task in yaml.safe_load(pve_lxc.EXAMPLES):
        given = {name: about.get("default") for name, about in spec.items()} | task["pve_lxc"]
        assert pve_lxc.request_of(given, check=True).hostname == "glm"


def test_timeouts_and_creation_parameters(pve_lxc: Any) -> None:
    given = {name: about.get("default") for name, about in pve_lxc.argument_spec().items()}
    given |= {
        "hostname": "glm",
        "ostemplate": "local:vztmpl/x",
        "password": "secret",
        "ssh-public-keys": "ssh-ed25519 A",
        "timeouts": {"lock": 5, "task": None},
    }
    request = pve_lxc.request_of(given, check=False)
    assert (request.timeouts.lock, request.timeouts.task) == (5, 1800)
    assert request.create == {"ostemplate": "local:vztmpl/x", "password": "secret", "ssh-public-keys": "ssh-ed25519 A"}


def test_mounts_of_the_role_become_mount_points() -> None:
    filters = load("plugins/filter/gpu_container.py").FilterModule().filters()
    assert filters["gpu_container_mp"](
        [{"source": "/srv", "target": "/models", "owner": 7}, {"source": "tank:8", "target": "/d", "backup": True, "ro": True}]
    ) == [
        {"volume": "/srv", "mp": "/models", "backup": False},
        {"volume": "tank:8", "mp": "/d", "backup": True, "ro": True},
    ]


def test_a_gpu_that_is_not_there_is_an_error_of_the_filter() -> None:
    from ansible.errors import AnsibleFilterError

    filters = load("plugins/filter/gpu_container.py").FilterModule().filters()
    with pytest.raises(AnsibleFilterError, match="GPU 3 is wanted"):
        filters["gpu_container_devices"]({"gpus": [{"index": 0}]}, [3])
