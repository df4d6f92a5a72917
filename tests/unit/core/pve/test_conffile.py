"""Container files: read as Proxmox reads them, written as Proxmox writes them, edited without harm."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.pve.conffile import decode_text, edit_raw, encode_text, parse, render
from gpunode.pve.plan import Current, desired_from_user, make_plan, slots
from gpunode.pve.propstring import FAMILIES, PropertyError

FILE = """\
#Server of the team%3A GLM
#%C3%A9t%C3%A9
arch: amd64
hostname: glm
memory: 1024
rootfs: local:101/vm-101-disk-0.raw,size=8G
lxc.cgroup2.cpuset.cpus: 0-31
lxc.mount.entry = /dev/fuse dev/fuse none bind

[pve:pending]
memory: 2048
delete: dev1 dev2

[before]
#old
hostname: glm
memory: 512
lxc.cap.drop: sys_module
snaptime: 1700000000
"""


def test_sections_options_and_raw_lines() -> None:
    config = parse(FILE)
    assert config.live.options["memory"] == "1024"
    assert config.live.raw == [("lxc.cgroup2.cpuset.cpus", "0-31"), ("lxc.mount.entry", "/dev/fuse dev/fuse none bind")]
    assert config.live.description == "Server of the team: GLM\nété\n"
    assert config.pending.options["memory"] == "2048"
    assert config.pending.deleted == ["dev1", "dev2"]
    assert list(config.snapshots) == ["before"]
    assert config.snapshots["before"].raw == [("lxc.cap.drop", "sys_module")]
    assert config.digest == hashlib.sha1(FILE.encode()).hexdigest()
    assert config.problems == []


def test_the_last_of_two_equal_keys_counts_and_is_reported() -> None:
    config = parse("dev0: /dev/a\nmemory: 1\ndev0: /dev/b\n")
    assert config.live.options["dev0"] == "/dev/b"
    assert [problem.line for problem in config.problems] == [3]


@pytest.mark.parametrize("line", ["Fill me", "Memory: 1", "memory:", "foo-bar: 1", "[Not closed"])
def test_lines_that_proxmox_drops_are_reported(line: str) -> None:
    config = parse(f"hostname: a\n{line}\n")
    assert [problem.text for problem in config.problems] == [line]
    assert config.live.options == {"hostname": "a"}


def test_a_blank_value_is_a_value() -> None:
    assert parse("tags:  \n").live.options == {"tags": ""}


def test_colons_and_per_cent_signs_in_a_description_are_encoded() -> None:
    assert encode_text("50% of a:b é") == "50%25 of a%3Ab %C3%A9"
    assert decode_text("a%3Ab %C3%A9 50%") == "a:b é 50%"


def test_bytes_that_are_no_text_are_read() -> None:
    text = b"# caf\xe9\nhostname: a\ntags: \xff\n".decode("utf-8", "surrogateescape")
    config = parse(text)
    assert config.live.description == " caf\ufffd\n"
    assert config.digest == hashlib.sha1(text.encode("utf-8", "surrogateescape")).hexdigest()
    assert edit_raw(text, [], [("lxc.autodev", "1")]).startswith(text)


def test_written_as_proxmox_writes() -> None:
    text = "memory: 512\n# note\nlxc.cap.drop:\nhostname: a\n"
    assert render(parse(text)) == "# note\nhostname: a\nmemory: 512\nlxc.cap.drop: \n"
    assert render(parse(render(parse(FILE)))) == render(parse(FILE))


def test_new_lines_go_above_the_first_section() -> None:
    edited = edit_raw(FILE, [], [("lxc.prlimit.memlock", "unlimited")])
    assert edited == FILE.replace("/dev/fuse dev/fuse none bind\n", "/dev/fuse dev/fuse none bind\nlxc.prlimit.memlock: unlimited\n")


def test_lines_of_snapshots_stay() -> None:
    text = "lxc.cap.drop: a\n\n[snap]\nlxc.cap.drop: a\n"
    assert edit_raw(text, [("lxc.cap.drop", "a")], []) == "\n[snap]\nlxc.cap.drop: a\n"


def test_one_of_two_equal_lines_goes() -> None:
    assert edit_raw("lxc.cap.drop: a\nlxc.cap.drop: a\n", [("lxc.cap.drop", "a")], []) == "lxc.cap.drop: a\n"


@pytest.mark.parametrize("text", ["", "hostname: a", "hostname: a\n", "hostname: a\n\n\n", "\n[snap]\nhostname: b\n", "#only\n"])
def test_a_file_of_any_shape_takes_a_line(text: str) -> None:
    edited = edit_raw(text, [], [("lxc.autodev", "1")])
    assert parse(edited).live.raw == [("lxc.autodev", "1")]
    assert parse(edited).live.options == parse(text).live.options
    assert edit_raw(edited, [("lxc.autodev", "1")], []).rstrip("\n") == text.rstrip("\n")


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "#c%3Ax", "[snap]", "[pve:pending]", "lxc.cap.drop: a", "lxc.autodev = 1", "hostname: a", "memory: 512", "??"]
        ),
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(LINES, st.booleans())
def test_no_edit_changes_a_line_that_it_was_not_told_to(lines: list[str], newline: bool) -> None:
    text = "\n".join(lines) + ("\n" if newline else "")
    assert edit_raw(text, [], []) == text
    added = ("lxc.prlimit.nofile", "7")
    edited = edit_raw(text, [], [added])
    assert parse(edited).live.raw == [*parse(text).live.raw, added]
    removed = edit_raw(edited, [added], [])
    assert removed.rstrip("\n") == text.rstrip("\n")
    assert [line for line in edited.split("\n") if line != "lxc.prlimit.nofile: 7"][: len(lines)] == text.split("\n")[: len(lines)]


LINES = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "# note",
            "#a%3Ab%0Ac%",
            "hostname: a",
            "memory: 512",
            "memory: 1024",
            "dev0: /dev/nvidia0,mode=0666",
            "description: x%0Ay",
            "lxc.mount.entry: /a a none bind 0 0",
            "lxc.autodev = 1",
            "lxc.cap.drop:",
            "[before]",
            "[pve:pending]",
            "[PVE:pending] ",
            "delete: dev0,!mp1",
            " [no]",
            "[]",
            "nonsense",
            "Key: 1",
            "\r",
        ]
    ),
    st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20),
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(LINES, max_size=12), st.sampled_from(["", "\n", "\n\n"]))
EXAMPLES = settings(max_examples=200, derandomize=True, database=None, deadline=None)
RAW_LINE = ("lxc.prlimit.memlock", "unlimited")


@EXAMPLES
@given(TEXTS)
def test_any_file_is_read_and_edited_without_harm(text: str) -> None:
    config = parse(text)
    assert edit_raw(text, [], []) == text
    added = edit_raw(text, [], [RAW_LINE])
    after = parse(added)
    assert after.live.raw == [*config.live.raw, RAW_LINE]
    assert (after.live.options, after.live.description) == (config.live.options, config.live.description)
    assert (after.pending, after.snapshots) == (config.pending, config.snapshots)
    back = edit_raw(added, [RAW_LINE], [])
    if RAW_LINE not in config.live.raw:
        assert back in {text, text + "\n"}
    for line in config.live.raw:
        without = parse(edit_raw(text, [line], [])).live.raw
        assert without == [other for number, other in enumerate(config.live.raw) if number != config.live.raw.index(line)]


@EXAMPLES
@given(TEXTS)
def test_what_proxmox_writes_is_what_it_read_and_stays_so(text: str) -> None:
    config = parse(text)
    again = parse(render(config))
    assert again.live.raw == config.live.raw
    assert {key: value.strip() for key, value in again.live.options.items()} == {
        key: value.strip() for key, value in config.live.options.items()
    }
    assert render(again) == render(parse(render(again)))
    assert set(again.snapshots) == set(config.snapshots)


@EXAMPLES
@given(TEXTS, st.sets(st.sampled_from(["dev", "mp", "net", "lxc"])))
def test_any_file_planned_against_itself_changes_nothing(text: str, purge: set[str]) -> None:
    config = parse(text)
    current = Current(101, config.live.options, config.pending.options, tuple(config.pending.deleted), tuple(config.live.raw))
    wanted = {"lxc": [{"key": key, "value": value} for key, value in config.live.raw]} if "lxc" in purge else {}
    if "dev" in purge:
        wanted["dev"] = [current.effective[name] for name in slots(FAMILIES["dev"], current.effective)]
    try:
        plan = make_plan(current, desired_from_user({**wanted, "purge_unmanaged": sorted(purge - {"mp", "net"})}))
    except PropertyError:
        return  # what nobody could ask for
    assert (plan.set, plan.delete) == ({}, [])
    if len(set(config.live.raw)) == len(config.live.raw):
        assert (plan.raw_add, plan.raw_remove) == ([], [])
    # A line that stands twice is wanted once, and the foretold outcome is what an edit makes.
    edited = parse(edit_raw(text, plan.raw_remove, plan.raw_add)).live.raw
    assert set(edited) == set(config.live.raw)
    for key, values in plan.after.items():
        assert sorted(values) == sorted(value for name, value in edited if name == key)
