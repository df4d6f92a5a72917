"""The options of a container: their types, defaults and what may be done with them; desired values made comparable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from .propstring import (
    BOOLEAN,
    FAMILIES,
    INTEGER,
    NUMBER,
    TEXT,
    PropertyError,
    canonical,
    canonical_value,
    family_of,
    format_property,
    from_user,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIST: Final = "list"
TAGS: Final = "tags"
ENV: Final = "env"

PLAIN: Final[Mapping[str, str]] = {
    "arch": TEXT,
    "cmode": TEXT,
    "console": BOOLEAN,
    "cores": INTEGER,
    "cpulimit": NUMBER,
    "cpuunits": INTEGER,
    "debug": BOOLEAN,
    "description": TEXT,
    "entrypoint": TEXT,
    "env": ENV,
    "hookscript": TEXT,
    "hostname": TEXT,
    "memory": INTEGER,
    "nameserver": LIST,
    "onboot": BOOLEAN,
    "ostype": TEXT,
    "protection": BOOLEAN,
    "searchdomain": LIST,
    "swap": INTEGER,
    "tags": TAGS,
    "template": BOOLEAN,
    "timezone": TEXT,
    "tty": INTEGER,
    "unprivileged": BOOLEAN,
}
"""Options that are no property strings, with their types. Source: the schema of Proxmox VE 9.2."""

CREATE_ONLY: Final[Mapping[str, str]] = {
    "bwlimit": NUMBER,
    "force": BOOLEAN,
    "ha-managed": BOOLEAN,
    "ignore-unpack-errors": BOOLEAN,
    "ostemplate": TEXT,
    "password": TEXT,
    "pool": TEXT,
    "restore": BOOLEAN,
    "ssh-public-keys": TEXT,
    "start": BOOLEAN,
    "storage": TEXT,
    "unique": BOOLEAN,
}
"""Parameters of the creation alone: they leave no trace in the configuration and are never compared."""

DEFAULTS: Final[Mapping[str, str]] = {
    "arch": "amd64",
    "cmode": "tty",
    "console": "1",
    "cpulimit": "0",
    "debug": "0",
    "entrypoint": "/sbin/init",
    "memory": "512",
    "onboot": "0",
    "protection": "0",
    "swap": "512",
    "template": "0",
    "tty": "2",
    "unprivileged": "0",
}
"""What a missing option of an existing container means. (At its creation a missing ``unprivileged`` means 1 since Proxmox VE 9.0.)"""

FIXED: Final[Mapping[str, str]] = {
    "unprivileged": "it is fixed at creation: back the container up and restore it with the other value",
    "template": "use `pct template`; there is no way back",
}
"""Options that cannot be changed afterwards, with what to do instead."""

UNDELETABLE: Final = frozenset({"memory", "rootfs", "ostype", "unprivileged", "arch", "hostname", "template"})
"""Options that Proxmox refuses to delete or that name the container."""

CONFIGURATION: Final = (*PLAIN, *FAMILIES)
"""Every option that lives in the configuration, families by their name."""

RAW_KEYS: Final = re.compile(
    r"lxc\.(?:"
    r"apparmor\.(?:profile|allow_incomplete|allow_nesting|raw)|include|arch|uts\.name|signal\.(?:halt|reboot|stop)"
    r"|init\.(?:cmd|cwd|uid|gid|groups)|pty\.max|console\.(?:logfile|path|buffer\.size|size|rotate)|tty\.max|devtty\.dir"
    r"|hook\.(?:autodev|pre-start|pre-mount|mount|start|stop|post-stop|clone|destroy|start-host|version)|autodev|kmsg"
    r"|mount\.(?:fstab|entry|auto)|rootfs\.mount|cap\.(?:drop|keep)|seccomp\.(?:profile|notify\.\w+|allow_nesting)"
    r"|idmap|log\.(?:level|file|syslog)|start\.(?:auto|delay|order)|group|environment(?:\.runtime|\.hooks)?"
    r"|sysctl\.[a-z0-9_.-]+|cgroup2\.[a-z0-9_.]+|cgroup\.[a-z0-9_.]+|prlimit\.[a-z]+|net\.\d+\.[a-z0-9_.]+|selinux\.context"
    r")"
)
"""Raw keys that Proxmox VE keeps in its file; it drops others with a warning in the daemon's log."""

REPEATABLE: Final = re.compile(
    r"lxc\.(?:include|hook\.(?!version$).+|mount\.(?:entry|auto)|cap\.(?:drop|keep)|idmap|group|environment(?:\.\w+)?"
    r"|cgroup2?\.(?:devices\.(?:allow|deny)|(?:io|blkio|rdma|misc)\.[a-z0-9_.]+)|net\.\d+\.ipv[46]\.(?:address|route)|apparmor\.raw)"
)
"""Raw keys of which several lines mean several things; of the others the last line counts."""


def desired_value(option: str, value: Any) -> str:
    """A plain option's desired value as the API takes it (booleans as 0 or 1); empty text means that the option shall be absent.

    Raises ``PropertyError`` naming the option.
    """
    kind = PLAIN.get(option) or CREATE_ONLY.get(option)
    if kind is None:
        raise PropertyError(f"{option}: no option of a container")
    try:
        if kind == TAGS:
            return _tags(value)
        if kind == LIST:
            return " ".join(_words(value))
        if kind == ENV:
            return "\0".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        if option == "description":
            return str(value)
        text = str(value).strip() if not isinstance(value, bool) else str(int(value))
        if text and option == "memory" and not text.isdigit():
            raise PropertyError(f"{value!r} is no whole number of MiB; Proxmox VE takes no units here (8 GiB are 8192)")
        return canonical_value(kind, text) if text else ""
    except PropertyError as error:
        raise PropertyError(f"{option}: {error}") from None


def _words(value: Any) -> list[str]:
    parts: Iterable[Any] = value if isinstance(value, list | tuple) else re.split(r"[,;\s]+", str(value))
    return [str(part).strip() for part in parts if str(part).strip()]


def _tags(value: Any) -> str:
    tags = sorted({tag.lower() for tag in _words(value)})
    for tag in tags:
        if not re.fullmatch(r"[a-z0-9_][a-z0-9_\-+.]*", tag):
            raise PropertyError(f"invalid characters in tag {tag!r}; Proxmox VE takes a-z, 0-9, _, -, + and .")
    return ";".join(tags)


def meaning(option: str, value: str | None) -> object:
    """What a configured value (None: absent) stands for; two values mean the same when these are equal.

    A value that Proxmox itself would not accept is its own meaning.
    """
    family = family_of(option)
    if family is not None:
        if value is None or not value.strip():
            return None
        try:
            return tuple(sorted(canonical(family, parse(family, value)).items())) or None
        except PropertyError:
            return value
    if value is None or (not value.strip() and option != "description"):
        value = DEFAULTS.get(option)
    if value is None:
        return None
    if option == "description":
        return value.rstrip("\n") or None
    try:
        return desired_value(option, value) or None
    except PropertyError:
        return value


def desired_property(option: str, value: Any) -> str:
    """A desired property string of a family's single member (features, rootfs, startup) or of one numbered member, canonical."""
    family = family_of(option)
    if family is None:
        raise PropertyError(f"{option}: no property string")
    return format_property(family, from_user(family, value))
