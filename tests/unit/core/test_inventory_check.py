"""An inventory's slips are told before anything is changed, and what roles can take is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpunode import inventory_check

ROOT = Path(__file__).resolve().parents[3]
SPECS = {
    "gpu_container": {
        "gpu_container_vmid": {"type": "int", "required": True},
        "gpu_container_memory_mib": {"type": "int"},
        "gpu_container_state": {"type": "str", "choices": ["started", "stopped"]},
        "gpu_container_adopt": {"type": "bool"},
        "gpu_container_mounts": {"type": "list"},
    },
    "sglang_server": {"sglang_server_flags": {"type": "dict"}, "sglang_server_api_key": {"type": "str"}},
    "pve_host": {"pve_host_load": {"type": "float"}, "pve_host_any": {"type": "raw"}},
}


def test_a_misspelt_name_is_told_with_the_one_that_was_meant():
    said = inventory_check.problems({"gpu_container_memory_mb": 2048, "sglang_server_flag": {}, "mine": 1}, SPECS)
    assert said == [
        "gpu_container_memory_mb is no variable of the role gpu_container. Did you mean gpu_container_memory_mib?",
        "sglang_server_flag is no variable of the role sglang_server. Did you mean sglang_server_flags?",
    ]
    assert "another prefix" in inventory_check.problems({"pve_host_zzz": 1}, SPECS)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_container_vmid", "101"),
        ("gpu_container_vmid", 101.0),
        ("gpu_container_vmid", None),
        ("gpu_container_state", "stopped"),
        ("gpu_container_adopt", "yes"),
        ("gpu_container_adopt", False),
        ("gpu_container_mounts", []),
        ("gpu_container_mounts", "a,b"),
        ("sglang_server_flags", {"tp": 8}),
        ("sglang_server_flags", '{"tp": 8}'),
        ("pve_host_load", "0.5"),
        ("pve_host_any", {"a": 1}),
        ("gpu_container_address", "10.0.0.1"),
    ],
)
def test_what_a_role_takes_is_no_problem(name, value):
    assert inventory_check.problems({name: value}, SPECS) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("gpu_container_vmid", "abc", 'must be of type int; "abc" is not'),
        ("gpu_container_vmid", 1.5, "type int"),
        ("gpu_container_vmid", True, "type int"),
        ("gpu_container_vmid", float("inf"), "type int"),
        ("gpu_container_adopt", "maybe", "type bool"),
        ("gpu_container_mounts", {"a": 1}, "type list"),
        ("sglang_server_flags", [1], "type dict"),
        ("sglang_server_flags", "tp", "type dict"),
        ("gpu_container_state", "running", "must be one of started, stopped"),
        ("gpu_container_state", ["started"], "type str"),
        ("pve_host_load", "much", "type float"),
        ("pve_host_load", True, "type float"),
    ],
)
def test_what_no_role_takes_is_told(name, value, says):
    assert says in inventory_check.problems({name: value}, SPECS)[0]


def test_a_secret_is_not_shown():
    assert inventory_check.problems({"sglang_server_api_key": ["s3cret"]}, SPECS) == [
        "sglang_server_api_key must be of type str; its value is not."
    ]


def test_names_that_stand_elsewhere_stand_in_no_role():
    known = set()
    for file in ROOT.glob("roles/*/meta/argument_specs.yml"):
        known |= set(yaml.safe_load(file.read_text())["argument_specs"]["main"].get("options") or {})
    assert not known & set(inventory_check.ELSEWHERE)


@pytest.mark.parametrize(
    ("inventories", "more", "status"),
    [
        (["inventory/hosts.yml"], [], 0),
        (["inventory/lab", "molecule/fleet/inventory"], [], 0),  # a gateway's workers are worked out of other hosts' variables
        (["inventory/lab"], ["-e", "gpu_container_vmid=x"], 2),
    ],
)
def test_the_projects_own_inventories_pass(inventories, more, status, tmp_path):
    play = tmp_path / "play.yml"
    tasks = ROOT / "playbooks/tasks/check_inventory.yml"
    play.write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.import_tasks: {tasks}\n")
    given = [word for inventory in inventories for word in ("-i", inventory)]
    command = [str(Path(sys.executable).parent / "ansible-playbook"), *given, str(play), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("gpu_container_vmid must be of type int" in done.stdout + done.stderr) == bool(status)
