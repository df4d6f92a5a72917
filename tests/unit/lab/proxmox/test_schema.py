"""Requests against the real schema: what passes, and the words for what does not."""

from __future__ import annotations

import pytest

from lab.proxmox import propstr, schema
from lab.proxmox.errors import ParamError, PveError

GOOD = {"node": "pve-a", "vmid": "101", "ostemplate": "local:vztmpl/a.tar.zst"}


def validate(ctx, values, path="/nodes/{node}/lxc", verb="POST"):
    return schema.validate(ctx.schema.call(path, verb)["parameters"], values)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory", "8G", "type check ('integer') failed - got '8G'"),
        ("memory", "8", "value must have a minimum value of 16"),
        ("cores", "9000", "value must have a maximum value of 8192"),
        ("onboot", "True", "type check ('boolean') failed - got 'True'"),
        ("hostname", "a_b", "invalid format - value does not look like a valid DNS name\n"),
        ("cmode", "x", "value 'x' does not have a value in the enumeration 'shell, console, tty'"),
        ("password", "1234", "value must be at least 5 characters long"),
        ("lxc.cgroup2.cpuset.cpus", "0", "property is not defined in schema and the schema does not allow additional properties"),
        ("dev256", "/dev/null", "property is not defined in schema and the schema does not allow additional properties"),
        ("net32", "name=eth0", "property is not defined in schema and the schema does not allow additional properties"),
        ("dev0", "nvidia0", "invalid format - format error\ndev0.path: invalid format - nvidia0 is not a valid device path\n\n"),
        ("dev0", "/dev/nvidia0,mode=666", "invalid format - format error\ndev0.mode: value does not match the regex pattern\n"),
        ("dev0", "/dev/nvidia0,colour=red", "invalid format - invalid key in comma-separated list property: colour\n"),
        ("dev0", "/dev/nvidia0,path=/dev/null", "invalid format - duplicate key in comma-separated list property: path\n"),
        ("net0", "bridge=vmbr0", "invalid format - format error\nnet0.name: property is missing and it is not optional\n"),
        ("mp0", "/models,mp=../x", "invalid format - format error\nmp0.mp: invalid format - ../x contains illegal character sequences\n\n"),
        ("tags", "gpu!", "invalid format - invalid characters in tag\n"),
        ("startup", "first", "invalid format - unable to parse startup options\n"),
        ("vmid", "99", "value must have a minimum value of 100"),
    ],
)
def test_what_is_refused_and_with_which_words(ctx, name, value, words):
    with pytest.raises(ParamError) as caught:
        validate(ctx, GOOD | {name: value})
    assert caught.value.errors == {name: words}
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dev255", "/dev/nvidia*"),  # passes the schema, dies at run time
        ("net31", "name=eth0,bridge=vmbr0,ip=dhcp,ip6=auto,hwaddr=BC:24:11:00:00:01"),
        ("mp0", "local:8,mp=/models,backup=no"),
        ("tags", "GPU;glm5"),
        ("startup", "order=5,up=60,down=120"),
        ("startup", "5"),
        ("features", "nesting=yes,mount=nfs;cifs"),
        ("onboot", True),
        ("nameserver", "10.0.0.1 fe80::1%eth0"),
        ("timezone", "Europe/Berlin"),
    ],
)
def test_what_passes(ctx, name, value):
    assert name in validate(ctx, GOOD | {name: value})


def test_missing_parameters_are_named(ctx):
    with pytest.raises(ParamError) as caught:
        validate(ctx, {"node": "pve-a", "vmid": 101})
    assert caught.value.errors == {"ostemplate": "property is missing and it is not optional"}


@pytest.mark.parametrize(
    ("path", "template", "variables"),
    [
        ("/nodes/a/lxc/101/config", "/nodes/{node}/lxc/{vmid}/config", {"node": "a", "vmid": "101"}),
        ("nodes/a/lxc/", "/nodes/{node}/lxc", {"node": "a"}),
        ("/cluster/nextid", "/cluster/nextid", {}),
        (
            "/nodes/a/storage/local/content/local:101/vm-101-disk-0.raw",
            "/nodes/{node}/storage/{storage}/content/{volume}",
            {"node": "a", "storage": "local", "volume": "local:101/vm-101-disk-0.raw"},
        ),
    ],
)
def test_paths_find_their_template(ctx, path, template, variables):
    assert ctx.schema.find(path) == (template, variables)


def test_unknown_paths_find_nothing(ctx):
    assert ctx.schema.find("/nodes/a/nonsense") is None


def test_property_strings_are_written_as_proxmox_does(ctx):
    net = ctx.schema.format_of("net0")
    assert propstr.join(net, {"ip": "dhcp", "name": "eth0", "bridge": "vmbr0"}) == "name=eth0,bridge=vmbr0,ip=dhcp"
    mount = ctx.schema.format_of("mp0")
    assert propstr.join(mount, {"mp": "/m", "volume": "/models", "ro": "1", "backup": 0}) == "/models,mp=/m,backup=0,ro=1"


@pytest.mark.parametrize(("text", "size"), [("8G", 8 * 2**30), ("1.5M", 3 * 2**19), ("512", 512), ("x", None), ("8X", None)])
def test_sizes(text, size):
    assert propstr.size_bytes(text) == size


def test_a_key_without_a_default_key_is_refused(ctx):
    with pytest.raises(PveError, match="value without key, but schema does not define a default key"):
        propstr.split(ctx.schema.format_of("net0"), "eth0")
