"""Every unit that a role writes: understood by systemd, and our own not exposed more than they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
RENDERED_ELSEWHERE = {"sglang.service.j2"}
"""Its flags come out of a run's facts; the scenario `site` starts it."""
UNITS = [path for path in sorted(ROOT.glob("roles/*/templates/*.service.j2")) if path.name not in RENDERED_ELSEWHERE]
EXPOSURE = 50
"""Tenths of systemd-analyze's exposure level: below 5 is what systemd calls OK."""
VALUES = {
    "ansible_managed": "Managed by gpunode",
    "inventory_hostname": "gpu-node-01",
    "nvidia_driver_power_limit_w": 450,
    "node_verify_metrics": "/var/lib/prometheus/node-exporter",
    "node_metrics_address": "192.0.2.11",
    "node_metrics_vmid": 101,
}

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")


def render(template: Path, folder: Path) -> Path:
    """The unit with its role's defaults; what only a run knows is a word; commands become /bin/true, which exists everywhere."""
    role = template.parents[1]

    class Word(jinja2.ChainableUndefined):
        def __str__(self) -> str:
            return "word"

    environment = jinja2.Environment(undefined=Word, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    environment.filters |= {"regex_replace": lambda text, one, two: re.sub(one, two, str(text)), "quote": str, "bool": bool}
    environment.filters |= {"hash": lambda text, _kind: f"{hash(text):x}", "to_json": str}
    values: dict = {}
    for name in ("defaults", "vars"):
        path = role / name / "main.yml"
        values |= yaml.safe_load(path.read_text()) or {} if path.exists() else {}
    text = environment.from_string(template.read_text()).render(**{**values, **VALUES})
    text = re.sub(r"(?m)^(Exec\w+=[-+!@:]*)(/\S+)", lambda match: match[1] + "/bin/true", text)
    unit = folder / template.name.removesuffix(".j2")
    unit.write_text(text)
    return unit


@pytest.mark.parametrize("template", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_unit(template: Path, tmp_path: Path) -> None:
    unit = render(template, tmp_path)
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in (result.stdout + result.stderr).splitlines() if unit.name in line]
    assert ours == []


@pytest.mark.parametrize("template", UNITS, ids=lambda path: path.name)
def test_a_service_is_not_exposed(template: Path, tmp_path: Path) -> None:
    unit = render(template, tmp_path)
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", str(unit)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr
