"""Control groups of a node, so that containers run inside it.

On machines with the old hierarchies (v1 or hybrid) systemd leaves /sys/fs/cgroup read-only and has no place for controllers that it does
not use itself; nested containers then fail with ``Failed to open N/cpuacct``. With the unified hierarchy alone there is nothing to do.
"""

from __future__ import annotations

from pathlib import Path

from lab.boot import mounts

ROOT = Path("/sys/fs/cgroup")


def hierarchies(text: str) -> list[str]:
    """Return the v1 hierarchies that a text in the form of /proc/self/cgroup names: controllers joined by commas, without named ones."""
    names = (line.split(":", 2)[1] for line in text.splitlines())
    return [name for name in names if name and not name.startswith("name=")]


def prepare() -> list[str]:
    """Mount every v1 hierarchy that the node lacks; returns the names of those mounted now."""
    wanted = hierarchies(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    if not wanted:
        return []
    there = mounts.mounted()
    mounts.mount("none", ROOT, flags=mounts.MS_REMOUNT | mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC)
    done = []
    for name in wanted:
        place = ROOT / name
        if str(place) in there:
            continue
        if place.is_symlink():
            place.unlink()
        place.mkdir(exist_ok=True)
        mounts.mount("cgroup", place, "cgroup", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC, name)
        done.append(name)
        for controller in name.split(","):
            link = ROOT / controller
            if not link.exists():
                link.symlink_to(name)
    return done
