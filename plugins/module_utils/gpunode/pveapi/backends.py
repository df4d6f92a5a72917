"""The backend that parameters ask for: the API, and the node's files where the backend reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import ApiError
from .node import LocalNode, RemoteNode
from .pvesh import PveshApi
from .shells import LocalShell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Api
    from .https import Login
    from .node import Node

CHOICES = ("local", "https", "ssh_paramiko")

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "api_backend": {"type": "str", "choices": list(CHOICES), "default": "local"},
    "api_host": {"type": "str"},
    "api_port": {"type": "int"},
    "api_user": {"type": "str", "default": "root@pam"},
    "api_password": {"type": "str", "no_log": True},
    "api_otp": {"type": "str", "no_log": True},
    "api_totp_secret": {"type": "str", "no_log": True},
    "api_token_id": {"type": "str", "no_log": False},
    "api_token_secret": {"type": "str", "no_log": True},
    "api_ca_file": {"type": "path"},
    "api_fingerprint": {"type": "str"},
    "api_ssh_key_file": {"type": "path", "no_log": False},
    "api_ssh_known_hosts": {"type": "path"},
}
"""Parameters of modules that talk to Proxmox VE, as Ansible's argument specification."""

ENVIRONMENT: Mapping[str, str] = {
    "api_host": "PROXMOX_HOST",
    "api_user": "PROXMOX_USER",
    "api_password": "PROXMOX_PASSWORD",
    "api_token_id": "PROXMOX_TOKEN_ID",
    "api_token_secret": "PROXMOX_TOKEN_SECRET",
    "api_totp_secret": "PROXMOX_TOTP_SECRET",
    "api_fingerprint": "PROXMOX_FINGERPRINT",
}
"""Environment variables that stand in for missing parameters; the names that other tools for Proxmox VE use, as far as they have them."""


def connect(params: Mapping[str, Any]) -> tuple[Api, Node | None]:
    """Make the backend. Raises ``ApiError`` for parameters that do not fit together; connects only when it is used."""
    backend = params["api_backend"]
    if backend == "local":
        return PveshApi(LocalShell()), LocalNode()
    if not params.get("api_host"):
        raise ApiError(f"api_backend {backend} needs api_host")
    # What the usual backend does not need is not loaded for it: TLS alone would be a third of a run without change.
    if backend == "https":
        from .https import HttpsApi

        return HttpsApi(_login(params)), None
    user = str(params["api_user"]).partition("@")[0]
    if user != "root":
        raise ApiError(f"api_backend ssh_paramiko runs pvesh and edits /etc/pve, which takes root, not {user}")
    from .ssh import ParamikoShell, Target

    target = Target(
        host=params["api_host"],
        port=params.get("api_port") or 22,
        user=user,
        password=params.get("api_password") or "",
        key_file=params.get("api_ssh_key_file") or "",
        known_hosts=params.get("api_ssh_known_hosts") or "",
    )
    shell = ParamikoShell(target)
    return PveshApi(shell), RemoteNode(shell)


def _login(params: Mapping[str, Any]) -> Login:
    from .https import Login

    token = params.get("api_token_id") or ""
    user, bang, name = token.partition("!")
    return Login(
        host=params["api_host"],
        user=user if bang else params["api_user"],
        password=params.get("api_password") or "",
        token_id=name if bang else token,
        token_secret=params.get("api_token_secret") or "",
        otp=params.get("api_otp") or "",
        totp_secret=params.get("api_totp_secret") or "",
        port=params.get("api_port") or 8006,
        ca_file=params.get("api_ca_file") or "",
        fingerprint=params.get("api_fingerprint") or "",
    )
