"""HTTPS: who answers is verified before who asks is told; tickets, second factors and tokens."""

from __future__ import annotations

import datetime as dt
import hashlib
import http.server
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpunode.pve import errors
from gpunode.pveapi.base import ApiError
from gpunode.pveapi.https import HttpsApi, Login, fingerprint_of, totp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "JBSWY3DPEHPK3PXP"
PASSWORD = "s3cret&=ü"


class Server:
    """An API of a few answers over TLS, which remembers what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.second_factor = False
        self.codes: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, str], dict[str, str]]] = []
        self.drop = 0
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private = folder / "key.pem"
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        self.fingerprint = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, private)
        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
        self.port = self.httpd.server_address[1]
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                path, _, query = self.path.partition("?")
                given = {key: values[0] for key, values in parse_qs(body or query).items()}
                server.asked.append((self.command, path, given, dict(self.headers)))
                if server.drop:
                    server.drop -= 1
                    self.close_connection = True
                    return
                status, reason, answer = server.answer(self.command, path, given, self.headers)
                text = json.dumps(answer).encode()
                self.send_response(status, reason)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

        return Handler

    def answer(self, method: str, path: str, given: dict[str, str], headers: Any) -> tuple[int, str, Any]:
        if path.endswith("/access/ticket"):
            return self._ticket(given)
        cookie = unquote(headers.get("Cookie", ""))
        if "PVEAPIToken=root@pam!ci=uuid" not in headers.get("Authorization", "") and cookie != "PVEAuthCookie=PVE:root@pam:1::x/y=":
            return 401, "No ticket", {"data": None}
        if method != "GET" and cookie and headers.get("CSRFPreventionToken") != "csrf":
            return 401, "Permission denied - invalid csrf token", {"data": None}
        if "dev0" in given:
            return (
                400,
                "Parameter verification failed.",
                {"data": None, "message": "Parameter verification failed.\n", "errors": {"dev0": "no"}},
            )
        if "lock" in path:
            return 500, "CT is locked (backup)", {"data": None}
        return 200, "OK", {"data": given or "yes"}

    def _ticket(self, given: dict[str, str]) -> tuple[int, str, Any]:
        full = {"ticket": "PVE:root@pam:1::x/y=", "CSRFPreventionToken": "csrf"}
        if "tfa-challenge" in given:
            code = given["password"].removeprefix("totp:")
            right = code in self.codes and given["tfa-challenge"] == "PVE:!tfa!x"
            self.codes.discard(code)
            return (200, "OK", {"data": full}) if right else (401, "authentication failure", {"data": None})
        if given.get("password") == full["ticket"]:
            return 200, "OK", {"data": full}
        if given.get("password") != PASSWORD:
            return 401, "authentication failure", {"data": None}
        return 200, "OK", {"data": {"ticket": "PVE:!tfa!x", "NeedTFA": 1} if self.second_factor else full}

    def login(self, **given: Any) -> Login:
        return Login(**({"host": "localhost", "port": self.port, "ca_file": str(self.ca), "password": PASSWORD} | given))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tls"))
    yield server
    server.httpd.shutdown()
    server.httpd.server_close()


@pytest.fixture
def server(running: Server) -> Server:
    running.second_factor, running.drop = False, 0
    running.asked.clear()
    return running


def test_a_ticket_is_got_once_and_sent_with_its_token(server: Server) -> None:
    api = HttpsApi(server.login())
    assert api.call("GET", "/version", {"a": "1 &"}) == {"a": "1 &"}
    assert api.call("PUT", "/x", {"memory": "1", "description": "ü\n"}) == {"memory": "1", "description": "ü\n"}
    assert [path for _, path, _, _ in server.asked] == ["/api2/json/access/ticket", "/api2/json/version", "/api2/json/x"]
    assert api.user == "root@pam"
    api.close()


def test_an_old_ticket_is_renewed(server: Server) -> None:
    now = [0.0]
    api = HttpsApi(server.login(), clock=lambda: now[0])
    api.call("GET", "/version")
    now[0] = 4000.0
    api.call("GET", "/version")
    assert [path.rpartition("/")[2] for _, path, _, _ in server.asked] == ["ticket", "version", "ticket", "version"]
    api.close()


class Clock:
    """A moment that waiting moves on."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_second_factor(server: Server) -> None:
    server.second_factor = True
    clock = Clock(1000.0)
    server.codes = {totp(SECRET, 1000.0), totp(SECRET, 1020.0)}
    for slept in ([], [20.2]):  # a code serves once: the second login waits for the next one
        api = HttpsApi(server.login(totp_secret="jbsw y3dp ehpk 3pxp"), now=clock, sleep=clock.sleep)
        assert api.call("GET", "/version") == "yes"
        assert clock.slept == pytest.approx(slept)
        api.close()
    with pytest.raises(ApiError, match=r"two one-time codes were refused.*timedatectl"):
        HttpsApi(server.login(totp_secret=SECRET), now=clock, sleep=clock.sleep).call("GET", "/version")
    with pytest.raises(ApiError, match="has a second factor"):
        HttpsApi(server.login()).call("GET", "/version")
    with pytest.raises(ApiError, match=r"one-time code \(api_otp\) was refused"):
        HttpsApi(server.login(otp="000000x")).call("GET", "/version")


def test_a_second_factor_is_asked_once_for_a_long_run(server: Server) -> None:
    server.second_factor, server.codes = True, {"123456"}
    now = [0.0]
    api = HttpsApi(server.login(otp="123456"), clock=lambda: now[0])
    api.call("GET", "/version")
    now[0] = 4000.0
    assert api.call("GET", "/version") == "yes"
    api.close()


def test_a_token(server: Server) -> None:
    api = HttpsApi(server.login(password="", token_id="ci", token_secret="uuid"))
    assert api.call("PUT", "/x", {"a": "1"}) == {"a": "1"}
    assert api.user == "root@pam!ci"
    assert "/api2/json/access/ticket" not in [path for _, path, _, _ in server.asked]
    api.close()


def test_who_answers_is_verified_before_anything_is_sent(server: Server) -> None:
    with pytest.raises(ApiError, match=r"certificate of localhost:\d+ is not trusted.*pve-root-ca.pem"):
        HttpsApi(server.login(ca_file="")).call("GET", "/version")
    with pytest.raises(ApiError, match="is not trusted"):
        HttpsApi(server.login(host="127.0.0.1")).call("GET", "/version")
    with pytest.raises(ApiError, match="somebody else answers"):
        HttpsApi(server.login(ca_file="", fingerprint="ab" * 32)).call("GET", "/version")
    assert server.asked == []


def test_a_pinned_certificate_is_trusted_whoever_signed_it(server: Server) -> None:
    colons = ":".join(server.fingerprint[index : index + 2] for index in range(0, 64, 2)).upper()
    api = HttpsApi(server.login(ca_file="", host="127.0.0.1", fingerprint=colons))
    assert api.call("GET", "/version") == "yes"
    api.close()


def test_errors_keep_their_texts(server: Server) -> None:
    api = HttpsApi(server.login())
    with pytest.raises(ApiError) as caught:
        api.call("PUT", "/x", {"dev0": "/dev/a"})
    assert (caught.value.status, caught.value.errors) == (400, {"dev0": "no"})
    with pytest.raises(ApiError) as caught:
        api.call("GET", "/lock")
    assert caught.value.kind == errors.LOCKED
    with pytest.raises(ApiError) as caught:
        HttpsApi(server.login(password="wrong")).call("GET", "/version")
    assert caught.value.kind == errors.AUTHENTICATION
    assert "wrong" not in str(caught.value)
    api.close()


def test_an_idle_connection_that_was_closed_is_opened_again_for_reading_only(server: Server) -> None:
    api = HttpsApi(server.login())
    api.call("GET", "/version")
    server.drop = 1
    assert api.call("GET", "/version") == "yes"
    server.drop = 1
    with pytest.raises(ApiError) as caught:
        api.call("POST", "/x", {"a": "1"})
    assert caught.value.kind == errors.RESTARTING
    api.close()


def test_nobody_answers() -> None:
    with pytest.raises(ApiError) as caught:
        HttpsApi(Login("127.0.0.1", port=1, password="x", fingerprint="ab" * 32)).call("GET", "/version")
    assert caught.value.kind == errors.RESTARTING


def test_secrets_are_in_no_representation() -> None:
    assert repr(Login("pve", password="s3cret", token_secret="", totp_secret="x")) == "Login(root@pam at pve:8006)"


@pytest.mark.parametrize("given", [{}, {"password": "x", "token_secret": "y"}])
def test_one_way_to_log_in(given: dict[str, str]) -> None:
    with pytest.raises(ApiError, match="either a password or a token"):
        HttpsApi(Login("pve", **given))


# RFC 6238, appendix B: the secret is "12345678901234567890"; its codes have eight digits, of which the last six are ours.
@pytest.mark.parametrize(("now", "code"), [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")])
def test_one_time_codes(now: int, code: str) -> None:
    assert totp("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", now) == code


def test_what_is_no_secret_or_fingerprint_is_refused() -> None:
    with pytest.raises(ApiError, match="not base 32"):
        totp("1!", 0)
    with pytest.raises(ApiError, match="32 pairs"):
        fingerprint_of("ab:cd")
    assert fingerprint_of("") == ""
