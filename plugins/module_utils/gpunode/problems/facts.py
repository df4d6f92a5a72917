"""What logs say of themselves: versions and the GPU's architecture, read in the same pass as the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .model import Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .scan import Seen

_VERSION = r"(?P<version>\d+\.\d+(?:\.\w+)*)"
_OTHER = r"(?P<other>\d+\.\d+(?:\.\w+)*)"

FACTS: Final = (
    ("sglang", rf"\bsglang(?:==|[- ]version:? ?'?|: ?){_VERSION}"),
    ("vllm", rf"\b(?:vLLM API server version|vllm==|Initializing a V1 LLM engine \(v){_VERSION}"),
    ("transformers", rf"\btransformers(?:==|[- ]version:? ?'?|: ?){_VERSION}"),
    ("flashinfer", rf"\bflashinfer(?:[-_]python)?(?:==|[- ]version:? ?'?|: ?){_VERSION}"),
    ("torch", rf"\btorch==?{_VERSION}|\bPyTorch version:? {_OTHER}"),
    (
        "driver",
        rf"\bNVIDIA UNIX (?:Open )?Kernel Module(?: for x86_64)? {_VERSION}|\bDriver Version ?: {_OTHER}",
    ),
    ("kernel", r"\bLinux version (?P<version>\d+\.\d+\.\d+[\w.-]*)"),
)
"""Subject of a version, and the message that carries it."""

ARCHITECTURES: Final = (
    ("sm120", r"\b(?:RTX PRO \d000 Blackwell|RTX[_ ]PRO[_ ]6000|GeForce RTX 50[5-9]0|CUDA capability sm_120|compute_120)\b"),
    ("sm121", r"\b(?:NVIDIA GB10|CUDA capability sm_121)\b"),
    ("sm100", r"\bNVIDIA (?:B200|GB200|B100)\b"),
    ("sm103", r"\bNVIDIA (?:B300|GB300)\b"),
    ("sm90", r"\bNVIDIA (?:H100|H200|H20|H800|GH200)\b"),
    ("sm89", r"\b(?:RTX 40[6-9]0|NVIDIA L40S?|RTX 6000 Ada|NVIDIA L4)\b"),
    ("sm80", r"\bNVIDIA (?:A100|A800|A30)\b"),
    ("sm86", r"\b(?:RTX 30[6-9]0|RTX A6000|NVIDIA A40|NVIDIA A10)\b"),
)
"""Architecture, and the names of cards that have it."""


def completed(given: Context, seen: Mapping[object, Seen]) -> Context:
    """The context with what the logs say; what was given wins, and what they contradict themselves in stays unknown."""
    versions = dict(given.versions)
    for subject, text in FACTS:
        found = seen.get(text)
        if found is None or subject in versions:
            continue
        said = {
            value
            for occurrence in (*found.kept, *([found.last] if found.last else []))
            for name, value in occurrence.groups.items()
            if name in {"version", "other"}
        }
        if len(said) == 1:
            versions[subject] = said.pop()
    arch = given.arch
    if not arch:
        named = [name for name, text in ARCHITECTURES if text in seen]
        arch = named[0] if len(named) == 1 else ""
    return Context(versions, arch)


def texts() -> tuple[str, ...]:
    """All patterns of facts, to be searched for."""
    return (*(text for _, text in FACTS), *(text for _, text in ARCHITECTURES))
