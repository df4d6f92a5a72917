"""A shell on a node over paramiko, for callers without an ssh program: an unknown or changed host key is refused."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .base import ApiError, DeadlineError
from .shells import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_S: Final = 15.0
"""Time for the connection: as ssh's own default in Ansible, with room for a slow reverse lookup."""

DETACHED: Final = "o=$(mktemp) && e=$(mktemp) || exit 1; setsid -w {command} >$o 2>$e; r=$?; cat $o; cat $e >&2; rm -f $o $e; exit $r"
"""The command in a session of its own with its output in files: pvesh ends a task that it runs when its output breaks."""


@dataclass(frozen=True)
class Target:
    """Where to log in. ``known_hosts`` empty means the user's own file."""

    host: str
    port: int = 22
    user: str = "root"
    password: str = ""
    key_file: str = ""
    known_hosts: str = ""


class ParamikoShell:
    """Commands on a node over one ssh connection."""

    name = "ssh_paramiko"

    def __init__(self, target: Target) -> None:
        self.target = target
        self._client: Any = None

    def run(self, argv: Sequence[str], *, data: str = "", timeout: float = 60) -> tuple[int, str, str]:
        """See ``Shell.run``."""
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in ENVIRONMENT.items())
        channel = self._connected().get_transport().open_session(timeout=CONNECT_S)
        try:
            channel.exec_command(DETACHED.format(command=f"env {variables} {shlex.join(argv)}"))
            channel.sendall(data.encode("utf-8", "surrogateescape"))
            channel.shutdown_write()
            return self._outcome(channel, argv, timeout)
        finally:
            channel.close()

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _outcome(self, channel: Any, argv: Sequence[str], timeout: float) -> tuple[int, str, str]:
        out, err, end = bytearray(), bytearray(), time.monotonic() + timeout
        while not (channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready()):
            if time.monotonic() > end:
                raise DeadlineError(f"`{' '.join(argv[:3])}` on {self.target.host} did not end in {timeout:.0f} s; it was left running")
            if channel.recv_ready():
                out += channel.recv(65536)
            elif channel.recv_stderr_ready():
                err += channel.recv_stderr(65536)
            else:
                channel.status_event.wait(0.02)
        while chunk := channel.recv(65536):
            out += chunk
        while chunk := channel.recv_stderr(65536):
            err += chunk
        return channel.recv_exit_status(), out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape")

    def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        try:
            import paramiko
        except ImportError:
            raise ApiError("api_backend ssh_paramiko needs the Python package paramiko where the module runs") from None
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        known = os.path.expanduser(self.target.known_hosts or "~/.ssh/known_hosts")  # noqa: PTH111 - a user's own spelling
        try:
            client.load_host_keys(known)
        except OSError as error:
            raise ApiError(f"{known} cannot be read ({error.strerror}): the host key of {self.target.host} could not be verified") from None
        try:
            client.connect(
                self.target.host,
                self.target.port,
                self.target.user,
                self.target.password or None,
                key_filename=os.path.expanduser(self.target.key_file) if self.target.key_file else None,  # noqa: PTH111 - likewise
                timeout=CONNECT_S,
                allow_agent=not self.target.password,
                look_for_keys=not self.target.password,
            )
        except paramiko.BadHostKeyException as error:
            raise ApiError(
                f"the host key of {self.target.host} is not the one in {known}: {error}. Somebody else answers, or the node was installed"
                f" anew (`ssh-keygen -R {self.target.host} -f {known}` forgets the old key)",
                kind="authentication",
            ) from None
        except paramiko.AuthenticationException as error:
            raise ApiError(f"{self.target.user}@{self.target.host}: {error}", kind="authentication") from None
        except paramiko.SSHException as error:
            text = str(error)
            if "not found in known_hosts" in text:
                text = (
                    f"the host key of {self.target.host} is not in {known}: compare it on the node's console and add it"
                    f" (`ssh-keyscan {self.target.host}`)"
                )
            raise ApiError(text, kind="authentication") from None
        except OSError as error:
            raise ApiError(f"{self.target.host}:{self.target.port} cannot be reached: {error}", status=599) from None
        self._client = client
        return client
