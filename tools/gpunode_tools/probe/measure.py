"""One measurement: stream the program, follow its events, and keep the result whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.probe.session import LocalSession, command

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpunode_tools.probe.session import Session

HERE: Final = Path(__file__).parent
SILENCE_S: Final = 30.0  # the watcher speaks every 2 s; this much silence is a lost connection
SIMULATED: Final = " (simulated)"
PAIR_KEYS: Final = ("path", "can_access", "copy_gbps", "bidirectional_gbps", "sm_read_gbps", "read_latency_us", "data_ok")
"""Keys that every pair has, null where nothing was measured. ``path`` is the topology's word and is not known here."""


@dataclass(frozen=True)
class Options:
    """What to measure.

    ``measure`` is quick or full; ``pairs`` ordered pairs of GPU numbers, None for all; ``light`` True for buffers of 8 MiB, False for
    large ones, ``auto`` to decide by each GPU's memory in use; times in seconds: a pair's, the driver's start and a context's, and how
    long a killed worker may take to end.
    """

    measure: str = "quick"
    pairs: tuple[tuple[int, int], ...] | None = None
    pair_timeout_s: float = 20.0
    init_timeout_s: float = 90.0
    kill_grace_s: float = 5.0
    max_hangs: int = 3
    light: bool | str = "auto"

    def program(self) -> bytes:
        """The whole program as Python source for ``python3 -``: watcher, worker and these options; nothing goes on a command line."""
        sources = {name: (HERE / f"{name}.py").read_text(encoding="utf-8") for name in ("watcher", "worker")}
        options = {key: value for key, value in vars(self).items() if value is not None}
        return PROGRAM.format(watcher=sources["watcher"], worker=sources["worker"], options=json.dumps(options)).encode()


PROGRAM: Final = """\
import sys
if sys.version_info < (3, 9):
    print('{{"event":"fatal","where":"python3","code":null,"name":"",'
          '"summary":"Python 3.9 or later is needed, this is %d.%d"}}' % sys.version_info[:2])
    sys.exit(1)
import json
namespace = {{"__name__": "gpunode_watcher"}}
exec(compile({watcher!r}, "watcher.py", "exec"), namespace)
sys.exit(namespace["main"]({worker!r}, json.loads({options!r})))
"""


class Result:
    """Events gathered into the result: see ``measure``."""

    def __init__(self, options: Options) -> None:
        self.data: dict[str, Any] = {
            "measure": options.measure,
            "gpus": [],
            "cuda_version": None,
            "pairs": [],
            "host": [],
            "patterns": [],
            "links": {},
            "workers": [],
            "stuck": [],
            "fatal": None,
            "interrupted": False,
            "complete": False,
            "simulated": False,
            "elapsed_s": 0.0,
        }
        self.planned: list[tuple[int, int]] = list(options.pairs or ())

    def add(self, event: dict[str, Any]) -> None:
        data = self.data
        match event.get("event"):
            case "gpus":
                data.update(gpus=event["gpus"], cuda_version=event["cuda_version"], visible_devices=event["visible_devices"])
                data["simulated"] = any(gpu["name"].endswith(SIMULATED) for gpu in event["gpus"])
            case "context":
                extra = {key: event[key] for key in ("free_mib", "buffer_mib", "light", "no_kernels", "setup_ms")}
                for gpu in data["gpus"]:
                    if gpu["index"] == event["gpu"]:
                        gpu.update(extra)
            case "plan":
                self.planned = [(a, b) for a, b in event["pairs"]]
            case "pair":
                data["pairs"].append({**dict.fromkeys(PAIR_KEYS), **event["pair"]})
            case "host":
                data["host"].append(event["host"])
            case "pattern":
                data["patterns"].append(event["pattern"])
            case "link":
                data["links"][event["bus_id"]] = event["chain"]
            case "worker":
                data["workers"].append({"why": event["why"], "reason": event["reason"]})
            case "stuck":
                data["stuck"].append({key: event[key] for key in ("pid", "gpus", "step", "state")})
            case "fatal":
                data["fatal"] = {key: event[key] for key in ("where", "code", "name", "summary")}
            case "done":
                data.update(interrupted=event["interrupted"], complete=not event["interrupted"] and data["fatal"] is None)

    def finish(self, why: str, elapsed_s: float) -> dict[str, Any]:
        """The result; planned pairs of which nothing was heard are skipped because of ``why``."""
        heard = {(pair["src"], pair["dst"]) for pair in self.data["pairs"]}
        for src, dst in self.planned:
            if (src, dst) not in heard:
                self.data["pairs"].append({"src": src, "dst": dst, **dict.fromkeys(PAIR_KEYS), "status": "skipped", "reason": why})
        self.data["pairs"].sort(key=lambda pair: (pair["src"], pair["dst"]))
        self.data["elapsed_s"] = round(elapsed_s, 3)
        return self.data


def measure(
    options: Options,
    start: Callable[[], Session] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Measure pairs and return the result as plain data; it never raises for what happens on the other side.

    ``start`` opens the session in which ``python3 -`` reads the program (default: a process here). ``on_event`` sees each event as it
    comes, for progress: ``pair`` events carry ``done`` and ``total``. Ctrl-C ends the measurement with a partial result
    (``interrupted``). The result:

    - ``gpus``, in the order of their bus ids; ``host``, each GPU's copies: ``gpu``, ``to_gpu_gbps``, ``from_gpu_gbps``, ``data_ok``,
      ``limit_gbps``, ``status``, ``reason``; ``links``, the PCIe links up to the root port under load, by bus id;
    - ``pairs``: the contract's keys, and ``reason``, ``error``, ``step`` (where it hung), ``checks``, ``light``, ``limit_gbps``,
      ``native_atomics``, ``sm_write_gbps``, ``staged_gbps``, ``resident_ok``, ``resident_detail``, ``resident_round_us``,
      ``no_kernels``, ``elapsed_ms``; ``patterns``, several pairs at once: ``name``, ``pairs``, ``total_gbps``, ``data_ok``, ``wrong``,
      ``left_out``, ``status``, ``reason``;
    - ``workers`` (restarts, ``why`` and ``reason``), ``stuck`` (workers that survived SIGKILL: ``pid``, ``gpus``, ``step``, ``state``),
      ``fatal`` (nothing could be measured: ``where``, ``code``, ``name``, ``summary``), ``complete``, ``interrupted``, ``simulated``,
      ``elapsed_s``.
    """
    began = time.monotonic()
    result = Result(options)
    try:
        session = start() if start else LocalSession(command())
    except OSError as error:
        result.add(_fatal("start", f"the probe could not be started: {error}"))
        return result.finish("the probe could not be started", time.monotonic() - began)
    silence = SILENCE_S + options.kill_grace_s
    done, why = False, "the probe ended early"
    try:
        session.send(options.program())
        done = _follow(session, result, on_event, silence)
    except KeyboardInterrupt:
        why, result.data["interrupted"] = "interrupted", True
        session.interrupt()
        with contextlib.suppress(KeyboardInterrupt, OSError):  # again: then at once, without the last words
            _follow(session, result, on_event, options.kill_grace_s + 3)
    except TimeoutError:
        result.add(_fatal("connection", f"the probe said nothing for {silence:g} s: the connection or the machine is gone"))
        why = "the connection was lost"
    except OSError as error:
        result.add(_fatal("connection", f"the connection to the probe broke: {error}"))
        why = "the connection was lost"
    finally:
        status, said = session.close()
    if not done and not result.data["interrupted"] and result.data["fatal"] is None:
        last = f": {said.splitlines()[-1]}" if said else ""
        result.add(_fatal("start", f"the probe ended without a result (exit status {status}){last}"))
    return result.finish(why, time.monotonic() - began)


def _follow(session: Session, result: Result, on_event: Callable[[dict[str, Any]], None] | None, silence: float) -> bool:
    """Take in events until ``done`` (True) or the end of output (False). Raises TimeoutError after ``silence`` seconds without a word."""
    while line := session.readline(silence):
        if not line.startswith(b'{"event":'):  # a login banner, for instance
            continue
        event = json.loads(line)
        result.add(event)
        if on_event:
            on_event(event)
        if event["event"] == "done":
            return True
    return False


def _fatal(where: str, summary: str) -> dict[str, Any]:
    return {"event": "fatal", "where": where, "code": None, "name": "", "summary": summary}
