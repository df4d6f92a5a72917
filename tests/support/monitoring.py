"""Every expression of the alert rules and the dashboards, and the metrics that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import yaml
from tests.support.promql import metrics

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "roles/monitoring/files/rules/gpunode.yml"
DASHBOARDS: Final = sorted((ROOT / "roles/monitoring/files/dashboards").glob("*.json"))


def expressions() -> dict[str, str]:
    """Where an expression stands, and the expression."""
    found = {f"alert {rule['alert']}": rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = target["expr"]
    return found


USED: Final = {name: where for where, text in expressions().items() for name in metrics(text)}
