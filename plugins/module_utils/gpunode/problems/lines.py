"""Lines of logs as programs and people print them: prefixes taken off, clocks read."""

from __future__ import annotations

import calendar
import re
from typing import Final

_PREFIX: Final = re.compile(
    r"""(?:
      <\d{1,3}>                                                       # kernel ring buffer priority
    | (?:kern|user|daemon|syslog|auth|authpriv|local\d)\s*:\s*(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:   # dmesg --decode
    | \[\s*\d+\.\d+\]                                                 # seconds since boot
    | \[[A-Z][a-z]{2}\s[A-Z][a-z]{2}\s+\d+\s[\d:]{8}\s\d{4}\]         # dmesg -T
    | \d{4}-\d\d-\d\d\s[\d:.]{8,15}\s\|\s\w+\s+\|\s[\w.:<>-]{1,100}\s-(?=\s)   # loguru
    | \[?\d{4}-\d\d-\d\d[T\s][\d:]{8}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?:\s(?:[A-Z]{2}\d+\s?)+)?\]?(?:\s-)?
      (?:\s\S+(?=\s(?:[\w.@/()-]{1,60}\[\d+\]|kernel|systemd):))?     # ISO, sglang's ranks, a journal's host
    | [A-Z][a-z]{2}\s+\d{1,2}\s[\d:]{8}(?:\.\d+)?\s\S+                # syslog: month, day, time, host
    | [\w.@/()-]{1,60}\[\d+\]:                                        # program[pid]:
    | (?:kernel|systemd|nvidia-smi|pct|python3?|sglang|sudo):         # program:
    | \((?:[\w-]+\s)?pid=\d+\) | \([A-Z]\w+\s+pid=\d+(?:,\sip=[\d.]+)?\)   # vLLM and ray workers
    | \[rank\d+\]:(?:\[[A-Z]\d+\s[\d:.]+\s[\w.]+:\d+\])?              # torch
    | [\w.-]{1,60}\s+\|(?=\s)                                         # docker compose
    | \[(?:pod|container)/[^\]\s]{1,200}\]                              # kubectl logs --prefix
    | \[(?:default|\d+,)\d+\](?:<std(?:out|err)>)?:                     # torchrun, mpirun
    | \d{1,4}:(?=\s)                                                   # srun --label
    | \d+\|[\w.-]{1,40}\s+\|(?=\s)                                     # pm2
    | [IWEF]\d{4}\s[\d:]{8}\.\d+\s+\d+\s[\w.]+:\d+\]                     # glog
    | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s\d\d-\d\d\s[\d:]{8}(?:\s\[[\w.]+:\d+\])?   # vLLM
    | NVRM:                                                           # continued driver messages
    | [>|│]                                                           # quoted
    )\s*""",
    re.VERBOSE,
)

_MONTHS: Final = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_ISO: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
_DMESG_T: Final = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})\]")
_SYSLOG: Final = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)")
_BOOT: Final = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\]")

WALL: Final = "wall"
YEARLESS: Final = "yearless"
BOOT: Final = "boot"


def message(line: str) -> str:
    """The line without what stands before its message: time stamps, host, program, rank, quotation marks of a post."""
    at = len(line) - len(line.lstrip())
    for _ in range(8):
        match = _PREFIX.match(line, at)
        if match is None:
            break
        at = match.end()
    return line[at:]


def clock(line: str) -> tuple[str, float]:
    """The clock that a line carries and its seconds: ``wall``, ``yearless`` (syslog) or ``boot``; ``("", 0.0)`` without one."""
    head = line[:120]
    if match := _ISO.search(head):
        year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
        return WALL, _seconds(year, month, day, hour, minute, second) + float(f"0.{match[7] or 0}")
    if match := _DMESG_T.search(head):
        month = _MONTHS.get(match[1], 1)
        return WALL, _seconds(int(match[6]), month, int(match[2]), int(match[3]), int(match[4]), int(match[5]))
    if match := _SYSLOG.search(head):
        month = _MONTHS.get(match[1], 1)
        return YEARLESS, _seconds(2000, month, int(match[2]), int(match[3]), int(match[4]), int(match[5]))
    if match := _BOOT.search(head):
        return BOOT, float(match[1])
    return "", 0.0


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float:
    # Clocks of one machine are compared with one another: the time zone cancels out, and nonsense must not raise.
    return float(calendar.timegm((max(1, year), max(1, min(month, 12)), max(1, min(day, 31)), hour, minute, second)))
