"""Flags and choices that circulate in recipes and are in no release on PyPI: whose they are."""

from __future__ import annotations

_SM120_FORK = "the SM120 forks of lukealonso and voipmonitor"
_KT = "ktransformers' build of sglang"
_DYNAMO = "Dynamo's worker (python -m dynamo.sglang), which keeps it for itself"
_ROUTER = "sglang's router (python -m sglang_router.launch_server), which keeps it for itself"

FLAGS = {
    "--enable-pcie-oneshot-allreduce": _SM120_FORK,
    "--enable-pcie-oneshot-allreduce-fusion": _SM120_FORK,
    "--prefix-affinity-fallback": "the image ombori/sglang",
}
FAMILIES = {"--dyn-": _DYNAMO, "--kt-": _KT, "--router-": _ROUTER}
"""First letters of flags, where a build has a family of its own. A release that knows a flag of the name wins over this table."""

CHOICES = {
    ("--moe-runner-backend", "b12x"): _SM120_FORK,
    ("--fp4-gemm-backend", "b12x"): _SM120_FORK,
    ("--fp4-gemm-backend", "cutlass"): _SM120_FORK,
    ("--load-balance-method", "prefix_affinity"): "the image ombori/sglang",
}

ENTRIES = {"--dyn-": "dynamo.sglang", "--router-": "sglang_router"}
"""Entry points at which a family is in its place."""


def owner_of_flag(name: str) -> str:
    """Whose flag this is, or an empty text."""
    if name in FLAGS:
        return FLAGS[name]
    return next((owner for prefix, owner in FAMILIES.items() if name.startswith(prefix)), "")


def at_home(name: str, entry: str) -> bool:
    """Whether this entry point takes the flag although sglang does not."""
    return any(name.startswith(prefix) and home in entry for prefix, home in ENTRIES.items())
