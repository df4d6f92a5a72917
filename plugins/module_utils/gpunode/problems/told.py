"""Lines that tell of an error instead of reporting one: commands that look for it, notes and commits that quote it, "no" before it."""

from __future__ import annotations

import re
from typing import Final

_COMMAND: Final = re.compile(
    r"""^\s*(?:
      \$\s | \++\s+(?=[\w./-]+\s)                                         # a prompt; a shell's trace of what it runs
    | [\w.-]+@[\w.-]+:[^\n$\#]{0,80}[$\#]\s                               # root@host:~#
    | (?:\(\w+\)\s+)?CMD\s\( | [^\n]{0,200}\bCOMMAND=                     # cron, sudo
    | (?:[^\n]{0,400}[|;&(!]\s*)?(?:sudo\s+)?[efz]?grep\s+\S              # grep -q 'words' file
    )""",
    re.VERBOSE,
)
_CHANGE: Final = re.compile(
    r"""^\s*(?:
      [*+-]\s+(?:\[[\w/\ -]{1,30}\]\s*)*(?:Fix(?:e[sd])?|Avoid(?:s|ed)?|Handle[sd]?|Raise[sd]?|Prevent(?:s|ed)?
        |Resolve[sd]?|Work(?:s|ed)?\ around)\b
    | (?:fix|docs|feat|chore|refactor)(?:\([\w\ /.-]{1,40}\))?!?:\s
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""A line of a change log, the subject of a commit."""
_PROSE: Final = re.compile(r"\b(?:if|when(?:ever)?) you (?:see|get|hit|encounter|run into)\b|\bmeans that\b", re.IGNORECASE)
_EXPLAINED: Final = re.compile(r"""^["'`\s]*(?:(?:usually|often|typically|normally) )?(?:means|indicates|occurs when|happens when)\b""")
_DENIED: Final = re.compile(r"\b(?:no|without|zero)\s+[\"'`\u201c\u2018]?$", re.IGNORECASE)
_ASSERTION: Final = re.compile(r"\b(?:[Aa]ssert(?:ion)?|File)\s*$")
"""An assertion quotes the condition that failed, a traceback the file."""
_HAPPENED: Final = re.compile(
    r"\b(?:with|errors?|got|get|gets|says?|said|saying|messages?|prints?|printed|throws?|raises?|raised)\s*$", re.IGNORECASE
)
"""Words before a quotation with which a person reports an error."""
_SELECTOR: Final = re.compile(r"[|!][=~]\s*[\"'`][^\"'`]*$")
"""A query for lines of a log, as alert rules have them."""
_QUOTES: Final = (("`", "`"), ('"', '"'), ("\u201c", "\u201d"))
_VALUE: Final = ":=({[,"
"""What stands before the quote of a value: in JSON, in logfmt, in a call. Such a value is the message itself."""


def is_told(text: str, start: int, end: int) -> bool:
    """Whether what stands at ``start`` to ``end`` of this text (messages of lines, joined) is told of and not reported."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    before, after = text[begin:start], text[end : stop if stop >= 0 else len(text)]
    line = before + text[start:end]
    if (
        "{{ $" in after
        or _SELECTOR.search(before)
        or _DENIED.search(before)
        or _PROSE.search(line)
        or _EXPLAINED.match(after)
        or _quoted(before, after)
    ):
        return True
    command = _COMMAND.match(line)
    if command is not None and command.end() <= len(before):
        return True
    change = _CHANGE.match(line)
    return change is not None and change.end() <= len(before)


def _quoted(before: str, after: str) -> bool:
    """Whether the place stands in a quotation within a sentence."""
    for opening, closing in _QUOTES:
        at = before.rfind(opening)
        if at < 0 or closing not in after or (opening == closing and before.count(opening) % 2 == 0) or closing in before[at + 1 :]:
            continue
        said = before[:at].rstrip()
        if said and said[-1] not in _VALUE and "{" not in said and not _ASSERTION.search(said) and not _HAPPENED.search(said):
            return True
    return False
