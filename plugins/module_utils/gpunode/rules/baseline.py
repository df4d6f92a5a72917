"""Baselines: what a node was like when it was healthy."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from ..shapes import BASELINE, ShapeError, check
from ..snapshot import SCHEMA as SNAPSHOT_SCHEMA
from ..snapshot import Snapshot, SnapshotError, check_measurement, check_pair
from ..state import State
from .environment import environment
from .pcie import link_widths

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "gpunode.baseline/1"


class BaselineError(ValueError):
    """Raised for data that is no baseline."""


def build(state: State, saved_at: str) -> dict[str, Any]:
    """Return the baseline of a node as it is now, plain data."""
    topology = state.topology
    log = state.kernel_log
    limited = {limit.bus_id: limit.speed * limit.width for limit in log.limited} if log else {}
    gpus: list[dict[str, Any]] = []
    for gpu in state.gpus:
        width, _, _ = link_widths(state, gpu)
        entry = {
            "index": gpu.index,
            "bdf": gpu.bdf,
            "uuid": gpu.info.uuid if gpu.info else None,
            "name": gpu.info.name if gpu.info else None,
            "link_width": width,
            "bar1_total_mib": gpu.info.bar1_total_mib if gpu.info else None,
            "limited_gtps_lanes": limited.get(gpu.bdf),
        }
        gpus.append({key: value for key, value in entry.items() if value is not None})
    return {
        "schema": SCHEMA,
        "host": state.snapshot.data.get("host"),
        "saved_at": saved_at,
        "environment": environment(state),
        "gpu_count": state.count,
        "gpus": gpus,
        "topology": {"gpus": topology.gpus, "rows": topology.rows, "matrix": topology.matrix} if topology else None,
        "measurement": {key: state.snapshot.measurement[key] for key in ("mode", "patterns", "host") if key in state.snapshot.measurement},
        "pairs": [pair.to_dict() for pair in state.pairs or []],
        "simulated": state.simulated,
    }


def load(text: str) -> dict[str, Any]:
    """Read a baseline file; a saved snapshot serves as one too. Raises BaselineError for anything else."""
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("schema") == SNAPSHOT_SCHEMA:
            return build(State(Snapshot(data)), str(data.get("collected_at", "")))
    except SnapshotError as error:
        raise BaselineError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BaselineError(f"schema is {data.get('schema')!r}" if isinstance(data, dict) else "not a JSON object")
    for key in ("environment", "gpus", "pairs"):
        if data.get(key) is None:
            raise BaselineError(f"it has no {key}")
    try:
        check(data, BASELINE, "")
        for index, pair in enumerate(data["pairs"]):
            check_pair(pair, f"pairs[{index}]")
        check_measurement(data.get("measurement") or {}, BASELINE["measurement"])
    except (ShapeError, SnapshotError) as error:
        raise BaselineError(str(error)) from None
    _check_topology(data.get("topology"))
    return data


def _check_topology(topology: dict[str, Any] | None) -> None:
    """Raise BaselineError for a matrix that does not fit its labels."""
    if topology is None:
        return
    gpus, rows, matrix = (topology.get(key) or [] for key in ("gpus", "rows", "matrix"))
    labels = all(re.fullmatch(r"GPU\d+", label) for label in [*gpus, *rows])
    if not labels or len(matrix) != len(rows) or any(len(row) != len(gpus) for row in matrix):
        raise BaselineError("topology.matrix does not fit its labels")


def is_foreign(state: State, baseline: Mapping[str, Any]) -> bool:
    """Whether none of the baseline's GPUs is one of this node's; False where either does not know its GPUs' UUIDs."""
    theirs = {gpu.get("uuid") for gpu in baseline["gpus"] if isinstance(gpu, dict)} - {None}
    ours = {gpu.info.uuid for gpu in state.gpus if gpu.info} - {None}
    return bool(theirs and ours and not theirs & ours)


def known_links(baseline: Mapping[str, Any] | None) -> dict[str, dict[str, int | float | None]]:
    """Address to link width, BAR1 and boot-time limit of the baseline."""
    return {gpu["bdf"]: gpu for gpu in (baseline or {}).get("gpus", []) if isinstance(gpu, dict) and "bdf" in gpu}


def known_pairs(baseline: Mapping[str, Any] | None) -> set[tuple[int, int]]:
    """Pairs whose rate the baseline knows: what is slow by design there is no news."""
    return {(pair["src"], pair["dst"]) for pair in (baseline or {}).get("pairs", []) if pair.get("copy_gbps") and not pair.get("light")}
