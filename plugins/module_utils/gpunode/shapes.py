"""Shapes of plain data that others hand over: what is of another shape is refused by its place, before anything is read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Shape = Any
"""A type, or a tuple of types; a list of one shape; a dict of keys and shapes (any may be missing, others are free); Values."""

NUMBER: Final = (int, float)


class ShapeError(ValueError):
    """Raised for data of another shape; the message names the place and what was found there."""


@dataclass(frozen=True)
class Values:
    """A mapping whose values all have one shape."""

    shape: Shape


PATTERN: Final = {"name": str, "status": str, "reason": str, "total_gbps": NUMBER, "data_ok": bool}
HOST_COPY: Final = {"gpu": int, "to_gpu_gbps": NUMBER, "from_gpu_gbps": NUMBER, "data_ok": bool, "light": bool, "status": str}
_SPEEDS: Final = {"current_link_speed": NUMBER, "max_link_speed": NUMBER}
MEASUREMENT: Final = {
    "mode": str,
    "where": str,
    "by": str,
    "pairs": str,
    "elapsed_s": NUMBER,
    "gpus": [{"index": int, "bus_id": str, "name": str}],
    "host": [HOST_COPY],
    "patterns": [PATTERN],
    "links": Values([_SPEEDS]),
    "stuck": [{"pid": int, "gpus": [int], "step": str, "state": str}],
    "fatal": {"where": str, "name": str, "summary": str},
}
PAIR: Final = {"path": str, "light": bool}
BASELINE: Final = {
    "host": str,
    "saved_at": str,
    "environment": Values(str),
    "gpu_count": int,
    "gpus": [{"index": int, "bdf": str, "uuid": str, "name": str, "link_width": int, "bar1_total_mib": int, "limited_gtps_lanes": NUMBER}],
    "topology": {"gpus": [str], "rows": [str], "matrix": [[str]]},
    "measurement": {"mode": str, "patterns": [PATTERN], "host": [HOST_COPY]},
    "pairs": [PAIR],
}


def check(data: Any, shape: Shape, where: str) -> None:
    """Raise ShapeError when ``data`` is not of ``shape``; null stands for what is not known, but not in a list or in Values."""
    if isinstance(shape, list):
        _expect(data, list, where)
        for index, item in enumerate(data):
            _known(item, shape[0], f"{where}[{index}]")
    elif isinstance(shape, Values):
        _expect(data, dict, where)
        for key, value in data.items():
            _known(value, shape.shape, f"{where}[{key!r}]")
    elif isinstance(shape, dict):
        _expect(data, dict, where)
        for key, inner in shape.items():
            if data.get(key) is not None:
                check(data[key], inner, f"{where}.{key}".lstrip("."))
    else:
        _expect(data, shape, where)


def _known(data: Any, shape: Shape, where: str) -> None:
    if data is None:
        raise ShapeError(f"{where} is null")
    check(data, shape, where)


def _expect(data: Any, kind: type | tuple[type, ...], where: str) -> None:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(data, kind) or (isinstance(data, bool) and bool not in kinds):
        raise ShapeError(f"{where} is {type(data).__name__}, expected {' or '.join(each.__name__ for each in kinds)}")
