"""Filters over what is known of sglang's releases: a profile's data, and the check of a launch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from ansible.errors import AnsibleFilterError

from gpunode.checkpoint.fit import findings as fit_findings
from gpunode.checkpoint.fit import fit
from gpunode.checkpoint.shape import Shape, moe_shape
from gpunode.findings import ERROR, by_consequence, verdict
from gpunode.sglang.flags import UnknownVersionError
from gpunode.sglang.launch_check import check_launch
from gpunode.sglang.layout import LayoutError, group_flags, layout
from gpunode.sglang.profiles import profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def sglang_profile(name: str) -> dict[str, Any]:
    """The profile of a release or a name: version, python, cuda, pins, flags, environment, overrides, notes."""
    try:
        return profile(str(name)).to_dict()
    except UnknownVersionError as error:
        raise AnsibleFilterError(f"sglang_venv_profile: {error}") from error


def sglang_check_launch(
    arguments: Sequence[str], version: str, architecture: str, environment: Mapping[str, Any] | None = None, patches: Sequence[str] = ()
) -> dict[str, Any]:
    """Judge the arguments of a release from PyPI: verdict, findings by consequence, and the errors as one text each.

    A release without a table gives the verdict ``unknown`` and no error: nothing is known against it.
    """
    try:
        findings = check_launch(
            [str(argument) for argument in arguments],
            {name: str(value) for name, value in (environment or {}).items()},
            str(version),
            architecture,
            stock=True,
            patches=[str(patch) for patch in patches],
        )
    except UnknownVersionError as error:
        return {"verdict": "unknown", "findings": [], "errors": [], "warnings": [f"{error}: the flags were not checked."]}
    ordered = by_consequence(findings)
    return {
        "verdict": verdict(findings),
        "findings": [finding.to_dict() for finding in ordered],
        "errors": [f"{finding.summary} {finding.remedy}".strip() for finding in ordered if finding.severity == ERROR],
        "warnings": [f"{finding.summary} {finding.remedy}".strip() for finding in ordered if finding.severity == "warning"],
    }


def checkpoint_fit(checkpoint: Mapping[str, Any], flags: Mapping[str, Any], gpu_memory_mib: Any) -> dict[str, Any]:
    """Whether what hf_checkpoint found fits with these flags: the figures, and the errors and warnings as one text each.

    Without the GPU's memory or the model's shape nothing can be said: no error, and ``fits`` is None.
    """
    if not str(gpu_memory_mib).strip().isdecimal() or not checkpoint.get("shape"):
        return {"fits": None, "errors": [], "warnings": []}
    plain = {str(name).lstrip("-"): value for name, value in flags.items()}
    figures = fit(
        Shape(**checkpoint["shape"]),
        int(checkpoint["size_bytes"]),
        gpu_memory_mib=int(gpu_memory_mib),
        tp=int(plain.get("tp-size") or 1),
        pp=int(plain.get("pp-size") or 1),
        kv_dtype=str(plain.get("kv-cache-dtype") or "auto"),
        mem_fraction=float(plain.get("mem-fraction-static") or 0.9),
        context=int(plain.get("context-length") or 0),
        requests=int(plain.get("max-running-requests") or 0),
    )
    told = [(finding.severity, f"{finding.summary} {finding.evidence}. {finding.remedy}".strip()) for finding in fit_findings(figures)]
    return {
        **figures.to_dict(),
        "errors": [text for severity, text in told if severity == ERROR],
        "warnings": [text for severity, text in told if severity == "warning"],
    }


def moe_tuning(checkpoint: Mapping[str, Any], flags: Mapping[str, Any], device: str, triton: str = "") -> dict[str, Any]:
    """What tuning the fused Triton MoE kernel would be for: E, N, the file that sglang looks for, and why it would have no effect.

    ``device`` is the GPU's name as the driver tells it, ``triton`` the installed version of triton. ``no_effect`` is empty where it helps.
    """
    plain = {str(name).lstrip("-"): value for name, value in flags.items()}
    shape = Shape(**checkpoint["shape"])
    runner = str(plain.get("moe-runner-backend") or "auto")
    fp4 = "fp4" in f"{plain.get('quantization') or ''} {shape.quantization}".lower()
    try:
        experts, columns = moe_shape(shape, int(plain.get("tp-size") or 1), fused=not plain.get("disable-shared-experts-fusion"))
    except ValueError as error:
        raise AnsibleFilterError(f"nothing to tune: {error}") from error
    reasons = []
    if runner not in {"auto", "triton"}:
        reasons.append(f"the server runs its experts with {runner}, which reads no Triton configuration")
    if fp4:
        reasons.append(
            "the experts are FP4, for which sglang's tuning has no data type (FP4 runs on flashinfer_cutlass, tuned at each start)"
        )
    dtype = "fp8_w8a8" if "fp8" in f"{plain.get('quantization') or ''} {shape.quantization}".lower() and not fp4 else ""
    ending = f",dtype={dtype}" if dtype else ""
    # As Python prints a list: sglang builds the name from the checkpoint's weight_block_size.
    ending += f",block_shape={list(shape.weight_block)}" if shape.weight_block and dtype else ""
    return {
        "E": experts,
        "N": columns,
        "file": f"E={experts},N={columns},device_name={device.replace(' ', '_')}{ending}.json",
        "dtype": dtype,
        "folder": f"configs/triton_{triton.replace('.', '_')}" if triton else "configs",
        "no_effect": "; ".join(reasons),
    }


def sglang_layout(names: Sequence[str], kind: str, name: str, place: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of one node of a server: its layout and, with several nodes, its rank. ``names`` are the nodes in order of rank.

    ``place`` gives ``gpus`` (a count for each name), ``numa`` (NUMA nodes of this node's GPUs), ``address`` of rank 0 and ``port``.
    """
    try:
        found = layout(
            kind, dict(zip(names, (int(count) for count in place["gpus"]), strict=True)), [int(node) for node in place.get("numa") or []]
        )
    except LayoutError as error:
        raise AnsibleFilterError(f"sglang_server_layout: {error}") from error
    return {"flags": found.flags() | group_flags(names, name, str(place.get("address", "")), int(place["port"])), "reason": found.reason}


class FilterModule:
    """Ansible's filter interface."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "sglang_profile": sglang_profile,
            "sglang_check_launch": sglang_check_launch,
            "checkpoint_fit": checkpoint_fit,
            "moe_tuning": moe_tuning,
            "sglang_layout": sglang_layout,
        }
