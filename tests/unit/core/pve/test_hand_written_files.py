"""Files as people write them by hand: read as Proxmox reads them, planned against themselves without change, written back unharmed."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.pve.conffile import edit_raw, parse, render
from gpunode.pve.options import CONFIGURATION, meaning
from gpunode.pve.passthrough import machine, passthrough
from gpunode.pve.plan import Current, desired_from_user, make_plan
from gpunode.pve.propstring import FAMILIES, family_of

HEAD = "arch: amd64\nhostname: a\nmemory: 512\n"
NODE = "/dev/nvidia0 dev/nvidia0 none bind,optional,create=file"
FILES = {
    "blanks": f"arch:amd64\ncores:   4   \nhostname:\tgpu\t\nnet0: name=eth0, bridge=vmbr0, ip=dhcp\n\nlxc.cap.drop   =   sys_boot   \n"
    f"lxc.mount.entry=   {NODE}  \nlxc.mount.entry:\t/dev/fuse\tdev/fuse\tnone\tbind\n",
    "remarks": f"{HEAD}# below\nrootfs: l:1/a.raw,size=4G\nlxc.cgroup2.devices.allow: c 195:* rwm # all\nlxc.mount.entry: {NODE} # first\n",
    "mounts": f"{HEAD}mp0: /srv/x/,mp=/x/\nmp1: l:subvol-1-disk-1,mp=/var/lib/pg,acl=1,backup=1,quota=1,replicate=0,size=50G\n"
    "mp10: l:subvol-1-disk-2,mp=/y,mountoptions=noatime;nodev,shared=1,size=1.5T\nmp2: /srv/a=b,mp=/with blank\nmp255: /a,mp=/b\n"
    "rootfs: volume=l:vm-1-disk-0,size=8192M,mountoptions=lazytime;discard\n",
    "network": f"{HEAD}net0: name=eth0,bridge=vmbr1,gw=10.0.0.1,hwaddr=bc:24:11:00:00:04,ip=10.0.0.4/24,rate=12.50,tag=30,"
    "trunks=30;10,mtu=9000,link_down=yes,type=veth\nnet31: bridge=v,ip6=auto,name=eth31,firewall=off\n",
    "devices": f"{HEAD}dev0: path=/dev/nvidia0,mode=0666\ndev255: /dev/nvidia1,uid=0,gid=104,deny-write=1\ndev256: /dev/kvm\n"
    "mp256: /a,mp=/b\n",
    "words": f"{HEAD}console: no\nfeatures: mount=nfs;cifs,nesting=on,keyctl=0\nonboot: true\nprotection: on\nstartup: up=30\n"
    "tags: Prod, GPU  llm;;\nnameserver: 1.1.1.1 9.9.9.9\nunprivileged: yes\n",
    "image": f"{HEAD}cmode: console\nentrypoint: /usr/bin/tini -- /run.sh --listen 0.0.0.0\nenv: PATH=/bin\0A=b c\ntimezone: host\n"
    "lxc.environment.runtime: FOO=bar baz\nlxc.init.cwd: /app\nlxc.signal.halt: SIGTERM\n",
    "future": f"{HEAD}shiny: yes\ngpu0: model=h200,share=0.5\nx_y_z12: 1\nempty: \n",
    "idmap": f"{HEAD}unprivileged: 1\n" + "".join(f"lxc.idmap: {kind} 0 100000 1000\nlxc.idmap: {kind} 1000 1000 1\n" for kind in "ug"),
    "repeated": f"{HEAD}lxc.mount.auto: cgroup:rw\nlxc.mount.auto: proc:rw sys:rw\nlxc.cgroup2.io.max: 8:0 rbps=1\n"
    "lxc.cgroup2.io.max: 8:16 rbps=2\nlxc.environment: A=1\nlxc.environment: B=2\n",
    "text": "#<div align='center'>\n#  <a href='https%3A//x.y'>%F0%9F%A4%96 100%25</a>\n#\n#Größe 日本語 %C3%A9 %zz %FF\n" + HEAD,
    "snapshots": f"{HEAD}parent: before_9-1\nlxc.cap.drop: sys_boot\n\n[PVE:PENDING]\ncores: 16\ndelete: !mp0,swap\n\n[before_9-1]  \n"
    "#why%3A\nmemory: 1\n#more\nparent: clean\nsnaptime: 1\nlxc.cap.drop: sys_boot\n\n"
    "[vzdump]\nsnapstate: delete\nmemory: 2\n\n[clean]\nmemory: 3",
    "windows": (HEAD + f"#note\nlxc.mount.entry: {NODE}\n\n[snap1]\nmemory: 1\n").replace("\n", "\r\n"),
    "unfinished": "# nothing here yet",
    "separators": "arch: amd64\x0bhostname: s\n#a\x0cb\x85c\u2028d\nhostname: t\x1ce\n",
}  # fmt: skip
ADDED = ("lxc.prlimit.memlock", "unlimited")


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_written_back_unharmed(text: str) -> None:
    config = parse(text)
    assert edit_raw(text, [], []) == text
    added = edit_raw(text, [], [ADDED])
    assert parse(added).live.raw == [*config.live.raw, ADDED]
    assert parse(added).snapshots == config.snapshots
    assert edit_raw(added, [ADDED], []).rstrip("\n") == text.rstrip("\n")
    again = parse(render(config))
    assert (again.live.raw, again.live.description, again.snapshots, again.pending.options) == (
        config.live.raw,
        config.live.description,
        config.snapshots,
        config.pending.options,
    )
    assert {key: meaning(key, value) for key, value in again.live.options.items()} == {
        key: meaning(key, value) for key, value in config.live.options.items()
    }
    assert render(again) == render(config)


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_planned_against_itself_without_change(text: str) -> None:
    live = parse(text).live
    current = Current(100, {key: value for key, value in live.options.items() if key != "parent"}, raw=tuple(live.raw))
    params: dict[str, Any] = {"lxc": [{"key": key, "value": value} for key, value in live.raw]}
    for name, value in current.options.items():
        family = family_of(name)
        if family is not None and family.numbered:
            params.setdefault(family.name, []).append(value)
        elif name in CONFIGURATION:
            params[name] = value
    params["purge_unmanaged"] = ["lxc", *(name for name in FAMILIES if FAMILIES[name].numbered)]
    plan = make_plan(current, desired_from_user(params))
    assert not plan, (plan.set, plan.delete, plan.raw_add, plan.raw_remove)


@pytest.mark.parametrize(("word", "meant"), [("1", True), ("yes", True), ("On", True), ("0", False), ("no", False)])
def test_booleans_in_every_spelling(word: str, meant: bool) -> None:
    assert passthrough(parse(f"unprivileged: {word}\n")).unprivileged is meant
    assert machine(1, f"onboot: {word}\n", {}).onboot is meant


def test_a_rule_with_more_blanks_passes_the_same_device() -> None:
    line = ("lxc.cgroup2.devices.allow", "c  195:* rwm")
    assert passthrough(parse(f"{line[0]}: {line[1]}\n")).by_hand == (line,)


def test_a_line_that_adds_to_another_leaves_it() -> None:
    current = Current(100, {}, raw=(("lxc.mount.auto", "cgroup:rw"), ("lxc.cgroup2.io.max", "8:0 rbps=1")))
    more = [{"key": "lxc.mount.auto", "value": "proc:rw"}, {"key": "lxc.cgroup2.io.max", "value": "8:16 rbps=2"}]
    plan = make_plan(current, desired_from_user({"lxc": more}))
    assert (len(plan.raw_add), plan.raw_remove) == (2, [])
