"""From a result to findings, verdict and exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpunode import smoke_baseline, smoke_rules
from gpunode.findings import WARNING, Finding, by_consequence, exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping


def failed(result: Mapping[str, Any]) -> bool:
    """Whether the server gave cause to look into its journal: requests failed, or it was or is gone."""
    if any(level.get("errors") or level.get("warmup_errors") for level in result["levels"]):
        return True
    return not result["levels"] or "the server is gone" in str(result["stopped"])


def judge(
    result: dict[str, Any],
    *,
    limits: Mapping[str, float | None],
    warn_only: bool = False,
    allowed: Mapping[str, float] | None = None,
    baseline: Mapping[str, Any] | None = None,
    tolerance_pct: float = smoke_baseline.TOLERANCE_PCT,
    wrong_input: str | None = None,
) -> int:
    """Put `verdict`, `findings` and `baseline` into the result and return the exit code."""
    found: list[Finding] = []
    found += smoke_rules.state(result)
    found += smoke_rules.failed_requests(result, allowed or {})
    found += smoke_rules.thresholds(result, limits, warn_only=warn_only) if result["levels"] else []
    if baseline is not None and result["levels"]:
        compared, rows = smoke_baseline.compare(result, baseline, tolerance_pct)
        found += compared
        result["baseline"] = {
            "saved_at": baseline.get("saved_at"),
            "identity": baseline.get("identity"),
            "tolerance_pct": tolerance_pct,
            "rows": rows,
        }
    else:
        result["baseline"] = None
    found += smoke_rules.plateau(result)
    if wrong_input:
        found.append(
            Finding("wrong-model", WARNING, "server", wrong_input, "/v1/models", "name a model that is served, or leave --model out")
        )
    found = by_consequence(found)
    result["findings"] = [finding.to_dict() for finding in found]
    result["verdict"] = smoke_rules.verdict(found)
    return 2 if wrong_input else exit_code(found)
