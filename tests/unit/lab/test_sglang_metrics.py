"""The stand-in's metrics beside what sglang's own client library writes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.published import locked, published

from lab.sglang.metrics import negotiated

PROGRAM = """
import sys, prometheus_client as p
from prometheus_client.exposition import choose_encoder
p.disable_created_metrics()
registry = p.CollectorRegistry()
p.Gauge("sglang:num_queue_reqs", "Requests: waiting.", ["a"], registry=registry).labels("http://x").set(3)
p.Counter("sglang:num_requests_total", "Requests.", registry=registry).inc()
encode, kind = choose_encoder(sys.argv[1])
print(encode(registry).decode(), kind, sep="", end="")
"""


def library(accept: str) -> str:
    """A page and its content type, one after the other, as the library of sglang's lock answers an Accept header."""
    environment = os.environ | {
        "PYTHONPATH": str(published(locked("roles/sglang_venv/files/locks/sglang-0.5.23.txt", "prometheus-client")))
    }
    command = [sys.executable, "-c", PROGRAM, accept]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5",
        "text/plain",
        "",
    ],
)
def test_the_stand_in_negotiates_as_the_client_library(accept: str) -> None:
    plain = library("").removesuffix("text/plain; version=0.0.4; charset=utf-8")
    assert "".join(negotiated(plain, accept)) == library(accept)
