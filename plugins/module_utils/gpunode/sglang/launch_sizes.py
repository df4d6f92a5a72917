"""Rules over numbers of a launch: parallel sizes against each other, the GPUs and the nodes; sizes of memory, pages, ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import ERROR, WARNING, Finding
from .flags import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .launch import Launched

_SOURCE = "sglang, srt/server_args.py"
_REPLICAS_AND_ATTENTION = "0.5.22"
"""From here on --attn-dp-size is the width of data-parallel attention and --dp-size counts replicas."""
_OWN_GROUP = {"deepep", "mooncake", "flashinfer", "mori", "nixl", "ascend_fuseep"}
"""All-to-all backends that set the expert-parallel size to the tensor-parallel size themselves."""
_LAST_PORT = 65535
_COUNTS = (
    "--tp-size", "--pp-size", "--dp-size", "--ep-size", "--attn-dp-size", "--nnodes", "--page-size", "--max-running-requests",
    "--max-total-tokens", "--context-length",
)  # fmt: skip


def size_rules(launched: Launched, version: str) -> list[Finding]:
    """Findings about sizes that do not go together, in reading order."""
    return [*_counts(launched), *_parallel(launched, version), *_nodes(launched), *_gpus(launched), *_memory(launched), *_names(launched)]


def _conflict(subject: str, summary: str, remedy: str, source: str = _SOURCE) -> Finding:
    return Finding("flag-conflict", ERROR, subject, summary, "", remedy, source)


def attention_width(launched: Launched) -> int:
    """Into how many groups data-parallel attention is asked to divide; 1 without it."""
    wide = launched.number("--attn-dp-size") or 1
    return (launched.number("--dp-size") or 1) if launched.has("--enable-dp-attention") and wide == 1 else wide


def _counts(launched: Launched) -> Iterator[Finding]:
    for flag in _COUNTS:
        number = launched.number(flag)
        if number is not None and number < 1:
            summary = f"{flag} {number} is no count: it must be 1 or more."
            yield Finding("flag-value", ERROR, flag, summary, "", f"Write {flag} 1 or more, or leave it out.")


def _parallel(launched: Launched, version: str) -> Iterator[Finding]:
    tp, dp, ep = launched.number("--tp-size"), launched.number("--dp-size"), launched.number("--ep-size")
    width = attention_width(launched)
    asked = "--attn-dp-size" if launched.has("--attn-dp-size") else "--dp-size"
    if width > 1 and tp and tp % width:
        summary = f"With data-parallel attention --tp-size {tp} must be a multiple of {asked} {width}."
        yield _conflict(asked, summary, "Choose sizes that divide.")
    if launched.has("--enable-dp-attention") and width == 1 and not _open(launched, "--dp-size", "--attn-dp-size"):
        summary = "--enable-dp-attention does nothing while --dp-size is 1: sglang switches it off again without a word."
        use = "--attn-dp-size N" if index_of(version) >= index_of(_REPLICAS_AND_ATTENTION) else "--dp-size N beside it"
        yield Finding("flag-no-effect", WARNING, "--enable-dp-attention", summary, "", f"Set {use}, or leave it out.", _SOURCE)
    if (launched.number("--attn-dp-size") or 1) > 1 and (dp or 1) > 1 and not launched.has("--enable-dp-attention"):
        yield _conflict("--dp-size", f"--dp-size {dp} makes replicas, which --attn-dp-size {width} excludes.", "Keep one of the two.")
    if not ep or ep == 1 or launched.last("--moe-a2a-backend") in _OWN_GROUP or _open(launched, "--moe-a2a-backend"):
        return
    tp = tp or 1
    if launched.last("--moe-runner-backend") == "flashinfer_cutlass" and ep != tp and not _open(launched, "--tp-size"):
        summary = f"flashinfer_cutlass takes an expert-parallel size of 1 or that of --tp-size ({tp}), not {ep}."
        yield _conflict("--ep-size", summary, f"Set --ep-size to 1 or {tp}.")
    elif tp % ep and not _open(launched, "--tp-size"):
        summary = f"--ep-size {ep} must divide --tp-size {tp}: the experts' groups are parts of it."
        yield _conflict("--ep-size", summary, "Choose sizes that divide.", "sglang, distributed/parallel_state.py")


def _nodes(launched: Launched) -> Iterator[Finding]:
    nodes = launched.number("--nnodes") or 1
    if nodes <= 1:
        return
    ranks = (launched.number("--tp-size") or 1) * (launched.number("--pp-size") or 1)
    if ranks % nodes and not _open(launched, "--tp-size", "--pp-size"):
        summary = f"{ranks} ranks (--tp-size times --pp-size) do not divide over --nnodes {nodes}."
        yield _conflict("--nnodes", summary, "--tp-size counts the GPUs of all nodes together: choose a multiple of the nodes.")
    if (launched.number("--dp-size") or 1) > 1 and not launched.has("--enable-dp-attention"):
        summary = "Replicas (--dp-size) over several nodes are refused; only data-parallel attention goes there."
        yield _conflict("--dp-size", summary, "Start a server a node and a router before them, or use data-parallel attention.")
    if not launched.has("--node-rank") and not launched.open_ended:
        summary = f"--nnodes {nodes} without --node-rank: every node that is started so is rank 0, and they wait for each other."
        yield Finding("flag-missing", WARNING, "--node-rank", summary, "", "Add --node-rank 0 on the first node, 1 on the next ...")
    address = launched.last("--dist-init-addr")
    if address and "$" not in address and not address.rpartition(":")[2].isdigit():
        summary = f"--dist-init-addr {address} names no port."
        yield Finding("flag-value", ERROR, "--dist-init-addr", summary, address, "Write HOST:PORT, equal on every node.")


def _gpus(launched: Launched) -> Iterator[Finding]:
    variable = "CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in launched.environment else "NVIDIA_VISIBLE_DEVICES"
    visible = launched.environment.get(variable, "")
    listed = [part for part in visible.split(",") if part.strip()]
    if not listed or "$" in visible or not (len(listed) > 1 or listed[0].strip().isdigit()):
        return
    if _open(launched, "--tp-size", "--pp-size", "--dp-size", "--nnodes"):
        return
    replicas = (launched.number("--dp-size") or 1) if not launched.has("--enable-dp-attention") else 1
    ranks = (launched.number("--tp-size") or 1) * (launched.number("--pp-size") or 1) * replicas
    nodes = launched.number("--nnodes") or 1
    needed = -(-ranks // nodes)
    if needed > len(listed):
        summary = f"{needed} GPUs are asked for on this node, {variable}={visible} shows {len(listed)}: `invalid device ordinal`."
        remedy = "Show as many GPUs as --tp-size times --pp-size times replicas, divided by the nodes, or lower the sizes."
        yield _conflict("--tp-size", summary, remedy, "")


def _memory(launched: Launched) -> Iterator[Finding]:
    fraction = _number(launched.last("--mem-fraction-static"))
    if fraction is not None and not 0 < fraction < 1:
        summary = f"--mem-fraction-static {fraction:g} is no fraction of the GPU's memory: the start ends with out of memory."
        yield Finding("flag-value", ERROR, "--mem-fraction-static", summary, "", "Write a number between 0 and 1, for example 0.88.")
    chunk, page = launched.number("--chunked-prefill-size"), launched.number("--page-size")
    if chunk is not None and chunk > 0 and page and launched.last("--disaggregation-mode") != "decode":
        chunk //= attention_width(launched)
        if chunk % page:
            summary = f"--chunked-prefill-size must be a multiple of --page-size: {chunk} a rank is none of {page}."
            yield _conflict("--chunked-prefill-size", summary, f"Choose a multiple of {page * attention_width(launched)}.")
    port = launched.number("--port")
    if port is not None and not 1 <= port <= _LAST_PORT:
        yield Finding("flag-value", ERROR, "--port", f"--port {port} is no port.", "", f"Choose one from 1 to {_LAST_PORT}.")
    meeting = launched.last("--dist-init-addr").rpartition(":")[2]
    for flag, other in (("--nccl-port", launched.last("--nccl-port")), ("--dist-init-addr", meeting)):
        if port is not None and other == str(port):
            yield _conflict(
                flag, f"{flag} takes port {port}, which --port gives to the API: `address already in use`.", "Take another.", ""
            )


def _names(launched: Launched) -> Iterator[Finding]:
    name = launched.last("--served-model-name")
    if ":" in name and "$" not in name:
        summary = f"--served-model-name {name}: a colon is kept for adapters (model:adapter), sglang refuses it."
        yield Finding("flag-value", ERROR, "--served-model-name", summary, name, "Choose a name without a colon.", _SOURCE)
    for flag in ("--api-key", "--admin-api-key"):
        if launched.has(flag):
            # Its value stays out of every report.
            summary = f"The key of {flag} stands on the command line: every user of the machine reads it in the process list."
            remedy = "Put it in a file of mode 0600 that --config names (api-key: ...), which the server reads instead."
            yield Finding("key-on-command-line", WARNING, flag, summary, "", remedy)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _open(launched: Launched, *names: str) -> bool:
    """Whether the value of one of these flags may be another than what is seen here."""
    return launched.open_ended or any("$" in value for value in launched.values(*names))
