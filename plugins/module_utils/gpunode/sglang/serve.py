"""What ``sglang serve`` takes beside the server's own flags: the model without a flag, and which kind of server it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import ERROR, UNKNOWN, Finding
from .flags import index_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVE = "sglang serve"
TYPE_SINCE = "0.5.10"
"""First release whose ``sglang serve`` knows --model-type (sglang wheels, cli/serve.py)."""
POSITIONAL_SINCE = "0.5.16"
"""First release whose ``sglang serve`` takes the model as its first word (sglang wheels, cli/serve.py)."""


def serve_words(words: Sequence[str], version: str) -> tuple[list[str], list[Finding], bool]:
    """The words that the server's own parser gets, and findings, and whether it is a server for language models."""
    index = index_of(version)
    kept = list(words)
    findings: list[Finding] = []
    kind = ""
    if index >= index_of(TYPE_SINCE):
        for position, word in reversed(list(enumerate(kept))):
            name, equals, value = word.partition("=")
            if name != "--model-type":
                continue
            kind = kind or (value if equals else "".join(kept[position + 1 : position + 2]))
            del kept[position : position + (1 if equals else 2)]
    if kind not in {"", "auto", "llm"}:
        summary = f"--model-type {kind} starts a server of another kind: its flags are not those of the language model server."
        remedy = f"Ask its own parser: sglang serve --model-type {kind} --help."
        other = Finding("launch-other-server", UNKNOWN, "--model-type", summary, f"--model-type {kind}", remedy, required=True)
        return kept, [other], False
    if kept and not kept[0].startswith(("-", "$")) and kept[0].strip():
        if index < index_of(POSITIONAL_SINCE):
            summary = f"{kept[0]} without a flag: `sglang serve MODEL` came with {POSITIONAL_SINCE}, {version} wants --model-path."
            remedy = f"Write --model-path {kept[0]}."
            findings.append(Finding("launch-stray-word", ERROR, kept[0], summary, kept[0], remedy))
        kept[:1] = ["--model-path", kept[0]]
    return kept, findings, True
