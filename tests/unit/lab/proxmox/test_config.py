"""Changing options: what is checked, what is applied, what waits, who may."""

from __future__ import annotations

import pytest

from lab.proxmox import pctconf
from lab.proxmox.api import lxc, registry
from lab.proxmox.context import Context
from lab.proxmox.ct import hotplug, lxcfile, state
from lab.proxmox.errors import ParamError, PermError, PveError

CONF = """\
arch: amd64
cores: 2
dev0: /dev/null
hostname: one
memory: 512
mp0: local:101/vm-101-disk-1.raw,mp=/data,size=1G
net0: name=eth0,hwaddr=BC:24:11:00:00:01,type=veth
ostype: debian
rootfs: local:101/vm-101-disk-0.raw,size=2G
swap: 512
unprivileged: 1
lxc.prlimit.memlock: unlimited
"""


@pytest.fixture
def made(ctx, monkeypatch):
    """A container that is not running; making its LXC file needs root and is tested elsewhere."""
    ctx.world.lxc_config(101).write_text(CONF)
    ctx.world.path("/dev").mkdir()
    ctx.world.path("/dev/null").symlink_to("/dev/null")
    ctx.world.path("/dev/zero").symlink_to("/dev/zero")
    ctx.world.path("/dev/file").touch()
    for number in (0, 1):
        ctx.world.path(f"/var/lib/vz/images/101/vm-101-disk-{number}.raw").mkdir(parents=True)
    monkeypatch.setattr(lxcfile, "write", lambda *_, **__: None)
    return ctx


@pytest.fixture
def running(made, monkeypatch):
    calls = []
    monkeypatch.setattr(state, "running", lambda *_: True)
    monkeypatch.setattr(lxc.state, "running", lambda *_: True)
    for name in ("device", "mount", "memory", "network", "unplug"):
        monkeypatch.setattr(hotplug, name, lambda *words, name=name: calls.append((name, *words[1 if name == "unplug" else 2 :])))
    made.extra["calls"] = calls
    return made


def put(ctx, **values):
    values = {name.replace("_", "-"): value for name, value in values.items()}
    return registry.call(ctx, "PUT", "/nodes/pve-a/lxc/101/config", values)


def text(ctx) -> str:
    return ctx.world.lxc_config(101).read_text()


def test_a_stopped_container_takes_every_change(made):
    put(made, cores=4, dev1="/dev/zero,mode=0666", net1="name=eth1,bridge=vmbr0", tags="b,A;b", delete="swap,mp0")
    found = text(made)
    assert "cores: 4\n" in found
    assert "dev1: /dev/zero,mode=0666\n" in found
    assert "tags: a;b\n" in found
    assert "unused0: local:101/vm-101-disk-1.raw\n" in found
    assert "swap" not in found
    assert "[pve:pending]" not in found
    net = next(line for line in found.splitlines() if line.startswith("net1"))
    assert net.startswith("net1: name=eth1,bridge=vmbr0,hwaddr=BC:24:11:")
    assert net.endswith(",type=veth")
    assert found.endswith("lxc.prlimit.memlock: unlimited\n")


def test_a_running_container_keeps_waiting_what_cannot_be_plugged(running):
    put(running, dev0="/dev/null,mode=0666", dev1="/dev/zero", cores=8, memory=1024, features="nesting=1", delete="mp0")
    conf = pctconf.load(running.world, running.schema, 101)
    assert conf["pending"] == {"delete": "mp0", "dev0": "/dev/null,mode=0666", "features": "nesting=1"}
    assert (conf["cores"], conf["memory"], conf["dev1"], conf["dev0"]) == (8, 1024, "/dev/zero", "/dev/null")
    assert [call[0] for call in running.extra["calls"]] == ["device", "memory"]
    rows = {row["key"]: row for row in registry.call(running, "GET", "/nodes/pve-a/lxc/101/pending", {})}
    assert rows["dev0"] == {"key": "dev0", "value": "/dev/null", "pending": "/dev/null,mode=0666"}
    assert rows["mp0"]["delete"] == 1
    assert rows["features"] == {"key": "features", "pending": "nesting=1"}
    config = registry.call(running, "GET", "/nodes/pve-a/lxc/101/config", {})
    assert "mp0" not in config
    assert config["dev0"] == "/dev/null,mode=0666"
    assert registry.call(running, "GET", "/nodes/pve-a/lxc/101/config", {"current": "1"})["dev0"] == "/dev/null"
    put(running, revert="dev0,features,mp0")
    assert "[pve:pending]" not in text(running)


def test_what_fails_to_be_plugged_is_named_and_waits(running, monkeypatch):
    def fail(*_words):
        raise PveError("no room")

    monkeypatch.setattr(hotplug, "device", fail)
    with pytest.raises(ParamError) as caught:
        put(running, dev3="/dev/zero")
    assert caught.value.errors == {"dev3": "unable to hotplug dev3: no room"}
    assert "[pve:pending]\ndev3: /dev/zero\n" in text(running)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no options specified"),
        ({"dev1": "/dev/missing"}, "Device /dev/missing does not exist"),
        ({"dev1": "/dev/nvidia*"}, "Device /dev/nvidia* does not exist"),
        ({"dev1": "/dev/file"}, "/dev/file is not a device"),
        ({"dev1": "mode=0666"}, "Path has to be defined"),
        ({"unprivileged": "0"}, "unable to modify read-only option: 'unprivileged'"),
        ({"delete": "unprivileged"}, "unable to delete read-only option: 'unprivileged'"),
        ({"delete": "memory"}, "unable to delete required option 'memory'"),
        ({"mp1": "nowhere:4,mp=/x"}, "storage 'nowhere' does not exist"),
        ({"hookscript": "local:snippets/x.sh"}, "script 'local:snippets/x.sh' does not exist"),
        ({"digest": "0" * 40, "cores": 1}, "detected modified configuration - file changed by other user? Try again."),
    ],
)
def test_what_is_refused_changes_nothing(made, values, words):
    with pytest.raises(PveError) as caught:
        registry.call(made, "PUT", "/nodes/pve-a/lxc/101/config", values)
    assert caught.value.text == words
    assert text(made) == CONF


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ({"delete": "nonsense"}, {"delete": "unknown option 'nonsense'"}),
        ({"delete": "cores", "cores": 1}, {"delete": "you can't use '-cores' and -delete cores' at the same time"}),
        ({"vmid": "102", "cores": 1}, {"vmid": "duplicate parameter (already defined in URI) with conflicting values!"}),
    ],
)
def test_parameters_that_are_refused(made, values, errors):
    if (
        "unprivileged" in values
        and "unprivileged" in made.schema.call("/nodes/{node}/lxc/{vmid}/config", "PUT")["parameters"]["properties"]
    ):
        pytest.skip("the schema lets it through; the engine refuses it as read-only")
    with pytest.raises(ParamError) as caught:
        registry.call(made, "PUT", "/nodes/pve-a/lxc/101/config", values)
    assert caught.value.errors == errors


def test_locks_and_protection_hold(made):
    made.world.lxc_config(101).write_text(CONF + "lock: backup\n")
    with pytest.raises(PveError, match=r"CT is locked \(backup\)"):
        put(made, cores=1)
    lxc.unlock(made, 101)
    put(made, protection=1)
    with pytest.raises(PveError, match="can't remove CT 101 drive 'mp0' - protection mode enabled"):
        put(made, delete="mp0")
    with pytest.raises(PveError, match="can't remove CT 101 - protection mode enabled"):
        registry.call(made, "DELETE", "/nodes/pve-a/lxc/101", {})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dev1": "/dev/zero"}, "configuring device passthrough is only allowed for root@pam"),
        ({"delete": "dev0"}, "configuring device passthrough is only allowed for root@pam"),
        ({"mp1": "/srv,mp=/srv"}, "mount point type bind is only allowed for root@pam"),
        ({"mp1": "/dev/sdz,mp=/srv"}, "mount point type device is only allowed for root@pam"),
        ({"features": "nesting=1,keyctl=1"}, "changing feature flags (except nesting) is only allowed for root@pam"),
        ({"hookscript": "local:snippets/x"}, "changing the hookscript is only allowed for root@pam"),
    ],
)
def test_a_token_of_root_is_not_root(made, values, words):
    (made.world.pve / "user.cfg").write_text("user:root@pam:1:0::::::\ntoken:root@pam!t:0:0::\n")
    token = Context(made.world, made.schema, user="root@pam!t", cli=False)
    with pytest.raises(PermError) as caught:
        registry.call(token, "PUT", "/nodes/pve-a/lxc/101/config", values)
    assert (caught.value.status, caught.value.text) == (403, f"Permission check failed ({words})")
    registry.call(token, "PUT", "/nodes/pve-a/lxc/101/config", {"cores": 1, "features": "nesting=1"})


def test_features_of_a_privileged_container_are_roots(made):
    made.world.lxc_config(101).write_text(CONF.replace("unprivileged: 1\n", ""))
    (made.world.pve / "user.cfg").write_text("user:root@pam:1:0::::::\ntoken:root@pam!t:0:0::\n")
    token = Context(made.world, made.schema, user="root@pam!t", cli=False)
    with pytest.raises(PermError, match="changing feature flags for privileged container is only allowed for root@pam"):
        registry.call(token, "PUT", "/nodes/pve-a/lxc/101/config", {"features": "nesting=1"})


def test_numbers_are_unique_over_containers_and_machines(ctx):
    ctx.world.lxc_config(100).write_text("arch: amd64\n")
    ctx.world.qemu_config(101).write_text("name: old\nhostpci0: 0000:01:00.0,pcie=1\n\n[snap]\nname: older\n")
    assert registry.call(ctx, "GET", "/cluster/nextid", {}) == "102"
    with pytest.raises(ParamError) as caught:
        registry.call(ctx, "GET", "/cluster/nextid", {"vmid": "101"})
    assert caught.value.errors == {"vmid": "VM 101 already exists"}
    values = {"vmid": "101", "ostemplate": "local:vztmpl/x.tar.zst"}
    with pytest.raises(PveError, match="VM 101 already exists on node 'pve-a'"):
        registry.call(ctx, "POST", "/nodes/pve-a/lxc", values)
    config = registry.call(ctx, "GET", "/nodes/pve-a/qemu/101/config", {})
    assert config.pop("digest")
    assert config == {"name": "old", "hostpci0": "0000:01:00.0,pcie=1"}


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({}, 500, "volume 'local:vztmpl/x.tar.zst' does not exist"),
        ({"ostemplate": "local:iso/x.iso"}, 500, "unable to use volume local:iso/x.iso - content type needs to be 'vztmpl'"),
        ({"storage": "fast", "ostemplate": "there"}, 500, "storage 'fast' does not exist"),
        ({"mp0": "local:1,mp=/x", "ostemplate": "there"}, 500, "mount points configured, but 'rootfs' not set - aborting"),
        ({"dev0": "/dev/nvidia0", "ostemplate": "there"}, 500, "Device /dev/nvidia0 does not exist"),
        ({"rootfs": "iso:8", "ostemplate": "there"}, 400, "Parameter verification failed."),
    ],
)
def test_a_create_that_is_refused_leaves_nothing(ctx, values, status, words):
    template = ctx.world.path("/var/lib/vz/template/cache/there.tar.zst")
    template.parent.mkdir(parents=True)
    template.touch()
    (ctx.world.pve / "storage.cfg").write_text(
        "dir: local\n\tpath /var/lib/vz\n\tcontent vztmpl,rootdir,iso\n\ndir: iso\n\tpath /iso\n\tcontent iso\n"
    )
    chosen = {"vmid": "105", "ostemplate": "local:vztmpl/x.tar.zst"} | values
    if chosen["ostemplate"] == "there":
        chosen["ostemplate"] = "local:vztmpl/there.tar.zst"
    with pytest.raises(PveError) as caught:
        registry.call(ctx, "POST", "/nodes/pve-a/lxc", chosen)
    assert (caught.value.status, caught.value.text) == (status, words)
    assert not ctx.world.lxc_config(105).exists()
    assert not ctx.world.path("/var/lib/vz/images").exists()


def test_another_node_and_another_path(ctx):
    with pytest.raises(PveError, match="hostname lookup 'x' failed"):
        registry.call(ctx, "GET", "/nodes/x/lxc", {})
    with pytest.raises(PveError) as caught:
        registry.call(ctx, "GET", "/nonsense", {})
    assert (caught.value.status, caught.value.text) == (501, "Method 'GET /nonsense' not implemented")


def test_every_route_is_in_the_schema(ctx):
    for _prefix, module in registry._MODULES:
        __import__(f"lab.proxmox.api.{module}")
    missing = [(verb, template) for verb, template in registry._handlers if ctx.schema.call(template, verb) is None]
    assert missing == []
