"""A diagnosis as text for a person, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpunode.findings import EXIT_FINDING, EXIT_HEALTHY, EXIT_UNKNOWN, FAIL, PASS, UNKNOWN, WARN
from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, plural, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpunode.problems import Context, Match
    from gpunode_tools.diagnose.sources import Source

SCHEMA: Final = "gpunode.diagnose/1"


def verdict(matches: Sequence[Match], sources: Sequence[Source]) -> str:
    """``fail`` with an error, else ``unknown`` when something required could not be read, else ``warn`` or ``pass``."""
    severities = {match.problem.severity for match in matches}
    if "error" in severities:
        return FAIL
    if any(source.error and source.required for source in sources) or not any(not source.error for source in sources):
        return UNKNOWN
    return WARN if "warning" in severities else PASS


def exit_code(said: str) -> int:
    """Exit code of a verdict."""
    return {FAIL: EXIT_FINDING, UNKNOWN: EXIT_UNKNOWN}.get(said, EXIT_HEALTHY)


def as_data(matches: Sequence[Match], sources: Sequence[Source], known: Context, *, harmless: bool, simulated: bool) -> dict[str, Any]:
    """The result: schema, verdict, problems (roots first, each followed by what it explains), sources, context."""
    shown = [match for match in matches if harmless or not match.problem.harmless]
    return {
        "schema": SCHEMA,
        "verdict": verdict(matches, sources),
        "problems": [match.to_dict() for match in shown],
        "harmless": sum(match.problem.harmless for match in matches),
        "sources": [source.to_dict() for source in sources],
        "context": {"versions": known.versions, "arch": known.arch or None},
        "simulated": simulated,
    }


def as_text(result: dict[str, Any], *, colour: bool) -> str:
    """The result for a person: what, why, what to do, and the lines that prove it."""
    paint = Paint(on=colour)
    lines: list[str] = []
    if result["simulated"]:
        lines += [paint("Simulated: these texts come from the lab's stand-ins.", "magenta"), ""]
    for problem in result["problems"]:
        lines += _problem(problem, paint)
    read = [source for source in result["sources"] if "error" not in source]
    lines += [f"Not read: {source['name']}: {source['error']}" for source in result["sources"] if "error" in source]
    total = sum(source["lines"] for source in read)
    where = read[0]["name"] if len(read) == 1 else f"{len(read)} sources"
    roots = sum(not problem["because_of"] and problem["severity"] != "info" for problem in result["problems"])
    said = plural(roots, "known problem") if roots else "No known problem found"
    note = f"; {plural(result['harmless'], 'kind')} of harmless lines" if result["harmless"] else ""
    if result["harmless"] and not any(problem["severity"] == "info" for problem in result["problems"]):
        note += " (--all shows them)"
    word = paint(result["verdict"].upper(), VERDICT_STYLES[result["verdict"]], "bold")
    lines.append(f"{word}  {said} in {plural(total, 'line')} of {where}{note}.")
    return "\n".join(lines) + "\n"


def _problem(problem: dict[str, Any], paint: Paint) -> list[str]:
    indent = 4 if problem["because_of"] else 0
    blank = " " * indent
    mark = "follows: " if problem["because_of"] else ""
    kind = "harmless" if problem["severity"] == "info" else problem["severity"]
    times = f"  ({problem['count']} times)" if problem["count"] > 1 else ""
    head = f"{blank}{mark}{paint(kind, SEVERITY_STYLES[problem['severity']], 'bold')}  {paint(problem['title'], 'bold')}{times}"
    lines = [head, f"{blank}  {paint(problem['id'], 'dim')}  layer {problem['layer']}, {problem['confidence']}"]
    if not problem["because_of"]:
        lines += _part("cause", problem["cause"], indent)
        lines += _part("do", problem["remedy"], indent)
        if problem["consequence"]:
            lines += _part("else", problem["consequence"], indent)
        if problem["details"]:
            lines += _part("read", ", ".join(f"{name} {value}" for name, value in problem["details"].items()), indent)
    for place in problem["evidence"][: 2 if problem["because_of"] else None]:
        lines.append(f"{blank}  {paint('proof', 'dim')}  {place['source']}:{place['line']}: {place['text']}")
    if not problem["because_of"]:
        lines.append(f"{blank}  {paint('see', 'dim')}    {problem['sources'][0]}")
    return [*lines, ""]


def _part(name: str, text: str, indent: int) -> list[str]:
    first, *rest = wrapped(text, 0)
    return [f"{' ' * indent}  {name:<5}  {first}", *(f"{' ' * indent}         {line}" for line in rest)]
