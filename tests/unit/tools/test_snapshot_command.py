"""`gpunode snapshot`: what the checks read, saved to be judged elsewhere."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.support.healthy import make_node

from gpunode_tools.cli.snapshot import command
from gpunode_tools.cli.verify_p2p import command as verify
from gpunode_tools.collect.errors import UnreachableError


@pytest.fixture(autouse=True)
def node(monkeypatch):
    data = make_node(2)
    data.pop("measured")
    monkeypatch.setattr("gpunode_tools.collect.node.read_node", lambda *_: data)
    return data


def test_saved_and_judged_elsewhere(tmp_path):
    place = tmp_path / "snapshots" / "s.json"
    assert CliRunner().invoke(command, ["-o", str(place)]).exit_code == 0
    assert CliRunner().invoke(verify, ["--snapshot", str(place), "--no-measure"]).exit_code == 0
    assert CliRunner().invoke(verify, ["--snapshot", str(place)]).exit_code == 3


def test_standard_output_without_names():
    done = CliRunner().invoke(command, ["-o", "-", "--redact"])
    assert json.loads(done.stdout)["host"] == "host"


def test_node_that_cannot_be_reached(monkeypatch):
    def fails(*_):
        raise UnreachableError("ssh root@10.0.0.1:22: no route to host")

    monkeypatch.setattr("gpunode_tools.collect.node.read_node", fails)
    done = CliRunner().invoke(command, ["-o", "-"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", "snapshot: ssh root@10.0.0.1:22: no route to host\n")


def test_file_is_required():
    assert CliRunner().invoke(command, []).exit_code == 2
