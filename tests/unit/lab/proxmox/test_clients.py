"""Clients of the API over TLS: this project's own, and proxmoxer, which knows the real one and nothing of the lab."""

from __future__ import annotations

import json
import os
import signal
import ssl
import time

import pytest
from proxmoxer import ProxmoxAPI, ResourceException

from gpunode.pveapi.base import ApiError
from gpunode.pveapi.https import HttpsApi, Login
from lab.proxmox import access, certs, httpd, login

SECRET = "GEZDGNBVGY3TQOJQ"
USER = "ops@pve"


def serve(server: httpd.Server) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            server.serve_forever()
        finally:
            os._exit(0)
    server.socket.close()
    return pid


@pytest.fixture
def port(ctx, monkeypatch):
    """Port of a proxy with TLS before a daemon, each a process, as on a node."""
    monkeypatch.setattr(httpd, "_LOGIN_DELAY_S", 0)
    (ctx.world.pve / "user.cfg").write_text(f"user:root@pam:1:0::::::\nuser:{USER}:1:0::::::\n")
    (ctx.world.pve / "local").symlink_to("nodes/pve-a")
    certs.ensure(ctx.world)
    login.set_password(access.Access(ctx.world), USER, "secret")
    _ = ctx.schema.endpoints
    daemon = httpd.Server(("127.0.0.1", 0), ctx.world, ctx.schema, None)
    monkeypatch.setattr(httpd, "DAEMON_PORT", daemon.server_address[1])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(ctx.world.pve / "local/pve-ssl.pem", ctx.world.pve / "local/pve-ssl.key")
    proxy = httpd.Server(("127.0.0.1", 0), ctx.world, ctx.schema, tls)
    found = proxy.server_address[1]
    pids = [serve(daemon), serve(proxy)]
    yield found
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


@pytest.fixture
def second_factor(ctx):
    uri = f"otpauth://totp/x?secret={SECRET}"
    access.Access(ctx.world).set_document("tfa.cfg", {USER: {"totp": [{"uri": uri}]}})


def ours(ctx, port: int, **given: str) -> HttpsApi:
    usual = {"host": "localhost", "user": USER, "password": "secret", "ca_file": str(ctx.world.pve / "pve-root-ca.pem")}
    return HttpsApi(Login(port=port, **(usual | given)))


def theirs(ctx, port: int, **given: str) -> ProxmoxAPI:
    return ProxmoxAPI("localhost", port=port, user=USER, verify_ssl=True, cert=None, **given)


@pytest.fixture(autouse=True)
def _trusted(ctx, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ctx.world.pve / "pve-root-ca.pem"))


def test_a_password(ctx, port):
    api = ours(ctx, port)
    assert api.call("GET", "/version") == theirs(ctx, port, password="secret").version.get()
    api.close()
    with pytest.raises(ApiError, match="authentication failure"):
        ours(ctx, port, password="wrong").call("GET", "/version")


def test_a_one_time_code_serves_once(ctx, port, second_factor):
    code = login.totp(SECRET, time.time())
    assert theirs(ctx, port, password="secret", otp=code).version.get()["version"].startswith("9.")
    with pytest.raises(ApiError, match="was used before"):
        ours(ctx, port, otp=code).call("GET", "/version")
    with pytest.raises(ApiError, match="has a second factor"):
        ours(ctx, port).call("GET", "/version")


def test_a_secret_makes_the_code(ctx, port, second_factor):
    api = ours(ctx, port, totp_secret=SECRET)
    assert api.call("GET", "/version")["version"].startswith("9.")
    assert json.dumps(access.Access(ctx.world).document("tfa.cfg")).count("last-count") == 1
    api.close()


def test_a_token_has_what_its_user_has(ctx, port):
    value = access.Access(ctx.world).set_token_secret(f"{USER}!ci", None)
    (ctx.world.pve / "user.cfg").open("a").write(f"token:{USER}!ci:0:1::\n")
    api = ours(ctx, port, password="", token_id="ci", token_secret=value)
    client = theirs(ctx, port, token_name="ci", token_value=value)
    with pytest.raises(ApiError) as mine:
        api.call("PUT", "/nodes/pve-a/lxc/101/config", {"cores": "1"})
    with pytest.raises(ResourceException) as other:
        client.nodes("pve-a").lxc(101).config.put(cores=1)
    assert mine.value.status == other.value.status_code == 403
    assert mine.value.text.startswith("Permission check failed (/vms/101")
    api.close()
