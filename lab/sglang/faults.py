"""Faults of the sglang server, set inside a node: `python -m lab fault NODE NAME [ARGUMENT]`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lab.sglang.settings import DEFAULT_FILE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _write(change: Callable[[dict[str, Any]], None], path: Path = DEFAULT_FILE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    change(values)
    part = path.with_suffix(".new")
    part.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def _setter(name: str, description: str, default: Any = True) -> Callable[..., None]:
    def fault(argument: str | None = None) -> None:
        value = default if argument is None else json.loads(argument)
        _write(lambda values: values.setdefault("faults", {}).__setitem__(name, value))

    fault.__doc__ = description
    return fault


def speed(factor: str = "1") -> None:
    """Not a fault: everything FACTOR times faster than the real figures (at the server's next start)."""
    _write(lambda values: values.__setitem__("time_scale", float(factor)))


def load_time(seconds: str = "3") -> None:
    """Not a fault: seconds from start to healthy (at the server's next start)."""
    _write(lambda values: values.__setitem__("load_s", float(seconds)))


def clear() -> None:
    """Forget every fault and setting of this part."""
    DEFAULT_FILE.unlink(missing_ok=True)


# name: callable with the arguments of the command line; its docstring says what happens.
FAULTS: dict[str, Callable[..., None]] = {
    "server-never-healthy": _setter("never-healthy", "The server runs out of GPU memory while loading, in every start."),
    "server-hangs-loading": _setter("hang-loading", "The server opens its port and answers 503 for ever."),
    "server-crashes": _setter("crash-mid-load", "The server dies at request N + 1 (default 20).", 20),
    "server-stalls": _setter("stall", "The scheduler stops: streams stay open and silent."),
    "server-early-stop": _setter("early-stop", "Every second answer ends after 11 tokens."),
    "server-wrong-usage": _setter("wrong-usage", "usage counts twice the tokens that were sent."),
    "server-slow": _setter("slow", "Every step takes FACTOR times as long (default 1.18, a loss of 15 %).", 1.18),
    "server-http-500": _setter("http-500", "Every eighth request is answered with 500."),
    "server-resets": _setter("reset", "Every eighth connection is reset."),
    "server-speed": speed,
    "server-load-time": load_time,
}
