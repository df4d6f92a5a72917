"""Who may what: users, groups, tokens, pools, and logging in."""

from __future__ import annotations

import time

import pytest

from lab.proxmox import access, login
from lab.proxmox.errors import PveError

USER_CFG = """\
user:root@pam:1:0::::::
token:root@pam!all:0:0::
token:root@pam!less:0:1::
user:ops@pve:1:0::::colon%3ain comment::
token:ops@pve!own:0:1::
user:gone@pve:0:0::::::

group:staff:ops@pve::

pool:gpu::101::

role:Starter:VM.PowerMgmt:

acl:1:/:@staff:PVEAuditor:
acl:1:/vms/102:ops@pve:Starter:
acl:0:/nodes:ops@pve:PVEAdmin:
acl:1:/pool/gpu:ops@pve:PVEVMAdmin:
acl:1:/vms:root@pam!less:PVEVMUser:
acl:1:/vms/103:ops@pve:NoAccess:
acl:1:/vms/102:ops@pve!own:PVEVMUser:
"""


@pytest.fixture
def users(world):
    (world.pve / "user.cfg").write_text(USER_CFG)
    return access.Access(world)


@pytest.mark.parametrize(
    ("user", "path", "has", "lacks"),
    [
        ("root@pam", "/", {"Sys.Modify", "VM.Allocate"}, set()),
        ("root@pam!all", "/vms/101", {"VM.Allocate"}, set()),
        ("root@pam!less", "/vms/101", {"VM.PowerMgmt"}, {"VM.Allocate"}),
        ("root@pam!less", "/storage/local", set(), {"Datastore.Audit"}),
        ("ops@pve", "/storage/local", {"Datastore.Audit"}, {"Datastore.AllocateSpace"}),
        ("ops@pve", "/vms/102", {"VM.PowerMgmt"}, {"VM.Audit"}),  # his own entry hides the group's
        ("ops@pve", "/vms/101", {"VM.Allocate", "VM.Audit"}, set()),  # through the pool
        ("ops@pve", "/vms/103", set(), {"VM.Audit"}),  # NoAccess
        ("ops@pve", "/nodes", {"Sys.Console"}, {"Sys.Modify"}),
        ("ops@pve", "/nodes/pve-a", {"Sys.Audit"}, {"Sys.Console"}),  # not propagated
        ("ops@pve!own", "/vms/102", {"VM.PowerMgmt"}, {"VM.Console"}),  # only what the user has too
        ("gone@pve", "/", set(), {"Sys.Audit"}),
        ("nobody@pve", "/", set(), {"Sys.Audit"}),
    ],
)
def test_privileges(users, user, path, has, lacks):
    held = users.privileges(user, path)
    assert has <= held
    assert not lacks & held


def test_user_cfg_survives_reading_and_writing(users):
    written = access.text_of(users.users)
    assert access.parse(written) == users.users
    assert access.text_of(access.parse(written)) == written


def test_tokens_are_verified_with_the_servers_words(users):
    value = users.set_token_secret("root@pam!all", None)
    assert users.verify_token(f"root@pam!all={value}") == "root@pam!all"
    for text, words in (
        ("root@pam!all=wrong", "invalid token value!"),
        ("root@pam!none=x", "no such token 'none' for user 'root@pam'"),
        ("x@pam!none=x", "no such user ('x@pam')"),
        ("gone@pve!t=x", "user 'gone@pve' is disabled"),
        ("root@pam", "no tokenid specified"),
    ):
        with pytest.raises(PveError) as caught:
            users.verify_token(text)
        assert caught.value.text == words


def test_a_token_without_a_secret_lets_nobody_in(users):
    with pytest.raises(PveError, match="invalid token value!"):
        users.verify_token("root@pam!all=")


@pytest.mark.parametrize(("at", "value"), [(59, "287082"), (1111111109, "081804"), (20000000000, "353130")])
def test_one_time_passwords_are_those_of_rfc_6238(at, value):
    assert login.totp("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", at) == value


def test_logging_in_with_password_and_second_factor(users):
    login.set_password(users, "ops@pve", "secret")
    plain = login.login(users, {"username": "ops@pve", "password": "secret"})
    assert login.user_of_ticket(users, plain["ticket"]) == "ops@pve"
    login.verify_csrf(users, "ops@pve", plain["CSRFPreventionToken"])
    with pytest.raises(PveError, match="invalid csrf token"):
        login.verify_csrf(users, "root@pam", plain["CSRFPreventionToken"])
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    users.set_document("tfa.cfg", {"ops@pve": {"totp": [{"id": "a", "uri": f"otpauth://totp/x?secret={secret}", "description": ""}]}})
    half = login.login(users, {"username": "ops@pve", "password": "secret"})
    assert half["NeedTFA"] == 1
    with pytest.raises(PveError):
        login.user_of_ticket(users, half["ticket"])
    whole = login.login(
        users, {"username": "ops@pve", "password": f"totp:{login.totp(secret, time.time())}", "tfa-challenge": half["ticket"]}
    )
    assert login.user_of_ticket(users, whole["ticket"]) == "ops@pve"
    for values in (
        {"username": "ops@pve", "password": "wrong"},
        {"username": "gone@pve", "password": "secret"},
        {"username": "ops@pve", "password": "totp:000000x", "tfa-challenge": half["ticket"]},
        {"username": "root@pam", "password": f"totp:{login.totp(secret, time.time())}", "tfa-challenge": half["ticket"]},
    ):
        with pytest.raises(PveError) as caught:
            login.login(users, values)
        assert (caught.value.status, caught.value.text) == (401, "authentication failure")


def test_forged_and_old_tickets_are_refused(users, monkeypatch):
    good = login.ticket(users, "root@pam")
    with pytest.raises(PveError, match="invalid PVE ticket"):
        login.user_of_ticket(users, good.replace("root@pam", "ops@pve"))
    later = time.time() + login.LIFETIME_S + 1
    monkeypatch.setattr(login.time, "time", lambda: later)
    with pytest.raises(PveError, match="invalid PVE ticket"):
        login.user_of_ticket(users, good)
