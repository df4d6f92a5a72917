"""What can be wrong on the way to a machine, in words that say where it was found and what to do."""

from __future__ import annotations

import base64
import binascii
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
from paramiko.hostkeys import InvalidHostKey

from gpunode_tools.collect.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_KNOWN_HOSTS = "~/.ssh/known_hosts"


def why_no_connection(error: Exception, host: str, port: int) -> str:
    """Why a host could not be reached: no name, nobody listens, nobody answers."""
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        inner = next(iter(error.errors.values()), None)
        error = inner if isinstance(inner, Exception) else error
    if isinstance(error, socket.gaierror):
        return f"the name {host} is not known ({error.strerror}): set ansible_host in the inventory, or HostName in ~/.ssh/config"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on port {port} of {host}: is sshd running there (at its console: systemctl status ssh), is the port right?"
    if isinstance(error, TimeoutError) or not str(error).strip():
        return (
            f"{host} does not answer: is it switched on (its BMC or console tells), is the address right, does a firewall drop port {port}?"
        )
    if isinstance(error, EOFError):
        return f"{host} closed the connection: the last lines of its journal (journalctl -u ssh) say why"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{said}: is {host} switched on (its BMC or console tells), is the address right? ping {host}"


def usable_identities(named: Sequence[str], configured: Sequence[str]) -> list[str]:
    """Key files to offer. One that the inventory names must be readable; one that ssh's configuration lists may be missing.

    Raises InputError.
    """
    for path in named:
        problem = _unreadable(path)
        if problem:
            raise InputError(
                f"the key file {path} {problem}: correct ansible_ssh_private_key_file in the inventory, "
                f"or make a key (ssh-keygen -f {path}) and give it to the host (ssh-copy-id)"
            )
    return [path for path in (named or configured) if not _unreadable(path)]


def _unreadable(path: str) -> str:
    """What keeps a file from being read; '' when nothing does."""
    try:
        with Path(path).open("rb"):
            return ""
    except FileNotFoundError:
        return "does not exist"
    except IsADirectoryError:
        return "is a folder"
    except OSError as error:
        return f"cannot be read by this user ({error.strerror})"


def load_known_hosts(client: paramiko.SSHClient, places: Sequence[str]) -> None:
    """Load the user's known hosts and those of ``places``. Raises InputError for a file that is there and cannot be read."""
    for place in (DEFAULT_KNOWN_HOSTS, *places):
        path = str(Path(place).expanduser())
        problem = _unreadable(path)
        if problem == "does not exist" or place == "/dev/null":
            continue
        try:
            if problem:
                raise InputError(f"known_hosts: {path} {problem}, so no host key can be verified: ls -l {path}")
            client.load_host_keys(path) if place != DEFAULT_KNOWN_HOSTS else client.load_system_host_keys(path)
        except (InvalidHostKey, UnicodeDecodeError) as error:
            line = f" in {error.args[0]!r}" if isinstance(error, InvalidHostKey) and error.args else ""
            raise InputError(
                f"known_hosts: {path} holds a key that cannot be read{line}: take that line out (ssh-keygen -R HOST -f {path}), "
                "then accept the host's key anew with ssh"
            ) from None


def why_no_key(identities: Sequence[str]) -> str:
    """Say what was tried where no key was accepted, and which of the files want a passphrase that nobody is asked for."""
    locked = [path for path in identities if _has_passphrase(path)]
    tried = f"no key was accepted (tried: {', '.join(identities) or 'the agent and ~/.ssh'})"
    if locked:
        return f"{tried}; {', '.join(locked)} has a passphrase: unlock it in an agent, ssh-add {locked[0]}"
    return f"{tried}: give yours to the host with ssh-copy-id"


def _has_passphrase(path: str) -> bool:
    """PEM files say ENCRYPTED; OpenSSH's name the function that makes the key out of the passphrase."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False
    if "ENCRYPTED" in text:
        return True
    body = re.sub(r"-----[^-]+-----|\s", "", text)
    try:
        return b"bcrypt" in base64.b64decode(body)[:64]
    except binascii.Error:
        return False
