"""Every expression of the alert rules and the dashboards, and the metrics that they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml
from tests.support.promql import grouped, matched, metrics

if TYPE_CHECKING:
    from collections.abc import Collection

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "roles/monitoring/files/rules/gpunode.yml"
DASHBOARDS: Final = sorted((ROOT / "roles/monitoring/files/dashboards").glob("*.json"))


ADDED: Final = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""


def expressions() -> dict[str, str]:
    """Where an expression stands, and the expression."""
    found = {f"alert {rule['alert']}": rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = target["expr"]
    return found


USED: Final = {name: where for where, text in expressions().items() for name in metrics(text)}


def legends() -> dict[str, set[str]]:
    """Where a legend or an annotation stands, and the labels that it shows."""
    found = {
        f"alert {rule['alert']}": set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    }
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                shown = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = set(shown)
    return found


def served(text: str) -> dict[str, set[str]]:
    """Metrics of a page of /metrics, and the labels that any of their samples has."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        sample = re.match(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ", line)
        if sample and not line.startswith("#"):
            found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', sample[2] or ""))
    return found


def lacking(prefix: str, there: dict[str, set[str]], but: Collection[str] = ()) -> list[str]:
    """What expressions ask of metrics with a prefix and is not there: a metric, a matcher's label, one that is grouped by or shown."""
    found = []
    shown = legends()
    for where, text in expressions().items():
        names = metrics(text)
        ours = {name for name in names if name.startswith(prefix)}.difference(but)
        found += [f"{where}: no {name}" for name in ours - set(there)]
        found += [f"{where}: no {label} on {name}" for name, label in matched(text) if label not in there.get(name, {label}) | ADDED]
        if ours and ours == names and ours <= set(there):
            labels = set().union(*(there[name] for name in ours)) | ADDED
            found += [f"{where}: no {label} on {sorted(ours)}" for label in (grouped(text) | shown[where]) - labels]
    return sorted(found)
