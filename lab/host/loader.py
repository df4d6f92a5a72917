"""What a boot loader does with its configuration: the entry that boots, for GRUB's grub.cfg and for systemd-boot's ESP.

It reads what the loaders read, not what people edit: a change in /etc/default/grub without update-grub changes nothing here either.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.host import files, versions

if TYPE_CHECKING:
    from pathlib import Path

_MENU = re.compile(r"\s*(?P<kind>menuentry|submenu)\s+(?P<quote>['\"])(?P<title>.*?)(?P=quote)(?P<rest>.*)\{\s*$")
_ID = re.compile(r"(?:\$menuentry_id_option|\$\{menuentry_id_option\}|--id)\s+['\"]?(?P<id>[^'\" ]+)")
_DEFAULT = re.compile(r"\s*set default=\"?(?P<value>[^\"\n]*)\"?")


class NotBootableError(Exception):
    """The machine would stop at the boot loader."""


@dataclass(frozen=True)
class Entry:
    """One bootable entry: the names it answers to on its menu, kernel release, kernel command line."""

    names: tuple[str, ...]
    release: str
    cmdline: str


@dataclass
class _Menu:
    names: tuple[str, ...]
    children: list[_Menu]
    entry: Entry | None = None


def parse_grub(text: str) -> list[_Menu]:
    """Return the menu of a grub.cfg as a tree; entries that load no Linux kernel have no ``entry``."""
    top = _Menu((), [])
    stack: list[_Menu | None] = [top]
    for line in text.splitlines():
        if match := _MENU.match(line):
            found = _ID.search(match["rest"])
            parent = next(menu for menu in reversed(stack) if menu is not None)
            menu = _Menu((str(len(parent.children)), match["title"], *([found["id"]] if found else [])), [])
            parent.children.append(menu)
            stack.append(menu)
        elif line.rstrip().endswith("{"):
            stack.append(None)
        elif line.strip() == "}" and len(stack) > 1:
            stack.pop()
        elif (words := line.split())[:1] in (["linux"], ["linuxefi"]) and len(words) > 1 and stack[-1] is not None:
            image = words[1]
            release = image.rpartition("/vmlinuz-")[2]
            stack[-1].entry = Entry(stack[-1].names, release, " ".join([f"BOOT_IMAGE={image}", *words[2:]]))
    return top.children


def _first_bootable(menus: list[_Menu]) -> Entry | None:
    for menu in menus:
        if menu.entry is not None:
            return menu.entry
        if menu.children and (found := _first_bootable(menu.children)):
            return found
    return None


def find_grub(menus: list[_Menu], wanted: str) -> Entry | None:
    """Return the entry named by GRUB's own notation: index, title or id, ``>`` between a submenu and its entry; None when there is none."""
    here, _, rest = wanted.partition(">")
    menu = next((menu for menu in menus if here in menu.names), None)
    if menu is None:
        return None
    if rest:
        return find_grub(menu.children, rest)
    return menu.entry or _first_bootable(menu.children)


def parse_environment(text: str) -> dict[str, str]:
    """Return the variables of a grubenv block."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def grub_default(text: str, environment: dict[str, str]) -> str:
    """Return the default entry as grub.cfg sets it: ``next_entry`` of the environment once, else the last plain ``set default``."""
    if environment.get("next_entry"):
        return environment["next_entry"]
    values = [match["value"] for line in text.splitlines() if (match := _DEFAULT.match(line)) and "next_entry" not in match["value"]]
    value = values[-1] if values else "0"
    return environment.get("saved_entry") or "0" if "saved_entry" in value else value


def choose_grub(root: Path) -> Entry:
    """Return the entry that GRUB boots and use up a one-time ``next_entry``; NotBootableError without configuration or entry."""
    config = root / files.GRUB_CONFIG
    if not config.is_file():
        raise NotBootableError(f"{config} does not exist: GRUB stops at its prompt")
    text = config.read_text(encoding="utf-8")
    environment_file = root / files.GRUB_ENVIRONMENT
    environment = parse_environment(environment_file.read_text(encoding="utf-8")) if environment_file.is_file() else {}
    menus = parse_grub(text)
    # GRUB falls back to the first entry when the default names none.
    entry = find_grub(menus, grub_default(text, environment)) or _first_bootable(menus)
    if environment.pop("next_entry", None):
        write_environment(environment_file, environment)
    if entry is None:
        raise NotBootableError(f"{config} has no entry that loads a kernel")
    if not (root / f"boot/vmlinuz-{entry.release}").is_file():
        raise NotBootableError(f"{config} boots /boot/vmlinuz-{entry.release}, which does not exist")
    return entry


def write_environment(path: Path, environment: dict[str, str]) -> None:
    """Write a grubenv block: 1024 bytes, filled with #."""
    text = "# GRUB Environment Block\n" + "".join(f"{name}={value}\n" for name, value in environment.items())
    path.write_text(text.ljust(1024, "#"), encoding="utf-8")


def parse_loader_entry(name: str, text: str) -> Entry | None:
    """Return the entry of a file in loader/entries; None when it names no kernel."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            values[key] = f"{values[key]} {value.strip()}" if key == "options" and key in values else value.strip()
    if "linux" not in values:
        return None
    initrd = [f"initrd={values['initrd'].replace('/', chr(92))}"] if "initrd" in values else []
    release = values["linux"].rpartition("/vmlinuz-")[2]
    return Entry((name, name.removesuffix(".conf")), release, " ".join([*initrd, values.get("options", "")]).strip())


def choose_systemd_boot(root: Path) -> Entry:
    """Return what systemd-boot on the first ESP boots: the newest entry that loader.conf's default pattern fits, else the newest."""
    found = files.esps(root)
    if not found:
        raise NotBootableError(f"no ESP of /{files.ESP_LIST} exists: the firmware finds nothing to boot")
    esp = found[0]
    entries = [
        entry
        for path in (esp / "loader/entries").glob("*.conf")
        if (entry := parse_loader_entry(path.name, path.read_text(encoding="utf-8")))
    ]
    entries.sort(key=lambda entry: versions.order(entry.release), reverse=True)
    entries = [entry for entry in entries if (esp / f"EFI/proxmox/{entry.release}/vmlinuz-{entry.release}").is_file()]
    if not entries:
        raise NotBootableError(f"{esp}/loader/entries has no entry whose kernel exists")
    config = esp / "loader/loader.conf"
    lines = config.read_text(encoding="utf-8").splitlines() if config.is_file() else []
    pattern = next((line.split()[1] for line in lines if line.startswith("default ") and len(line.split()) > 1), "*")
    return next((entry for entry in entries if any(fnmatch.fnmatchcase(name, pattern) for name in entry.names)), entries[0])


def entries_for(root: Path, release: str) -> Entry | None:
    """Return the entry of a kernel that a person picks at the boot menu; None when the menu has none."""
    if files.esps(root):
        for path in (files.esps(root)[0] / "loader/entries").glob("*.conf"):
            entry = parse_loader_entry(path.name, path.read_text(encoding="utf-8"))
            if entry is not None and entry.release == release:
                return entry
        return None
    config = root / files.GRUB_CONFIG
    menus = parse_grub(config.read_text(encoding="utf-8")) if config.is_file() else []
    candidates = [menu.entry for top in menus for menu in [top, *top.children] if menu.entry is not None]
    return next((entry for entry in candidates if entry.release == release and " single" not in entry.cmdline), None)


def choose(root: Path = files.ROOT) -> Entry:
    """Return the entry that this host boots now; a choice at the boot menu goes first and is used up."""
    choice = root / files.MENU_CHOICE
    if wanted := versions.first_line(choice):
        choice.unlink()
        if entry := entries_for(root, wanted):
            return entry
    return choose_systemd_boot(root) if (root / files.ESP_LIST).is_file() else choose_grub(root)
