"""Making and destroying containers from a small archive; needs root, as the node has it."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab.proxmox import tasks
from lab.proxmox.api import registry
from lab.proxmox.ct import guest, lxcfile, machine, mounts
from lab.proxmox.errors import PveError
from lab.proxmox.upid import Upid

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners and device nodes need root")


def archive(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "tiny.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("./etc/systemd/system", "./etc/network", "./root", "./usr/lib/systemd", "./dev", "./sbin"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size, entry.mode = len(text), 0o640
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


FILES = {
    "usr/lib/os-release": 'ID=debian\nVERSION_ID="13"\n',
    "usr/lib/systemd/systemd-networkd": "",
    "etc/shadow": "root:*:1::::::\ndaemon:*:1::::::\n",
    "dev/trap": "never unpacked",
}


@pytest.fixture
def ready(ctx):
    folder = ctx.world.path("/var/lib/vz/template/cache")
    folder.mkdir(parents=True)
    archive(folder, FILES)
    ctx.world.path("/etc/resolv.conf").write_text("search lab.internal\nnameserver 192.0.2.53\n")
    return ctx


def create(ctx, **values) -> str:
    ask = {"vmid": "101", "ostemplate": "local:vztmpl/tiny.tar.gz", "unprivileged": "0", "features": "nesting=1"} | values
    name = registry.call(ctx, "POST", "/nodes/pve-a/lxc", ask)
    return tasks.read_status(ctx.world, Upid.parse(name))


def test_a_container_is_made_and_destroyed(ready, capfd):
    ctx = ready
    status = create(
        ctx, hostname="one", rootfs="local:2", password="secret", net0="name=eth0,ip=192.0.2.7/24,gw=192.0.2.1", searchdomain="a.b"
    )
    assert status == "OK", capfd.readouterr()
    found = ctx.world.lxc_config(101).read_text()
    assert "lock" not in found
    assert "rootfs: local:101/vm-101-disk-0.raw,size=2G\n" in found
    assert "ostype: debian\n" in found
    root = ctx.world.path("/var/lib/vz/images/101/vm-101-disk-0.raw")
    assert (root / "etc/hostname").read_text() == "one\n"
    assert "192.0.2.7 one.a.b one\n" in (root / "etc/hosts").read_text()
    assert (root / "etc/resolv.conf").read_text() == "# --- BEGIN PVE ---\nsearch a.b\nnameserver 192.0.2.53\n# --- END PVE ---\n"
    network = (root / "etc/systemd/network/eth0.network").read_text()
    assert "Address = 192.0.2.7/24\nGateway = 192.0.2.1\n" in network
    assert (root / "etc/shadow").read_text().startswith("root:$6$")
    assert not (root / "dev/trap").exists()
    name = registry.call(ctx, "DELETE", "/nodes/pve-a/lxc/101", {})
    assert tasks.read_status(ctx.world, Upid.parse(name)) == "OK"
    assert not ctx.world.lxc_config(101).exists()
    assert not root.parent.exists()


def test_volumes_of_a_block_storage(ready):
    ctx = ready
    assert create(ctx, rootfs="local-lvm:2", mp0="local-lvm:0.5,mp=/data,backup=0") == "OK"
    found = ctx.world.lxc_config(101).read_text()
    assert "rootfs: local-lvm:vm-101-disk-0,size=2G\n" in found
    assert "mp0: local-lvm:vm-101-disk-1,mp=/data,backup=0,size=512M\n" in found
    assert (ctx.world.path("/var/lib/lab/storage/local-lvm/vm-101-disk-0") / "etc/hostname").read_text() == "CT101\n"
    rows = registry.call(ctx, "GET", "/nodes/pve-a/storage/local-lvm/content", {})
    assert [(row["volid"], row["size"]) for row in rows] == [("local-lvm:vm-101-disk-0", 2 * 2**30), ("local-lvm:vm-101-disk-1", 2**29)]
    name = registry.call(ctx, "DELETE", "/nodes/pve-a/lxc/101", {})
    assert tasks.read_status(ctx.world, Upid.parse(name)) == "OK"
    assert not list(ctx.world.path("/var/lib/lab/storage/local-lvm").iterdir())


def test_an_archive_that_breaks_leaves_nothing(ready, capfd):
    ctx = ready
    path = ctx.world.path("/var/lib/vz/template/cache/tiny.tar.gz")
    path.write_bytes(path.read_bytes()[:80])
    status = create(ctx)
    assert status.startswith("unable to create CT 101 - command 'tar xpf - -z --totals ")
    assert status.endswith("failed: exit code 2")
    assert capfd.readouterr().err.endswith(f"{status}\n")
    assert not ctx.world.lxc_config(101).exists()
    assert not list(ctx.world.path("/var/lib/vz/images").glob("*"))


def test_an_unknown_system_is_refused(ready):
    archive(ready.world.path("/var/lib/vz/template/cache"), {"usr/lib/os-release": "ID=plan9\n"})
    assert create(ready) == "unable to create CT 101 - unable to detect OS distribution"


def test_without_nesting_the_end_is_a_warning(ready):
    assert create(ready, features="nesting=0") == "WARNINGS: 1"


def test_links_of_the_guest_do_not_lead_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").symlink_to(outside / "hosts")
    with pytest.raises(PveError):
        guest.inside(root, 0, lambda: guest._hostname("one", [], ""))
    assert not list(outside.iterdir())


def test_the_files_of_an_unprivileged_guest_are_its_roots(tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for place in (root, root / "etc"):
        os.chown(place, mounts.SHIFT, mounts.SHIFT)
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    guest.inside(root, mounts.SHIFT, lambda: guest._hostname("one", [], ""))
    assert (root / "etc/hostname").stat().st_uid == mounts.SHIFT


def test_the_lxc_file_of_a_start(ready):
    ctx = ready
    ctx.world.path("/dev").mkdir()
    os.mknod(ctx.world.path("/dev/gpu0"), stat.S_IFCHR | 0o666, os.makedev(195, 0))
    models = ctx.world.path("/srv/my models")
    models.mkdir(parents=True)
    ctx.world.path("/run/lab/guest.d").mkdir(parents=True)
    ctx.world.path("/run/lab/guest.d/10-a.conf").write_text("lxc.mount.entry = /a a none bind 0 0\n")
    ctx.world.path("/var/lib/vz/images/101/vm-101-disk-0.raw").mkdir(parents=True)
    conf = {
        "arch": "amd64",
        "ostype": "debian",
        "hostname": "one",
        "memory": 1024,
        "swap": 0,
        "unprivileged": 1,
        "rootfs": "local:101/vm-101-disk-0.raw,size=2G",
        "dev0": "/dev/gpu0,mode=0640,gid=44",
        "mp0": "/srv/my models,mp=/models,ro=1",
        "lxc": [["lxc.prlimit.memlock", "unlimited"], ["lxc.cgroup2.cpuset.cpus", "0,4000-4100"]],
        "pending": {},
        "snapshots": {},
    }
    lxcfile.write(ctx, 101, conf)
    text = ctx.world.path("/var/lib/lxc/101/config").read_text()
    node = ctx.world.path("/var/lib/lxc/101/passthrough/dev/gpu0")
    assert f"lxc.mount.entry = {node} dev/gpu0 none bind,create=file 0 0\n" in text
    assert (node.stat().st_rdev, node.stat().st_mode & 0o7777, node.stat().st_uid, node.stat().st_gid) == (
        os.makedev(195, 0),
        0o640,
        100000,
        100044,
    )
    assert "lxc.cgroup2.devices.allow = c 195:0 rw\n" in text
    assert "lxc.cgroup2.cpuset.cpus = 0,4000-4100\n" in text
    assert "guest.d" not in text
    escaped = str(models).replace(" ", "\\040")
    assert f"lxc.mount.entry = {escaped} models none rbind,create=dir,ro 0 0\n" in text
    assert "lxc.idmap = u 0 100000 65536\n" in text
    assert "lxc.prlimit.memlock = unlimited\n" in text
    started = lxcfile.started_file(ctx, 101).read_text()
    assert "cpuset.cpus = 0\n" in started, "processors that this machine lacks are left out"
    assert started.endswith("lxc.mount.entry = /a a none bind 0 0\n")
    ctx.world.path("/dev/gpu0").unlink()
    with pytest.raises(PveError, match="Device /dev/gpu0 does not exist"):
        lxcfile.write(ctx, 101, conf)


@pytest.mark.parametrize(("text", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("0, 2", [0, 2])])
def test_lists_of_numbers(text, numbers):
    assert machine.numbers(text) == numbers


def test_the_tools_run_as_commands(ready, tmp_path):
    """Pct as a process: texts, exit codes, standard error."""

    def pct(*words: str) -> tuple[int, str, str]:
        code = "import sys; from lab.proxmox.cli import tool, pct; tool.run(pct.main)"
        done = subprocess.run(
            [os.sys.executable, "-c", code, *words],
            env=os.environ | {"LAB_PVE_ROOT": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert pct("list") == (0, "", "")
    assert pct("status", "999") == (2, "", "Configuration file 'nodes/pve-a/lxc/999.conf' does not exist\n")
    code, out, err = pct(
        "create", "101", "local:vztmpl/tiny.tar.gz", "-unprivileged", "no", "--features", "nesting=1", "--memory=1024", "--onboot"
    )
    assert code == 0, err
    assert out.startswith("Formatting '")
    assert pct("status", "101") == (0, "status: stopped\n", "")
    assert "memory: 1024\nonboot: 1\n" in pct("config", "101")[1]
    code, _out, err = pct("set", "101", "--memory", "8")
    assert code == 255
    assert err == "400 Parameter verification failed.\nmemory: value must have a minimum value of 16\npct set <vmid> [OPTIONS]\n"
    assert pct("set", "101", "--nonsense", "1")[2].startswith("Unknown option: nonsense\n400 unable to parse option\n")
    assert pct("exec", "101", "--", "true") == (255, "", "container '101' not running!\n")
    assert pct("destroy", "101")[0] == 0
    assert pct("nonsense")[0] == 255


def test_what_a_machine_without_rights_and_with_v1_groups_follows(monkeypatch):
    monkeypatch.setattr(machine, "unified", lambda: False)
    monkeypatch.setattr(machine, "processors", lambda: [0, 1])
    monkeypatch.setattr(machine, "_may_limit", lambda name, _value: name != "memlock")
    monkeypatch.setattr(machine, "_swap_counted", lambda: True)
    lines = [
        "lxc.include = /x",
        "lxc.cgroup2.memory.max = 1000",
        "lxc.cgroup2.memory.swap.max = 500",
        "lxc.cgroup2.cpu.max = 150000 100000",
        "lxc.cgroup2.cpuset.cpus = 1-63",
        "lxc.cgroup2.devices.allow = c 195:* rwm",
        "lxc.prlimit.memlock = unlimited",
        "lxc.prlimit.nofile = 1024",
    ]
    assert [line for line in machine.follow(lines) if not line.startswith("#")] == [
        "lxc.include = /x",
        "lxc.cgroup.memory.limit_in_bytes = 1000",
        "lxc.cgroup.cpu.cfs_period_us = 100000",
        "lxc.cgroup.cpu.cfs_quota_us = 150000",
        "lxc.cgroup.cpuset.cpus = 1",
        "lxc.cgroup.devices.allow = c 195:* rwm",
        "lxc.prlimit.nofile = 1024",
        "lxc.cgroup.memory.memsw.limit_in_bytes = 1500",
    ]
