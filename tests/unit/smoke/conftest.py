"""A truth server for each test process, and runs against it."""

from __future__ import annotations

import pytest
import uvloop
from tests.support.truth import Truth

from gpunode_tools.cli.smoke import target_of
from gpunode_tools.smoke.http import Unreachable
from gpunode_tools.smoke.judging import judge
from gpunode_tools.smoke.run import Options, Run, WrongModel, unreachable


@pytest.fixture(scope="session")
def truth():
    """A server that lives as long as the tests of this process."""
    server = Truth()
    yield server
    server.close()


@pytest.fixture
def own_truth():
    """A server that a test may kill."""
    server = Truth()
    yield server
    server.close()


@pytest.fixture
def smoke(monkeypatch):
    """Run against an address: (result, exit code).

    The client's watch over itself has tests of its own; on a machine that runs other tests too it would speak up at any time.
    """
    monkeypatch.setattr("gpunode.smoke_rules.client_bound", lambda _level: "")

    def run(url, *, allowed=None, limits=None, key=None, ca_file=None, **options):
        values = {"concurrency": (4,), "input_len": 16, "output_len": 10, "gpu": "no", "repeats": 0, "vocabulary": 5000, **options}
        wanted = Options(url=url, **values)
        wrong = None
        try:
            result = uvloop.run(Run(wanted, target_of(url, key, ca_file)).run())
        except Unreachable as error:
            result = unreachable(wanted, error)
        except WrongModel as error:
            result, wrong = unreachable(wanted, error), str(error)
        return result, judge(result, limits=limits or {}, allowed=allowed or {}, wrong_input=wrong)

    return run
