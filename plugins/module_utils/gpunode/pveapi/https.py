"""The API over HTTPS: verified TLS or a pinned certificate, a ticket (password, one-time code) or an API token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import ssl
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from ..pve.errors import AUTHENTICATION
from .base import ApiError, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REQUEST_S: Final = 60.0
"""Time for one request: Proxmox's own proxy gives up after 30 s."""

TICKET_S: Final = 3600.0
"""Age at which a ticket is renewed; Proxmox refuses one after two hours."""

TOTP_STEP_S: Final = 30
STEP_MARGIN_S: Final = 0.2
"""Waited beyond a step's end: the clock that sleeps is not the one that tells the time."""
TOTP_DIGITS: Final = 6
"""What authenticator apps and Proxmox use (RFC 6238)."""


@dataclass(frozen=True)
class Login:
    """Who asks. Either ``password`` (with ``totp_secret`` or ``otp`` where a second factor is set up) or ``token_id`` and ``token_secret``.

    ``user`` is ``root@pam``; ``fingerprint`` pins the server's certificate (SHA-256), which is then trusted whoever signed it.
    """

    host: str
    user: str = "root@pam"
    password: str = ""
    token_id: str = ""
    token_secret: str = ""
    otp: str = ""
    totp_secret: str = ""
    port: int = 8006
    ca_file: str = ""
    fingerprint: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user} at {self.host}:{self.port})"


class HttpsApi:
    """Requests to pveproxy."""

    name = "https"

    def __init__(
        self,
        login: Login,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bool(login.password) == bool(login.token_secret):
            raise ApiError("api_backend https needs either a password or a token's secret", kind=AUTHENTICATION)
        self.login = login
        self.user = f"{login.user}!{login.token_id}" if login.token_secret else login.user
        self._clock, self._now, self._sleep = clock, now, sleep
        self._connection: http.client.HTTPSConnection | None = None
        self._ticket = ""
        self._csrf = ""
        self._since = 0.0

    def call(self, method: str, path: str, params: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Any:
        """See ``Api.call``."""
        return self._request(method, path, params, self._headers(method), timeout or REQUEST_S)

    def start(self, method: str, path: str, params: Mapping[str, str] | None, deadline: Deadline) -> str:
        """See ``Api.start``."""
        return str(self.call(method, path, params, timeout=min(REQUEST_S, max(1.0, deadline.left))) or "")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- who asks -------------------------------------------------------------------------------------------------------------------

    def _headers(self, method: str) -> dict[str, str]:
        if self.login.token_secret:
            return {"Authorization": f"PVEAPIToken={self.login.user}!{self.login.token_id}={self.login.token_secret}"}
        if not self._ticket or self._clock() - self._since > TICKET_S:
            self._log_in()
        headers = {"Cookie": f"PVEAuthCookie={quote(self._ticket, safe='')}"}
        return headers if method == "GET" else headers | {"CSRFPreventionToken": self._csrf}

    def _log_in(self) -> None:
        """Get a ticket, or a new one for the old: that takes no second factor, whose code may be another by now."""
        data = self._renewed() or self._first()
        self._ticket, self._csrf, self._since = str(data["ticket"]), str(data.get("CSRFPreventionToken", "")), self._clock()

    def _renewed(self) -> Mapping[str, Any]:
        if not self._ticket:
            return {}
        try:
            return self._ticket_for({"username": self.login.user, "password": self._ticket})
        except ApiError as error:
            if error.kind != AUTHENTICATION:
                raise
            return {}

    def _first(self) -> Mapping[str, Any]:
        """With a second factor Proxmox answers the password with a challenge, which a one-time code redeems.

        It takes each code once: one that another login has used (the task before this one) is refused, and the next one is waited for.
        """
        data = self._challenged()
        if not data.get("NeedTFA"):
            return data
        if not self.login.otp and not self.login.totp_secret:
            raise ApiError(
                f"{self.login.user} has a second factor: give its secret (api_totp_secret) or a current code (api_otp)", kind=AUTHENTICATION
            )
        began = self._now()
        try:
            return self._redeemed(data, self.login.otp or totp(self.login.totp_secret, began))
        except ApiError as error:
            if error.kind != AUTHENTICATION:
                raise
            if self.login.otp:
                raise ApiError(
                    f"{self.login.user}: the one-time code (api_otp) was refused: it is wrong, too old, or was used before", status=401
                ) from None
        self._sleep(max(0.0, (began // TOTP_STEP_S + 1) * TOTP_STEP_S - self._now()) + STEP_MARGIN_S)
        try:
            return self._redeemed(self._challenged(), totp(self.login.totp_secret, self._now()))
        except ApiError as error:
            if error.kind != AUTHENTICATION:
                raise
            raise ApiError(
                f"{self.login.user}: two one-time codes were refused: the secret (api_totp_secret) is another one, or the clocks of this"
                f" machine and {self.login.host} differ (`timedatectl`)",
                status=401,
            ) from None

    def _challenged(self) -> Mapping[str, Any]:
        return self._ticket_for({"username": self.login.user, "password": self.login.password})

    def _redeemed(self, challenge: Mapping[str, Any], code: str) -> Mapping[str, Any]:
        answered = {"username": self.login.user, "tfa-challenge": str(challenge["ticket"]), "password": f"totp:{code}"}
        return self._ticket_for(answered)

    def _ticket_for(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        data = self._request("POST", "/access/ticket", params, {}, REQUEST_S)
        if not isinstance(data, dict) or not data.get("ticket"):
            raise ApiError(f"{self.login.user} got no ticket from {self.login.host}", status=401)
        return data

    # -- the wire -------------------------------------------------------------------------------------------------------------------

    def _request(self, method: str, path: str, params: Mapping[str, str] | None, headers: Mapping[str, str], timeout: float) -> Any:
        target, body = f"/api2/json{path}", None
        encoded = urlencode(params or {})
        if method in {"GET", "DELETE"}:
            target += f"?{encoded}" if encoded else ""
        else:
            body = encoded
        sent = {"Accept": "application/json", **headers}
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            status, reason, text = self._exchange(method, target, body, sent, timeout)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ApiError(
                f"the certificate of {self.login.host}:{self.login.port} is not trusted ({error.verify_message}): give the cluster's own CA"
                " (api_ca_file, /etc/pve/pve-root-ca.pem on a node) or pin the certificate (api_fingerprint, shown by"
                " `pvenode cert info`)",
                kind=AUTHENTICATION,
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(
                f"{self.login.host}:{self.login.port}: connection refused or broken ({error or type(error).__name__})", status=599
            ) from None
        return answer(status, reason, text)

    def _exchange(self, method: str, target: str, body: str | None, headers: Mapping[str, str], timeout: float) -> tuple[int, str, bytes]:
        """One request over the open connection. Proxmox closes an idle one: a reading request is sent once more then."""
        for attempt in (1, 2):
            fresh = self._connection is None
            connection = self._connect(timeout)
            try:
                connection.request(method, target, body, dict(headers))
                response = connection.getresponse()
                return response.status, response.reason, response.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.close()
                if fresh or method != "GET" or attempt == 2:
                    raise
        raise AssertionError

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        if self._connection is not None:
            if self._connection.sock is not None:
                self._connection.sock.settimeout(timeout)
            return self._connection
        pinned = fingerprint_of(self.login.fingerprint)
        try:
            context = ssl.create_default_context(cafile=self.login.ca_file or None)
        except OSError as error:
            raise ApiError(f"{self.login.ca_file} cannot be read: {error.strerror or error}", kind=AUTHENTICATION) from None
        # Python 3.13 wants a key usage in every CA certificate, which the one that Proxmox VE makes for its clusters lacks.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if pinned:
            # The pin is the proof of who answers; whoever signed the certificate, and for which name, is beside it.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self.login.host, self.login.port, timeout=timeout, context=context)
        connection.connect()
        if pinned:
            certificate = connection.sock.getpeercert(binary_form=True) or b""
            found = hashlib.sha256(certificate).hexdigest()
            if not hmac.compare_digest(found, pinned):
                connection.close()
                raise ApiError(
                    f"the certificate of {self.login.host}:{self.login.port} has the fingerprint {_colons(found)},"
                    f" pinned is {_colons(pinned)}:"
                    " somebody else answers, or the certificate was renewed (`pvenode cert info` on the node shows the right one)",
                    kind=AUTHENTICATION,
                )
        self._connection = connection
        return connection


def answer(status: int, reason: str, text: bytes) -> Any:
    """The data of an answer, or its error: Proxmox says why in the reason phrase, by parameter in ``errors``."""
    try:
        content = json.loads(text.decode("utf-8", "replace")) if text else {}
    except ValueError:
        content = {}
    if not isinstance(content, dict):
        content = {}
    if status < 400:
        return content.get("data")
    errors = content.get("errors") or {}
    said = str(content.get("message") or "").strip() or reason
    raise ApiError(said, status=status, errors=errors if isinstance(errors, dict) else {"errors": str(errors)})


def fingerprint_of(text: str) -> str:
    """A SHA-256 fingerprint as lower-case hexadecimal digits without separators, empty for none; ``ApiError`` for anything else."""
    plain = re.sub(r"[:\s]", "", text).lower().removeprefix("sha256")
    if plain and not re.fullmatch(r"[0-9a-f]{64}", plain):
        raise ApiError("a pinned fingerprint is the SHA-256 of the certificate, 32 pairs of hexadecimal digits", kind=AUTHENTICATION)
    return plain


def _colons(text: str) -> str:
    return ":".join(text[index : index + 2] for index in range(0, len(text), 2)).upper()


def totp(secret: str, now: float) -> str:
    """The one-time code of a moment for a secret in base 32, as RFC 6238 has it."""
    plain = re.sub(r"[\s=-]", "", secret).upper()
    try:
        key = base64.b32decode(plain + "=" * (-len(plain) % 8))
    except ValueError:
        raise ApiError("the one-time secret is not base 32", kind=AUTHENTICATION) from None
    digest = hmac.new(key, struct.pack(">Q", int(now) // TOTP_STEP_S), hashlib.sha1).digest()
    offset = digest[-1] & 0xF
    number = int(struct.unpack(">I", digest[offset : offset + 4])[0]) & 0x7FFFFFFF
    return f"{number % 10**TOTP_DIGITS:0{TOTP_DIGITS}d}"
