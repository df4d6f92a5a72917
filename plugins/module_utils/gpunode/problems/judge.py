"""From occurrences to an answer: which problems there are, and which of them follow from others."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from .facts import completed, texts
from .model import (
    ANYTHING,
    CONFIDENCES,
    ERROR,
    LAYERS,
    Context,
    Evidence,
    Match,
    Problem,
    Sign,
)
from .pattern import plain
from .scan import Index, Occurrence, Scanner, Seen, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..findings import Finding

SLACK_S: Final = 5.0
"""A consequence may carry a time stamp this much earlier than its cause: the journal and the kernel log are written by different clocks."""
SIMULATED: Final = r"\(simulated\)"
"""What the lab's stand-ins write behind the names of their GPUs."""
PROOF: Final = 6
"""Places that are shown for a match."""
_SEVERITIES: Final = ("error", "warning", "unknown", "info")


class Diagnosis:
    """One diagnosis over any number of sources: ``open`` a source and feed it, then ``matches``.

    Args:
        catalogue: the problems to look for.
        context: versions and GPU architecture, where they are known.
    """

    def __init__(self, catalogue: Sequence[Problem], context: Context | None = None) -> None:
        self.catalogue = catalogue
        self.context = context or Context()
        self.seen: dict[object, Seen] = {}
        self.sources: list[str] = []
        self._index = index_of(catalogue)
        self._named = [(problem.id, number, sign) for problem in catalogue for number, sign in enumerate(problem.signs) if sign.source]

    def open(self, source: str) -> Scanner:
        """A scanner for one source; the name is what evidence is quoted under."""
        self.sources.append(source)
        return Scanner(self._index, source, self.seen)

    def read(self, source: str, text: str, as_name: str = "") -> Scanner:
        """Search a text that is at hand as a whole; signs bound to this source's name (or ``as_name``) are tried too."""
        scanner = self.open(source)
        scanner.feed(text.encode("utf-8", "replace"))
        scanner.close()
        for problem_id, number, sign in self._named:
            if fnmatchcase(as_name or source, sign.source) and (match := plain(sign.text).search(text)):
                line = text.count("\n", 0, match.start()) + 1
                shown = text.splitlines()[line - 1].strip()[:240]
                groups = {name: value for name, value in match.groupdict().items() if value}
                seen = self.seen.setdefault((problem_id, number), Seen())
                seen.count += 1
                seen.kept.append(Occurrence([Evidence(source, line, shown)], groups))
        return scanner

    @property
    def simulated(self) -> bool:
        """Whether a source carries the mark of the lab's stand-ins."""
        return SIMULATED in self.seen

    def known(self) -> Context:
        """What is known beside the problems: the context given, and what the sources say of themselves."""
        return completed(self.context, self.seen)

    def matches(self) -> list[Match]:
        """What was found, roots before consequences, each consequence behind its root."""
        known = self.known()
        found = [match for problem in self.catalogue if not known.excludes(problem) and (match := self._judge(problem)) is not None]
        return ordered(found, self.sources)

    def _judge(self, problem: Problem) -> Match | None:
        proofs: list[Evidence] = []
        details: dict[str, str] = {}
        count = 0
        for number, sign in enumerate(problem.signs):
            seen = self.seen.get((problem.id, number))
            if seen is None or seen.count < sign.times or not self._surroundings(sign, proofs):
                continue
            held = [found for found in (*seen.kept, *([seen.last] if seen.last else [])) if _differs(sign, found)]
            if not held:
                continue
            count = max(count, seen.count)
            for found in held:
                proofs += [place for place in found.evidence if place not in proofs]
                details = {**found.groups, **details}
        if not count:
            return None
        order = {source: rank for rank, source in enumerate(self.sources)}
        proofs.sort(key=lambda place: (order.get(place.source, 0), place.line))
        shown = proofs if len(proofs) <= PROOF else [*proofs[: PROOF - 1], proofs[-1]]
        return Match(problem, tuple(shown), count, details=details)

    def _surroundings(self, sign: Sign, proofs: list[Evidence]) -> bool:
        if any(self._anywhere(text) for text in sign.unless):
            return False
        for text in sign.also:
            seen = self._anywhere(text)
            if seen is None:
                return False
            proofs += [place for place in seen.kept[0].evidence if place not in proofs]
        return True

    def _anywhere(self, text: str) -> Seen | None:
        return self.seen.get(text)


_indexes: dict[int, tuple[Sequence[Problem], Index]] = {}


def index_of(catalogue: Sequence[Problem]) -> Index:
    """The index of a catalogue, built once."""
    held = _indexes.get(id(catalogue))
    if held is not None and held[0] is catalogue:
        return held[1]
    wanted = []
    for problem in catalogue:
        for number, sign in enumerate(problem.signs):
            if not sign.source:
                wanted.append(Wanted((problem.id, number), sign.text, sign.near, sign.not_near, sign.within))
            wanted += [Wanted(text, text) for text in (*sign.also, *sign.unless)]
    wanted += [Wanted(text, text, fact=True) for text in (*texts(), SIMULATED)]
    index = Index(dict.fromkeys(wanted))
    _indexes[id(catalogue)] = (catalogue, index)
    return index


def _differs(sign: Sign, found: Occurrence) -> bool:
    if sign.differ is None:
        return True
    one, other = (found.groups.get(name) for name in sign.differ)
    return one is not None and other is not None and one != other


def ordered(found: list[Match], sources: Sequence[str] = ()) -> list[Match]:
    """Roots first (errors before warnings, the surer first, the lower layer first, then by place), each followed by what it explains."""
    rank = {source: number for number, source in enumerate(sources)}
    by_id = {match.id: match for match in found}
    because: dict[str, str] = {}
    for relation in (_is_general_form, _explains):
        for match in sorted(found, key=lambda match: _place(match, rank)):
            if match.id in because:
                continue
            roots = [root for root in found if root is not match and relation(root, match) and not _leads_to(because, root.id, match.id)]
            if roots:
                because[match.id] = min(roots, key=lambda root: _distance(root, match)).id
    tops = {match.id: _top(because, match.id) for match in found}
    groups: dict[str, list[Match]] = defaultdict(list)
    for match in found:
        groups[tops[match.id]].append(match)

    def key(top: str) -> tuple[int, int, int, int, tuple[int, int]]:
        root = by_id[top]
        worst = min(_SEVERITIES.index(match.problem.severity) for match in groups[top])
        return (
            worst,
            "aftermath" in root.problem.tags,
            CONFIDENCES.index(root.problem.confidence),
            LAYERS.index(root.problem.layer),
            _place(root, rank),
        )

    result = []
    for top in sorted(groups, key=key):
        members = sorted(groups[top], key=lambda match: (match.id != top, _place(match, rank)))
        for match in members:
            reason = because.get(match.id, "")
            result.append(Match(match.problem, match.evidence, match.count, reason, match.details))
    return result


def _place(match: Match, rank: dict[str, int]) -> tuple[int, int]:
    first = match.evidence[0]
    return rank.get(first.source, 0), first.line


def _distance(root: Match, match: Match) -> tuple[bool, bool, int]:
    """How far a cause is from its consequence: in the same source and before it is nearest."""
    cause, effect = root.evidence[0], match.evidence[0]
    return cause.source != effect.source, cause.line > effect.line, abs(effect.line - cause.line)


def _explains(root: Match, match: Match) -> bool:
    """Whether the one is a known cause of the other and does not come after it."""
    if root.problem.harmless or match.problem.harmless or not _follows(root, match):
        return False
    if "aftermath" in match.problem.tags:
        return "aftermath" not in root.problem.tags and root.problem.severity == ERROR
    names = {match.id, *match.problem.tags}
    if names & set(root.problem.explains):
        return True
    return ANYTHING in root.problem.explains and LAYERS.index(match.problem.layer) >= LAYERS.index(root.problem.layer)


def _is_general_form(root: Match, match: Match) -> bool:
    """Whether the other is the same event told in general words."""
    return match.id in root.problem.refines or bool(set(match.problem.tags) & set(root.problem.refines))


def _follows(root: Match, match: Match) -> bool:
    """Whether the consequence begins no earlier than its cause, by clock where both have the same, else by place."""
    cause, effect = root.evidence[0], match.evidence[0]
    if "aftermath" in match.problem.tags:
        return True
    if cause.clock and cause.clock == effect.clock:
        return effect.seconds >= cause.seconds - SLACK_S
    if cause.source == effect.source:
        return effect.line >= cause.line
    return True  # different sources without a common clock: nothing speaks against it


def _leads_to(because: dict[str, str], start: str, goal: str) -> bool:
    """Whether ``goal`` is already a reason for ``start``: a consequence never becomes the cause of its cause."""
    while start in because:
        start = because[start]
        if start == goal:
            return True
    return False


def _top(because: dict[str, str], name: str) -> str:
    while name in because:
        name = because[name]
    return name


def match_lines(catalogue: Sequence[Problem], lines: Iterable[str], context: Context | None = None, source: str = "text") -> list[Match]:
    """Diagnose lines that are at hand."""
    diagnosis = Diagnosis(catalogue, context)
    scanner = diagnosis.open(source)
    for line in lines:
        scanner.feed((line if line.endswith("\n") else line + "\n").encode("utf-8", "replace"))
    scanner.close()
    return diagnosis.matches()


def findings(matches: Iterable[Match], *, harmless: bool = False) -> list[Finding]:
    """The matches as findings; harmless ones only when asked for."""
    return [match.to_finding() for match in matches if harmless or not match.problem.harmless]
