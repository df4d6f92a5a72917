"""Rules over a whole launch: flags that contradict each other, what fails on a GPU, variables that nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..findings import ERROR, INFO, WARNING, Finding
from .environment import judge_variable
from .flags import index_of
from .gpu_faults import FAULTS
from .launch_sizes import size_rules
from .launch_speculation import speculation_rules

if TYPE_CHECKING:
    from .launch import Launched

LOW_CAP = 32
"""Below this many running requests a mixture of experts on eight GPUs stays far under its batch throughput (438 tokens/s at 32 streams)."""

_GRAPH_SIZES = (
    "--cuda-graph-max-bs", "--cuda-graph-bs", "--cuda-graph-max-bs-decode", "--cuda-graph-bs-decode", "--cuda-graph-max-bs-prefill",
    "--cuda-graph-bs-prefill", "--cuda-graph-config", "--cuda-graph-backend-decode", "--cuda-graph-backend-prefill",
)  # fmt: skip


def rules(launched: Launched, version: str, architecture: str) -> list[Finding]:
    """Every rule's findings, in reading order."""
    findings = _missing(launched) + _contradictions(launched) + size_rules(launched, version)
    findings += speculation_rules(launched, version) + _requests(launched)
    findings += _gpu(launched, version, architecture)
    for name, value in launched.environment.items():
        finding = judge_variable(name, value, version)
        if finding is not None:
            findings.append(finding)
    return findings


def _missing(launched: Launched) -> list[Finding]:
    findings: list[Finding] = []
    if launched.open_ended:
        return findings
    if not launched.has("--model-path", "--config"):
        findings.append(Finding("flag-missing", ERROR, "--model-path", "No model is named.", "", "Add --model-path."))
    if (launched.number("--nnodes") or 1) > 1 and not launched.has("--dist-init-addr"):
        summary = "A server over several nodes needs --dist-init-addr."
        findings.append(
            Finding("flag-missing", ERROR, "--dist-init-addr", summary, "", "Add --dist-init-addr HOST:PORT, equal on every node.")
        )
    return findings


def _contradictions(launched: Launched) -> list[Finding]:
    findings = []
    sizes = [name for name in _GRAPH_SIZES if launched.has(name)]
    if launched.has("--disable-cuda-graph") and sizes:
        summary = f"--disable-cuda-graph makes {sizes[0]} meaningless."
        findings.append(Finding("flag-conflict", WARNING, "--disable-cuda-graph", summary, "", "Keep one of the two."))
    if launched.has("--disable-radix-cache") and launched.has("--enable-hierarchical-cache"):
        summary = "The hierarchical cache extends the radix cache, which --disable-radix-cache switches off: sglang refuses the pair."
        findings.append(Finding("flag-conflict", ERROR, "--enable-hierarchical-cache", summary, "", "Keep one of the two."))
    rank, nodes = launched.number("--node-rank"), launched.number("--nnodes") or 1
    if rank is not None and rank >= nodes:
        summary = f"--node-rank {rank} is not below --nnodes {nodes}."
        findings.append(Finding("flag-conflict", ERROR, "--node-rank", summary, "", "Ranks run from 0 to --nnodes - 1."))
    graph, requests = launched.number("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"), launched.number("--max-running-requests")
    if graph and requests and graph < requests and not launched.has("--disable-cuda-graph", "--speculative-algorithm"):
        summary = (
            f"Batches of more than {graph} requests run without a CUDA graph, and up to {requests} may run: decoding slows down there."
        )
        findings.append(
            Finding("graph-below-cap", INFO, "--max-running-requests", summary, "", f"Raise the graph size to {min(requests, 256)}.")
        )
    return findings


def _requests(launched: Launched) -> list[Finding]:
    requests = launched.number("--max-running-requests")
    if requests is not None and requests < LOW_CAP:
        summary = f"At most {requests} requests run at once; the rest queues: good for one user's latency, a plateau under load."
        remedy = "Raise --max-running-requests (and the decode graph's size) for throughput."
        return [Finding("request-cap-low", INFO, "--max-running-requests", summary, "", remedy)]
    return []


def _gpu(launched: Launched, version: str, architecture: str) -> list[Finding]:
    index = index_of(version)
    return [
        Finding(fault.id, fault.severity, architecture or "model", fault.summary, "", fault.remedy, fault.source)
        for fault in FAULTS
        if (not fault.architectures or architecture in fault.architectures)
        and index_of(fault.since) <= index
        and (not fault.until or index <= index_of(fault.until))
        and (not fault.patch or fault.patch not in launched.patches)
        and fault.applies(launched)
    ]
