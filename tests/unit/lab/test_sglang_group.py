"""One server over two nodes: healthy when both are there, ended when one is lost, stopped together."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request

import pytest
from tests.unit.lab.sglang_release import Release


@pytest.fixture
def release(tmp_path):
    made = Release(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Pair:
    """Two ranks on this machine, each with an HTTP port of its own."""

    def __init__(self, release: Release) -> None:
        self.release, self.address, self.ports = release, f"127.0.0.1:{free_port()}", [free_port(), free_port()]

    def start(self, rank: int):
        """Start one rank; its log is kept apart."""
        self.release.log = self.release.log.with_name(f"rank{rank}.log")
        return self.release.start(
            *("--port", str(self.ports[rank]), "--tp-size", "8", "--pp-size", "2", "--nnodes", "2", "--node-rank", str(rank)),
            *("--dist-init-addr", self.address, "--enable-metrics"),
        )

    def log(self, rank: int) -> str:
        return self.release.log.with_name(f"rank{rank}.log").read_text()

    def health(self, rank: int, path: str = "/health_generate") -> int:
        """Status, 0 where nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[rank]}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def healthy(self) -> None:
        until = time.monotonic() + 30
        while [self.health(0), self.health(1)] != [200, 200]:
            assert time.monotonic() < until, self.log(0) + self.log(1)
            time.sleep(0.05)


@pytest.fixture
def pair(release):
    return Pair(release)


def test_healthy_only_when_every_rank_is_there(pair):
    first = pair.start(0)
    time.sleep(1)
    assert pair.health(0) == 0
    assert first.poll() is None
    pair.start(1)
    pair.healthy()
    assert pair.health(1, "/v1/models") == 404


@pytest.mark.parametrize("lost", [0, 1])
def test_no_rank_outlives_another(pair, lost):
    ranks = [pair.start(0), pair.start(1)]
    pair.healthy()
    ranks[lost].kill()
    assert ranks[1 - lost].wait(timeout=10) == -signal.SIGKILL
    assert "Connection closed by peer [127.0.0.1:" in pair.log(1 - lost)


def test_ranks_stop_together(pair):
    ranks = [pair.start(0), pair.start(1)]
    pair.healthy()
    ranks[1].terminate()
    time.sleep(0.5)
    assert [rank.poll() for rank in ranks] == [None, None], "a higher rank waits for rank 0"
    assert pair.health(0) == 200
    ranks[0].terminate()
    assert [rank.wait(timeout=10) for rank in ranks] == [0, 0]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--nnodes", "2", "--node-rank", "0"], "--dist-init-addr is needed"),
        (["--nnodes", "2", "--node-rank", "2", "--dist-init-addr", "127.0.0.1:1"], "--node-rank 2 with --nnodes 2"),
    ],
)
def test_arguments_that_make_no_group(release, flags, says):
    process = release.start("--tp-size", "8", *flags)
    assert process.wait(timeout=20) != 0
    assert says in release.log.read_text()
