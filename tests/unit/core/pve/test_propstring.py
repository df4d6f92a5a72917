"""Property strings: what is written means what was read, and equal meanings compare equal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.pve.propstring import (
    FAMILIES,
    PropertyError,
    canonical,
    family_of,
    format_property,
    format_size,
    from_user,
    new_volume,
    parse,
    same,
    size_bytes,
    to_bool,
)


@pytest.mark.parametrize(
    ("option", "family"),
    [
        ("dev0", "dev"),
        ("dev255", "dev"),
        ("dev256", None),
        ("net31", "net"),
        ("net32", None),
        ("mp7", "mp"),
        ("unused3", "unused"),
        ("rootfs", "rootfs"),
        ("rootfs0", None),
        ("dev", None),
        ("features", "features"),
        ("memory", None),
    ],
)
def test_family_of(option: str, family: str | None) -> None:
    found = family_of(option)
    assert (found.name if found else None) == family


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        ("dev", "/dev/nvidia0", {"path": "/dev/nvidia0"}),
        ("dev", "path=/dev/nvidia0,mode=0666", {"path": "/dev/nvidia0", "mode": "0666"}),
        ("dev", "mode=0666,/dev/dri/by-path/pci-0000:07:00.0-card", {"mode": "0666", "path": "/dev/dri/by-path/pci-0000:07:00.0-card"}),
        ("mp", "/srv/a=b,mp=/srv", {"volume": "/srv/a=b", "mp": "/srv"}),
        (
            "mp",
            "local:101/vm-101-disk-0.raw,mp=/data,size=8380M",
            {"volume": "local:101/vm-101-disk-0.raw", "mp": "/data", "size": "8380M"},
        ),
        ("features", "fuse=1,mount=nfs;cifs,nesting=1", {"fuse": "1", "mount": "nfs;cifs", "nesting": "1"}),
        ("startup", "5", {"order": "5"}),
        ("startup", "order=5,up=60,down=120", {"order": "5", "up": "60", "down": "120"}),
        ("startup", "up=60", {"up": "60"}),
        ("net", "name=eth0,bridge=vmbr0,ip=dhcp", {"name": "eth0", "bridge": "vmbr0", "ip": "dhcp"}),
    ],
)
def test_parse(family: str, text: str, expected: dict[str, str]) -> None:
    assert parse(FAMILIES[family], text) == expected
    assert parse(FAMILIES[family], format_property(FAMILIES[family], expected)) == expected


@pytest.mark.parametrize(
    ("family", "text", "why"),
    [
        ("net", "vmbr0", "has no key"),
        ("net", "bridge=vmbr0", "'name' is missing"),
        ("net", "name=eth0,brige=vmbr0", "unknown key 'brige'"),
        ("dev", "/dev/a,/dev/b", "unknown key|given twice"),
        ("mp", "/srv", "'mp' is missing"),
        ("dev", "path=/dev/a,path=/dev/b", "given twice"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(family: str, text: str, why: str) -> None:
    with pytest.raises(PropertyError, match=why):
        parse(FAMILIES[family], text)


@pytest.mark.parametrize(
    ("family", "left", "right", "equal"),
    [
        ("mp", "/srv,mp=/srv", "volume=/srv/,mp=/srv/,backup=0,ro=no", True),
        ("mp", "/srv,mp=/srv", "/srv,mp=/srv,ro=1", False),
        ("mp", "/srv,mp=/srv,replicate=1", "/srv,mp=/srv", True),
        ("mp", "/srv,mp=/srv,acl=0", "/srv,mp=/srv", False),
        ("rootfs", "local:vm-1-disk-0,size=8G", "local:vm-1-disk-0,size=8192M", True),
        ("net", "name=eth0,hwaddr=bc:24:11:00:00:01", "hwaddr=BC:24:11:00:00:01,name=eth0,type=veth,firewall=off", True),
        ("net", "name=eth0,tag=16", "name=eth0", False),
        ("dev", "/dev/nvidia0", "path=/dev/nvidia0,mode=0660,uid=0,gid=0,deny-write=0", True),
        ("dev", "/dev/nvidia0,mode=0666", "/dev/nvidia0", False),
        ("features", "nesting=on,mount=nfs;cifs", "mount=cifs;nfs,nesting=yes,fuse=0", True),
        ("startup", "5", "order=5", True),
    ],
)
def test_same_means_same(family: str, left: str, right: str, equal: bool) -> None:
    found = FAMILIES[family]
    assert same(found, parse(found, left), parse(found, right)) is equal


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"path": "/dev/nvidia0", "mode": "0666", "deny_write": True}, "/dev/nvidia0,deny-write=1,mode=0666"),
        ("/dev/nvidia0,mode=0666", "/dev/nvidia0,mode=0666"),
        ({"path": "/dev/nvidia0", "uid": None, "mode": ""}, "/dev/nvidia0"),
    ],
)
def test_desired_devices(value: object, expected: str) -> None:
    assert format_property(FAMILIES["dev"], from_user(FAMILIES["dev"], value)) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"path": "nvidia0"}, "not below /dev"),
        ({"path": "/dev/nvidia*"}, "no wildcards"),
        ({"path": "/dev/nvidia0", "mode": 666}, "four octal digits"),
        ({"path": "/dev/nvidia0", "mode": "0888"}, "four octal digits"),
        ({"path": "/dev/nvidia0", "wrong": 1}, "unknown key 'wrong'"),
        ({"path": "/dev/a,b"}, "holds a comma"),
        ({"path": "/dev/nvidia0", "gid": "video"}, "gid: 'video' is no whole number"),
    ],
)
def test_desired_devices_that_proxmox_would_refuse(value: object, why: str) -> None:
    with pytest.raises(PropertyError, match=why):
        from_user(FAMILIES["dev"], value)


def test_lists_become_semicolons() -> None:
    assert from_user(FAMILIES["features"], {"mount": ["nfs", "cifs"]}) == {"mount": "cifs;nfs"}
    assert from_user(FAMILIES["net"], {"name": "eth0", "trunks": [4, 3]}) == {"name": "eth0", "trunks": "3;4"}


def test_sizes_and_new_volumes() -> None:
    assert [size_bytes(text) for text in ("8G", "8192M", "1.5G", "10", "8 G", "all")] == [2**33, 2**33, 3 * 2**29, 10, None, None]
    assert [format_size(size) for size in (2**33, 3 * 2**29, 0, 7)] == ["8G", "1536M", "0", "7"]
    assert new_volume("local-lvm:32") == ("local-lvm", 32.0)
    assert new_volume("32") == (None, 32.0)
    assert new_volume("local-lvm:vm-101-disk-0") is None
    assert new_volume("/srv/models") is None


@pytest.mark.parametrize("word", ["1", "on", "YES", "true", True])
def test_true_words(word: object) -> None:
    assert to_bool(word) is True


def test_no_boolean_is_refused() -> None:
    with pytest.raises(PropertyError, match="'2' is no boolean"):
        to_bool("2")


def test_a_hand_edited_value_stays_as_it_is_written() -> None:
    family = FAMILIES["net"]
    assert canonical(family, {"name": "eth0", "mtu": "big"})["mtu"] == "big"


VALUE = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="/:._-"), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)).flatmap(
        lambda name: st.tuples(st.just(name), st.dictionaries(st.sampled_from(sorted(FAMILIES[name].keys)), VALUE))
    )
)
def test_every_property_survives_writing_and_reading(case: tuple[str, dict[str, str]]) -> None:
    name, values = case
    family = FAMILIES[name]
    values |= {key: values.get(key, "x") for key in family.required}
    text = format_property(family, values)
    if text:
        assert parse(family, text) == values
