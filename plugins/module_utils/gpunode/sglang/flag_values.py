"""Values of flags as the release's own readers take them: numbers, JSON, the configuration of CUDA graphs."""

from __future__ import annotations

import json
import re
from typing import Any

SECRET_FLAGS = {"--api-key", "--admin-api-key", "--ssl-keyfile-password", "--watermark-config"}
"""Flags whose values stay out of every report."""
INTEGERS = {"int", "human_readable_int"}
FLOATS = {"float"}
_JSON_READERS = {"loads", "json_list_type", "parse_cuda_graph_config_arg"}
_JSON_FLAGS = {"--json-model-override-args", "--model-loader-extra-config"}
"""Texts for the parser, and JSON for what reads them afterwards (srt/configs/load_config.py, model_config.py)."""
_PHASES = {
    "decode": {"backend", "bs", "max_bs", "tc_compiler"},
    "prefill": {
        "backend", "bs", "max_bs", "tc_compiler", "full_prefill_max_req", "full_prefill_prefix_chunk_tokens", "max_context_size",
        "max_seq_len",
    },
}  # fmt: skip
"""What --cuda-graph-config takes, over all releases (srt/model_executor/cuda_graph_config.py)."""
_READABLE = re.compile(r"\d+(?:\.\d+)?[kMGT]|\d+[KMGT]i")
_TEMPLATE = re.compile(r"\{\{|%[a-zA-Z](?![a-zA-Z0-9])")


def templated(value: str) -> bool:
    """Whether a number is still to be put in: by a template (``{{ port }}``) or a unit's specifier (``300%i``)."""
    return bool(_TEMPLATE.search(value))


def wrong(name: str, kind: str, value: str) -> tuple[str, str] | None:
    """What is wrong with a value of a flag that is read as ``kind``, and what to do; None where it is taken."""
    if kind in INTEGERS and not _whole(kind, value):
        more = " (131072, 128k or 128Ki; letters count as written)" if kind == "human_readable_int" else " (131072, no 128k)"
        return f"{name} wants a whole number{more}, not {value!r}.", f"Write {name} NUMBER."
    if kind in FLOATS and not _number(value):
        return f"{name} wants a number, not {value!r}.", f"Write {name} NUMBER."
    if kind in _JSON_READERS or name in _JSON_FLAGS or value.lstrip().startswith("{"):
        try:
            data = json.loads(value)
        except ValueError as error:
            return f"The JSON of {name} is broken: {error}.", "Mend the JSON and its quotes: double ones inside, single ones around."
        if kind == "parse_cuda_graph_config_arg":
            return _graphs(name, data)
    return None


def _whole(kind: str, value: str) -> bool:
    if kind == "human_readable_int" and _READABLE.fullmatch(value.strip()):
        return True
    try:
        int(value)
    except ValueError:
        return False
    return True


def _number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _graphs(name: str, data: Any) -> tuple[str, str] | None:
    form = f'Write {name} \'{{"decode": {{"max_bs": 128}}, "prefill": {{"backend": "disabled"}}}}\'.'
    if not isinstance(data, dict) or not all(isinstance(settings, dict) for settings in data.values()):
        return f"{name} wants an object of phases with an object each.", form
    for phase, settings in data.items():
        if phase not in _PHASES:
            return f"{name}: {phase} is no phase; decode and prefill are.", form
        for key in settings:
            if key not in _PHASES[phase]:
                return f"{name}: {key} is no setting of {phase}; {', '.join(sorted(_PHASES[phase]))} are.", form
    return None
