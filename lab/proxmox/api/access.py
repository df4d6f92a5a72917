"""/access and /pools: users, tokens, roles, permissions."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from lab.proxmox import login, roles
from lab.proxmox.api.registry import route
from lab.proxmox.errors import ParamError, PermError, PveError
from lab.proxmox.formats import split_list

if TYPE_CHECKING:
    from lab.proxmox.access import Users
    from lab.proxmox.context import Context

_TOKEN = "/access/users/{userid}/token/{tokenid}"
_USER_KEYS = ("enable", "expire", "firstname", "lastname", "email", "comment", "keys")
Values = dict[str, Any]


@route("GET", "/access")
def index(ctx: Context, values: Values) -> list[Values]:
    """What there is to see."""
    del ctx, values
    return [{"subdir": name} for name in ("users", "groups", "roles", "acl", "domains", "ticket", "permissions", "tfa")]


@route("POST", "/access/ticket")
def ticket(ctx: Context, values: Values) -> Values:
    """Log in."""
    return login.login(ctx.access, values)


@route("GET", "/access/ticket")
def nothing(ctx: Context, values: Values) -> None:
    """Only there for clients that look."""
    del ctx, values


@route("GET", "/access/domains")
def domains(ctx: Context, values: Values) -> list[Values]:
    """The two realms."""
    del ctx, values
    return [
        {"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
        {"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server"},
    ]


@route("GET", "/access/users")
def users(ctx: Context, values: Values) -> list[Values]:
    """The users that the asker may see: himself, or all with User.Modify or Sys.Audit on /access/groups."""
    everyone = ctx.may("/access/groups", "User.Modify", "Sys.Audit", any_of=True)
    found = []
    for name, one in sorted(ctx.access.users.users.items()):
        if not everyone and name != ctx.user.partition("!")[0]:
            continue
        row = {"userid": name, "enable": one["enable"], "expire": one["expire"], "realm-type": name.rpartition("@")[2]}
        row |= {key: one[key] for key in ("firstname", "lastname", "email", "comment") if one[key]}
        if values.get("full"):
            row["tokens"] = [
                {"tokenid": token.partition("!")[2], **held}
                for token, held in ctx.access.users.tokens.items()
                if token.partition("!")[0] == name
            ]
        found.append(row)
    return found


@route("POST", "/access/users")
def add_user(ctx: Context, values: Values) -> None:
    """Add a user."""
    name = values["userid"]
    if name.rpartition("@")[2] not in {"pam", "pve"}:
        raise PveError(f"auth domain '{name.rpartition('@')[2]}' does not exist")

    def work(found: Users) -> None:
        if name in found.users:
            raise PveError(f"create user failed: user '{name}' already exists")
        found.users[name] = {key: values.get(key, "") for key in _USER_KEYS} | {
            "enable": values.get("enable", 1),
            "expire": values.get("expire", 0),
        }
        for group in split_list(str(values.get("groups", ""))):
            found.groups.setdefault(group, {"users": set(), "comment": ""})["users"].add(name)

    ctx.access.change(work)
    if values.get("password") and name.endswith("@pve"):
        login.set_password(ctx.access, name, values["password"])


@route("GET", "/access/users/{userid}")
def one_user(ctx: Context, values: Values) -> Values:
    """One user."""
    one = _user(ctx, values["userid"])
    tokens = {
        token.partition("!")[2]: held for token, held in ctx.access.users.tokens.items() if token.partition("!")[0] == values["userid"]
    }
    groups = [group for group, members in ctx.access.users.groups.items() if values["userid"] in members["users"]]
    return {key: one[key] for key in _USER_KEYS if one[key] or key in {"enable", "expire"}} | {"groups": groups, "tokens": tokens}


@route("PUT", "/access/users/{userid}")
def change_user(ctx: Context, values: Values) -> None:
    """Change a user."""
    name = values["userid"]
    _user(ctx, name)
    ctx.access.change(lambda found: found.users[name].update({key: values[key] for key in _USER_KEYS if key in values}))


@route("DELETE", "/access/users/{userid}")
def delete_user(ctx: Context, values: Values) -> None:
    """Delete a user with his tokens and permissions."""
    name = values["userid"]
    _user(ctx, name)

    def work(found: Users) -> None:
        del found.users[name]
        found.tokens = {token: held for token, held in found.tokens.items() if token.partition("!")[0] != name}
        found.acl = {key: value for key, value in found.acl.items() if key[1].partition("!")[0] != name}

    ctx.access.change(work)


def _user(ctx: Context, name: str) -> Values:
    one = ctx.access.users.users.get(name)
    if one is None:
        raise PveError(f"no such user ('{name}')")
    return one


@route("PUT", "/access/password")
def password(ctx: Context, values: Values) -> None:
    """Set a password of realm pve; the system's own are passwd's."""
    _user(ctx, values["userid"])
    if not values["userid"].endswith("@pve"):
        raise PveError("the lab changes passwords of realm pve only: use chpasswd on the node", 501)
    login.set_password(ctx.access, values["userid"], values["password"])


@route("GET", "/access/users/{userid}/token")
def tokens(ctx: Context, values: Values) -> list[Values]:
    """A user's tokens, without their secrets."""
    return [
        {"tokenid": token.partition("!")[2], **held}
        for token, held in sorted(ctx.access.users.tokens.items())
        if token.partition("!")[0] == values["userid"]
    ]


@route("GET", _TOKEN)
def token(ctx: Context, values: Values) -> Values:
    """One token."""
    return dict(_token(ctx, values)[1])


def _token(ctx: Context, values: Values) -> tuple[str, Values]:
    full = f"{values['userid']}!{values['tokenid']}"
    held = ctx.access.users.tokens.get(full)
    if held is None:
        raise PveError(f"no such token '{values['tokenid']}' for user '{values['userid']}'")
    return full, held


@route("POST", _TOKEN)
def add_token(ctx: Context, values: Values) -> Values:
    """Add a token; its secret is shown this once."""
    _user(ctx, values["userid"])
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9.\-_]+", values["tokenid"]):
        raise ParamError({"tokenid": "value does not match the regex pattern"})
    full = f"{values['userid']}!{values['tokenid']}"
    held = {"expire": values.get("expire", 0), "privsep": values.get("privsep", 1), "comment": values.get("comment", "")}

    def work(found: Users) -> None:
        if full in found.tokens:
            raise ParamError({"tokenid": "Token already exists."})
        found.tokens[full] = held

    ctx.access.change(work)
    info = {key: str(value) for key, value in held.items() if value != ""}
    return {"full-tokenid": full, "value": ctx.access.set_token_secret(full, None), "info": info}


@route("PUT", _TOKEN)
def change_token(ctx: Context, values: Values) -> Values:
    """Change a token's expiry, separation or comment."""
    full, _held = _token(ctx, values)
    ctx.access.change(
        lambda found: found.tokens[full].update({key: values[key] for key in ("expire", "privsep", "comment") if key in values})
    )
    return ctx.access.users.tokens[full]


@route("DELETE", _TOKEN)
def delete_token(ctx: Context, values: Values) -> None:
    """Delete a token with its permissions."""
    full, _held = _token(ctx, values)

    def work(found: Users) -> None:
        del found.tokens[full]
        found.acl = {key: value for key, value in found.acl.items() if key[1] != full}

    ctx.access.change(work)
    ctx.access.set_token_secret(full, "")


@route("GET", "/access/roles")
def list_roles(ctx: Context, values: Values) -> list[Values]:
    """Roles with their privileges."""
    del values
    found = [{"roleid": name, "privs": ",".join(sorted(held)), "special": 1} for name, held in sorted(roles.BUILTIN.items())]
    return found + [
        {"roleid": name, "privs": ",".join(sorted(held)), "special": 0} for name, held in sorted(ctx.access.users.roles.items())
    ]


@route("POST", "/access/roles")
def add_role(ctx: Context, values: Values) -> None:
    """Add a role."""
    wanted = set(split_list(str(values.get("privs", ""))))
    for name in sorted(wanted - roles.PRIVILEGES):
        raise ParamError({"privs": f"invalid format - invalid privilege '{name}'\n"})

    def work(found: Users) -> None:
        if values["roleid"] in found.roles or values["roleid"] in roles.BUILTIN:
            raise PveError(f"role '{values['roleid']}' already exists")
        found.roles[values["roleid"]] = wanted

    ctx.access.change(work)


@route("DELETE", "/access/roles/{roleid}")
def delete_role(ctx: Context, values: Values) -> None:
    """Delete a role."""
    if values["roleid"] in roles.BUILTIN:
        raise PveError(f"auto-generated role '{values['roleid']}' cannot be deleted")
    if values["roleid"] not in ctx.access.users.roles:
        raise PveError(f"role '{values['roleid']}' does not exist")
    ctx.access.change(lambda found: found.roles.pop(values["roleid"]))  # type: ignore[arg-type]


@route("GET", "/access/acl")
def acl(ctx: Context, values: Values) -> list[Values]:
    """Who was given which role on which path."""
    del values
    rows = []
    for (path, member, role), spread in sorted(ctx.access.users.acl.items()):
        kind = "group" if member.startswith("@") else "token" if "!" in member else "user"
        rows.append({"path": path, "ugid": member.lstrip("@"), "type": kind, "roleid": role, "propagate": int(spread)})
    return rows


@route("PUT", "/access/acl")
def set_acl(ctx: Context, values: Values) -> None:
    """Give roles on a path, or take them."""
    path = "/" + values["path"].strip("/")
    members = [*split_list(str(values.get("users", ""))), *split_list(str(values.get("tokens", "")))]
    members += [f"@{group}" for group in split_list(str(values.get("groups", "")))]
    if not members:
        raise ParamError(dict.fromkeys(("groups", "tokens", "users"), "property is missing and it is not optional"))

    def work(found: Users) -> None:
        for role in split_list(values["roles"]):
            if role not in roles.BUILTIN and role not in found.roles:
                raise PveError(f"role '{role}' does not exist")
            for member in members:
                known = (
                    member.lstrip("@") in found.groups if member[0] == "@" else member in (found.tokens if "!" in member else found.users)
                )
                if not known:
                    raise PveError(f"{'group' if member[0] == '@' else 'token' if '!' in member else 'user'} '{member}' does not exist")
                if values.get("delete"):
                    found.acl.pop((path, member, role), None)
                else:
                    found.acl[path, member, role] = bool(values.get("propagate", 1))

    ctx.access.change(work)


@route("GET", "/access/permissions")
def permissions(ctx: Context, values: Values) -> Values:
    """The privileges of the asker (or of a user he may look at) by path."""
    user = values.get("userid", ctx.user)
    if user != ctx.user and user.partition("!")[0] != ctx.user and not ctx.may("/access", "Sys.Audit"):
        raise PermError("/access, Sys.Audit")
    default = {"/", "/vms", "/nodes", "/storage", "/access", "/access/groups", "/pool", "/sdn", "/mapping"}
    paths = [values["path"]] if values.get("path") else sorted(default | {key[0] for key in ctx.access.users.acl})
    found = {path: dict.fromkeys(sorted(ctx.access.privileges(user, path)), 1) for path in paths}
    return {path: held for path, held in found.items() if held}


@route("GET", "/access/tfa/{userid}")
def factors(ctx: Context, values: Values) -> list[Values]:
    """A user's second factors."""
    entries = ctx.access.document("tfa.cfg").get(values["userid"], {}).get("totp", [])
    return [{"id": entry["id"], "type": "totp", "description": entry["description"], "enable": 1, "created": 0} for entry in entries]


@route("POST", "/access/tfa/{userid}")
def add_factor(ctx: Context, values: Values) -> Values:
    """Add a time-based one-time password; its first value proves that the client can make them."""
    user = values["userid"]
    _user(ctx, user)
    if values["type"] != "totp" or not values.get("totp"):
        raise PveError("the lab knows totp as second factor only", 501)
    import time

    if not ctx.cli and values.get("value") != login.totp(login.totp_secret(values["totp"]), time.time()):
        raise PveError("failed to verify TOTP challenge")
    known = ctx.access.document("tfa.cfg")
    entry = {"id": secrets.token_hex(8), "uri": values["totp"], "description": values.get("description", "")}
    known.setdefault(user, {}).setdefault("totp", []).append(entry)
    ctx.access.set_document("tfa.cfg", known)
    return {"id": entry["id"]}


@route("DELETE", "/access/tfa/{userid}/{id}")
def delete_factor(ctx: Context, values: Values) -> None:
    """Remove a second factor."""
    known = ctx.access.document("tfa.cfg")
    entries = known.get(values["userid"], {}).get("totp", [])
    kept = [entry for entry in entries if entry["id"] != values["id"]]
    if len(kept) == len(entries):
        raise PveError(f"no such tfa entry '{values['id']}'")
    known[values["userid"]]["totp"] = kept
    ctx.access.set_document("tfa.cfg", known)


@route("GET", "/pools")
def pools(ctx: Context, values: Values) -> list[Values]:
    """Pools."""
    wanted = values.get("poolid")
    if wanted and wanted not in ctx.access.users.pools:
        raise PveError(f"pool '{wanted}' does not exist")
    names = [name for name in sorted(ctx.access.users.pools) if (wanted in {None, name}) and ctx.may(f"/pool/{name}", "Pool.Audit")]
    rows = [{"poolid": name, "comment": ctx.access.users.pools[name]["comment"]} for name in names]
    if wanted:
        for row in rows:
            one = ctx.access.users.pools[row["poolid"]]
            row["members"] = [{"type": "lxc", "vmid": vmid, "id": f"lxc/{vmid}"} for vmid in sorted(one["vms"])]
    return rows


@route("POST", "/pools")
def add_pool(ctx: Context, values: Values) -> None:
    """Add a pool."""
    name = values["poolid"]

    def work(found: Users) -> None:
        if name in found.pools:
            raise PveError(f"create pool failed: pool '{name}' already exists")
        found.pools[name] = {"comment": values.get("comment", ""), "vms": set(), "storage": set()}

    ctx.access.change(work)


@route("PUT", "/pools")
def change_pool(ctx: Context, values: Values) -> None:
    """Add or remove members of a pool."""

    def work(found: Users) -> None:
        if values["poolid"] not in found.pools:
            raise PveError(f"update pools failed: pool '{values['poolid']}' does not exist")
        pool = found.pools[values["poolid"]]
        vms, places = {int(word) for word in split_list(str(values.get("vms", "")))}, set(split_list(str(values.get("storage", ""))))
        for key, members in (("vms", vms), ("storage", places)):
            pool[key] = pool[key] - members if values.get("delete") else pool[key] | members

    ctx.access.change(work)


@route("DELETE", "/pools")
def delete_pool(ctx: Context, values: Values) -> None:
    """Delete an empty pool."""
    pool = ctx.access.users.pools.get(values["poolid"])
    if pool is None:
        raise PveError(f"delete pool failed: pool '{values['poolid']}' does not exist")
    held = [f"VM {vmid}" for vmid in sorted(pool["vms"])] + [f"storage '{name}'" for name in sorted(pool["storage"])]
    if held:
        raise PveError(f"delete pool failed: pool '{values['poolid']}' is not empty (contains {held[0]})")
    ctx.access.change(lambda found: found.pools.pop(values["poolid"]))  # type: ignore[arg-type]
