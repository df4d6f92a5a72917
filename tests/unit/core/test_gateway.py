"""What a router and its workers say, as they say it."""

from __future__ import annotations

import pytest

from gpunode import gateway

LOADS = """{"version":"0.5.23","loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":2},
                             {"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0}]}"""
METRICS = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="glm-5",pp_rank="0",tp_rank="0"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="glm-5",pp_rank="0",tp_rank="0"} 5.0
sglang:num_running_reqs_offline_batch{model_name="glm-5"} 100.0
"""


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("/v1/loads", LOADS, 6),
        ("/get_load", '[{"dp_rank":0,"num_reqs":4,"num_waiting_reqs":1,"num_tokens":900}]', 4),
        ("/metrics", METRICS, 12),
        ("/metrics", "# nothing of sglang\nup 1\n", None),
        ("/v1/loads", '{"loads":[]}', None),
        ("/v1/loads", '{"loads":[{"dp_rank":0}]}', None),
        ("/v1/loads", '{"detail":"Not Found"}', None),
        ("/get_load", "<html>", None),
        ("/get_load", "[3]", None),
    ],
)
def test_requests_at_a_worker(path, text, count):
    assert gateway.requests_at(path, text) == count


def test_workers_that_a_router_lists():
    text = '{"workers":[{"id":"1","url":"http://192.0.2.1:30000/","is_healthy":true}],"total":1}'
    assert gateway.listed(text)["http://192.0.2.1:30000"]["is_healthy"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"job_status":{"status":"failed","message":"Worker http://a:1 already exists"}}', "Worker http://a:1 already exists"),
        ('{"job_status":{"status":"failed"}}', "failed"),
        ('{"job_status":{"status":"processing"}}', ""),
        ('{"id":"1","is_healthy":true}', ""),
        ("not found", ""),
    ],
)
def test_a_job_that_failed(text, why):
    assert gateway.failed_job(text) == why


def test_the_record_keeps_who_is_drained():
    workers = gateway.recorded({}, "http://b:1", "present")
    workers = gateway.recorded(workers, "http://a:1", "drained")
    assert gateway.record(gateway.record_text(workers)) == {"http://a:1": {"drained": True}, "http://b:1": {"drained": False}}
    assert gateway.recorded(workers, "http://a:1", "present")["http://a:1"] == {"drained": False}
    assert list(gateway.recorded(workers, "http://b:1", "absent")) == ["http://a:1"]


def test_a_record_of_another_shape_is_refused():
    assert gateway.record("") == {}
    with pytest.raises(ValueError, match="mapping"):
        gateway.record('["http://a:1"]')
