"""Environment variables of a launch: which of them a release reads."""

from __future__ import annotations

from ..findings import INFO, WARNING, Finding
from .flags import index_of
from .flags_data import VERSIONS
from .profiles_data import DECLARED, VARIABLES

NO_OP = {
    "SGLANG_ENABLE_DEEP_GEMM": "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGLANG_DISABLE_DEEP_GEMM": "SGLANG_ENABLE_JIT_DEEPGEMM=0",
    "HF_HUB_ENABLE_HF_TRANSFER": "HF_XET_HIGH_PERFORMANCE",
}
"""Variables that circulate in recipes and that no release reads, with what is read instead."""


def judge_variable(name: str, value: str, version: str) -> Finding | None:
    """A finding for a variable that this release does not read; None for one that it reads, or that belongs to somebody else."""
    evidence = f"{name}={value}"
    if name in NO_OP:
        return Finding("environment-no-effect", WARNING, name, f"No release of sglang reads {name}.", evidence, f"Use {NO_OP[name]}.")
    if not name.startswith(("SGLANG_", "SGL_")):
        return None
    current = name if name.startswith("SGLANG_") else name.replace("SGL_", "SGLANG_", 1)
    if name != current and current in VARIABLES and name not in VARIABLES:
        # Every release rewrites the old prefix itself and warns (srt/environ.py).
        summary = f"{name} has the prefix of old; sglang reads {current}."
        return Finding("environment-renamed", INFO, name, summary, evidence, f"Write {current}.")
    index = index_of(version)
    spans = VARIABLES.get(name, [])
    if not spans:
        summary = f"No release of sglang from {VERSIONS[0]} to {VERSIONS[-1]} reads {name}."
        return Finding("environment-no-effect", WARNING, name, summary, evidence, "Leave it out, or look for a misspelt name.")
    if not any(first <= index <= last for first, last in spans):
        told = ", ".join(VERSIONS[first] if first == last else f"{VERSIONS[first]} to {VERSIONS[last]}" for first, last in spans)
        summary = f"sglang {version} does not read {name}; {told} do."
        return Finding("environment-no-effect", WARNING, name, summary, evidence, "Leave it out, or change the release.")
    declared = DECLARED.get(name, [])
    if declared and index > declared[-1][1]:
        summary = f"{name} is no setting any more since {VERSIONS[declared[-1][1]]}; sglang {version} only mentions it."
        return Finding("environment-no-effect", INFO, name, summary, evidence, "Leave it out.")
    return None
