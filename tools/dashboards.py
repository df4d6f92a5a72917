#!/usr/bin/env python3
"""Build the Grafana dashboards of the role monitoring from the panels that tools/dashboards.yml describes.

tools/dashboards.py           write roles/monitoring/files/dashboards
tools/dashboards.py --check   end with 1 when something is stale
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
PANELS: Final = HERE / "dashboards.yml"
TARGET: Final = HERE.parent / "roles/monitoring/files/dashboards"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
CHOSEN: Final = 'instance=~"$instance"'
COLUMNS: Final = 24
HEIGHT: Final = 8
WIDTH: Final = 8


def expression(text: str) -> str:
    """An expression with what dashboards.yml abbreviates written out."""
    quantile = re.fullmatch(r"quantile\(([0-9.]+), (\S+)\)", text)
    if quantile:
        share, name = quantile.groups()
        text = f"histogram_quantile({share}, sum by (instance, le) (rate({name}_bucket{{@}}[$__rate_interval])))"
    return text.replace("@", CHOSEN)


def panel(described: dict[str, Any], identifier: int, x: int, y: int) -> dict[str, Any]:
    """One panel as Grafana reads it."""
    kind = described.get("kind", "timeseries")
    now = kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expression(text),
            "legendFormat": legend,
            "instant": now,
            "range": not now,
            **({"format": "table"} if kind == "table" else {}),
        }
        for index, (legend, text) in enumerate(described["series"].items())
    ]
    defaults = {"unit": described["unit"], "min": 0} | ({"max": described["top"]} if "top" in described else {})
    options: dict[str, Any] = {}
    if kind == "timeseries":
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    elif kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": described.get("shows", "value_and_name")}
    return {
        "id": identifier,
        "type": kind,
        "title": described["title"],
        "description": described.get("text", ""),
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": described.get("width", WIDTH), "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def dashboard(uid: str, described: dict[str, Any]) -> dict[str, Any]:
    """One dashboard as Grafana reads it; its panels flow from left to right."""
    x = y = 0
    panels = []
    for number, one in enumerate(described["panels"], 1):
        width = one.get("width", WIDTH)
        if x + width > COLUMNS:
            x, y = 0, y + HEIGHT
        panels.append(panel(one, number, x, y))
        x += width
    hosts = {
        "name": "instance",
        "label": "Host",
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({described['instances']}, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": described["title"],
        "tags": ["gpunode"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, hosts]},
        "panels": panels,
    }


def main() -> int:
    """Write the dashboards, or say which are stale."""
    check = "--check" in sys.argv[1:]
    texts = {
        TARGET / f"{uid}.json": json.dumps(dashboard(uid, described), indent=1, ensure_ascii=False) + "\n"
        for uid, described in yaml.safe_load(PANELS.read_text(encoding="utf-8")).items()
    }
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in TARGET.glob("*.json") if path not in texts]
    if check:
        for path in stale:
            print(f"{path.name} is stale: run tools/dashboards.py", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for path in stale:
        if path in texts:
            path.write_text(texts[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
