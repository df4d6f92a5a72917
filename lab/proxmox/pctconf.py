"""Container configuration files, read and written as Proxmox VE does, with its traps."""

from __future__ import annotations

import hashlib
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from lab.proxmox import propstr
from lab.proxmox.errors import MissingConfigError, PveError
from lab.proxmox.schema import Schema, check_format
from lab.proxmox.world import World, write_file

if TYPE_CHECKING:
    from pathlib import Path

Conf = dict[str, Any]
_SECTION = re.compile(r"\[([a-z][a-z0-9_\-]+)\]\s*", re.IGNORECASE)
_RAW = re.compile(r"(lxc\.[a-z0-9_\-.]+)(?::|\s*=)\s*(.*?)\s*")
_PLAIN = re.compile(r"([a-z][a-z_]*\d*):\s*(.+?)\s*")
_STRUCTURE = {"digest", "description", "pending", "snapshots", "snapname", "lxc"}
_VALID_RAW = re.compile(
    r"lxc\.(apparmor\.(profile|allow_incomplete|allow_nesting|raw)|include|arch|uts\.name|signal\.(halt|reboot|stop)|"
    r"init\.(cmd|cwd|uid|gid|groups)|pty\.max|console\.(logfile|path|buffer\.size|size|rotate)|tty\.max|devtty\.dir|"
    r"hook\.(autodev|pre-start|pre-mount|mount|start|stop|post-stop|clone|destroy|start-host|version)|autodev|kmsg|"
    r"mount\.(fstab|entry|auto)|rootfs\.mount|cap\.(drop|keep)|seccomp\.(profile|notify\.proxy|notify\.cookie)|idmap|"
    r"log\.(level|file|syslog)|start\.(auto|delay|order)|group|environment(\.runtime|\.hooks)?|"
    r"sysctl\.(kernel\.(shm|msg|sem)\S*|fs\.mqueue\S*|net\.\S*)|cgroup2?\.\S+|prlimit\.\S+|limit\.\S+|net\.\S+|"
    r"utsname|tty|pts|devttydir|mount|rootfs\.options|aa_profile|id_map|seccomp|network\.\S+|loglevel|logfile|haltsignal)"
)


def _encode(text: str) -> str:
    """Control characters, ``:`` and everything beyond ASCII as %XX, as PVE::ParseUtils of 9.2 does; ``%`` too."""
    return re.sub(r"[^\x20-\x24\x26-\x39\x3b-\x7e]", lambda m: quote(m[0], safe=""), text)


def parse(schema: Schema, text: str, vmid: int = 0, *, strict: bool = False) -> Conf:
    """Read a configuration: options, `lxc` (raw pairs in order), `pending`, `snapshots`, `digest`.

    Duplicate keys: the last one wins. A bad value warns on standard error and is kept, or raises PveError when strict.
    """
    found: Conf = {"digest": hashlib.sha1(text.encode()).hexdigest(), "pending": {}, "snapshots": {}}
    conf, description, section = found, "", ""

    def complain(words: str) -> None:
        if strict:
            raise PveError(words)
        print(words, file=sys.stderr)

    for line in text.split("\n"):
        if not line.strip():
            continue
        header = _SECTION.fullmatch(line)
        if header or re.fullmatch(r"\[pve:pending\]\s*", line, re.IGNORECASE):
            if description:
                conf["description"] = description
            description = ""
            if header:
                section = header[1]
                conf = found["snapshots"][section] = {}
            else:
                section, conf = "pending", {}
                found["pending"] = conf
        elif line.startswith("#"):
            description += unquote(line[1:]) + "\n"
        elif match := _RAW.fullmatch(line):
            if _VALID_RAW.fullmatch(match[1]):
                conf.setdefault("lxc", []).append([match[1], match[2]])
            else:
                complain(f"vm {vmid} - unable to parse config: {line}")
        elif match := re.fullmatch(r"description:\s*(.*\S)\s*", line):
            description += unquote(match[1])
        elif match := re.fullmatch(r"\s*snapstate:\s*(prepare|delete)\s*", line):
            conf["snapstate"] = match[1]
        elif match := re.fullmatch(r"delete:\s*(.*\S)\s*", line):
            if section == "pending":
                conf["delete"] = match[1]
            else:
                complain(f"vm {vmid} - property 'delete' is only allowed in [pve:pending]")
        elif match := _PLAIN.fullmatch(line):
            try:
                conf[match[1]] = check_type(schema, match[1], match[2])
            except PveError as error:
                complain(f"vm {vmid} - unable to parse value of '{match[1]}' - {error.text}")
                conf[match[1]] = match[2]
        else:
            complain(f"vm {vmid} - unable to parse config: {line}")
    if description:
        conf["description"] = description
    found.pop("snapstate", None)
    return found


def check_type(schema: Schema, name: str, value: str) -> int | str:
    """A value of the file as its option's type; PveError when it is none."""
    rule = schema.container_option(name)
    if rule is None:
        raise PveError(f"unknown setting '{name}'")
    kind = rule.get("type", "string")
    if kind == "boolean":
        spelled = propstr.boolean(value)
        if spelled is None:
            raise PveError(f"type check ('boolean') failed - got '{value}'")
        return int(spelled)
    if kind == "integer":
        if not value.isascii() or not value.isdigit():
            raise PveError(f"type check ('integer') failed - got '{value}'")
        return int(value)
    if kind == "number":
        if not re.fullmatch(r"\d+(\.\d+)?", value):
            raise PveError(f"type check ('number') failed - got '{value}'")
        return value
    try:
        check_format(name, rule, value)
    except PveError as error:
        raise PveError(error.text.removeprefix("invalid format - ").rstrip("\n")) from None
    return value


def text_of(conf: Conf) -> str:
    """A configuration as Proxmox writes it: description on top, keys sorted, raw lines last; pending, then snapshots by name."""
    parts = [_section(conf)]
    if conf.get("pending"):
        parts.append("\n[pve:pending]\n" + _section(conf["pending"]))
    parts.extend(f"\n[{name}]\n" + _section(conf["snapshots"][name]) for name in sorted(conf.get("snapshots", {})))
    return "".join(parts)


def _section(conf: Conf) -> str:
    lines = [f"#{_encode(line)}\n" for line in _perl_lines(conf.get("description") or "")]
    for name in sorted(conf):
        if name in _STRUCTURE or conf[name] is None:
            continue
        value = str(conf[name])
        if "\n" in value:
            raise PveError(f"detected invalid newline inside property '{name}'")
        lines.append(f"{name}: {value}\n")
    lines.extend(f"{key}: {value}\n" for key, value in conf.get("lxc", []))
    return "".join(lines)


def _perl_lines(text: str) -> list[str]:
    lines = text.split("\n")
    while lines and not lines[-1]:  # Perl's split drops trailing empty fields
        lines.pop()
    return lines


def load(world: World, schema: Schema, vmid: int) -> Conf:
    """A container's configuration; MissingConfigError where there is none on this node."""
    try:
        text = world.lxc_config(vmid).read_text(errors="surrogateescape")
    except FileNotFoundError:
        raise MissingConfigError(f"nodes/{world.node}/lxc/{vmid}.conf") from None
    return parse(schema, text, vmid)


def save(world: World, vmid: int, conf: Conf) -> None:
    """Write a container's configuration; an unused volume that is in use again is dropped from it."""
    used = {str(value).split(",", maxsplit=1)[0] for name, value in conf.items() if re.fullmatch(r"rootfs|mp\d+", name)}
    for name in [name for name in conf if re.fullmatch(r"unused\d+", name) and conf[name] in used]:
        del conf[name]
    conf.pop("snapstate", None)
    write_file(world.lxc_config(vmid), text_of(conf))


def remove(path: Path) -> None:
    """Remove a configuration file that may be gone already."""
    path.unlink(missing_ok=True)


def parse_delete(conf: Conf) -> dict[str, bool]:
    """The options that wait for their deletion, in the order of the file: name -> forced."""
    words = re.split(r"[,;\s]+", str(conf.get("pending", {}).get("delete", "")))
    return {word.lstrip("!"): word.startswith("!") for word in words if word}


def write_delete(conf: Conf, names: dict[str, bool]) -> None:
    """Set the options that wait for their deletion."""
    if names:
        conf["pending"]["delete"] = ",".join(f"!{name}" if names[name] else name for name in sorted(names))
    else:
        conf["pending"].pop("delete", None)


def cleanup_pending(conf: Conf) -> None:
    """Drop pending values equal to the current ones, and deletions of what is not there."""
    for name in [name for name in conf["pending"] if name != "delete" and conf.get(name) == conf["pending"][name]]:
        del conf["pending"][name]
    write_delete(conf, {name: force for name, force in parse_delete(conf).items() if name in conf})


def check_lock(conf: Conf) -> None:
    """Refuse to go on while the configuration holds a lock."""
    if conf.get("lock"):
        raise PveError(f"CT is locked ({conf['lock']})")


def check_protection(conf: Conf, words: str) -> None:
    """Refuse to touch a protected container's disks."""
    if conf.get("protection"):
        raise PveError(f"{words} - protection mode enabled")
