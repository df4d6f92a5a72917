"""The frame of HTML reports: one file, no outside resource, light and dark, readable on a phone."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STYLE: Final = Path(__file__).with_name("page.css")
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, body: Iterable[str]) -> str:
    """Return the whole document; ``body`` is HTML."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>",
            "</head>",
            "<body><main>",
            *body,
            "</main></body>",
            "</html>",
            "",
        ]
    )


def card(heading: str, *parts: str) -> str:
    """A section with a heading; ``parts`` are HTML."""
    return "\n".join(['<section class="card">', f"<h2>{escape(heading)}</h2>", *parts, "</section>"])


def verdict_line(heading: str, verdict: str, words: str) -> str:
    """The first line of a report."""
    return f'<h1>{escape(heading)}</h1>\n<p><span class="verdict {escape(verdict)}">{escape(verdict)}</span> {escape(words)}</p>'


def simulated_notice() -> str:
    """The label of everything that the lab's stand-ins made."""
    return '<p class="simulated">Simulated: made by the lab\'s stand-ins, says nothing about hardware.</p>'


def finding(entry: dict[str, str]) -> str:
    """One finding of a result."""
    severity = escape(entry["severity"])
    parts = [
        f'<div class="finding {severity}">',
        f'<p><span class="sev">{severity}</span> <code>{escape(entry["id"])}</code> <strong>{escape(entry["subject"])}</strong></p>',
        f"<p>{escape(entry['summary'])}</p>",
    ]
    if entry.get("evidence"):
        parts.append(f'<p class="seen">Seen: {escape(entry["evidence"])}</p>')
    if entry.get("remedy"):
        parts.append(f"<p>Do: {escape(entry['remedy'])}</p>")
    if entry.get("source"):
        parts.append(f'<p class="seen">Source: {escape(entry["source"])}</p>')
    return "\n".join([*parts, "</div>"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "plain") -> str:
    """A table of text cells that scrolls sideways by itself where it is wider than the page."""
    lines = [
        f'<div class="scroll"><table class="{kind}"><thead><tr>'
        + "".join(f"<th>{escape(cell)}</th>" for cell in head)
        + "</tr></thead><tbody>"
    ]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</tbody></table></div>"])


def heat(labels: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[tuple[str, int | None]]]) -> str:
    """A heat map: square of (text, level 0 bad to 4 good, None neutral); every cell carries its text, colour only helps.

    ``columns`` are the shorter labels of the columns, so that eight fit on a phone.
    """
    lines = [
        '<div class="scroll"><table class="heat"><thead><tr><th></th>'
        + "".join(f"<th>{escape(columns[index])}</th>" for index in range(len(labels)))
        + "</tr></thead><tbody>"
    ]
    for label, row in zip(labels, cells, strict=True):
        kinds = ["" if level is None else f' class="h{level}"' for _, level in row]
        shown = "".join(f"<td{kind}>{escape(text)}</td>" for kind, (text, _) in zip(kinds, row, strict=True))
        lines.append(f"<tr><th>{escape(label)}</th>{shown}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])
