"""Values written into a host's variables: everything else in the file stays, byte for byte."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import assume, given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("tuning_filter", ROOT / "plugins/filter/tuning.py")
tuning_filter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tuning_filter)
with_values = tuning_filter.with_values

FLAGS = {"sglang_server_flags": {"max-running-requests": 512, "tp-size": 8}}

HAND_WRITTEN = """\
# The container of gpu-node-01.
---
gpu_container_vmid: 101   # taken from the list
gpu_container_net:
  bridge: vmbr0
  ip: "{{ gpu_container_address }}/24"

sglang_server_api_key: !vault |
  $ANSIBLE_VAULT;1.1;AES256
  6162

# Why these: see the wiki.
sglang_server_flags:
  # eight cards
  tp-size: 8
  max-running-requests: 64  # first recipe
  chunked-prefill-size: 8192

# The end.
last: [1, 2]
"""


def test_values_change_in_their_place_and_comments_stay() -> None:
    text = with_values(
        HAND_WRITTEN, {"sglang_server_flags": {"tp-size": 8, "max-running-requests": 512, "chunked-prefill-size": 8192, "new": True}}
    )
    expected = HAND_WRITTEN.replace("max-running-requests: 64  #", "max-running-requests: 512  #")
    expected = expected.replace("chunked-prefill-size: 8192\n", "chunked-prefill-size: 8192\n  new: true\n")
    assert text == expected


def test_a_new_variable_stands_at_the_end() -> None:
    text = with_values(HAND_WRITTEN, {"nvidia_driver_power_limit_w": 450, "sglang_server_environment": {"NCCL_PROTO": "LL"}})
    assert text == HAND_WRITTEN + "nvidia_driver_power_limit_w: 450\nsglang_server_environment:\n  NCCL_PROTO: LL\n"


def test_what_is_there_already_changes_nothing() -> None:
    text = with_values(
        HAND_WRITTEN, FLAGS | {"sglang_server_flags": {"tp-size": 8, "max-running-requests": 64, "chunked-prefill-size": 8192}}
    )
    assert text == HAND_WRITTEN


def test_a_key_that_is_no_longer_wanted_goes() -> None:
    text = with_values(HAND_WRITTEN, FLAGS)
    assert yaml.safe_load(text.replace("!vault", ""))["sglang_server_flags"] == FLAGS["sglang_server_flags"]
    assert "# The end.\nlast: [1, 2]\n" in text
    assert "$ANSIBLE_VAULT;1.1;AES256" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "# only a comment\n---\n",
        "a: 1",
        "sglang_server_flags: {tp-size: 4}\nb: 2\n",
        "sglang_server_flags: {}  # none\n",
        "sglang_server_flags:\n",
    ],
)
def test_every_way_to_begin(text: str) -> None:
    result = with_values(text, FLAGS)
    loaded = yaml.safe_load(result)
    assert loaded["sglang_server_flags"] == FLAGS["sglang_server_flags"]
    before = yaml.safe_load(text) or {}
    assert {key: value for key, value in loaded.items() if key != "sglang_server_flags"} == {
        key: value for key, value in before.items() if key != "sglang_server_flags"
    }
    assert with_values(result, FLAGS) == result


@pytest.mark.parametrize("text", ["[1, 2]\n", "{a: 1}\n", "just text\n"])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(AnsibleFilterError, match="by hand"):
        with_values(text, FLAGS)


SCALARS = st.one_of(
    st.integers(-999, 999), st.booleans(), st.none(), st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12)
)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
FILES = st.dictionaries(NAMES, st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(NAMES, SCALARS, max_size=4)), max_size=5)


@given(FILES, FILES, st.booleans())
def test_any_values_in_any_file(before: dict, wanted: dict, flow: bool) -> None:
    entries = [yaml.safe_dump(value, default_flow_style=flow, sort_keys=False) for value in ({key: item} for key, item in before.items())]
    text = "".join(re.sub(r"\A\{(.*)\}\n\Z", r"\1\n", entry) for entry in entries)
    assume((yaml.safe_load(text) or {}) == before)
    assert yaml.safe_load(with_values(text, wanted) or "{}") == (before | wanted or None)
