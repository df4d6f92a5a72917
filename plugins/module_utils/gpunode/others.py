"""What others' programs measured, as pairs that the rules judge: nvbandwidth, p2pBandwidthLatencyTest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parsers.nvbandwidth import PASSED, WAIVED, parse_nvbandwidth
from .parsers.p2p_test import parse_p2p_test
from .parsers.text import NotUnderstoodError

if TYPE_CHECKING:
    from .parsers.nvbandwidth import NvBandwidth
    from .parsers.p2p_test import P2pTest

_COPIES = ("device_to_device_memcpy_write_ce", "device_to_device_memcpy_read_ce")
_SUMMED = "device_to_device_bidirectional_memcpy_write_sm"
"""The one bidirectional test that reports the sum; those of the copy engine report one direction only."""
_READS = "device_to_device_memcpy_read_sm"
_LATENCY = "device_to_device_latency_sm"


def measured_by_others(text: str) -> dict[str, Any]:
    """Return a snapshot's ``measured`` and ``measurement`` from another program's output.

    nvbandwidth waives a test where peer access is missing, and ends with success: that becomes no-access. Raises NotUnderstoodError.
    """
    try:
        return _from_nvbandwidth(parse_nvbandwidth(text))
    except NotUnderstoodError as first:
        try:
            return _from_p2p_test(parse_p2p_test(text))
        except NotUnderstoodError:
            raise first from None


def _from_nvbandwidth(run: NvBandwidth) -> dict[str, Any]:
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for name, key in ((_COPIES[1], "copy_gbps"), (_COPIES[0], "copy_gbps"), (_SUMMED, "bidirectional_gbps"), (_READS, "sm_read_gbps")):
        _take(run, name, key, pairs)
    _take(run, _LATENCY, "read_latency_us", pairs, 1000.0)
    waived = [name for name in _COPIES if name in run.tests and run.tests[name].status == WAIVED]
    measurement: dict[str, Any] = {"mode": "quick", "by": f"nvbandwidth {run.version or ''}".strip()}
    if waived and not pairs:
        measurement["fatal"] = {"where": "nvbandwidth", "code": None, "name": "", "summary": f"nvbandwidth waived {', '.join(waived)}"}
        measurement["waived"] = True
    elif not pairs:
        begun = [name for name, case in run.tests.items() if not case.complete]
        why = run.error or (f"it ended in the test {begun[-1]}" if begun else f"it ran {', '.join(run.tests)} and no copies between GPUs")
        measurement["fatal"] = {"where": "nvbandwidth", "code": None, "name": "", "summary": f"nvbandwidth brought no pair: {why}"}
    for pair in pairs.values():
        pair.update(can_access=True, data_ok=True, status="ok")  # it verifies what it copies, unless told not to
    return {"measured": list(pairs.values()), "measurement": measurement}


def _take(run: NvBandwidth, name: str, key: str, pairs: dict[tuple[int, int], dict[str, Any]], divisor: float = 1.0) -> None:
    case = run.tests.get(name)
    if case is None or case.status != PASSED or not case.matrix:
        return
    for row, cells in enumerate(case.matrix):
        for column, value in enumerate(cells):
            if value and row != column:
                ends = (column, row) if case.arrow == "<-" else (row, column)
                pairs.setdefault(ends, {"src": ends[0], "dst": ends[1]})[key] = round(value / divisor, 3)


def _from_p2p_test(test: P2pTest) -> dict[str, Any]:
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    shown = test.matrices["connectivity"].rows if "connectivity" in test.matrices else []
    access = {(one, other): bool(value) for one, row in enumerate(shown) for other, value in enumerate(row) if one != other}
    for (one, other), granted in (access | test.access).items():  # a part of the output may lack the lines and have the matrix
        pairs[one, other] = {"src": one, "dst": other, "can_access": granted, "status": "ok" if granted else "no-access"}
    names = {
        "uni_p2p_on": "copy_gbps",
        "bidir_p2p_on": "bidirectional_gbps",
        "uni_p2p_off": "staged_gbps",
        "latency_p2p_on": "write_latency_us",
    }
    for name, key in names.items():
        rows = test.matrices[name].rows if name in test.matrices else []
        for one, row in enumerate(rows):
            for other, value in enumerate(row):
                if one != other:
                    pairs.setdefault((one, other), {"src": one, "dst": other, "status": "ok"})[key] = value
    gpus = [{"index": index, "bus_id": address} for index, address in enumerate(test.addresses)]
    return {"measured": list(pairs.values()), "measurement": {"mode": "quick", "by": "p2pBandwidthLatencyTest", "gpus": gpus}}
