"""The sglang stand-in as a server, started by the command that starts a real one, and measured by the smoke test."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import uvloop
from tests.unit.lab.sglang_release import Release

from gpunode import smoke_baseline
from gpunode_tools.cli.smoke import target_of
from gpunode_tools.smoke.http import Unreachable
from gpunode_tools.smoke.judging import judge
from gpunode_tools.smoke.run import Options, Run


@pytest.fixture
def release(tmp_path):
    made = Release(tmp_path)
    yield made
    made.stop()


def fetch(url, body=None, headers=None):
    request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode(), headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def measure(url, *, key=None, ca_file=None, limits=None, baseline=None, **options):
    values = {"concurrency": (8,), "input_len": 32, "output_len": 16, "gpu": "no", "repeats": 0, **options}
    result = uvloop.run(Run(Options(url=url, **values), target_of(url, key, ca_file)).run())
    for level in result["levels"]:
        level["client_bound"] = ""  # a machine that runs tests is busy
    return result, judge(result, limits=limits or {}, baseline=baseline)


def test_it_is_503_until_it_is_ready_and_carries_its_label(release):
    release.set(load_s=2.0)
    process = release.start("--port", "31991", "--tp-size", "8")
    seen = []
    until = time.monotonic() + 20
    while time.monotonic() < until and (not seen or seen[-1] != 200):
        try:
            status, headers, _ = fetch("http://127.0.0.1:31991/health")
        except (urllib.error.URLError, ConnectionError):
            status, headers = 0, {}
        if not seen or seen[-1] != status:
            seen.append(status)
        time.sleep(0.05)
    assert seen == [0, 503, 200]
    assert headers["x-gpunode-simulated"] == "1"
    assert process.poll() is None


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--nope", "1"], 2, "unrecognized arguments: --nope 1"),
        (["--tp-size", "x"], 2, "invalid int value"),
        (["--model-path", "/nowhere"], 1, "is not a local folder"),
        (["--tp-size", "2"], 1, "Not enough memory"),
    ],
)
def test_starts_that_fail(release, flags, code, words):
    assert release.start(*flags).wait(timeout=20) == code
    assert words in release.log.read_text()


def test_a_load_that_crashes(release):
    release.set(faults={"never-healthy": True})
    assert release.start("--tp-size", "8").wait(timeout=20) == -9
    assert "CUDA out of memory" in release.log.read_text()


def test_the_key_of_a_file_guards_all_but_health_and_metrics(release, tmp_path):
    config = tmp_path / "secrets.yaml"
    config.write_text("api-key: hunter2\n")
    url = release.serve("--config", str(config))
    assert fetch(url + "/v1/models")[0] == 401
    assert fetch(url + "/metrics")[0] == 200
    assert fetch(url + "/v1/models", headers={"Authorization": "Bearer hunter2"})[0] == 200
    key = tmp_path / "key"
    key.write_text("hunter2\n")
    result, code = measure(url, key=str(key))
    assert code == 0
    assert "hunter2" not in json.dumps(result)
    assert "hunter2" not in release.log.read_text()
    with pytest.raises(Unreachable, match="--api-key-file"):
        measure(url)


def test_errors_are_the_real_servers(release):
    url = release.serve()
    status, _, body = fetch(url + "/v1/completions", {"model": "x", "prompt": [5] * 300_000, "max_tokens": 4})
    assert (status, json.loads(body)["type"]) == (400, "BadRequestError")
    status, _, body = fetch(url + "/v1/completions", {"model": "x", "max_tokens": 4})
    assert (status, json.loads(body)["type"]) == (400, "Bad Request")
    assert 'http_server.py\\", line 2, in openai_v1_completions' in json.dumps(json.loads(body)["message"])
    status, _, body = fetch(url + "/v1/completions", {"model": "no-such-model", "prompt": [1000], "max_tokens": 2})
    assert (status, json.loads(body)["model"]) == (200, "no-such-model")
    assert fetch(url + "/nope")[2] == b'{"detail":"Not Found"}'
    assert fetch(url + "/flush_cache", {})[2].startswith(b"Cache flushed.")


def test_a_token_beyond_the_vocabulary_ends_it_and_the_client_sends_none(release):
    url = release.serve()
    assert measure(url)[1] == 0
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        fetch(url + "/v1/completions", {"model": "x", "prompt": [154880], "max_tokens": 2})
    assert release.processes[-1].wait(timeout=20) == -9
    assert "device-side assert" in release.log.read_text()


def test_prompts_that_repeat_are_cached_and_the_clients_are_not(release):
    url = release.serve()
    body = {"input_ids": list(range(1000, 1256)), "sampling_params": {"max_new_tokens": 2}}
    assert json.loads(fetch(url + "/generate", body)[2])["meta_info"]["cached_tokens"] == 0
    assert json.loads(fetch(url + "/generate", body)[2])["meta_info"]["cached_tokens"] == 255
    measure(url, input_len=256, output_len=4)
    assert b'mode="prefill_cache",model_name="glm-5",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 255.0' in fetch(url + "/metrics")[2]


@pytest.mark.serial
def test_the_plateau_is_the_caps_and_moves_with_it(release):
    release.set(time_scale=4)  # slow enough for a busy machine: the client must not be what limits
    levels = {"concurrency": (4, 8, 16, 32), "requests_per_slot": 2, "output_len": 24}
    url = release.serve("--max-running-requests", "8", "--disable-flashinfer-autotune")
    result, code = measure(url, **levels)
    found = result["plateau"]
    assert code == 0, result["findings"]
    assert (found["knee_concurrency"], found["cause"]) == (8, "request-cap")
    assert "--max-running-requests from 8 to 32" in found["next_step"]
    assert result["simulated"]
    release.stop()
    url = release.serve("--max-running-requests", "32", "--disable-flashinfer-autotune")
    raised = measure(url, **levels)[0]["plateau"]
    assert raised["knee_concurrency"] != 8
    assert raised["cause"] != "request-cap"


@pytest.mark.serial
def test_a_full_cache_is_named(release):
    release.set(time_scale=4)
    url = release.serve("--max-total-tokens", "500")
    result, _ = measure(url, concurrency=(4, 16, 32), output_len=32, requests_per_slot=2)
    assert result["plateau"]["cause"] == "kv-cache-full", result["plateau"]


def test_counters_and_client_agree_and_speculation_is_counted_right(release):
    url = release.serve("--speculative-algorithm", "EAGLE")
    level = measure(url, output_len=40)[0]["levels"][0]
    assert level["counters_differ"] == 0
    assert level["errors"] == {}
    assert level["server"]["generation_tokens"] == 32 * 40


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("early-stop", "early-stop"), ("wrong-usage", "usage-mismatch"), ("http-500", "http-500"), ("reset", "connection-reset")],
)
def test_faults_of_a_running_server_are_seen(release, fault, kind):
    url = release.serve()
    assert measure(url, output_len=24)[1] == 0
    release.set(faults={fault: True})
    result, code = measure(url, output_len=24)
    assert code == 1
    assert result["levels"][0]["errors"][kind] >= 2


@pytest.mark.serial
def test_a_slower_server_fails_against_its_baseline(release):
    release.set(time_scale=4)
    url = release.serve()
    options = {"input_len": 16, "output_len": 24, "requests_per_level": 32}
    before = smoke_baseline.make(measure(url, **options)[0])
    release.set(time_scale=4, faults={"slow": 1.5})
    result, code = measure(url, baseline=before, **options)
    assert code == 1
    assert "regression" in {finding["id"] for finding in result["findings"]}


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.parametrize(("factor", "fails"), [(1 / 0.85, True), (1 / 0.97, False)])
def test_a_loss_of_15_per_cent_fails_and_3_does_not_in_20_of_20_repeats(release, factor, fails):
    release.set(time_scale=4)
    url = release.serve()
    options = {"input_len": 16, "output_len": 24, "requests_per_level": 32}
    before = smoke_baseline.make(measure(url, **options)[0])
    release.set(time_scale=4, faults={"slow": factor})
    codes = [measure(url, baseline=before, **options)[1] for _ in range(20)]
    assert codes == [1 if fails else 0] * 20


def test_certificates_are_verified(release, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(cert))
    url = release.serve("--ssl-certfile", str(cert), "--ssl-keyfile", str(key), scheme="https", context=context)
    with pytest.raises(Unreachable, match="certificate verify failed"):
        measure(url)
    result, code = measure(url, ca_file=str(cert))
    assert (code, result["levels"][0]["errors"]) == (0, {})
