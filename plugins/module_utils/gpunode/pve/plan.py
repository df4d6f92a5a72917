"""Desired against current: the plan of changes to one container. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .conffile import decode_text
from .options import CONFIGURATION, DEFAULTS, FIXED, PLAIN, UNDELETABLE, desired_value, meaning
from .propstring import (
    FAMILIES,
    Family,
    PropertyError,
    canonical,
    family_of,
    format_property,
    format_size,
    from_user,
    new_volume,
    parse,
    size_bytes,
)
from .rawlines import RawLine, raw_changes, raw_from_user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RAW: Final = "lxc"
LIVE_AT_ONCE: Final = frozenset(
    {"description", "onboot", "startup", "protection", "hostname", "hookscript", "cores", "tags", "memory", "swap", "cpulimit", "cpuunits"}
)
"""Options that a running container takes over at once. Source: proxmox/pve-container, LXC/Config.pm, vmconfig_hotplug_pending."""


class PlanError(ValueError):
    """The desired state cannot be reached from the current one; the text says what to do."""


@dataclass(frozen=True)
class Current:
    """A container as it is: live options, what waits for the next start, raw lines, and how it runs.

    ``raw_known`` is False when the raw lines could not be read.
    """

    vmid: int
    options: Mapping[str, str]
    pending: Mapping[str, str] = field(default_factory=dict)
    pending_delete: Sequence[str] = ()
    raw: Sequence[tuple[str, str]] = ()
    digest: str = ""
    running: bool = False

    @property
    def effective(self) -> dict[str, str]:
        """The options as they will be once the pending changes are applied."""
        merged = {key: value for key, value in self.options.items() if key not in self.pending_delete}
        merged.update({key: value for key, value in self.pending.items() if key != "delete"})
        return merged

    @property
    def waiting(self) -> list[str]:
        """Options whose change waits for the next start."""
        return sorted({key for key in self.pending if key != "delete"} | set(self.pending_delete))


@dataclass(frozen=True)
class Desired:
    """What the container shall be: plain options by name, members of families, raw lines.

    ``members`` maps a family's name to its desired members in order. An option or family that is missing stays untouched unless
    its name is in ``purge``. ``delete`` names options that shall be absent.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    raw: Sequence[RawLine] = ()
    purge: frozenset[str] = frozenset()
    delete: frozenset[str] = frozenset()


@dataclass
class Plan:
    """Changes in the order in which they are made: options set and deleted by one request, volumes grown, raw lines edited."""

    set: dict[str, str] = field(default_factory=dict)
    delete: list[str] = field(default_factory=list)
    resize: dict[str, str] = field(default_factory=dict)
    raw_add: list[tuple[str, str]] = field(default_factory=list)
    raw_remove: list[tuple[str, str]] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.set or self.delete or self.resize or self.raw_add or self.raw_remove)

    @property
    def needs_restart(self) -> list[str]:
        """What a running container takes over only at its next start, by name of option or raw key."""
        late = [key for key in self.set if not _hot(key, self.before)]
        late += [key for key in self.delete if key not in LIVE_AT_ONCE and not key.startswith(("net", "unused"))]
        return sorted({*late, *(key for key, _ in (*self.raw_add, *self.raw_remove))})


def _hot(option: str, before: Mapping[str, Any]) -> bool:
    if option in LIVE_AT_ONCE or option.startswith("net"):
        return True
    # A new device or mount point is plugged into the running container; a changed one waits.
    family = family_of(option)
    return family is not None and family.name in {"dev", "mp"} and before.get(option) is None


def desired_from_user(params: Mapping[str, Any]) -> Desired:
    """Make a ``Desired`` of parameters by API name (``dev``, ``mp``, ``net`` as lists; None: not managed; empty: absent).

    Raises ``PropertyError`` for what Proxmox would refuse.
    """
    options: dict[str, str] = {}
    members: dict[str, list[dict[str, str]]] = {}
    delete = set(params.get("delete") or ())
    for name in CONFIGURATION:
        value = params.get(name)
        if value is None:
            continue
        family = FAMILIES.get(name)
        if family is None:
            text = desired_value(name, value)
            if text:
                options[name] = text
            else:
                delete.add(name)
        elif family.numbered:
            members[name] = [from_user(family, item) for item in value]
            _unique(family, members[name])
        elif value:
            found = from_user(family, value)
            if any(canonical(family, found).get(key) != family.defaults.get(key) for key in found):
                options[name] = format_property(family, found)
            else:
                delete.add(name)
        else:
            delete.add(name)
    purge = frozenset(params.get("purge_unmanaged") or ())
    _check_names(delete, purge)
    return Desired(options, members, raw_from_user(params.get(RAW) or ()), purge, frozenset(delete))


def _unique(family: Family, found: Sequence[Mapping[str, str]]) -> None:
    seen = [item.get(family.identity or "") for item in found]
    twice = sorted({str(name) for name in seen if seen.count(name) > 1})
    if twice:
        raise PropertyError(f"{family.name}: {family.identity} {', '.join(twice)} is given twice")
    if len(found) > family.limit:
        raise PropertyError(f"{family.name}: {len(found)} members, Proxmox VE has room for {family.limit}")


def _check_names(delete: set[str], purge: frozenset[str]) -> None:
    for name in sorted(delete | purge):
        if name in UNDELETABLE:
            raise PropertyError(f"{name}: Proxmox VE does not let this option be deleted")
        if name not in CONFIGURATION and name != RAW and family_of(name) is None:
            raise PropertyError(f"{name}: no option or family of a container")


def make_plan(current: Current, desired: Desired) -> Plan:
    """What to change so that ``current``, its pending changes included, means what is desired. Raises ``PlanError``."""
    plan = Plan()
    now = current.effective
    for name, value in desired.options.items():
        if name == "rootfs":
            _plan_member(plan, "rootfs", FAMILIES["rootfs"], parse(FAMILIES["rootfs"], value), now.get("rootfs"))
        elif not _means(name, now.get(name), value):
            if name in FIXED:
                raise PlanError(
                    f"{name} of container {current.vmid} is {now.get(name, DEFAULTS.get(name))}, wanted is {value}: {FIXED[name]}"
                )
            _change(plan, name, value, now)
    for name, members in desired.members.items():
        _plan_family(plan, FAMILIES[name], members, current, purge=name in desired.purge)
    for name in sorted(desired.delete | {name for name in desired.purge if name not in desired.members and name != RAW}):
        if name in desired.options:
            continue
        family = FAMILIES.get(name)
        names = slots(family, now) if family is not None and family.numbered else [name]
        for slot in names:
            if slot in now and (family_of(slot) is not None or meaning(slot, now[slot]) != meaning(slot, None)):
                _remove(plan, slot, now)
    plan.raw_add, plan.raw_remove = raw_changes(current.raw, desired.raw, purge=RAW in desired.purge)
    after = list(current.raw)
    for have in plan.raw_remove:
        after.remove(have)  # one of them, where a line stands twice
    after += plan.raw_add
    for key in sorted({key for key, _ in (*plan.raw_add, *plan.raw_remove)}):
        plan.before[key] = [value for name, value in current.raw if name == key]
        plan.after[key] = [value for name, value in after if name == key]
    return plan


def _means(name: str, have: str | None, wanted: str) -> bool:
    if meaning(name, have) == meaning(name, wanted):
        return True
    # Proxmox VE before 9.2 stores a per cent sign as it is and decodes what follows it when it reads: that is all it can be made to say.
    return name == "description" and have is not None and meaning(name, have) == meaning(name, decode_text(wanted))


def _change(plan: Plan, name: str, value: str, now: Mapping[str, str]) -> None:
    plan.set[name] = value
    plan.before[name] = now.get(name)
    plan.after[name] = value


def _remove(plan: Plan, name: str, now: Mapping[str, str]) -> None:
    plan.delete.append(name)
    plan.before[name] = now.get(name)
    plan.after[name] = None


def slots(family: Family, options: Mapping[str, str]) -> list[str]:
    """Names of a family's members among options, by number."""
    found = [name for name in options if family_of(name) is family]
    return sorted(found, key=lambda name: int(name[len(family.name) :]))


def _plan_family(plan: Plan, family: Family, members: Sequence[Mapping[str, str]], current: Current, *, purge: bool) -> None:
    """Give each desired member a slot: its present one by identity, else the lowest that is free live and pending."""
    now = current.effective
    by_identity: dict[str, str] = {}
    for options in (current.options, now):
        for slot in slots(family, options):
            identity = _identity(family, options[slot])
            if identity is not None:
                by_identity.setdefault(identity, slot)
    taken = {*slots(family, current.options), *slots(family, now)}
    used = set()
    for member in members:
        known = by_identity.get(canonical(family, member).get(family.identity or "", ""))
        if known is None or known in used:
            known = next((f"{family.name}{n}" for n in range(family.limit) if f"{family.name}{n}" not in taken), None)
            if known is None:
                raise PlanError(f"{family.name}: all {family.limit} slots of container {current.vmid} are taken")
            taken.add(known)
        used.add(known)
        _plan_member(plan, known, family, dict(member), now.get(known))
    if purge:
        for slot in slots(family, now):
            if slot not in used:
                _remove(plan, slot, now)


def _identity(family: Family, text: str) -> str | None:
    try:
        return canonical(family, parse(family, text)).get(family.identity or "")
    except PropertyError:
        return None


def _plan_member(plan: Plan, slot: str, family: Family, wanted: dict[str, str], present: str | None) -> None:
    """One property string against its current one: generated keys and allocated volumes are kept, volumes may grow."""
    if present is None:
        plan.set[slot] = plan.after[slot] = format_property(family, wanted)
        plan.before[slot] = None
        return
    try:
        have = parse(family, present)
    except PropertyError:
        have = {}
    for key in family.generated:
        if key not in wanted and key in have:
            wanted[key] = have[key]
    if "volume" in family.keys and "volume" in have:
        _keep_volume(plan, slot, wanted, have)
    if canonical(family, have) != canonical(family, wanted):
        plan.set[slot] = format_property(family, wanted)
        plan.before[slot] = present
        plan.after[slot] = plan.set[slot]


def _keep_volume(plan: Plan, slot: str, wanted: dict[str, str], have: Mapping[str, str]) -> None:
    """``local-lvm:32`` against the volume that it once became: the same when storage and size agree, grown when smaller."""
    asked = new_volume(wanted["volume"])
    if asked is None:
        wanted["size"] = have.get("size", wanted.get("size", "")) if wanted["volume"] == have["volume"] else wanted.get("size", "")
        if not wanted["size"]:
            del wanted["size"]
        return
    storage, gib = asked
    there = have["volume"].partition(":")[0]
    if have["volume"].startswith("/"):
        raise PlanError(f"{slot} is the host's path {have['volume']}, wanted is a volume {wanted['volume']}: delete {slot} first")
    if storage is not None and storage != there:
        raise PlanError(
            f"{slot} lies on storage {there}, wanted is {storage}: move it with `pct move-volume VMID {slot} {storage}` and run this again"
        )
    wanted["volume"] = have["volume"]
    size = size_bytes(have.get("size", ""))
    want = round(gib * 2**30)
    wanted.pop("size", None)
    if "size" in have:
        wanted["size"] = have["size"]
    if size is None or want in {size, 0}:
        return
    if size > want:
        raise PlanError(f"{slot} has {format_size(size)}, wanted is {format_size(want)}: Proxmox VE cannot shrink a volume")
    plan.resize[slot] = format_size(want)
    plan.before[slot] = f"size={format_size(size)}"
    plan.after[slot] = f"size={format_size(want)}"


def create_parameters(desired: Desired, extra: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the request that creates the container: members numbered from 0, creation-only options from ``extra``."""
    found = {**desired.options, **extra}
    for name, members in desired.members.items():
        family = FAMILIES[name]
        for number, member in enumerate(members):
            found[f"{name}{number}"] = format_property(family, member)
    return {key: value for key, value in found.items() if value != ""}


def diff_text(values: Mapping[str, Any]) -> str:
    """One side of a diff: an option a line, by name; raw lines repeated; absent ones left out."""
    lines = []
    for name in sorted(values):
        value = values[name]
        if isinstance(value, list):
            lines += [f"{name}: {item}" for item in value]
        elif value is not None:
            lines += [f"{name}: {line}" for line in str(value).rstrip("\n").split("\n")]
    return "".join(f"{line}\n" for line in lines)


assert set(PLAIN).isdisjoint(FAMILIES)  # noqa: S101 - a programmer's mistake
