"""What Proxmox VE lets whom set on a container: asked before anything changes, with what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .propstring import FAMILIES, PropertyError, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = "root@pam"

INSTEAD: Final = (
    "Proxmox VE allows this to root@pam itself and to no API token, not even root@pam's: use api_backend local on the node,"
    " ssh_paramiko, or https with root@pam's password"
)


def refused(parameters: Mapping[str, str], *, unprivileged: bool) -> list[str]:
    """Options among API parameters that only root@pam may set, each with the reason.

    Source: proxmox/pve-container, LXC.pm, check_ct_modify_config_perm.
    """
    found = []
    for name, value in sorted(parameters.items()):
        if name.startswith("dev") and name[3:].isdigit():
            found.append(f"{name} (device passthrough)")
        elif name == "rootfs" or (name.startswith("mp") and name[2:].isdigit()):
            volume = _part("mp" if name != "rootfs" else "rootfs", value, "volume")
            if volume.startswith("/"):
                found.append(f"{name} (mount of the host's {volume})")
        elif name == "features":
            beyond = sorted(key for key in _parsed("features", value) if key != "nesting")
            if not unprivileged:
                found.append("features (of a privileged container)")
            elif beyond:
                found.append(f"features {', '.join(beyond)} (all but nesting)")
        elif name == "hookscript":
            found.append("hookscript")
    return found


def _parsed(family: str, value: str) -> Mapping[str, str]:
    try:
        return parse(FAMILIES[family], value)
    except PropertyError:
        return {}


def _part(family: str, value: str, key: str) -> str:
    return _parsed(family, value).get(key, "")


def cannot(backend: str, *, raw: bool, secrets: Sequence[str]) -> list[str]:
    """What a backend cannot do at all, of what is wanted: raw lines over the API, secrets on a command line."""
    found = []
    if raw and backend == "https":
        found.append("raw lxc lines: Proxmox VE's API reads but does not write them: use api_backend local on the node, or ssh_paramiko")
    if secrets and backend != "https":
        found.append(
            f"{', '.join(secrets)}: pvesh takes it as an argument, which every user of the node can read: use api_backend https,"
            " or set the password afterwards inside the container"
        )
    return found
