"""What dpkg's answer says: only a package that is whole, of this machine's architecture and in the version that is wanted counts."""

from __future__ import annotations

import pytest

from gpunode import packages

ANSWER = """\
dpkg\tamd64\t1.22.6\tinstall ok installed
ca-certificates\tall\t20241223\tinstall ok installed
held\tamd64\t580.159.04-1\thold ok installed
epoch\tamd64\t1:580.159.04-1\tinstall ok installed
half\tamd64\t580.159.04-1\tinstall ok half-configured
unpacked\tamd64\t580.159.04-1\tinstall ok unpacked
broken\tamd64\t580.159.04-1\tinstall reinstreq installed
removed\tamd64\t580.159.04-1\tdeinstall ok config-files
leaving\tamd64\t580.159.04-1\tdeinstall ok installed
foreign\ti386\t580.159.04-1\tinstall ok installed
waiting\tamd64\t580.159.04-1\tinstall ok triggers-awaited
older\tamd64\t575.64.05-1\tinstall ok installed
never\tamd64\t\tunknown ok not-installed
"""


@pytest.mark.parametrize(
    ("name", "version", "lacks"),
    [
        ("ca-certificates", "", False),
        ("held", "580.159.04", False),
        ("epoch", "580.159.04", False),
        ("epoch=1:580.159.04-1", "", False),
        ("epoch=580.159.04-1", "", True),
        ("half", "", True),
        ("unpacked", "", True),
        ("broken", "", True),
        ("removed", "", True),
        ("leaving", "", True),
        ("foreign", "", True),
        ("waiting", "", True),
        ("older", "", False),
        ("older", "580.159.04", True),
        ("never", "", True),
        ("of-nobody", "", True),
    ],
)
def test_what_is_lacking(name: str, version: str, lacks: bool) -> None:
    assert packages.lacking(packages.parse(ANSWER), [name], version) == ([name] if lacks else [])


def test_what_an_interrupted_run_left() -> None:
    assert packages.half(packages.parse(ANSWER)) == ["broken", "half", "unpacked", "waiting"]


def test_both_architectures_of_a_package_are_told_apart() -> None:
    answer = ANSWER + "twice\ti386\t2\tinstall ok unpacked\ntwice\tamd64\t2\tinstall ok installed\n"
    assert packages.lacking(packages.parse(answer), ["twice"]) == []
    assert "twice" in packages.half(packages.parse(answer))


@pytest.mark.parametrize("line", ["dpkg-query: error", "a\tb\tc\tinstall ok", "a\tb\tc\td\te"])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="^" + line[:1]):
        packages.parse(ANSWER + line + "\n")
