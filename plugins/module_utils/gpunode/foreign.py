"""Drivers that somebody else put on a host: found by what they leave, told with the way to take each away."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DEBIAN_ONLY: Final = re.compile(
    r"nvidia-open-kernel-(?:dkms|source|support)|nvidia-kernel-(?:dkms|source|common)|nvidia-alternative|glx-alternative-\w+|"
    r"nvidia-installer-cleanup|nvidia-legacy-check|nvidia-tesla-[\w-]+|nvidia-current[\w-]*|nvidia-headless[\w-]*|nvidia-dkms[\w-]*"
)
"""Packages of Debian's and Ubuntu's own drivers, and NVIDIA's proprietary modules; none is part of the open driver by DKMS."""
RUNFILE: Final = "/usr/bin/nvidia-uninstall"


@dataclass(frozen=True)
class Foreign:
    """One thing that somebody else installed: ``kind`` packages, runfile or modules."""

    kind: str
    what: str
    evidence: str
    remedy: str
    packages: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def foreign_packages(installed: Mapping[str, str]) -> list[Foreign]:
    """Packages (name to version) of a driver that does not come from NVIDIA's repository or is not the open one."""
    found = {name: version for name, version in installed.items() if _DEBIAN_ONLY.fullmatch(name)}
    if not found:
        return []
    names = sorted(found)
    return [
        Foreign(
            "packages",
            f"a driver of the distribution, or NVIDIA's proprietary one: {', '.join(f'{name} {found[name]}' for name in names)}",
            "dpkg --list",
            f"apt-get purge {' '.join(names)}",
            packages=names,
        )
    ]


def foreign_runfile(*, uninstaller: bool, log: bool) -> list[Foreign]:
    """A driver that a .run file installed; ``uninstaller`` and ``log``: whether nvidia-uninstall and nvidia-installer.log exist."""
    if not uninstaller:
        return []
    evidence = RUNFILE + (" and /var/log/nvidia-installer.log" if log else "")
    return [Foreign("runfile", "a driver that a .run file installed", f"{evidence} exist", "nvidia-uninstall --silent", files=[RUNFILE])]


def foreign_modules(paths: Iterable[str], owned: Iterable[str]) -> list[Foreign]:
    """Files nvidia*.ko below /lib/modules that neither DKMS nor a package put there."""
    known = set(owned)
    files = sorted(path for path in paths if path not in known and "/updates/dkms/" not in path)
    if not files:
        return []
    return [
        Foreign(
            "modules",
            f"{len(files)} kernel modules that no package and no DKMS knows",
            ", ".join(files[:4]) + (" and more" if len(files) > 4 else ""),
            f"rm {' '.join(files)}; depmod",
            files=files,
        )
    ]
