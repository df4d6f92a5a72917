"""Logging in: passwords, one-time passwords, tickets and tokens against forged requests."""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import hashlib
import hmac
import json
import struct
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.access import Access

LIFETIME_S = 2 * 3600  # of a ticket, as the real one's
_SKEW_S = 300  # a ticket may come from a clock that is this much ahead
_FAILED = "authentication failure"
_STEP_S = 30  # of a time-based one-time password (RFC 6238)


def _sign(access: Access, text: str) -> str:
    digest = hmac.new(access.secret("authkey.key"), text.encode(), hashlib.sha512).digest()
    return base64.b64encode(digest).decode().rstrip("=")


def ticket(access: Access, data: str) -> str:
    """A ticket over a user's name (or a challenge)."""
    text = f"PVE:{data}:{int(time.time()):08X}"
    return f"{text}::{_sign(access, text)}"


def verify_ticket(access: Access, text: str) -> str:
    """What a ticket was made over; PveError (401) when it is forged or old."""
    head, _, signature = text.rpartition("::")
    prefix, _, stamp = head.rpartition(":")
    try:
        age = time.time() - int(stamp, 16)
    except ValueError:
        age = -1e9
    if not prefix.startswith("PVE:") or not hmac.compare_digest(_sign(access, head), signature) or not -_SKEW_S < age < LIFETIME_S:
        raise PveError("permission denied - invalid PVE ticket", 401)
    return prefix.removeprefix("PVE:")


def user_of_ticket(access: Access, text: str) -> str:
    """The user of a full ticket; half of a login (its second factor missing) is none."""
    data = verify_ticket(access, text)
    if data.startswith("!tfa!"):
        raise PveError("No ticket", 401)
    try:
        access.check_enabled(data)
    except PveError as error:
        raise PveError(error.text, 401) from None
    return data


def csrf_token(access: Access, user: str) -> str:
    """The token that a browser has to send with each change."""
    stamp = f"{int(time.time()):08X}"
    digest = hmac.new(access.secret("pve-www.key"), f"{stamp}:{user}".encode(), hashlib.sha256).digest()
    return f"{stamp}:{base64.b64encode(digest).decode().rstrip('=')}"


def verify_csrf(access: Access, user: str, text: str) -> None:
    """PveError (401) unless the token belongs to the user and is not old."""
    stamp, _, value = text.partition(":")
    digest = hmac.new(access.secret("pve-www.key"), f"{stamp}:{user}".encode(), hashlib.sha256).digest()
    try:
        fresh = -_SKEW_S < time.time() - int(stamp, 16) < LIFETIME_S
    except ValueError:
        fresh = False
    if not fresh or not hmac.compare_digest(base64.b64encode(digest).decode().rstrip("="), value):
        raise PveError("Permission denied - invalid csrf token", 401)


def crypt(password: str, setting: str) -> str:
    """Hash a password as the system does, in any way that /etc/shadow may hold; `setting` is the method with its salt, or an old hash."""
    library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    return (library.crypt(password.encode(), setting.encode()) or b"").decode()


def check_password(access: Access, user: str, password: str) -> None:
    """PveError (401) unless the password is the user's: of /etc/shadow in realm pam, of priv/shadow.cfg in realm pve."""
    name, _, realm = user.rpartition("@")
    try:
        access.check_enabled(user)
    except PveError:
        raise PveError(_FAILED, 401) from None
    stored = ""
    if realm == "pam":
        for line in access.world.path("/etc/shadow").read_text().splitlines():
            if line.startswith(f"{name}:"):
                stored = line.split(":")[1]
    elif realm == "pve":
        stored = access.document("lab-shadow.json").get(user, "")
    if not stored.startswith("$") or not hmac.compare_digest(crypt(password, stored), stored):
        raise PveError(_FAILED, 401)


def set_password(access: Access, user: str, password: str) -> None:
    """Remember the password of a user of realm pve."""
    import secrets

    salt = secrets.token_hex(8)
    stored = access.document("lab-shadow.json")
    access.set_document("lab-shadow.json", stored | {user: crypt(password, f"$6${salt}$")})


def totp(secret: str, at: float) -> str:
    """The one-time password of a base32 secret at a time (RFC 6238, SHA-1, six digits)."""
    key = base64.b32decode(secret.upper() + "=" * (-len(secret) % 8))
    digest = hmac.new(key, struct.pack(">Q", int(at) // _STEP_S), hashlib.sha1).digest()
    start = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[start : start + 4])[0] & 0x7FFFFFFF) % 10**6:06d}"


def totp_secret(uri: str) -> str:
    """The secret of an otpauth URI; PveError when it has none."""
    found = parse_qs(urlsplit(uri).query).get("secret")
    if not found:
        raise PveError("missing secret in totp uri")
    return found[0]


def check_totp(access: Access, user: str, value: str) -> bool:
    """Whether a value is one of the user's one-time passwords now, a step earlier or later, and was not used before."""
    stored = access.document("tfa.cfg")
    step = int(time.time()) // _STEP_S
    for entry in stored.get(user, {}).get("totp", []):
        for count in (step - 1, step, step + 1):
            good = hmac.compare_digest(totp(totp_secret(entry["uri"]), count * _STEP_S), value)
            if good and count > entry.get("last-count", 0):
                entry["last-count"] = count
                access.set_document("tfa.cfg", stored)
                return True
    return False


def login(access: Access, values: dict[str, Any]) -> dict[str, Any]:
    """Answer POST /access/ticket; PveError (401) when it is refused."""
    name = str(values["username"])
    user = name if "@" in name else f"{name}@{values.get('realm', 'pam')}"
    password = str(values["password"])
    if values.get("tfa-challenge"):
        _second(access, user, password, str(values["tfa-challenge"]))
    elif password.startswith("PVE:"):  # a ticket renews itself
        if user_of_ticket(access, password) != user:
            raise PveError(_FAILED, 401)
    else:
        check_password(access, user, password)
        if access.document("tfa.cfg").get(user, {}).get("totp"):
            if not values.get("otp"):
                challenge = quote(json.dumps({"totp": True, "recovery": []}), safe="")
                return {
                    "username": user,
                    "ticket": ticket(access, f"!tfa!{challenge}@{user}"),
                    "NeedTFA": 1,
                    "CSRFPreventionToken": csrf_token(access, user),
                }
            if not check_totp(access, user, str(values["otp"]).removeprefix("totp:")):
                raise PveError(_FAILED, 401)
    found = {
        "username": user,
        "ticket": ticket(access, user),
        "CSRFPreventionToken": csrf_token(access, user),
        "cap": capabilities(access, user),
    }
    return found | ({"clustername": access.world.node} if (access.world.pve / "corosync.conf").exists() else {})


def _second(access: Access, user: str, answer: str, challenge: str) -> None:
    try:
        data = verify_ticket(access, challenge)
    except PveError:
        raise PveError(_FAILED, 401) from None
    text, _, owner = data.removeprefix("!tfa!").partition("@")
    good = data.startswith("!tfa!") and owner == user and json.loads(unquote(text)).get("totp") and answer.startswith("totp:")
    if not good or not check_totp(access, user, answer.removeprefix("totp:")):
        raise PveError(_FAILED, 401)


def capabilities(access: Access, user: str) -> dict[str, dict[str, int]]:
    """What a user may, in the coarse form that the web interface reads."""
    places = {"vms": "/vms", "storage": "/storage", "access": "/access", "nodes": "/nodes", "dc": "/", "sdn": "/sdn", "mapping": "/mapping"}
    return {name: dict.fromkeys(sorted(access.privileges(user, path)), 1) for name, path in places.items()}
