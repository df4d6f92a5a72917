"""Every role: laid out alike, described where its defaults are, with nothing stale."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())


def test_generated_descriptions_are_not_stale() -> None:
    result = subprocess.run([sys.executable, str(ROOT / "tools/role_docs.py"), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_layout(role: Path) -> None:
    for name in ("tasks/main.yml", "defaults/main.yml", "meta/main.yml", "meta/argument_specs.yml", "README.md"):
        assert (role / name).is_file(), f"{role.name}/{name} is missing"
    assert (role / "tasks/main.yml").read_text().startswith("#"), "the first line says what the file is about"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_argument_specs_equal_defaults(role: Path) -> None:
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text()) or {}
    assert set(defaults) == {name for name, option in options.items() if not option.get("required")}
    for name, value in defaults.items():
        assert options[name].get("default") == value, name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_tags_carry_the_role_name(role: Path) -> None:
    text = (role / "tasks/main.yml").read_text()
    for tag in re.findall(r"tags: \[([^\]]*)\]", text):
        names = [name.strip() for name in tag.split(",")]
        assert names[0] == role.name
        assert all(name.startswith(role.name) or name in {"sglang_server", "always"} for name in names)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_nothing_relies_on_ignored_errors_or_bare_retries(role: Path) -> None:
    for file in role.rglob("*.yml"):
        assert "ignore_errors" not in file.read_text(), file


def booleans():
    """Every role variable whose default is true or false."""
    for role in ROLES:
        defaults = role / "defaults/main.yml"
        for name, value in ((yaml.safe_load(defaults.read_text()) or {}) if defaults.exists() else {}).items():
            if isinstance(value, bool):
                yield name


CONDITION = r"^\s*(?:- )?(?:when|until|failed_when|changed_when|that): (?:not )?|^\s*- (?:not )?"
OPERAND = r"\b(?:if|and|or)\s+(?:not\s+)?\(?|\bnot\s+\(?"
AS_BOOLEAN = r"\s*(?:\|\s*default\([^)]*\)\s*)?\|\s*bool|\s+(?:is|in|from|to|has)\b"
END = r"\s*(?:$|and\b|or\b|else\b|\)|%\})"


def test_a_boolean_given_on_the_command_line_is_one():
    """`-e name=true` is a string: a bare condition refuses it, and `not 'false'` is false."""
    bare = re.compile(rf"(?:{CONDITION}|{OPERAND})(?:{'|'.join(sorted(booleans()))})\b(?!{AS_BOOLEAN})(?={END})")
    found = []
    for file in [*ROOT.glob("roles/*/*/*.yml"), *ROOT.glob("roles/*/templates/*.j2"), *(ROOT / "playbooks").rglob("*.yml")]:
        if {"defaults", "meta"} & set(file.parts):
            continue
        tags = False
        for number, line in enumerate(file.read_text().splitlines(), 1):
            tags = line.strip() == "tags:" or (tags and line.strip().startswith("- "))
            if not tags and not line.strip().startswith("#") and bare.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)
