"""What a role writes on the host is what its absent.yml takes away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROLES = Path(__file__).resolve().parents[3] / "roles"
STAYS = {"proxmox.sources": "without Proxmox's repository a host gets no updates"}
INSIDE = {"container.yml": "written inside the container, and gone with it"}
WRITTEN = re.compile(r"^\s+(?:- )?dest:\s*\"?(/(?:etc|usr/local|opt)/[^\s\"{]+)\"?$", re.MULTILINE)


def written():
    """Yield (role, path) of every file that the tasks of a role with an absent.yml write."""
    for absent in sorted(ROLES.glob("*/tasks/absent.yml")):
        role = absent.parents[1]
        for tasks in sorted(absent.parent.glob("*.yml")):
            if "absent" in tasks.name or tasks.name in INSIDE:
                continue
            for path in sorted(set(WRITTEN.findall(tasks.read_text()))):
                yield pytest.param(role, path, id=f"{role.name}-{Path(path).name}")


@pytest.mark.parametrize(("role", "path"), list(written()))
def test_what_is_written_is_taken_away(role, path):
    if Path(path).name in STAYS:
        pytest.skip(STAYS[Path(path).name])
    said = "".join(file.read_text() for file in [*role.glob("tasks/*absent.yml"), *role.glob("vars/*.yml")])
    assert Path(path).name in said, f"{role.name} writes {path}, and its absent.yml leaves it"
