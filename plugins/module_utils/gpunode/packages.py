"""What dpkg says of a machine's packages: which of those wanted are whole, which are lacking, what an interrupted run left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT: Final = "${Package}\t${Architecture}\t${Version}\t${Status}\n"
"""For ``dpkg-query --show --showformat``; a status is three words: what is wanted, an error flag, the state."""
_RESTING: Final = frozenset({"installed", "not-installed", "config-files"})
"""States that no run leaves behind by being interrupted."""


@dataclass(frozen=True)
class Package:
    """One line of dpkg's database."""

    name: str
    architecture: str
    version: str
    wanted: str
    flag: str
    state: str

    @property
    def whole(self) -> bool:
        """Unpacked, configured and not to be installed anew; a package on hold is whole too."""
        return self.state == "installed" and self.flag == "ok" and self.wanted in {"install", "hold"}


def parse(text: str) -> list[Package]:
    """Packages of an answer in ``FORMAT``; a line that is not understood is a ValueError."""
    found = []
    for line in text.splitlines():
        words = [part.strip() for part in line.split("\t")]
        if len(words) != 4 or len(words[3].split()) != 3:
            raise ValueError(line)
        found.append(Package(words[0], words[1], words[2], *words[3].split()))
    return found


def half(packages: Iterable[Package]) -> list[str]:
    """Names of those that `dpkg --configure -a` has to finish, or that must be installed again."""
    return sorted({package.name for package in packages if package.state not in _RESTING or package.flag != "ok"})


def _fits(version: str, wanted: str) -> bool:
    """A version of this start, with an epoch or without, as in an apt pin ``wanted*``."""
    return version.startswith(wanted) or version.partition(":")[2].startswith(wanted)


def lacking(packages: Iterable[Package], names: Iterable[str], version: str = "") -> list[str]:
    """Those of ``names`` that are not whole for this machine's own architecture, or not in a version that begins with ``version``.

    A name may be ``NAME=VERSION``, which asks for exactly that version. A name that only other packages provide is lacking: apt knows more.
    """
    known = list(packages)
    native = next((package.architecture for package in known if package.name == "dpkg"), "")
    whole = {package.name: package.version for package in known if package.whole and package.architecture in {native, "all"}}
    found = []
    for entry in names:
        name, _, exact = entry.partition("=")
        has = whole.get(name)
        if has is None or (has != exact if exact else not _fits(has, version)):
            found.append(entry)
    return found
