"""The command line of nvidia-smi."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from lab.nvidia import model, paths, state

from . import fields, nvml, query, table, topo

NO_PERMISSION, INVALID = 4, 2
_EARLY = "Terminating early due to previous errors."
_VALUED = {
    "-i": "id",
    "--id": "id",
    "-d": "display",
    "--display": "display",
    "-f": "filename",
    "--filename": "filename",
    "-l": "loop",
    "--loop": "loop",
    "-lms": "loop_ms",
    "--loop-ms": "loop_ms",
    "--query-gpu": "query_gpu",
    "--query-compute-apps": "query_apps",
    "--format": "format",
    "-pm": "persistence_mode",
    "--persistence-mode": "persistence_mode",
    "-pl": "power_limit",
    "--power-limit": "power_limit",
}
_SWITCHES = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "query",
    "--query": "query",
    "-x": "xml",
    "--xml-format": "xml",
    "-h": "help",
    "--help": "help",
    "--version": "version",
    "-B": "list_excluded",
}
_HELP = """NVIDIA System Management Interface -- stand-in of the gpunode lab

nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...

    -L, --list-gpus          -q, --query [-x] [-d TYPE,...] [-i ID] [-f FILE]
    --query-gpu=FIELD,...    --query-compute-apps=FIELD,...    --format=csv[,noheader][,nounits]
    -pm 0|1                  -pl WATT                          -l SECONDS
    topo -m | -p2p r|w|n|a|p nvlink -s                         --version
"""


class UsageError(Exception):
    """A command line that nvidia-smi refuses."""


def parse(words: list[str]) -> dict[str, Any]:
    """Options by name; raises UsageError with nvidia-smi's words."""
    options: dict[str, Any] = {}
    index = 0
    while index < len(words):
        word, equals, value = words[index].partition("=")
        if word in _SWITCHES and not equals:
            options[_SWITCHES[word]] = True
        elif word in _VALUED:
            if not equals:
                index += 1
                if index >= len(words):
                    raise UsageError(f'Option "{word}" requires a value.')
                value = words[index]
            options[_VALUED[word]] = value
        else:
            raise UsageError("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
        index += 1
    return options


def _hang() -> None:
    """A tool that waits for a GPU that does not answer waits for ever, and does not die of SIGTERM."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def _set_persistence(chosen: list[dict[str, Any]], value: str) -> int:
    on = {"1": True, "enabled": True, "0": False, "disabled": False}.get(value.lower())
    if on is None:
        raise UsageError(f"'{value}' is not a valid persistence mode.")
    for gpu in chosen:
        if not _may_change():
            print(f"Unable to set persistence mode for GPU {nvml.bus_id(gpu)}: Insufficient Permissions\n{_EARLY}")
            return NO_PERMISSION
        word = "Enabled" if on else "Disabled"
        if gpu["persistence"] == on:
            print(f"Persistence mode is already {word} for GPU {nvml.bus_id(gpu)}.")
        else:
            _store(gpu, persistence=on)
            print(f"{word} persistence mode for GPU {nvml.bus_id(gpu)}.")
    print("All done.")
    return 0


def _set_power(chosen: list[dict[str, Any]], value: str) -> int:
    watt = float(value)
    for gpu in chosen:
        if not model.POWER_MIN_W <= watt <= model.POWER_MAX_W:
            print(
                f"Provided power limit {watt:.2f} W is not a valid power limit which should be between {model.POWER_MIN_W:.2f} W and "
                f"{model.POWER_MAX_W:.2f} W for GPU {nvml.bus_id(gpu)}\n{_EARLY}"
            )
            return INVALID
        if not _may_change():
            print(f"Changing power management limit is not permitted for GPU: {nvml.bus_id(gpu)}.\n{_EARLY}")
            return NO_PERMISSION
        if gpu["power_limit"] == watt:
            print(f"Power limit for GPU {nvml.bus_id(gpu)} is already {watt:.2f} W.")
        else:
            print(f"Power limit for GPU {nvml.bus_id(gpu)} was set to {watt:.2f} W from {gpu['power_limit']:.2f} W.")
            _store(gpu, power_limit=watt)
        if not gpu["persistence"]:
            print(
                "\nWarning: persistence mode is disabled on device "
                + nvml.bus_id(gpu)
                + ". See the Known Issues section of the nvidia-smi(1) man page."
            )
    print("All done.")
    return 0


def _may_change() -> bool:
    return os.geteuid() == 0 and os.access(paths.PROC_DRIVER, os.W_OK)


def _store(gpu: dict[str, Any], **values: Any) -> None:
    with state.change() as now:
        for entry in now["gpus"]:
            if entry["bdf"] == gpu["bdf"]:
                entry.update(values)


def _list(chosen: list[dict[str, Any]]) -> int:
    code = 0
    for gpu in chosen:
        if gpu["lost"]:
            print(nvml.lost_text(gpu))
            code = nvml.LOST
        else:
            print(f"GPU {gpu['index']}: {nvml.product(gpu)} (UUID: {gpu['uuid']})")
    return code


def _once(options: dict[str, Any]) -> int:
    session = nvml.Session()
    chosen = session.select(options.get("id"))
    if options.get("list"):
        return _list(chosen)
    for gpu in chosen:
        session.refuse_lost(gpu)
    if "persistence_mode" in options:
        return _set_persistence(chosen, options["persistence_mode"])
    if "power_limit" in options:
        return _set_power(chosen, options["power_limit"])
    if "query_gpu" in options or "query_apps" in options:
        formats = set(options.get("format", "").split(","))
        if "csv" not in formats:
            raise UsageError('"--format=" option is missing or does not contain "csv".\n')
        try:
            if "query_gpu" in options:
                text = fields.gpus(session, chosen, options["query_gpu"].split(","), formats)
            else:
                text = fields.apps(session, chosen, options["query_apps"].split(","), formats)
        except fields.FieldError as error:
            print(error)
            return INVALID
    elif options.get("query") or options.get("xml"):
        display = set(options["display"].upper().split(",")) if "display" in options else None
        if display and not display <= query.DISPLAY.keys():
            raise UsageError("Invalid display type.")
        text = query.xml(session, chosen) if options.get("xml") else query.text(session, chosen, display)
    else:
        text = table.render(session, chosen)
    if "filename" in options:
        Path(options["filename"]).write_text(text)
    else:
        sys.stdout.write(text)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run nvidia-smi; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if state.read()["faults"].get("nvidia-smi-hang"):
        _hang()
    try:
        if words[:1] == ["topo"]:
            return topo.main(words[1:])
        if words[:1] == ["nvlink"]:
            return topo.nvlink(words[1:])
        options = parse(words)
        if options.get("help"):
            print(_HELP)
            return 0
        if options.get("version"):
            session = nvml.Session()
            for label, value in (
                ("NVIDIA-SMI version", session.library),
                ("NVML version", ".".join(session.library.split(".")[:2])),
                ("DRIVER version", session.driver),
                ("CUDA Version", nvml.cuda_version(session.driver)),
            ):
                print(f"{label:<20}: {value}")
            return 0
        while True:
            code = _once(options)
            sys.stdout.flush()
            pause = float(options["loop"]) if "loop" in options else float(options.get("loop_ms", 0)) / 1000
            if not pause or code:
                return code
            time.sleep(pause)
    except UsageError as error:
        print(error)
        return INVALID
    except nvml.NvmlError as error:
        print(error)
        return error.code
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (Python must not complain at exit)
        return 0
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
