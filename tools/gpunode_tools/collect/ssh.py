"""A machine over ssh by paramiko: host keys verified, addresses from an Ansible inventory, jump hosts and keys from ssh configuration."""

from __future__ import annotations

import getpass
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import paramiko

from gpunode_tools.collect.errors import InputError, UnreachableError
from gpunode_tools.collect.ssh_errors import load_known_hosts, usable_identities, why_no_connection, why_no_key

if TYPE_CHECKING:
    from gpunode_tools.probe import Session

CONNECT_TIMEOUT_S: Final = 15.0
KEEPALIVE_S: Final = 10
_FLAGS: Final = {"-J": "proxyjump", "-i": "identityfile", "-p": "port", "-l": "user", "-F": "configfile"}
"""Flags of ssh that stand for an option (or for its file of options)."""
_CHUNK: Final = 1 << 16


@dataclass
class Target:
    """How to reach a host. ``options`` are ssh's own (`-o Name=value`), lower-case names."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identities: list[str] = field(default_factory=list)
    become: bool = False
    options: dict[str, str] = field(default_factory=dict)


class SshMachine:
    """A connected machine."""

    def __init__(self, target: Target, config_path: str = "~/.ssh/config") -> None:
        """Connect. Raises UnreachableError, also for a host key that is unknown or has changed."""
        self.name = target.name
        self.target = target
        self._hops: list[paramiko.SSHClient] = []
        self.config = paramiko.SSHConfig()
        path = Path(target.options.get("configfile", config_path)).expanduser()
        try:
            with path.open(encoding="utf-8") as stream:
                self.config.parse(stream)
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError, paramiko.ConfigParseError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"ssh's configuration {path} cannot be read: {why}") from None
        self.client = self._connect(target, None)

    def _settings(self, target: Target) -> dict[str, Any]:
        settings: dict[str, Any] = dict(self.config.lookup(target.address))
        settings.update(target.options)
        return settings

    def _connect(self, target: Target, below: paramiko.Channel | None) -> paramiko.SSHClient:
        settings = self._settings(target)
        host = settings.get("hostname", target.address)
        port = target.port or int(settings.get("port", 22))
        user = target.user or settings.get("user") or getpass.getuser()
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        load_known_hosts(client, str(settings.get("userknownhostsfile", "")).split())
        sock: Any = below
        if sock is None and (jump := str(settings.get("proxyjump", "none"))) != "none":
            sock = self._jump(jump, host, port)
        elif sock is None and (proxy := str(settings.get("proxycommand", "none"))) != "none":
            for token, value in (("%h", host), ("%p", str(port)), ("%r", user), ("%n", target.address)):
                proxy = proxy.replace(token, value)
            try:
                sock = paramiko.ProxyCommand(proxy)
            except OSError as error:
                raise InputError(f"ProxyCommand `{proxy}` of ssh's configuration does not run: {error.strerror}") from None
        identities = usable_identities(target.identities, [str(Path(path).expanduser()) for path in _listed(settings.get("identityfile"))])
        try:
            client.connect(
                host,
                port,
                user,
                key_filename=identities or None,  # type: ignore[arg-type]  # a list is documented
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
                sock=sock,
            )
        except paramiko.BadHostKeyException as error:
            client.close()
            raise UnreachableError(
                f"the host key of {host} is not the one in known_hosts: {error.key.get_name()} {error.key.fingerprint}; "
                f"find out why it changed, then: ssh-keygen -R {host}"
            ) from None
        except paramiko.SSHException as error:
            client.close()
            if "not found in known_hosts" in str(error):
                words = f"{error}; add it to known_hosts after comparing it: ssh {user}@{host}"
            elif isinstance(error, paramiko.AuthenticationException) or "encountered" in str(error) or "key file" in str(error):
                # paramiko tells of the last file that it could not read as another kind of key, not of what failed
                words = why_no_key(identities)
            else:
                words = str(error)
            raise UnreachableError(f"ssh {user}@{host}:{port}: {words}") from None
        except UnicodeDecodeError:
            client.close()
            raise InputError(
                f"one of these is no private key: {', '.join(identities)} (head -1 FILE: -----BEGIN ... PRIVATE KEY-----)"
            ) from None
        except (OSError, EOFError) as error:
            client.close()
            raise UnreachableError(f"ssh {user}@{host}:{port}: {why_no_connection(error, host, port)}") from None
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(KEEPALIVE_S)
        self._hops.append(client)
        return client

    def _jump(self, jump: str, host: str, port: int) -> paramiko.Channel:
        channel: paramiko.Channel | None = None
        hops = [hop.strip() for hop in jump.split(",")]
        for position, hop in enumerate(hops):
            user, _, rest = hop.rpartition("@")
            address, _, number = rest.partition(":")
            client = self._connect(Target(address, address, user or None, int(number) if number else None), channel)
            transport = client.get_transport()
            assert transport is not None  # noqa: S101 - it has just connected
            following = (host, port) if position == len(hops) - 1 else _place(hops[position + 1])
            try:
                channel = transport.open_channel("direct-tcpip", following, ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S)
            except (paramiko.SSHException, OSError) as error:
                raise UnreachableError(f"the jump host {hop} does not reach {following[0]}:{following[1]}: {error}") from None
        assert channel is not None  # noqa: S101 - there is at least one hop
        return channel

    def _line(self, argv: list[str]) -> str:
        words = [*(["sudo", "-n"] if self.target.become else []), *argv]
        return shlex.join(words)

    def _channel(self, argv: list[str]) -> paramiko.Channel:
        transport = self.client.get_transport()
        if transport is None or not transport.is_active():
            raise OSError(f"the connection to {self.name} is gone")
        channel = transport.open_session(timeout=CONNECT_TIMEOUT_S)
        channel.exec_command(self._line(argv))
        return channel

    def run(self, argv: list[str], stdin: bytes = b"", timeout: float = 60.0) -> tuple[int | None, str, str]:
        try:
            channel = self._channel(argv)
            channel.settimeout(timeout)
            channel.sendall(stdin)
            channel.shutdown_write()
        except (OSError, paramiko.SSHException) as error:
            return 255, "", f"ssh to {self.name}: {error}"
        out, err = bytearray(), bytearray()
        end = time.monotonic() + timeout
        while not (channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready()):
            if time.monotonic() > end:
                channel.close()
                return None, out.decode("utf-8", "replace"), f"no answer for {timeout:g} s"
            if channel.recv_ready():
                out += channel.recv(_CHUNK)
            elif channel.recv_stderr_ready():
                err += channel.recv_stderr(_CHUNK)
            elif channel.closed:
                break
            else:
                channel.status_event.wait(0.02)
        while data := channel.recv(_CHUNK):
            out += data
        status = channel.recv_exit_status()
        channel.close()
        return (status if status >= 0 else None), out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def session(self, argv: list[str]) -> Session:
        from gpunode_tools.probe import ChannelSession

        try:
            return ChannelSession(self._channel(argv))
        except paramiko.SSHException as error:
            raise OSError(f"ssh to {self.name}: {error}") from None

    def close(self) -> None:
        for client in reversed(self._hops):
            client.close()


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


def _place(hop: str) -> tuple[str, int]:
    address, _, number = hop.rpartition("@")[2].partition(":")
    return address, int(number) if number else 22


def target_from_variables(name: str, variables: dict[str, Any]) -> Target:
    """A target from an inventory's ansible_* variables."""
    user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
    port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    words: list[str] = []
    for option in ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"):
        words += shlex.split(str(variables.get(option) or ""))
    options: dict[str, str] = {}
    for flag, value in zip(words, [*words, ""][1:], strict=True):
        if flag == "-o" and "=" in value:
            option, _, setting = value.partition("=")
            options[option.lower()] = setting.strip('"')
        elif flag.startswith("-o") and "=" in flag:
            option, _, setting = flag[2:].partition("=")
            options[option.lower()] = setting.strip('"')
        elif flag in _FLAGS and value:
            options[_FLAGS[flag]] = str(Path(value).expanduser()) if flag == "-i" else value
    return Target(
        name=name,
        address=str(variables.get("ansible_host") or variables.get("ansible_ssh_host") or name),
        user=str(user) if user else None,
        port=int(port) if port else None,
        identities=[str(Path(str(key)).expanduser())] if key else [],
        become=str(variables.get("ansible_become", "false")).lower() in {"true", "yes", "1"} and user not in {None, "root"},
        options=options,
    )
