"""pveproxy and pvedaemon: the API over HTTPS on port 8006, and over HTTP on the loopback for what must run as root."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import signal
import socketserver
import ssl
import sys
import time
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lab.proxmox import login
from lab.proxmox.api import registry
from lab.proxmox.context import Context
from lab.proxmox.errors import PveError
from lab.proxmox.schema import Schema
from lab.proxmox.world import World

PROXY_PORT, DAEMON_PORT = 8006, 85
_LOGIN_DELAY_S = 3  # after a failed login, as the real one waits
_BODY_LIMIT = 512 * 1024  # the real server's for a form
_COOKIE = "PVEAuthCookie"


class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
    """One process a connection, so that a task can fork from it as from the real daemons' workers."""

    allow_reuse_address = True
    block_on_close = False
    max_children = 64
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], world: World, schema: Schema, tls: ssl.SSLContext | None) -> None:
        self.world, self.schema, self.tls = world, schema, tls
        super().__init__(address, Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        """Do the TLS handshake here: a slow client holds up nobody else."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        self.server.socket.close()  # this process has one connection; the port belongs to the daemon alone
        if self.server.tls:
            self.request.settimeout(10)
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
            self.request.settimeout(None)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep the access log short: one line a request on standard output."""
        sys.stdout.write(f"{self.client_address[0]} {format % args}\n")

    def version_string(self) -> str:
        """Return the real server's name."""
        return "pve-api-daemon/3.0"

    def do_GET(self) -> None:
        """Answer a reading request."""
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _answer(self) -> None:
        ctx = Context(self.server.world, self.server.schema, user="", cli=False)
        parts = urlsplit(self.path)
        words = unquote(parts.path).split("/", 3)
        form = words[2] if len(words) > 2 and words[1] == "api2" else ""
        try:
            body = self._body()
            if form not in {"json", "extjs"}:
                raise PveError("no such uri" if form else f"no such file '{parts.path}'", 501)
            path = "/" + (words[3] if len(words) > 3 else "")
            found = ctx.schema.find(path)
            rule = ctx.schema.call(found[0], self.command) if found else None
            self._authenticate(ctx, path, rule)
            if self.server.tls and rule and rule.get("protected"):
                self._forward(body)
                return
            data = registry.call(ctx, self.command, path, self._parameters(parts.query, body))
        except PveError as error:
            if error.status == 401 and parts.path.endswith("/access/ticket"):
                time.sleep(_LOGIN_DELAY_S)
            self._refuse(error, form)
            return
        except Exception as error:  # noqa: BLE001 - a fault of the lab must look like one and not end the connection silently
            import traceback

            traceback.print_exc()
            self._refuse(PveError(f"lab: {type(error).__name__}: {error}"), form)
            return
        answer: dict[str, Any] = {"data": data}
        if ctx.total is not None:
            answer["total"] = ctx.total
        self._send(200, "OK", answer | ({"success": 1} if form == "extjs" else {}))

    def _authenticate(self, ctx: Context, path: str, rule: dict[str, Any] | None) -> None:
        token = self.headers.get("Authorization", "")
        if token.startswith("PVEAPIToken"):
            try:
                ctx.user = ctx.access.verify_token(token.removeprefix("PVEAPIToken")[1:])
            except PveError as error:
                raise PveError(error.text, 401) from None
            if path == "/access/ticket":
                raise PveError("API tokens cannot request tickets", 403)
            return
        if rule and rule.get("permissions", {}).get("user") == "world":
            return
        cookies = dict(part.strip().partition("=")[::2] for part in self.headers.get("Cookie", "").split(";"))
        if not cookies.get(_COOKIE):
            raise PveError("No ticket", 401)
        ctx.user = login.user_of_ticket(ctx.access, unquote(cookies[_COOKIE]))
        if self.command != "GET":
            login.verify_csrf(ctx.access, ctx.user, self.headers.get("CSRFPreventionToken", ""))

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _BODY_LIMIT:
            self.close_connection = True
            raise PveError("for posts larger than 512 KiB you have to use multipart/form-data", 501)
        return self.rfile.read(length)

    def _parameters(self, query: str, body: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if body and kind == "application/json":
            try:
                values = json.loads(body)
            except ValueError as error:
                raise PveError(f"could not decode JSON: {error}") from None
            if not isinstance(values, dict):
                raise PveError("hash object expected")
        elif body and kind == "application/x-www-form-urlencoded":
            _merge(values, parse_qsl(body.decode(), keep_blank_values=True))
        elif body:
            raise PveError(f"upload '{kind}' not supported", 501)
        _merge(values, parse_qsl(query, keep_blank_values=True))
        values.pop("_dc", None)
        return values

    def _forward(self, body: bytes) -> None:
        kept = {
            name: self.headers[name]
            for name in ("Authorization", "Cookie", "CSRFPreventionToken", "Content-Type")
            if self.headers.get(name)
        }
        connection = http.client.HTTPConnection("127.0.0.1", DAEMON_PORT, timeout=60)
        try:
            connection.request(self.command, self.path, body or None, kept)
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError:
            self._refuse(PveError("Connection timed out", 596), "json")
            return
        except OSError as error:
            self._refuse(PveError(error.strerror or str(error), 595), "json")
            return
        self._raw(answer.status, answer.reason, data)

    def _refuse(self, error: PveError, form: str) -> None:
        answer: dict[str, Any] = {"data": None, "message": f"{error.text}\n"}
        if error.errors:
            answer["errors"] = error.errors
        if form == "extjs":
            self._send(200, "OK", answer | {"success": 0, "status": error.status})
        else:
            self._send(error.status, error.text, answer)

    def _send(self, status: int, reason: str, answer: dict[str, Any]) -> None:
        self._raw(status, reason, json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode())

    def _raw(self, status: int, reason: str, data: bytes) -> None:
        first = reason.split("\n", maxsplit=1)[0].encode("latin-1", "replace").decode("latin-1")
        if status >= 300:
            self.close_connection = True
        self.send_response(status, first)
        self.send_header("Cache-Control", "max-age=0")
        self.send_header("Pragma", "no-cache")
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close" if self.close_connection else "Keep-Alive")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(data)


def _merge(values: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    for name, value in pairs:
        values[name] = f"{values[name]}\0{value}" if name in values else value


def main(arguments: list[str]) -> int:
    """Serve as `pveproxy` or `pvedaemon` until told to stop."""
    world = World(os.environ.get("LAB_PVE_ROOT", "/"))
    schema = Schema(world)
    _ = schema.endpoints, schema.find("/version")  # read once, before the forks
    tls = None
    address = ("127.0.0.1", DAEMON_PORT)
    if arguments == ["pveproxy"]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        local = world.pve / "local"
        name = "pveproxy-ssl" if (local / "pveproxy-ssl.pem").exists() else "pve-ssl"
        tls.load_cert_chain(local / f"{name}.pem", local / f"{name}.key")
        address = ("", PROXY_PORT)
    with Server(address, world, schema, tls) as server:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        server.serve_forever(poll_interval=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
