"""Snapshots: what was read from a node, as plain data that can be saved, sent to somebody else and judged there."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .shapes import MEASUREMENT, PAIR, ShapeError, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .shapes import Shape

SCHEMA: Final = "gpunode.snapshot/1"
PAIR_STATUSES: Final = ("ok", "corrupt", "hang", "no-access", "error", "skipped")
_MAPPINGS: Final = ("commands", "files", "links", "nodes")
_KEYS: Final = frozenset({*_MAPPINGS, "container", "measured"})
_MEASURES: Final = ("_gbps", "_us", "_ms")
"""Ends of the names of what was measured: rates and times, of pairs, copies from the host and patterns."""
TIMED_OUT: Final = (None, 124)
"""Return codes of a command that overran its deadline: our own None, timeout(1)'s 124."""

# States of a reading.
VALUE: Final = "value"
NOT_READ: Final = "not-read"
MISSING: Final = "missing"


class SnapshotError(ValueError):
    """Raised for data that is no snapshot; the message names the key and what was found there."""


@dataclass(frozen=True)
class Reading:
    """One thing of a snapshot: its text, or that it does not exist (``missing``), or that nobody read it (``not-read``)."""

    state: str
    text: str = ""
    why: str = ""

    @property
    def ok(self) -> bool:
        """True when there is a text to read."""
        return self.state == VALUE


class Part:
    """Commands, files, links and device nodes of one machine: the node, or a container on it."""

    def __init__(self, data: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.name = name

    def command(self, line: str) -> Reading:
        """Return the output of a command; one that failed is not read, and ``why`` says how it ended."""
        entry = self._entry("commands", line)
        if entry.state != VALUE:
            return Reading(entry.state, why="the program does not exist" if entry.state == MISSING else "was not run")
        result = self.data["commands"][line]
        stdout, stderr, code = result.get("stdout") or "", result.get("stderr") or "", result.get("rc")
        if code in TIMED_OUT and "rc" in result:
            stays = re.search(r"process \d+ cannot be killed", stderr)
            return Reading(NOT_READ, stdout, "overran its deadline and was ended" + (f"; {stays[0]}" if stays else ""))
        if code in {None, 0}:
            return Reading(VALUE, stdout)
        said = (stderr.strip() or stdout.strip()).splitlines()
        if code in {126, 127} and not stdout.strip():
            return Reading(MISSING, why="the program does not exist")
        return Reading(NOT_READ, f"{stdout}\n{stderr}", f"ended with {code}" + (f": {said[0][:200]}" if said else ""))

    def file(self, path: str) -> Reading:
        """Return the text of a file."""
        return self._entry("files", path)

    def link(self, path: str) -> Reading:
        """Return the target of a symbolic link, as it is written in it."""
        return self._entry("links", path)

    def node(self, path: str) -> dict[str, Any] | None:
        """Return major, minor, mode, uid and gid of a device node; None when it does not exist or was not looked at."""
        node = self.data.get("nodes", {}).get(path)
        return dict(node) if isinstance(node, dict) else None

    def has_nodes(self) -> bool:
        """Say whether device nodes were looked at."""
        return bool(self.data.get("nodes"))

    def paths(self, kind: str, pattern: str) -> Iterator[re.Match[str]]:
        """Yield the matches of ``pattern`` (whole paths) among the keys of ``files``, ``links`` or ``nodes``, sorted."""
        compiled = re.compile(pattern)
        for path in sorted(self.data.get(kind, {})):
            if match := compiled.fullmatch(path):
                yield match

    def _entry(self, kind: str, key: str) -> Reading:
        table = self.data.get(kind, {})
        if key not in table:
            return Reading(NOT_READ, why="was not read")
        value = table[key]
        if value is None:
            return Reading(MISSING, why="does not exist")
        return Reading(VALUE, value if isinstance(value, str) else "")


class Snapshot:
    """A validated snapshot; ``data`` is the plain form."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = validate(data)
        self.host = Part(self.data, self.data.get("host") or "host")
        container = self.data.get("container")
        self.container = Part(container, f"container {container.get('vmid', '?')}") if isinstance(container, dict) else None

    @property
    def measured(self) -> list[dict[str, Any]] | None:
        """The measured pairs; None when nothing was measured."""
        pairs = self.data.get("measured")
        return list(pairs) if isinstance(pairs, list) else None

    @property
    def measurement(self) -> dict[str, Any]:
        """How it was measured: mode (quick, full, light), where, when."""
        return dict(self.data.get("measurement") or {})


def load(text: str) -> Snapshot:
    """Read a saved snapshot; raises SnapshotError for anything else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"not JSON: {error}") from None
    return saved(data)


def saved(data: Any) -> Snapshot:
    """A snapshot that somebody names as one. Raises SnapshotError for an object without schema that has none of its keys either."""
    if isinstance(data, dict) and "schema" not in data and not _KEYS & data.keys():
        raise SnapshotError(f"it has no schema and none of {', '.join(sorted(_KEYS))}: no snapshot (gpunode snapshot -o FILE makes one)")
    return Snapshot(data)


def dump(data: Mapping[str, Any]) -> str:
    """Return the text of a snapshot file."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def validate(data: Any) -> dict[str, Any]:
    """Return ``data`` when it is a snapshot: every key optional, absent = not read, null = does not exist. Raises SnapshotError."""
    if not isinstance(data, dict):
        raise SnapshotError(f"a snapshot is a JSON object, this is {_kind(data)}")
    schema = data.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise SnapshotError(f"schema is {schema!r}, this version reads {SCHEMA!r}")
    _expect(data, "host", str, "")
    _expect(data, "collected_at", str, "")
    _expect(data, "measurement", dict, "")
    _expect(data, "container", dict, "")
    _part(data, "")
    if isinstance(data.get("container"), dict):
        _part(data["container"], "container.")
    _expect(data, "measured", list, "")
    for index, pair in enumerate(data.get("measured") or []):
        check_pair(pair, f"measured[{index}]")
    check_measurement(data.get("measurement") or {}, MEASUREMENT)
    return data


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _expect(data: Mapping[str, Any], key: str, kind: type, where: str) -> None:
    value = data.get(key)
    if value is not None and not isinstance(value, kind):
        raise SnapshotError(f"{where}{key} is {_kind(value)}, expected {kind.__name__}")


def _part(data: Mapping[str, Any], where: str) -> None:
    for kind in _MAPPINGS:
        if kind in data and not isinstance(data[kind], dict):
            raise SnapshotError(f"{where}{kind} is {_kind(data[kind])}, expected dict")
    for kind, wanted in (("commands", dict), ("files", str), ("links", str), ("nodes", dict)):
        for key, value in data.get(kind, {}).items():
            if value is not None and not isinstance(value, wanted):
                raise SnapshotError(f"{where}{kind}[{key!r}] is {_kind(value)}, expected {wanted.__name__} or null")
    for line, result in data.get("commands", {}).items():
        for key, expected in (("rc", int), ("stdout", str), ("stderr", str)):
            if result is not None:
                _expect(result, key, expected, f"{where}commands[{line!r}].")


def check_measurement(measurement: Any, shape: Shape) -> None:
    """Raise SnapshotError when what is known about a measurement is of another shape or tells rates that no measurement gives."""
    try:
        check(measurement, shape, "measurement")
    except ShapeError as error:
        raise SnapshotError(str(error)) from None
    for kind in ("host", "patterns"):
        for index, entry in enumerate(measurement.get(kind) or []):
            _measures(entry, f"measurement.{kind}[{index}]")


def check_pair(pair: Any, where: str) -> None:
    """Raise SnapshotError when ``pair`` is no measured pair."""
    if not isinstance(pair, dict):
        raise SnapshotError(f"{where} is {_kind(pair)}, expected dict")
    for key in ("src", "dst"):
        if not isinstance(pair.get(key), int) or isinstance(pair[key], bool) or pair[key] < 0:
            raise SnapshotError(f"{where}.{key} is {pair.get(key)!r}, expected the index of a GPU")
    try:
        check(pair, PAIR, where)
    except ShapeError as error:
        raise SnapshotError(str(error)) from None
    _measures(pair, where)
    for key in ("can_access", "data_ok"):
        if not isinstance(pair.get(key), bool | None):
            raise SnapshotError(f"{where}.{key} is {pair.get(key)!r}, expected true, false or null")
    if pair.get("status", "ok") not in PAIR_STATUSES:
        raise SnapshotError(f"{where}.status is {pair.get('status')!r}, expected one of {', '.join(PAIR_STATUSES)}")


def _measures(entry: Mapping[str, Any], where: str) -> None:
    """Refuse what no measurement gives: no number, NaN, infinite, below zero."""
    for key, value in entry.items():
        if value is None or not str(key).endswith(_MEASURES):
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise SnapshotError(f"{where}.{key} is {value!r}, expected a number or null")
        if not math.isfinite(value) or value < 0:
            raise SnapshotError(f"{where}.{key} is {value!r}: no measurement gives that")


# --- redaction ---------------------------------------------------------------------------------------------------------------------

_UUID: Final = re.compile(r"\b(GPU-|MIG-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_MAC: Final = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_IPV4: Final = re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])")
_IPV6: Final = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:.])|(?<![\w:])fe80::[0-9a-fA-F:]+")
_SERIAL: Final = re.compile(
    r"(?i)((?:serial(?: number)?|chassis serial number|gpu pdi|board serial number)\s*:\s*|<(?:serial|pdi|chassis_serial_number)>|"
    r"Device Serial Number )([0-9a-fx-]*[0-9][0-9a-fx-]*)"
)


def redact(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy without host names, serial numbers, UUIDs and network addresses; equal ones stay equal, PCI addresses stay."""
    names: dict[str, str] = {}
    host = data.get("host")
    hosts = [name for name in {host, (host or "").split(".")[0]} if name]

    def number(kind: str, form: Callable[[int], str]) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            key = kind + match[0].lower()
            if key not in names:
                names[key] = form(sum(1 for name in names if name.startswith(kind)) + 1)
            return names[key]

        return replace

    def clean(text: str) -> str:
        text = _SERIAL.sub(lambda match: match[1] + "0", text)
        text = _UUID.sub(lambda match: (match[1] or "") + number("uuid ", lambda n: f"00000000-0000-4000-8000-{n:012d}")(match), text)
        text = _MAC.sub(number("mac ", lambda n: f"02:00:00:00:00:{n % 256:02x}"), text)
        text = _IPV4.sub(number("ipv4 ", lambda n: f"192.0.2.{n % 256}"), text)
        text = _IPV6.sub(number("ipv6 ", lambda n: f"2001:db8::{n:x}"), text)
        for name in sorted(hosts, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "host", text)
        return text

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, dict):
            return {clean(key) if isinstance(key, str) else key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return value

    cleaned = walk({key: value for key, value in data.items() if key != "schema"})
    return {**({"schema": data["schema"]} if "schema" in data else {}), **cleaned}
