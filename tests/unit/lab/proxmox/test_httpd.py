"""The API over HTTP: tickets, tokens, forged requests, reason phrases, bodies."""

from __future__ import annotations

import http.client
import json
import os
import signal
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from lab.proxmox import access, httpd, login


@pytest.fixture
def api(ctx, monkeypatch):
    """Ask a server in a process of its own: (status, reason, document)."""
    monkeypatch.setattr(httpd, "_LOGIN_DELAY_S", 0)
    (ctx.world.pve / "user.cfg").write_text("user:root@pam:1:0::::::\nuser:ops@pve:1:0::::::\ntoken:root@pam!t:0:0::\n")
    _ = ctx.schema.endpoints
    server = httpd.Server(("127.0.0.1", 0), ctx.world, ctx.schema, None)
    pid = os.fork()
    if pid == 0:
        try:
            server.serve_forever()
        finally:
            os._exit(0)
    port = server.server_address[1]
    server.socket.close()

    def ask(verb: str, path: str, values: Any = None, headers: dict[str, str] | None = None) -> tuple[int, str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        body, kind = None, {}
        if isinstance(values, str):
            body, kind = values, {"Content-Type": "application/json"}
        elif values is not None:
            body, kind = urlencode(values), {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(verb, f"/api2/json{path}", body, kind | (headers or {}))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer.reason, json.loads(text)

    yield ask
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)


@pytest.fixture
def ticket(ctx, api):
    login.set_password(access.Access(ctx.world), "ops@pve", "secret")
    status, _reason, answer = api("POST", "/access/ticket", {"username": "ops@pve", "password": "secret"})
    assert status == 200
    return {
        "Cookie": f"PVEAuthCookie={quote(answer['data']['ticket'], safe='')}",
        "CSRFPreventionToken": answer["data"]["CSRFPreventionToken"],
    }


def test_who_does_not_log_in_sees_nothing(api):
    assert api("GET", "/version") == (401, "No ticket", {"data": None, "message": "No ticket\n"})
    assert api("POST", "/access/ticket", {"username": "ops@pve", "password": "x"})[:2] == (401, "authentication failure")
    assert api("GET", "/version", headers={"Cookie": "PVEAuthCookie=PVE:root@pam:00000000::x"})[:2] == (
        401,
        "permission denied - invalid PVE ticket",
    )


def test_a_change_needs_the_token_against_forgery(api, ticket):
    assert api("GET", "/version", headers={"Cookie": ticket["Cookie"]})[0] == 200
    forged = api("PUT", "/nodes/pve-a/lxc/101/config", {"cores": 1}, {"Cookie": ticket["Cookie"]})
    assert forged[:2] == (401, "Permission denied - invalid csrf token")
    assert api("PUT", "/nodes/pve-a/lxc/101/config", {"cores": 1}, ticket)[:2] == (
        403,
        "Permission check failed (/vms/101, VM.Config.Disk|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.Options)",
    )


def test_a_token_gets_its_words_too(ctx, api):
    value = access.Access(ctx.world).set_token_secret("root@pam!t", None)
    good = {"Authorization": f"PVEAPIToken=root@pam!t={value}"}
    ctx.world.lxc_config(101).write_text("arch: amd64\nhostname: one\nostype: debian\nrootfs: local:101/x,size=1G\nunprivileged: 1\n")
    assert api("GET", "/nodes/pve-a/lxc/101/config", headers=good)[2]["data"]["hostname"] == "one"
    assert api("GET", "/version", headers={"Authorization": "PVEAPIToken=root@pam!t=bad"})[:2] == (401, "invalid token value!")
    assert api("PUT", "/nodes/pve-a/lxc/101/config", {"dev0": "/dev/null"}, good)[:2] == (
        403,
        "Permission check failed (configuring device passthrough is only allowed for root@pam)",
    )
    status, reason, answer = api("PUT", "/nodes/pve-a/lxc/101/config", {"onboot": "True", "memory": "1"}, good)
    assert (status, reason) == (400, "Parameter verification failed.")
    assert answer["message"] == "Parameter verification failed.\n"
    assert answer["errors"] == {"onboot": "type check ('boolean') failed - got 'True'", "memory": "value must have a minimum value of 16"}
    assert api("GET", "/nodes/pve-a/lxc/999/config", headers=good)[:2] == (
        500,
        "Configuration file 'nodes/pve-a/lxc/999.conf' does not exist",
    )
    assert api("GET", "/nonsense", headers=good)[0] == 501


def test_json_bodies_may_hold_real_booleans(ctx, api):
    value = access.Access(ctx.world).set_token_secret("root@pam!t", None)
    good = {"Authorization": f"PVEAPIToken=root@pam!t={value}"}
    body = json.dumps({"roleid": "Mine", "privs": "VM.Audit"})
    assert api("POST", "/access/roles", body, good)[0] == 200
    body = json.dumps({"path": "/vms", "roles": "Mine", "users": "ops@pve", "propagate": False})
    assert api("PUT", "/access/acl", body, good)[0] == 200
    assert api("GET", "/access/acl", headers=good)[2]["data"] == [
        {"path": "/vms", "ugid": "ops@pve", "type": "user", "roleid": "Mine", "propagate": 0}
    ]


def test_a_bad_body_is_refused(ctx, api):
    value = access.Access(ctx.world).set_token_secret("root@pam!t", None)
    good = {"Authorization": f"PVEAPIToken=root@pam!t={value}"}
    assert api("POST", "/access/roles", "{", good)[0] == 500
