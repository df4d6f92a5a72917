"""Container configuration files: what is read, what is written, the traps."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from lab.proxmox import pctconf
from lab.proxmox.errors import PveError

MESSY = """\
memory: 2048
# BEGIN ANSIBLE MANAGED BLOCK
lxc.prlimit.memlock: unlimited
cores: 4
lxc.cgroup2.cpuset.cpus = 0-3
hostname: one
onboot: yes
cores: 8
# 50% of it

[pve:pending]
delete: net1
cores: 2

[before]
hostname: old
lxc.cap.drop: sys_admin
"""
CLEAN = """\
# BEGIN ANSIBLE MANAGED BLOCK
# 50%25 of it
cores: 8
hostname: one
memory: 2048
onboot: 1
lxc.prlimit.memlock: unlimited
lxc.cgroup2.cpuset.cpus: 0-3

[pve:pending]
cores: 2
delete: net1

[before]
hostname: old
lxc.cap.drop: sys_admin
"""


def test_a_messy_file_is_read_and_written_as_proxmox_does(ctx):
    conf = pctconf.parse(ctx.schema, MESSY)
    assert conf["digest"] == hashlib.sha1(MESSY.encode()).hexdigest()
    assert conf["cores"] == 8, "the last of two equal keys wins"
    assert conf["onboot"] == 1
    assert conf["description"] == " BEGIN ANSIBLE MANAGED BLOCK\n 50% of it\n"
    assert conf["lxc"] == [["lxc.prlimit.memlock", "unlimited"], ["lxc.cgroup2.cpuset.cpus", "0-3"]]
    assert conf["pending"] == {"delete": "net1", "cores": 2}
    assert conf["snapshots"]["before"] == {"hostname": "old", "lxc": [["lxc.cap.drop", "sys_admin"]]}
    assert pctconf.text_of(conf) == CLEAN
    assert pctconf.text_of(pctconf.parse(ctx.schema, CLEAN)) == CLEAN


def test_a_line_after_a_section_is_not_live(ctx):
    conf = pctconf.parse(ctx.schema, "cores: 1\n\n[snap]\ncores: 1\nmp0: /models,mp=/models\n")
    assert "mp0" not in conf
    assert conf["snapshots"]["snap"]["mp0"] == "/models,mp=/models"


def test_a_bad_value_warns_and_is_kept(ctx, capsys):
    conf = pctconf.parse(ctx.schema, "memory: 8G\ndev0: nvidia0\nfoo: 1\n", 101)
    assert conf["memory"] == "8G"
    assert conf["dev0"] == "nvidia0"
    assert pctconf.text_of(conf) == "dev0: nvidia0\nfoo: 1\nmemory: 8G\n"
    words = capsys.readouterr().err
    assert "vm 101 - unable to parse value of 'memory' - type check ('integer') failed - got '8G'" in words
    assert "vm 101 - unable to parse value of 'dev0' - format error" in words
    assert "unknown setting 'foo'" in words


def test_strict_reading_raises(ctx):
    with pytest.raises(PveError, match=r"unable to parse config: lxc\.nonsense = 1"):
        pctconf.parse(ctx.schema, "lxc.nonsense = 1\n", 101, strict=True)


def test_newlines_cannot_be_smuggled_in():
    with pytest.raises(PveError, match="detected invalid newline inside property 'hostname'"):
        pctconf.text_of({"hostname": "a\nlxc.include: /evil"})


def test_pending_deletions_of_what_is_not_there_are_dropped(ctx):
    conf = pctconf.parse(ctx.schema, "cores: 2\n\n[pve:pending]\ncores: 2\ndelete: net7\n")
    pctconf.cleanup_pending(conf)
    assert conf["pending"] == {}


def samples() -> list[Path]:
    folder = os.environ.get("GPUNODE_SAMPLES")
    return sorted(Path(folder, "pct").glob("*.conf")) if folder else []


@pytest.mark.skipif(not samples(), reason="GPUNODE_SAMPLES is not set")
@pytest.mark.parametrize("file", samples(), ids=lambda file: file.stem)
def test_what_people_have_survives_writing(ctx, file):
    """Written once, a file keeps its meaning and from then on its text."""
    first = pctconf.parse(ctx.schema, file.read_text())
    written = pctconf.text_of(first)
    again = pctconf.parse(ctx.schema, written)
    assert {key: value for key, value in again.items() if key != "digest"} == {
        key: value for key, value in first.items() if key != "digest"
    }
    assert pctconf.text_of(again) == written
