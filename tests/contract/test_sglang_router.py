"""The real router from the role's lock, before two stand-ins: added, drained under streams, readmitted, restarted, killed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.support.monitoring import lacking, served
from tests.unit.lab.sglang_release import Release

ROOT = Path(__file__).resolve().parents[2]
LOCK = next((ROOT / "roles/llm_gateway/files/locks").glob("sglang-router-*.txt"))
LAUNCHER = ROOT / "roles/llm_gateway/files/gpunode_router.py"
BALANCE = yaml.safe_load((ROOT / "roles/llm_gateway/vars/main.yml").read_text())["_llm_gateway_balance"]
STREAMS = 12


@pytest.fixture(scope="session")
def python() -> Path:
    """Interpreter of a virtual environment with what is locked; kept in the cache."""
    cache = Path(os.environ.get("GPUNODE_CACHE", "/var/cache/gpunode")) / "router"
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    place = cache / key
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        command = [str(place / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "--only-binary=:all:", "--requirement", str(LOCK)], check=True)
        (place / "complete").touch()
    return place / "bin/python"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def samples(router: Router, name: str) -> dict[str, float]:
    """Samples of one metric by their labels."""
    return {labels: float(value) for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", router.metrics(), re.MULTILINE)}


def states(router: Router, name: str) -> dict[str, float]:
    """Samples of one metric by their worker."""
    return {re.search(r'worker="([^"]+)"', labels)[1]: value for labels, value in samples(router, name).items()}


class Router:
    """A router as the role's unit starts it."""

    def __init__(self, python: Path, folder: Path, policy: str) -> None:
        self.python, self.folder, self.url = python, folder, f"http://127.0.0.1:{free_port()}"
        self.flags = ["--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--policy", policy, "--prometheus-host", "127.0.0.1"]
        self.metrics_port = free_port()
        self.flags += ["--prometheus-port", str(self.metrics_port), "--health-check-interval-secs", "1", "--log-level", "warn"]
        self.flags += [word for name, value in BALANCE.items() for word in (f"--{name}", str(value))]
        (folder / "admin_key").write_text("0123456789abcdef\n")
        (folder / "api_key").write_text("clients-and-workers")
        (folder / "workers").write_text("{}\n")
        self.process: subprocess.Popen[bytes] | None = None
        self.loads: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        environment = os.environ | {"CREDENTIALS_DIRECTORY": str(self.folder)}
        with (self.folder / "router.log").open("ab") as log:
            command = [str(self.python), str(LAUNCHER), "run", *self.flags]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        subprocess.run([str(self.python), str(LAUNCHER), "restore", self.url], env=environment, check=True, stdout=subprocess.DEVNULL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=30)
            self.process = None

    def worker(self, url: str, state: str, **options: object) -> dict:
        """Run the module as Ansible runs it: a process of its own that reads its arguments and prints one object."""
        arguments = {"url": url, "state": state, "gateway": self.url, "timeout_s": 30, "record": str(self.folder / "workers"), **options}
        arguments |= {"admin_key_file": str(self.folder / "admin_key"), "api_key_file": str(self.folder / "api_key")}
        program = (
            "import sys, runpy, ansible.module_utils as m; m.__path__.append(sys.argv[1]); "
            "from ansible.module_utils.testing import patch_module_args; import json\n"
            "with patch_module_args(json.loads(sys.argv[3])): runpy.run_path(sys.argv[2], run_name='__main__')"
        )
        core, module = str(ROOT / "plugins/module_utils"), str(ROOT / "plugins/modules/gateway_worker.py")
        run = subprocess.run(
            [sys.executable, "-c", program, core, module, json.dumps(arguments)], capture_output=True, text=True, check=False
        )
        assert run.stdout.strip(), run.stderr
        return json.loads(run.stdout)

    def ask(self, path: str, key: str = "clients-and-workers", body: dict | None = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> str:
        """What Prometheus reads."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def load(self, *options: str, name: str = "load") -> subprocess.Popen[bytes]:
        """Streams in the background; ``loaded`` waits for their end."""
        command = [sys.executable, str(ROOT / "tests/support/constant_load.py"), self.url, "--streams", str(STREAMS)]
        command += ["--key-file", str(self.folder / "api_key"), "--result", str(self.folder / f"{name}.json"), *options]
        self.loads.append(subprocess.Popen(command))
        return self.loads[-1]

    def loaded(self, process: subprocess.Popen[bytes], name: str = "load") -> dict:
        """What became of the streams."""
        assert process.wait(timeout=60) == 0
        return json.loads((self.folder / f"{name}.json").read_text())


def running(url: str) -> int:
    """Requests at a stand-in."""
    request = urllib.request.Request(url + "/v1/loads", headers={"Authorization": "Bearer clients-and-workers"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return sum(entry["num_running_reqs"] + entry["num_waiting_reqs"] for entry in json.load(answer)["loads"])


def spread(urls: list[str], wanted: int, most: int | None = None) -> list[int]:
    """Wait until so many requests run in all (or most of them, where they end and begin all the time), and say how many each worker has."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        now = [running(url) for url in urls]
        if (most or wanted) <= sum(now) <= wanted and all(now):
            return now
        time.sleep(0.05)
    raise AssertionError(f"{now} of {wanted}")


@pytest.fixture
def release(tmp_path):
    made = Release(tmp_path / "release")
    made.set(time_scale=4)
    yield made
    made.stop()


@pytest.fixture
def router(request, python, tmp_path):
    """A router without workers; of the role's own policy unless the test names one."""
    (tmp_path / "router").mkdir()
    made = Router(python, tmp_path / "router", getattr(request, "param", "cache_aware"))
    made.start()
    yield made
    for load in made.loads:  # those of a test that failed before it ended them
        load.kill()
        load.wait()
    made.stop(signal.SIGKILL)


@pytest.mark.parametrize("router", ["cache_aware", "round_robin"], indirect=True)
def test_workers_come_and_go_without_a_failed_request(router, release):
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    assert router.ask("/readiness")[0] == 503
    for url in urls:
        assert router.worker(url, "present")["changed"]
        assert not router.worker(url, "present")["changed"]
    assert router.ask("/readiness")[0] == 200
    assert router.ask("/generate", key="somebody", body={"text": "a"})[0] == 401
    assert router.ask("/workers")[0] == 401, "a client's key does not open the control API"

    stop = router.folder / "stop"
    load = router.load("--tokens", "150", "--until", str(stop))
    spread(urls, STREAMS)
    drained = router.worker(urls[0], "drained", others=1)
    assert drained["changed"]
    assert drained["requests"] > 0, "there was nothing to drain"
    assert running(urls[0]) == 0
    assert "healthy workers" in router.worker(urls[1], "drained", others=1)["msg"]
    left_alone = router.worker(urls[0], "present", keep_drained=True)
    assert [left_alone["changed"], left_alone["was"]] == [False, "drained"]
    assert router.worker(urls[0], "present")["was"] == "drained"
    spread(urls, STREAMS)
    stop.touch()
    result = router.loaded(load)
    assert result["failed"] == []
    assert result["completed"] > STREAMS


def test_prompts_that_begin_alike_use_every_worker(router, release):
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    for url in urls:
        router.worker(url, "present")
    stop = router.folder / "stop"
    load = router.load("--tokens", "60", "--alike", "--until", str(stop), "--streams", "32")
    spread(urls, 32, most=24)
    time.sleep(4)  # each stream is past its first request: the router has seen the beginning
    apart = []
    for _ in range(30):
        now = [running(url) for url in urls]
        apart.append(max(now) - min(now))
        time.sleep(0.1)
    stop.touch()
    assert router.loaded(load)["failed"] == []
    assert statistics.median(apart) <= BALANCE["balance-abs-threshold"] + 4, apart


def test_a_stream_that_outlasts_the_patience_keeps_its_worker(router, release):
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    for url in urls:
        router.worker(url, "present")
    load = router.load("--tokens", "800", "--once")
    spread(urls, STREAMS)
    failed = router.worker(urls[0], "drained", timeout_s=1)
    assert "added again" in failed["msg"]
    assert not router.worker(urls[0], "present")["changed"]
    assert router.loaded(load)["failed"] == []


@pytest.mark.parametrize("router", ["cache_aware", "round_robin"], indirect=True)
def test_a_killed_worker_costs_its_own_streams_only(router, release):
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    for url in urls:
        router.worker(url, "present")
    load = router.load("--tokens", "800", "--once")
    had, _ = spread(urls, STREAMS)
    release.processes[0].kill()
    after = router.load("--tokens", "5", "--once", name="after")  # new requests meet the dead worker and are tried on the other one
    assert router.loaded(after, "after")["failed"] == []
    result = router.loaded(load)
    assert [len(result["failed"]), result["completed"]] == [had, STREAMS - had]
    assert router.worker(urls[0], "absent", timeout_s=5)["requests"] is None


def test_its_metrics_tell_what_alerts_and_panels_ask(router, release):
    """Every metric and label that is used, as the real router serves them; failures are counted, and a drained worker is told apart."""
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    for url in urls:
        router.worker(url, "present")
    assert router.loaded(router.load("--tokens", "5", "--once"))["failed"] == []
    assert states(router, "smg_worker_cb_state") == dict.fromkeys(urls, 0)
    router.worker(urls[0], "drained")
    assert states(router, "smg_worker_cb_state") == {urls[0]: -1, urls[1]: 0}
    assert states(router, "smg_worker_health")[urls[1]] == 1
    assert samples(router, "smg_worker_retries_exhausted_total") == {}
    release.stop()
    answers = [router.ask("/generate", body={"text": "a", "sampling_params": {"max_new_tokens": 2}})[0] for _ in range(4)]
    assert set(answers) <= {500, 503}
    assert sum(samples(router, "smg_worker_retries_exhausted_total").values()) == len(answers)
    assert lacking("smg_", served(router.metrics())) == []


def test_a_restarted_router_knows_its_workers_and_who_is_drained(router, release):
    urls = [release.serve("--api-key", "clients-and-workers") for _ in range(2)]
    for url in urls:
        router.worker(url, "present")
    router.worker(urls[0], "drained")
    router.stop()
    router.start()
    assert not router.worker(urls[1], "present")["changed"]
    assert router.worker(urls[0], "present", keep_drained=True)["was"] == "drained"
    assert router.ask("/generate", body={"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 2}})[0] == 200
    shown = Path(f"/proc/{router.process.pid}/cmdline").read_bytes()
    assert b"0123456789abcdef" not in shown
    assert b"clients-and-workers" not in shown
