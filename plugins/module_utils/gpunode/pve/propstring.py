"""Property strings of Proxmox VE (``path=/dev/nvidia0,mode=0666``): parsed, compared and written by family."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT: Final = "text"
BOOLEAN: Final = "boolean"
INTEGER: Final = "integer"
NUMBER: Final = "number"
SIZE: Final = "size"
MAC: Final = "mac"
PATH: Final = "path"
WORDS: Final = "words"
"""A list whose parts are separated by semicolons and whose order carries no meaning."""

TRUE_WORDS: Final = frozenset({"1", "on", "yes", "true"})
FALSE_WORDS: Final = frozenset({"0", "off", "no", "false"})


class PropertyError(ValueError):
    """A property string or one of its values does not fit its family; the text names the family, the key and the value."""


@dataclass(frozen=True)
class Family:
    """What Proxmox VE knows about one kind of property string.

    ``keys`` maps a key to its type in the order in which Proxmox writes them. ``default_key`` may be written without its name.
    ``defaults`` are the values that a missing key stands for. ``identity`` is the key that tells members of a numbered family apart.
    ``generated`` keys are filled in by Proxmox when they are not given and are kept from the current value.
    Source: the schema of Proxmox VE 9.2, POST /nodes/{node}/lxc.
    """

    name: str
    keys: Mapping[str, str]
    required: tuple[str, ...] = ()
    default_key: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    identity: str | None = None
    generated: tuple[str, ...] = ()
    limit: int = 1
    """How many members the family may have: 256 for dev, mp and unused, 32 for net, 1 for the others."""

    @property
    def numbered(self) -> bool:
        """Whether members carry a number (``dev0``)."""
        return self.limit > 1


_VOLUME_KEYS: Final = {
    "volume": PATH,
    "acl": BOOLEAN,
    "idmap": WORDS,
    "mountoptions": WORDS,
    "quota": BOOLEAN,
    "replicate": BOOLEAN,
    "ro": BOOLEAN,
    "shared": BOOLEAN,
    "size": SIZE,
}
# Proxmox replicates unless told otherwise; the others are off. acl has three states (on, off, the file system's own): no default.
_VOLUME_DEFAULTS: Final = {"quota": "0", "replicate": "1", "ro": "0", "shared": "0"}

FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family(
            "dev",
            {"path": PATH, "deny-write": BOOLEAN, "gid": INTEGER, "mode": TEXT, "uid": INTEGER},
            default_key="path",
            defaults={"deny-write": "0", "gid": "0", "mode": "0660", "uid": "0"},
            identity="path",
            limit=256,
        ),
        Family(
            "mp",
            {"volume": PATH, "mp": PATH, "acl": BOOLEAN, "backup": BOOLEAN, "idmap": WORDS, "keepattrs": BOOLEAN}
            | {key: kind for key, kind in _VOLUME_KEYS.items() if key not in {"volume", "acl", "idmap"}},
            required=("volume", "mp"),
            default_key="volume",
            defaults=_VOLUME_DEFAULTS | {"backup": "0", "keepattrs": "0"},
            identity="mp",
            generated=("size",),
            limit=256,
        ),
        Family(
            "rootfs",
            _VOLUME_KEYS,
            required=("volume",),
            default_key="volume",
            defaults=_VOLUME_DEFAULTS,
            generated=("size",),
        ),
        Family(
            "net",
            {
                "name": TEXT,
                "bridge": TEXT,
                "firewall": BOOLEAN,
                "gw": TEXT,
                "gw6": TEXT,
                "host-managed": BOOLEAN,
                "hwaddr": MAC,
                "ip": TEXT,
                "ip6": TEXT,
                "link_down": BOOLEAN,
                "mtu": INTEGER,
                "rate": NUMBER,
                "tag": INTEGER,
                "trunks": WORDS,
                "type": TEXT,
            },
            required=("name",),
            defaults={"firewall": "0", "host-managed": "0", "link_down": "0", "type": "veth"},
            identity="name",
            generated=("hwaddr",),
            limit=32,
        ),
        Family(
            "features",
            {
                "force_rw_sys": BOOLEAN,
                "fuse": BOOLEAN,
                "keyctl": BOOLEAN,
                "mknod": BOOLEAN,
                "mount": WORDS,
                "nesting": BOOLEAN,
            },
            defaults={"force_rw_sys": "0", "fuse": "0", "keyctl": "0", "mknod": "0", "nesting": "0"},
        ),
        Family("startup", {"order": INTEGER, "up": INTEGER, "down": INTEGER}, default_key="order"),
        Family("unused", {"volume": PATH}, required=("volume",), default_key="volume", identity="volume", limit=256),
    )
}

_MEMBER: Final = re.compile(r"([a-z][a-z_-]*?)(\d+)")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)")
_NEW_VOLUME: Final = re.compile(r"(?:([^:\s/]+):)?(\d+(?:\.\d+)?)")


def family_of(option: str) -> Family | None:
    """The family of an option's name: ``dev`` for ``dev3``, ``rootfs`` for ``rootfs``, None for plain options such as ``memory``."""
    match = _MEMBER.fullmatch(option)
    if match:
        family = FAMILIES.get(match[1])
        return family if family is not None and family.numbered and int(match[2]) < family.limit else None
    family = FAMILIES.get(option)
    return family if family is not None and not family.numbered else None


def to_bool(value: object) -> bool:
    """What Proxmox takes for a boolean; raises ``PropertyError`` for anything else."""
    word = str(value).strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise PropertyError(f"{value!r} is no boolean; Proxmox VE takes 1, on, yes, true and 0, off, no, false")


def is_on(value: object) -> bool:
    """Whether a boolean of a configuration is set, in any spelling that Proxmox takes; a missing one is not."""
    return str(value).strip().lower() in TRUE_WORDS


def size_bytes(text: str) -> int | None:
    """Bytes of a size as Proxmox writes it (``8G``, ``8380M``, ``1.5T``), None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def new_volume(text: str) -> tuple[str | None, float] | None:
    """Storage and GiB of a volume that Proxmox shall allocate (``local-lvm:32``), None for an existing volume or a path."""
    match = _NEW_VOLUME.fullmatch(text)
    return (match[1], float(match[2])) if match else None


def format_size(size: int) -> str:
    """A size in the largest unit that holds it without a fraction, as Proxmox writes it."""
    for unit in ("T", "G", "M", "K"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


def canonical_value(kind: str, value: object) -> str:
    """A value in the spelling in which equal meanings are equal texts; raises ``PropertyError``."""
    text = ("1" if value else "0") if isinstance(value, bool) else str(value).strip()
    if kind == BOOLEAN:
        return "1" if to_bool(text) else "0"
    if kind == INTEGER:
        if not text.isdigit():
            raise PropertyError(f"{value!r} is no whole number")
        return str(int(text))
    if kind == NUMBER:
        try:
            number = float(text)
        except ValueError:
            raise PropertyError(f"{value!r} is no number") from None
        return str(int(number)) if number == int(number) else repr(number)
    if kind == SIZE:
        size = size_bytes(text)
        if size is None:
            raise PropertyError(f"{value!r} is no size; Proxmox VE takes a number with K, M, G or T")
        return format_size(size)
    if kind == MAC:
        return text.upper()
    if kind == PATH:
        return text.rstrip("/") or text
    if kind == WORDS:
        return ";".join(sorted({part for part in text.split(";") if part}))
    return text


def parse(family: Family, text: str) -> dict[str, str]:
    """Keys and values of a property string as they are written, default key spelled out; raises ``PropertyError``.

    Nothing is normalised: ``format_property(family, parse(family, text))`` says the same to Proxmox.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        key = key.strip()
        # A path or volume may itself hold '=': only a known key before it makes it a key.
        if not equals or (key not in family.keys and family.default_key is not None and family.default_key not in found):
            if family.default_key is None:
                raise PropertyError(f"{family.name}: {part!r} has no key, and {family.name} has no default key")
            key, value = family.default_key, part
        elif key not in family.keys:
            raise PropertyError(f"{family.name}: unknown key {key!r}; known are {', '.join(family.keys)}")
        if key in found:
            raise PropertyError(f"{family.name}: {key!r} is given twice in {text!r}")
        found[key] = value.strip()
    for key in family.required:
        if key not in found:
            raise PropertyError(f"{family.name}: {key!r} is missing in {text!r}")
    return found


def from_user(family: Family, value: Mapping[str, Any] | str | int) -> dict[str, str]:
    """A desired property from a mapping or a string, checked and in canonical values; keys without a value are left out.

    ``-`` and ``_`` are the same in a mapping's keys (``deny_write``, ``host_managed``). Raises ``PropertyError``.
    """
    if isinstance(value, str | int):
        given: Mapping[str, Any] = parse(family, str(value))
    else:
        given = {_user_key(family, key): item for key, item in value.items()}
    found = {}
    for key, item in given.items():
        if item is None or item == "":
            continue
        if key not in family.keys:
            raise PropertyError(f"{family.name}: unknown key {key!r}; known are {', '.join(family.keys)}")
        if isinstance(item, list | tuple):
            item = ";".join(str(part) for part in item)  # noqa: PLW2901 - one name for one thing
        try:
            text = canonical_value(family.keys[key], item)
        except PropertyError as error:
            raise PropertyError(f"{family.name}: {key}: {error}") from None
        if "," in text:
            raise PropertyError(f"{family.name}: {key}: {text!r} holds a comma, which Proxmox VE cannot store in a property")
        found[key] = text
    for key in family.required:
        if key not in found:
            raise PropertyError(f"{family.name}: {key!r} is missing in {dict(given)!r}")
    if family.name == "dev":
        _check_device(found)
    return found


def _user_key(family: Family, key: object) -> str:
    text = str(key)
    for spelling in (text, text.replace("_", "-")):
        if spelling in family.keys:
            return spelling
    return text


def _check_device(found: Mapping[str, str]) -> None:
    if not found.get("path", "").startswith("/dev/"):
        raise PropertyError(f"dev: path {found.get('path', '')!r} is not below /dev")
    if any(sign in found["path"] for sign in "*?["):
        raise PropertyError(f"dev: {found['path']!r}: Proxmox VE knows no wildcards, each device node is an entry of its own")
    mode = found.get("mode")
    if mode is not None and not re.fullmatch(r"0[0-7]{3}", mode):
        raise PropertyError(f"dev: mode {mode!r} must be four octal digits that start with 0, quoted in YAML: '0666'")


def format_property(family: Family, values: Mapping[str, str]) -> str:
    """The property string as Proxmox prints it: default key first and without its name, then required keys, then the rest by name."""
    ordered = sorted(values, key=lambda key: (key != family.default_key, key not in family.required, key))
    return ",".join(values[key] if key == family.default_key else f"{key}={values[key]}" for key in ordered)


def canonical(family: Family, values: Mapping[str, str]) -> dict[str, str]:
    """Values in canonical spelling with the defaults filled in: two properties mean the same when these are equal.

    A value that does not fit its type (somebody's hand-edited file) stays as it is written.
    """
    found = {**family.defaults, **{key: _canonical_or_as_is(family.keys.get(key, TEXT), value) for key, value in values.items()}}
    return {key: value for key, value in found.items() if value}


def _canonical_or_as_is(kind: str, value: str) -> str:
    try:
        return canonical_value(kind, value)
    except PropertyError:
        return value


def same(family: Family, left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Whether two properties mean the same to Proxmox."""
    return canonical(family, left) == canonical(family, right)
