"""Kernels of a Proxmox VE host: their order, what the boot loader starts next, the pins, and the proof that one can drive the GPUs."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MENU = re.compile(r"\s*(?:menuentry|submenu)\s+(?P<quote>['\"])(?P<title>.*?)(?P=quote)(?P<rest>.*)\{\s*$")
_ID = re.compile(r"(?:\$\{?menuentry_id_option\}?|--id)\s+['\"]?(?P<id>[^'\" ]+)")
_DEFAULT = re.compile(r"\s*set default=\"?(?P<value>[^\"\n]*)\"?\s*$")
_IMAGE = re.compile(r"vmlinuz-(?P<release>\S+)$")


def release_key(release: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key of a kernel release: numbers count as numbers, so 7.0.14-14-pve is newer than 7.0.9-2-pve."""
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.findall(r"\d+|[a-z]+", release))


def newest(releases: Iterable[str]) -> str:
    """The newest of some releases; empty when there is none."""
    return max(releases, key=release_key, default="")


def series(release: str) -> str:
    """The kernel series that Proxmox's metapackages are named after: 7.0 of 7.0.14-14-pve."""
    match = re.match(r"\d+\.\d+", release)
    return match[0] if match else release


@dataclass
class MenuEntry:
    """An entry of a boot menu: its title, the names it answers to, the kernel it starts (empty for a submenu), its children."""

    title: str
    names: tuple[str, ...]
    release: str = ""
    children: list[MenuEntry] = field(default_factory=list)


def grub_menu(text: str) -> list[MenuEntry]:
    """Read the menu of a grub.cfg as a tree."""
    top = MenuEntry("", ())
    stack: list[MenuEntry | None] = [top]
    for line in text.splitlines():
        if match := _MENU.match(line):
            parent = next(entry for entry in reversed(stack) if entry is not None)
            found = _ID.search(match["rest"])
            entry = MenuEntry(match["title"], (str(len(parent.children)), match["title"], *([found["id"]] if found else [])))
            parent.children.append(entry)
            stack.append(entry)
        elif line.rstrip().endswith("{"):
            stack.append(None)
        elif line.strip() == "}" and len(stack) > 1:
            stack.pop()
        else:
            words = line.split()
            here = stack[-1]
            if here is not None and here is not top and words[:1] and words[0] in {"linux", "linuxefi", "linux16"} and len(words) > 1:
                image = _IMAGE.search(words[1])
                here.release = image["release"] if image else words[1]
    return top.children


def _find(menu: list[MenuEntry], wanted: str) -> MenuEntry | None:
    here, _, rest = wanted.partition(">")
    entry = next((entry for entry in menu if here in entry.names), None)
    if entry is None or not rest:
        return entry
    return _find(entry.children, rest)


def _first(menu: list[MenuEntry]) -> str:
    for entry in menu:
        if release := entry.release or _first(entry.children):
            return release
    return ""


def grub_boots(config: str, environment: str = "") -> str:
    """The kernel release that GRUB starts next, from grub.cfg and the text of grubenv; empty when no entry starts a kernel.

    ``next_entry`` of the environment wins once, ``saved_entry`` counts where grub.cfg uses it, and GRUB falls back to the first entry when
    its default names none (a pinned kernel that was removed).
    """
    values = dict(line.partition("=")[::2] for line in environment.splitlines() if "=" in line and not line.startswith("#"))
    default = "0"
    for line in config.splitlines():
        if (match := _DEFAULT.match(line)) and "next_entry" not in match["value"]:
            default = match["value"]
    if "saved_entry" in default:
        default = values.get("saved_entry") or "0"
    menu = grub_menu(config)
    entry = _find(menu, values.get("next_entry") or default)
    return (entry.release or _first(entry.children)) if entry else _first(menu)


def grub_titles(config: str) -> dict[str, str]:
    """What to choose in GRUB's menu for each kernel, 'Advanced options for … > … with Linux 7.0.14-14-pve', never a recovery entry."""
    titles: dict[str, str] = {}

    def walk(menu: list[MenuEntry], path: str) -> None:
        for entry in menu:
            name = f"{path} > {entry.title}" if path else entry.title
            walk(entry.children, name)
            if entry.release and "recovery" not in entry.title and (path or entry.release not in titles):
                titles[entry.release] = name

    walk(grub_menu(config), "")
    return titles


@dataclass(frozen=True)
class LoaderEntry:
    """A file of loader/entries on an ESP."""

    name: str
    title: str
    release: str


def loader_entry(name: str, text: str) -> LoaderEntry | None:
    """Read a file of loader/entries; None when it names no kernel."""
    values = {key: value.strip() for key, _, value in (line.strip().partition(" ") for line in text.splitlines()) if key}
    image = _IMAGE.search(values.get("linux", ""))
    return LoaderEntry(name, values.get("title", name), image["release"]) if image else None


def systemd_boots(loader_conf: str, entries: Mapping[str, str]) -> str:
    """The kernel release that systemd-boot starts: the newest entry that the ``default`` of loader.conf fits, else the newest.

    ``entries`` maps the names of loader/entries/*.conf to their texts.
    """
    found = [entry for name, text in entries.items() if (entry := loader_entry(name, text))]
    pattern = "*"
    for line in loader_conf.splitlines():
        words = line.split()
        if words[:1] == ["default"] and len(words) > 1:
            pattern = words[1]
    fitting = [entry.release for entry in found if any(fnmatch.fnmatchcase(n, pattern) for n in (entry.name, entry.name[: -len(".conf")]))]
    return newest(fitting or [entry.release for entry in found])


def parse_pins(pin: str, next_boot: str) -> dict[str, str]:
    """The pins from the first lines of proxmox-boot-pin and next-boot-pin; empty where nothing is pinned."""

    def first(text: str) -> str:
        return text.strip().splitlines()[0].strip() if text.strip() else ""

    return {"pin": first(pin), "next_boot": first(next_boot)}


def expected_boot(pins: Mapping[str, str], installed: Iterable[str]) -> str:
    """What the next boot must start given the pins: the one-time pin, else the pin, else the newest installed kernel."""
    return pins.get("next_boot") or pins.get("pin") or newest(installed)


def parse_modinfo(text: str) -> dict[str, Any]:
    """Read ``modinfo``: field to value; ``parm`` to the set of parameter names."""
    values: dict[str, Any] = {"parm": []}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key.strip() == "parm":
            values["parm"].append(value.strip().partition(":")[0])
        else:
            values.setdefault(key.strip(), value.strip())
    return values


def parse_depends(text: str) -> str:
    """The kernel release that a metapackage depends on, from the text of ``apt-cache show``; empty when it names none."""
    match = re.search(r"(?m)^Depends:.*?\bproxmox-(?:kernel|headers)-(\d[\w.+~]*-\d+-pve)\b", text)
    return match[1] if match else ""


def parse_candidate(text: str) -> str:
    """The candidate version of ``apt-cache policy``; empty when the package is not known or has none."""
    match = re.search(r"(?m)^\s*Candidate:\s+(\S+)", text)
    return "" if match is None or match[1] == "(none)" else match[1]


def prove(
    release: str,
    kernel: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None,
    *,
    driver: str = "",
    secure_boot: bool | None = None,
) -> list[str]:
    """What is missing for a kernel to come up with its GPUs; empty when nothing is.

    ``kernel`` and ``reference`` (the running one) are as ``kernel_host.read_kernel`` gives them; every DKMS module that is installed
    for the reference must be installed for the kernel. ``driver`` is the version that must be built, empty takes the reference's.
    """
    if kernel is None or not kernel["image"]:
        return [f"/boot/vmlinuz-{release} does not exist: the kernel {release} is not installed"]
    problems = []
    if not kernel["initrd"]:
        problems.append(f"/boot/initrd.img-{release} does not exist or is empty: run `update-initramfs -c -k {release}`")
    if not kernel["headers"]:
        problems.append(f"/lib/modules/{release}/build leads to no headers: run `apt-get install proxmox-headers-{release}`")
    wanted = dict((reference or {}).get("dkms", {}))
    if driver:
        wanted["nvidia"] = driver
    for module, version in sorted(wanted.items()):
        have = kernel["dkms"].get(module)
        if have != version:
            problems.append(
                f"DKMS has no {module}/{version} installed for {release} ({f'only {have}' if have else 'none'}): run "
                f"`dkms install {module}/{version} -k {release}` and read the end of /var/lib/dkms/{module}/{version}/build/make.log"
            )
    if "nvidia" not in wanted or any("DKMS has no nvidia/" in problem for problem in problems):
        return problems
    for name in ("nvidia", "nvidia_uvm"):
        problems += _module_problems(release, name, kernel["modules"].get(name), wanted["nvidia"], secure_boot)
    uvm = kernel["modules"].get("nvidia_uvm") or {}
    if uvm and "uvm_disable_hmm" not in uvm.get("parm", []):
        problems.append(f"`modinfo -k {release} nvidia_uvm` shows no parameter uvm_disable_hmm: HMM could not be switched off")
    return problems


def _module_problems(release: str, name: str, module: Mapping[str, Any] | None, version: str, secure_boot: bool | None) -> list[str]:
    if not module:
        return [f"`modinfo -k {release} {name}` finds no module: run `depmod {release}`"]
    problems = []
    if module.get("version", version) != version:
        problems.append(f"`modinfo -k {release} {name}` finds version {module['version']} in {module.get('filename')}, wanted is {version}")
    built_for = str(module.get("vermagic", release)).split()[0]
    if built_for != release:
        problems.append(f"{module.get('filename')} was built for {built_for}, not for {release}")
    if secure_boot and not module.get("signer"):
        problems.append(f"{module.get('filename')} is not signed, and Secure Boot is on: the kernel would reject it")
    return problems
