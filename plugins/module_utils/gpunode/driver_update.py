"""The transaction of a driver update: its steps, what an interruption means, and what must be known before it begins.

It shares record, way back and comparison with ``kernel_update``. The kernel stays; what a boot decides is which driver is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORWARD: Final = ("baseline", "protect", "build", "install", "prove", "boot", "verify", "keep")
"""``build`` fetches every package and compiles the modules in a tree of its own: a source that does not compile is met before the old
driver is taken off, since its successor's package removes the modules of the old one from every kernel."""
BACK: Final = ("back", "recheck", "settle")
_BOOTED: Final = ("boot", "verify", "keep")
_NOTHING_INSTALLED: Final = ("baseline", "protect", "build")


def failure_of(record: Mapping[str, Any], loaded: str, boot_id: str) -> str:
    """Why an interrupted driver update has failed by what is loaded now (a version, empty for none); empty while it has not.

    A host that lost power while packages were unpacked may load nothing: before the boot that is no failure, the step is done again.
    """
    if record.get("cause"):
        return str(record["cause"])
    step, source, target = record["step"], record["from"], record["to"]
    if loaded == target:
        return ""
    if loaded not in {"", source}:
        return f"driver {loaded} is loaded, neither {source} that the update began on nor {target} that it is for"
    if step in _BOOTED and boot_id != record.get("boot_ids", {}).get(step, boot_id):
        what = f"driver {loaded}" if loaded else "no driver"
        return f"the node was rebooted for driver {target} and came up with {what} loaded: `dkms status` and `dmesg | grep NVRM` say why"
    return ""


def steps(record: Mapping[str, Any] | None, loaded: str, boot_id: str) -> list[str]:
    """The steps that are left of an open transaction, or all of them where ``record`` is None; an interrupted step is done again."""
    if record is None:
        return list(FORWARD)
    if failure_of(record, loaded, boot_id):
        return back_steps(record["step"])
    left = list(FORWARD[FORWARD.index(record["step"]) :])
    if loaded == record["to"]:
        # The boot is over where it was reached; what an early, unplanned one loaded is installed whole, proved and booted once more.
        return left[1:] if record["step"] == "boot" else left
    return list(FORWARD[FORWARD.index("boot") :]) if record["step"] in {"verify", "keep"} else left


def back_steps(step: str) -> list[str]:
    """The way back from a step that failed: packages only where they were touched."""
    if step == "baseline":
        return []
    if step in _NOTHING_INSTALLED:
        return ["settle"]
    return list(BACK[BACK.index(step) :]) if step in BACK else list(BACK)


def problems(wanted: str, loaded: str, installed: str, offered: Iterable[str], *, package: str, runfile: bool) -> list[str]:
    """Why a driver update must not begin; versions without Debian's revision, ``offered`` those that apt has of ``package``."""
    versions = list(offered)
    found = []
    if not wanted:
        found.append("no version was named: set nvidia_driver_version in the inventory, or -e kernel_update_driver_version=VERSION")
    if not loaded:
        found.append(
            "no NVIDIA driver is loaded (/sys/module/nvidia/version), so nothing can be compared: run `ansible-playbook site.yml` first"
        )
    if runfile:
        found.append(
            "the driver was installed from a .run file, whose predecessor apt cannot bring back: set nvidia_driver_runfile and "
            "nvidia_driver_version and run `ansible-playbook site.yml --tags nvidia_driver`"
        )
        return found
    if loaded and installed != loaded:
        found.append(
            f"driver {loaded} is loaded and {package} is {installed or 'not'} installed: load what is installed first "
            "(`ansible-playbook site.yml --tags nvidia_driver`)"
        )
    have = f"`apt-cache madison {package}` has {', '.join(versions) or 'nothing'}"
    if wanted and wanted not in versions:
        found.append(f"apt offers no {package} {wanted} ({have})")
    if loaded and loaded not in versions:
        found.append(f"apt does not offer {package} {loaded} any more, so there would be no way back ({have})")
    return found


def versions_of(madison: str) -> list[str]:
    """Versions in ``apt-cache madison``, newest first, without epoch and Debian's revision: 580.159.04 of 1:580.159.04-1."""
    rows = [line.split("|") for line in madison.splitlines() if line.count("|") >= 2]
    return list(dict.fromkeys(upstream(row[1].strip()) for row in rows))


def upstream(version: str) -> str:
    """A package version without epoch and Debian's revision."""
    bare = version.partition(":")[2] or version
    return bare.rpartition("-")[0] or bare
