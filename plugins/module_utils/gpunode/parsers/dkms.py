"""`dkms status`: for which kernels a module is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .text import NotUnderstoodError, excerpt, lines_of

WHAT: Final = "dkms status"
_LINE: Final = re.compile(
    r"(?P<module>[\w.+-]+)(?:/|,\s*)(?P<version>[\w.+~:-]+)"
    r"(?:,\s*(?P<kernel>[\w.+~-]+),\s*(?P<arch>\w+))?"
    r"\s*:\s*(?P<state>added|built|installed|broken)(?P<note>.*)"
)


@dataclass(frozen=True)
class DkmsEntry:
    """One line: kernel and arch are None while the module is only added."""

    module: str
    version: str
    kernel: str | None
    arch: str | None
    state: str
    note: str


def parse_dkms(text: str) -> list[DkmsEntry]:
    """Read ``dkms status`` of dkms 2 ('nvidia, 550.1, 6.8.12-1-pve, x86_64: installed') and 3 ('nvidia/550.1, …').

    An empty output is no module at all. Lines such as warnings are passed over; a text of which no line is understood is refused.
    """
    entries = []
    said = []
    for line in lines_of(text):
        stripped = line.strip()
        if not stripped:
            continue
        if match := _LINE.fullmatch(stripped):
            entries.append(DkmsEntry(**match.groupdict()) if match["note"].strip() else DkmsEntry(**{**match.groupdict(), "note": ""}))
        else:
            said.append(stripped)
    if said and not entries and not all(re.match(r"(?:WARNING|Deprecated|Error!|dkms:)", line) for line in said):
        raise NotUnderstoodError(WHAT, excerpt(text))
    return entries
