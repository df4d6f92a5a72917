"""Which addresses Prometheus scrapes, from the inventory's groups."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import yaml

TEMPLATE = Path(__file__).resolve().parents[3] / "roles/monitoring/templates/targets.j2"
HOSTS = {
    "gpu-node-01": {"ansible_host": "192.0.2.11", "gpu_container_address": "192.0.2.111"},
    "gpu-node-02": {"ansible_host": "n2.example.net", "node_metrics_port": 9200, "node_metrics_gpu": False, "sglang_server_port": 30001},
    "gateway-01": {"ansible_host": "2001:db8::21"},
    "gateway-02": {"ansible_host": "192.0.2.11", "monitoring_target": "192.0.2.22", "llm_gateway_metrics_port": 29001},
}


def targets(nodes: list[str], gateways: list[str]) -> dict:
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    environment.filters |= {"to_json": json.dumps, "bool": bool}
    text = environment.from_string(TEMPLATE.read_text()).render(
        _monitoring_node_hosts=nodes, _monitoring_gateway_hosts=gateways, hostvars=HOSTS
    )
    return {
        job: {entry["labels"]["instance"]: entry["targets"][0] for entry in entries if entry}
        for job, entries in yaml.safe_load(text).items()
    }


def test_every_host_is_scraped_under_its_name() -> None:
    assert targets(["gpu-node-01", "gpu-node-02"], ["gateway-01", "gateway-02"]) == {
        "node": {"gpu-node-01": "192.0.2.11:9100", "gpu-node-02": "n2.example.net:9200"},
        "gpu": {"gpu-node-01": "192.0.2.11:9101"},
        "sglang": {"gpu-node-01": "192.0.2.111:30000"},
        "router": {"gateway-01": "[2001:db8::21]:29000", "gateway-02": "192.0.2.22:29001"},
    }


def test_a_group_that_is_empty_has_no_targets() -> None:
    assert targets([], []) == {"node": {}, "gpu": {}, "sglang": {}, "router": {}}
