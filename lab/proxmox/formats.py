"""The named formats of the API schema, with the words Proxmox VE refuses a value with."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from lab.proxmox.errors import PveError
from lab.proxmox.propstr import size_bytes

Check = Callable[[str], Any]


def _pattern(regex: str, words: str) -> Check:
    compiled = re.compile(regex)

    def check(value: str) -> None:
        if not compiled.fullmatch(value):
            raise PveError(words.replace("{}", value))

    return check


def _address(version: int | None, words: str) -> Check:
    def check(value: str) -> None:
        try:
            found = ipaddress.ip_address(value)
        except ValueError:
            raise PveError(words) from None
        if version and found.version != version:
            raise PveError(words)

    return check


def _cidr(version: int | None, words: str) -> Check:
    def check(value: str) -> None:
        try:
            found = ipaddress.ip_interface(value)
        except ValueError:
            raise PveError(words) from None
        if "/" not in value or (version and found.version != version):
            raise PveError(words)

    return check


def _one_of(words: set[str], other: Check) -> Check:
    def check(value: str) -> None:
        if value not in words:
            other(value)

    return check


def _device_path(value: str) -> None:
    if re.search(r"/\.\.?(?:/|$)", value) or not value.startswith("/dev/"):
        raise PveError(f"{value} is not a valid device path")


def _mount_path(value: str) -> None:
    if re.search(r"/\.\.?/|/\.\.?$|^\.\./", value):
        raise PveError(f"{value} contains illegal character sequences")


def _startup(value: str) -> None:
    for part in value.split(","):
        if not re.fullmatch(r"(order=)?\d+|(up|down)=\d+", part):
            raise PveError("unable to parse startup options")


def _size(value: str) -> None:
    if not re.fullmatch(r"\d+(\.\d+)?[KMGT]?", value) or size_bytes(value) is None:
        raise PveError("value does not look like a valid VM disk size")


def _mac(value: str) -> None:
    if not re.fullmatch(r"[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}", value):
        raise PveError("value does not look like a valid unicast MAC address")


def _tag_list(value: str) -> None:
    for tag in split_list(value):
        if not re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*", tag):
            raise PveError("invalid characters in tag")


def _ip_or_host(value: str) -> None:
    if value != "host":
        for word in split_list(value):
            _address(None, "value does not look like a valid IP address")(word.partition("%")[0])


_LABEL = r"[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_IDENT = r"[A-Za-z][A-Za-z0-9\-_]+"
_USER = r"[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+"

FORMATS: dict[str, Check] = {
    "address": _one_of(set(), _pattern(rf"({_LABEL}\.)*{_LABEL}|[0-9a-fA-F:.]+", "value does not look like a valid address")),
    "dns-name": _pattern(rf"({_LABEL}\.)*{_LABEL}", "value does not look like a valid DNS name"),
    "disk-size": _size,
    "ip": _address(None, "value does not look like a valid IP address"),
    "ipv4": _address(4, "value does not look like a valid IPv4 address"),
    "ipv6": _address(6, "value does not look like a valid IPv6 address"),
    "CIDR": _cidr(None, "value does not look like a valid CIDR network"),
    "CIDRv4": _cidr(4, "value does not look like a valid IPv4 network"),
    "CIDRv6": _cidr(6, "value does not look like a valid IPv6 network"),
    "lxc-ip-with-ll-iface-list": _ip_or_host,
    "mac-addr": _mac,
    "pve-configid": _pattern(r"[a-z][a-z0-9_-]+", "invalid configuration ID '{}'"),
    "pve-ct-timezone": _pattern(r"host|UTC|[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*", "invalid time zone '{}'"),
    "pve-ipv4-config": _one_of({"dhcp", "manual"}, _cidr(4, "value does not look like a valid ipv4 network configuration")),
    "pve-ipv6-config": _one_of({"auto", "dhcp", "manual"}, _cidr(6, "value does not look like a valid ipv6 network configuration")),
    "pve-lxc-dev-string": _device_path,
    "pve-lxc-mp-string": _mount_path,
    "pve-node": _pattern(_LABEL, "value does not look like a valid node name"),
    "pve-poolid": _pattern(r"[A-Za-z0-9._/-]+", "value '{}' does not look like a valid pool name"),
    "pve-realm": _pattern(r"[A-Za-z][A-Za-z0-9.\-_]+", "value does not look like a valid realm"),
    "pve-roleid": _pattern(r"[A-Za-z0-9.\-_]+", "role '{}' contains invalid characters"),
    "pve-startup-order": _startup,
    "pve-storage-id": _pattern(r"[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]", "storage ID '{}' contains illegal characters"),
    "pve-tag-list": _tag_list,
    "pve-userid": _pattern(_USER, "value '{}' does not look like a valid user name"),
    "pve-tokenid": _pattern(rf"{_USER}!{_IDENT}", "value does not look like a valid token ID"),
    "pve-vmid": _pattern(r"[1-9][0-9]{2,8}", "value does not look like a valid VM ID"),
    "pve-volume-id": _pattern(r"[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]:\S+", "unable to parse volume ID '{}'"),
    "string": lambda _value: None,
}


def split_list(text: str) -> list[str]:
    """Split a list as Proxmox does: at commas, semicolons, NUL and white space."""
    return [word for word in re.split(r"[,;\0\s]+", text) if word]


def check(name: str, value: str) -> None:
    """Check a value against a named format; a name with -list, -opt or -alist wraps another. Unknown formats pass.

    Raises PveError with the format's words.
    """
    if name in FORMATS:
        FORMATS[name](value)
        return
    if name.endswith(("-list", "-alist")):
        inner = FORMATS.get(name.removesuffix("-alist").removesuffix("-list"))
        for word in split_list(value) if inner else ():
            inner(word)  # type: ignore[misc]
    elif name.endswith("-opt"):
        inner = FORMATS.get(name.removesuffix("-opt"))
        if inner and value:
            inner(value)
