"""Users, groups, tokens, pools and permissions: /etc/pve/user.cfg and the secrets under /etc/pve/priv."""

from __future__ import annotations

import dataclasses
import functools
import hmac
import json
import secrets
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from lab.proxmox import roles
from lab.proxmox.errors import PveError
from lab.proxmox.formats import split_list
from lab.proxmox.locks import locked
from lab.proxmox.world import World, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = "root@pam"


@dataclasses.dataclass
class Users:
    """user.cfg taken apart. `acl`: (path, member, role) -> propagated, where a member is a user, `@group` or a token."""

    users: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    roles: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    acl: dict[tuple[str, str, str], bool] = dataclasses.field(default_factory=dict)


def parse(text: str) -> Users:
    """Read user.cfg; root@pam is always there."""
    found = Users()
    for line in text.splitlines():
        kind, *part = (word.strip() for word in line.split(":"))
        part += [""] * 9
        if kind == "user":
            found.users[part[0]] = {
                "enable": int(part[1] == "1"),
                "expire": int(part[2] or 0),
                "firstname": unquote(part[3]),
                "lastname": unquote(part[4]),
                "email": part[5],
                "comment": unquote(part[6]),
                "keys": part[7],
            }
        elif kind == "token":
            found.tokens[part[0]] = {"expire": int(part[1] or 0), "privsep": int(part[2] == "1"), "comment": unquote(part[3])}
        elif kind == "group":
            found.groups[part[0]] = {"users": set(split_list(part[1])), "comment": unquote(part[2])}
        elif kind == "pool":
            members = {"vms": {int(word) for word in split_list(part[2])}, "storage": set(split_list(part[3]))}
            found.pools[part[0]] = {"comment": unquote(part[1]), **members}
        elif kind == "role":
            found.roles[part[0]] = set(split_list(part[1]))
        elif kind == "acl":
            for role in split_list(part[3]):
                for member in split_list(part[2]):
                    found.acl[part[1], member, role] = part[0] == "1"
    found.users.setdefault(ROOT, {"enable": 1, "expire": 0, "firstname": "", "lastname": "", "email": "", "comment": "", "keys": ""})
    return found


def text_of(found: Users) -> str:
    """Write user.cfg."""

    def enc(value: str) -> str:
        return quote(value, safe=" @.,/+-_")

    lines = []
    for name in sorted(found.users):
        one = found.users[name]
        words = [enc(one[key]) for key in ("firstname", "lastname", "email", "comment")]
        lines.append(f"user:{name}:{one['enable']}:{one['expire']}:{':'.join(words)}:{one['keys']}:")
        for token in sorted(token for token in found.tokens if token.partition("!")[0] == name):
            held = found.tokens[token]
            lines.append(f"token:{token}:{held['expire']}:{held['privsep']}:{enc(held['comment'])}:")
    lines.append("")
    lines += [f"group:{name}:{','.join(sorted(one['users']))}:{enc(one['comment'])}:" for name, one in sorted(found.groups.items())]
    lines.append("")
    for name, one in sorted(found.pools.items()):
        lines.append(f"pool:{name}:{enc(one['comment'])}:{','.join(map(str, sorted(one['vms'])))}:{','.join(sorted(one['storage']))}:")
    lines.append("")
    lines += [f"role:{name}:{','.join(sorted(privileges))}:" for name, privileges in sorted(found.roles.items())]
    lines.append("")
    lines += [f"acl:{int(spread)}:{path}:{member}:{role}:" for (path, member, role), spread in sorted(found.acl.items())]
    return "\n".join(lines) + "\n"


class Access:
    """The users of a node and what they may."""

    def __init__(self, world: World) -> None:
        self.world = world

    @functools.cached_property
    def users(self) -> Users:
        """user.cfg as it is now."""
        try:
            return parse((self.world.pve / "user.cfg").read_text())
        except FileNotFoundError:
            return parse("")

    def change(self, work: Callable[[Users], None]) -> None:
        """Change user.cfg under its lock."""
        with locked(self.world.path("/run/lock/lab-user.cfg.lock"), "/etc/pve/priv/lock/file-user_cfg"):
            self.__dict__.pop("users", None)
            work(self.users)
            write_file(self.world.pve / "user.cfg", text_of(self.users))

    # --- who may what
    def privileges(self, user: str, path: str) -> set[str]:
        """The privileges of a user or token on a path: a separated token holds what both it and its user have."""
        owner, _, name = user.partition("!")
        if name:
            token = self.users.tokens.get(user)
            if token is None:
                return set()
            mine = self.privileges(owner, path)
            return mine & self._granted({user}, set(), path) if token["privsep"] else mine
        if user == ROOT:
            return set(roles.PRIVILEGES)
        if not self.users.users.get(user, {}).get("enable"):
            return set()
        groups = {f"@{group}" for group, one in self.users.groups.items() if user in one["users"]}
        return self._granted({user}, groups, path)

    def _granted(self, members: set[str], groups: set[str], path: str) -> set[str]:
        found = self._roles(members, groups, path)
        pool = self._pool(path)
        if pool:
            found |= self._roles(members, groups, f"/pool/{pool}")
        if "NoAccess" in found:
            return set()
        return set().union(*(self.role(name) for name in found))

    def _pool(self, path: str) -> str | None:
        kind, _, name = path.lstrip("/").partition("/")
        for pool, one in self.users.pools.items():
            if (kind == "vms" and name.isdigit() and int(name) in one["vms"]) or (kind == "storage" and name in one["storage"]):
                return pool
        return None

    def _roles(self, members: set[str], groups: set[str], path: str) -> set[str]:
        parts = [part for part in path.split("/") if part]
        held: set[str] = set()
        for depth in range(len(parts) + 1):
            here = "/" + "/".join(parts[:depth])
            last = depth == len(parts)
            for chosen in (members, groups):  # a user's own entries hide those of his groups on the same level
                mine = {
                    role for (at, member, role), spread in self.users.acl.items() if at == here and member in chosen and (spread or last)
                }
                if mine:
                    held = mine
                    break
        return held

    def role(self, name: str) -> set[str]:
        """The privileges of a role."""
        return roles.BUILTIN.get(name) or self.users.roles.get(name, set())

    # --- who is who
    def check_enabled(self, user: str) -> None:
        """PveError unless the user exists, is enabled and not expired."""
        one = self.users.users.get(user)
        if one is None:
            raise PveError(f"no such user ('{user}')")
        if not one["enable"]:
            raise PveError(f"user '{user}' is disabled")
        if one["expire"] and one["expire"] < time.time():
            raise PveError(f"user '{user}' access expired")

    def verify_token(self, text: str) -> str:
        """The full name of the token in `USER@REALM!NAME=SECRET`; PveError with the server's words otherwise."""
        full, equals, value = text.rpartition("=")
        if not equals:
            raise PveError("no tokenid specified")
        user, _, name = full.partition("!")
        self.check_enabled(user)
        token = self.users.tokens.get(full)
        if token is None:
            raise PveError(f"no such token '{name}' for user '{user}'")
        if token["expire"] and token["expire"] < time.time():
            raise PveError(f"token '{name}' access expired")
        kept = self._token_secrets().get(full)
        if not kept or not hmac.compare_digest(kept.encode(), value.encode()):
            raise PveError("invalid token value!")
        return full

    def _token_secrets(self) -> dict[str, str]:
        try:
            lines = (self.world.pve / "priv/token.cfg").read_text().splitlines()
        except FileNotFoundError:
            return {}
        return dict(line.split(" ", 1) for line in lines if " " in line)

    def set_token_secret(self, full: str, value: str | None) -> str:
        """Remember a token's secret (a new one when None), or forget it when empty."""
        kept = self._token_secrets()
        kept.pop(full, None)
        value = str(uuid.uuid4()) if value is None else value
        if value:
            kept[full] = value
        write_file(self.world.pve / "priv/token.cfg", "".join(f"{name} {secret}\n" for name, secret in sorted(kept.items())), 0o600)
        return value

    def secret(self, name: str) -> bytes:
        """A secret of this node, made at its first use."""
        file = self.world.pve / "priv" / name
        if not file.exists():
            write_file(file, secrets.token_hex(32) + "\n", 0o600)
        return file.read_bytes()

    def document(self, name: str) -> dict[str, Any]:
        """A JSON document under priv (tfa.cfg, shadow.cfg of the lab)."""
        try:
            return json.loads((self.world.pve / "priv" / name).read_text())  # type: ignore[no-any-return]
        except FileNotFoundError:
            return {}

    def set_document(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON document under priv."""
        write_file(self.world.pve / "priv" / name, json.dumps(value) + "\n", 0o600)

    def forget_guest(self, vmid: int, *, purge: bool) -> None:
        """Remove a guest that is gone from permissions and pools."""
        del purge

        def work(found: Users) -> None:
            found.acl = {key: value for key, value in found.acl.items() if key[0] != f"/vms/{vmid}"}
            for pool in found.pools.values():
                pool["vms"].discard(vmid)

        if any(key[0] == f"/vms/{vmid}" for key in self.users.acl) or any(vmid in pool["vms"] for pool in self.users.pools.values()):
            self.change(work)
