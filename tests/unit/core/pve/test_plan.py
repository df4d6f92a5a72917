"""Plans: nothing for what means the same, exactly the difference for what does not, and nothing that would lose data."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.pve.plan import Current, PlanError, create_parameters, desired_from_user, diff_text, make_plan
from gpunode.pve.propstring import PropertyError

OPTIONS = {
    "arch": "amd64",
    "dev0": "/dev/dri/card0,gid=44",
    "dev1": "/dev/nvidia0,mode=0666",
    "dev2": "/dev/nvidia1,mode=0666",
    "hostname": "glm",
    "memory": "1024",
    "mp0": "/srv/models,mp=/models",
    "mp1": "local-lvm:vm-101-disk-1,mp=/data,backup=1,size=32G",
    "net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth",
    "ostype": "debian",
    "rootfs": "local-lvm:vm-101-disk-0,size=8G",
    "swap": "512",
    "tags": "a;gpu",
    "unprivileged": "1",
}


def current(**given: Any) -> Current:
    return Current(101, given.pop("options", OPTIONS), **given)


def plan(params: dict[str, Any], **given: Any) -> Any:
    return make_plan(current(**given), desired_from_user(params))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"hostname": "glm", "memory": 1024, "swap": 512, "onboot": False, "arch": "amd64", "console": True, "protection": False},
        {"tags": ["GPU", "a", "gpu"]},
        {"tags": "gpu,a"},
        {"unprivileged": True},
        {"rootfs": "local-lvm:8"},
        {"rootfs": {"volume": "local-lvm:8", "ro": False}},
        {"rootfs": {"volume": "local-lvm:vm-101-disk-0", "size": "8192M"}},
        {"mp": [{"volume": "local-lvm:32", "mp": "/data", "backup": True}]},
        {"mp": ["/srv/models/,mp=/models/,backup=no"]},
        {"net": [{"name": "eth0", "ip": "dhcp", "bridge": "vmbr0"}]},
        {"dev": ["/dev/nvidia1,mode=0666", {"path": "/dev/nvidia0", "mode": "0666", "uid": 0}]},
        {"features": {"nesting": False}},
        {"features": {}},
        {"nameserver": []},
        {"delete": ["cores", "mp5"]},
        {"memory": "1024"},
        {"cpulimit": 0},
    ],
)
def test_nothing_to_do(params: dict[str, Any]) -> None:
    assert not plan(params)


def test_members_find_their_slot_by_what_they_are() -> None:
    found = plan({"dev": ["/dev/nvidia1,mode=0660", "/dev/nvidia7,mode=0666", "/dev/nvidia0,mode=0666"]})
    assert found.set == {"dev2": "/dev/nvidia1,mode=0660", "dev3": "/dev/nvidia7,mode=0666"}
    assert found.delete == []


def test_unmanaged_members_go_only_when_purged() -> None:
    found = plan({"dev": ["/dev/nvidia0,mode=0666"], "purge_unmanaged": ["dev"]})
    assert found.set == {}
    assert found.delete == ["dev0", "dev2"]
    assert plan({"purge_unmanaged": ["net"]}).delete == ["net0"]


def test_a_slot_that_waits_for_deletion_is_not_given_away() -> None:
    found = plan({"dev": ["/dev/nvidia5"]}, pending_delete=["dev1"])
    assert found.set == {"dev3": "/dev/nvidia5"}


def test_a_member_that_waits_for_deletion_comes_back_in_its_slot() -> None:
    found = plan({"dev": ["/dev/nvidia0,mode=0666"]}, pending_delete=["dev1"])
    assert found.set == {"dev1": "/dev/nvidia0,mode=0666"}


def test_what_is_pending_already_is_not_set_again() -> None:
    assert not plan({"cores": 4}, pending={"cores": "4"})
    assert plan({"cores": 2}, pending={"cores": "4"}).set == {"cores": "2"}
    assert plan({"memory": 1024}, pending={"memory": "2048"}).set == {"memory": "1024"}


def test_a_sub_option_that_is_not_wanted_goes() -> None:
    options = OPTIONS | {"net0": OPTIONS["net0"] + ",firewall=1,tag=5"}
    found = plan({"net": [{"name": "eth0", "bridge": "vmbr0", "ip": "dhcp"}]}, options=options)
    assert found.set == {"net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp"}


def test_a_volume_is_never_allocated_a_second_time() -> None:
    found = plan({"mp": [{"volume": "local-lvm:32", "mp": "/data", "backup": False}]})
    assert found.set == {"mp1": "local-lvm:vm-101-disk-1,mp=/data,backup=0,size=32G"}


def test_a_volume_grows_and_never_shrinks() -> None:
    found = plan({"rootfs": "local-lvm:16"})
    assert (found.set, found.resize) == ({}, {"rootfs": "16G"})
    with pytest.raises(PlanError, match="rootfs has 8G, wanted is 4G: Proxmox VE cannot shrink"):
        plan({"rootfs": "local-lvm:4"})


def test_a_volume_is_not_moved_between_storages() -> None:
    with pytest.raises(PlanError, match="lies on storage local-lvm, wanted is tank"):
        plan({"rootfs": "tank:8"})
    with pytest.raises(PlanError, match="mp0 is the host's path /srv/models, wanted is a volume tank:8"):
        plan({"mp": ["tank:8,mp=/models"]})


def test_unprivileged_is_fixed() -> None:
    with pytest.raises(PlanError, match="unprivileged of container 101 is 1, wanted is 0: it is fixed at creation"):
        plan({"unprivileged": False})


@pytest.mark.parametrize("name", ["memory", "rootfs", "hostname", "unprivileged"])
def test_what_proxmox_does_not_delete_is_refused(name: str) -> None:
    with pytest.raises(PropertyError, match=name):
        desired_from_user({"delete": [name]})


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"memory": "8G"}, "no units here"),
        ({"tags": ["gpu!"]}, "invalid characters in tag 'gpu!'"),
        ({"dev": ["/dev/a", "/dev/a"]}, "path /dev/a is given twice"),
        ({"lxc": [{"key": "lxc.wrong", "value": "1"}]}, "no raw key that Proxmox VE keeps"),
        ({"lxc": [{"key": "lxc.autodev"}]}, "has no value"),
        ({"lxc": [{"key": "lxc.autodev", "value": "1"}, {"key": "lxc.autodev", "value": "0"}]}, "given twice with different values"),
        ({"lxc": [{"key": "lxc.autodev", "value": "1\n2"}]}, "line feed"),
        ({"purge_unmanaged": ["devs"]}, "devs: no option or family"),
        ({"net": [{"bridge": "vmbr0"}]}, "'name' is missing"),
    ],
)
def test_what_proxmox_would_refuse_is_refused_here(params: dict[str, Any], why: str) -> None:
    with pytest.raises(PropertyError, match=why):
        desired_from_user(params)


RAW = (("lxc.cgroup2.cpuset.cpus", "0-7"), ("lxc.mount.entry", "/a a none bind"), ("lxc.prlimit.memlock", "unlimited"))


def test_raw_lines_by_key_and_by_value() -> None:
    wanted = [
        {"key": "lxc.cgroup2.cpuset.cpus", "value": "0-31"},
        {"key": "lxc.mount.entry", "value": "/b b none bind"},
        {"key": "lxc.prlimit.memlock", "value": "unlimited"},
    ]
    found = plan({"lxc": wanted}, raw=RAW)
    assert found.raw_remove == [RAW[0]]
    assert found.raw_add == [("lxc.cgroup2.cpuset.cpus", "0-31"), ("lxc.mount.entry", "/b b none bind")]
    assert found.after["lxc.mount.entry"] == ["/a a none bind", "/b b none bind"]


def test_raw_lines_go_by_state_and_by_purge() -> None:
    assert plan({"lxc": [{"key": "lxc.mount.entry", "state": "absent"}]}, raw=RAW).raw_remove == [RAW[1]]
    assert not plan({"lxc": [{"key": "lxc.mount.entry", "value": "/x", "state": "absent"}]}, raw=RAW)
    found = plan({"lxc": [{"key": "lxc.prlimit.memlock", "value": "unlimited"}], "purge_unmanaged": ["lxc"]}, raw=RAW)
    assert found.raw_remove == list(RAW[:2])
    assert found.raw_add == []


def test_two_lines_of_a_key_that_counts_once_become_one() -> None:
    raw = (("lxc.prlimit.memlock", "1"), ("lxc.prlimit.memlock", "unlimited"))
    found = plan({"lxc": [{"key": "lxc.prlimit.memlock", "value": "unlimited"}]}, raw=raw)
    assert (found.raw_remove, found.raw_add) == (list(raw), [raw[1]])


def test_what_a_running_container_takes_over_at_once() -> None:
    wanted = {
        "memory": 2048,
        "dev": ["/dev/nvidia0,mode=0600", "/dev/nvidia7"],
        "mp": ["/new,mp=/new"],
        "features": {"nesting": True},
        "lxc": [{"key": "lxc.autodev", "value": "1"}],
        "delete": ["net0"],
    }
    assert plan(wanted).needs_restart == ["dev1", "features", "lxc.autodev"]


def test_create_parameters_number_their_members() -> None:
    wanted = desired_from_user({"hostname": "glm", "dev": ["/dev/a", {"path": "/dev/b", "mode": "0666"}], "features": {"nesting": True}})
    assert create_parameters(wanted, {"ostemplate": "local:vztmpl/x"}) == {
        "hostname": "glm",
        "dev0": "/dev/a",
        "dev1": "/dev/b,mode=0666",
        "features": "nesting=1",
        "ostemplate": "local:vztmpl/x",
    }


def test_all_slots_taken() -> None:
    options = {f"net{n}": f"name=eth{n}" for n in range(32)}
    with pytest.raises(PlanError, match="all 32 slots of container 101 are taken"):
        plan({"net": [{"name": "wan"}]}, options=options)


def test_diff_text_is_a_line_an_option() -> None:
    assert diff_text({"memory": "1", "lxc.mount.entry": ["a", "b"], "gone": None, "description": "x\ny\n"}) == (
        "description: x\ndescription: y\nlxc.mount.entry: a\nlxc.mount.entry: b\nmemory: 1\n"
    )


@pytest.mark.parametrize(
    ("have", "wanted"), [("100%41", "100%41"), ("100A", "100%41"), ("caf\u00e9 \U0001f600\n", "caf\u00e9 \U0001f600"), ("50%", "50%")]
)
def test_notes_with_per_cent_signs_and_any_letter(have: str, wanted: str) -> None:
    assert not make_plan(Current(101, {"description": have}), desired_from_user({"description": wanted}))
    assert make_plan(Current(101, {"description": have}), desired_from_user({"description": wanted + "x"}))
