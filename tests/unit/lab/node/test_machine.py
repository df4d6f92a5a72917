"""What is read from the machine, names and addresses, configurations as text."""

from __future__ import annotations

import subprocess

import pytest

from lab import apt, faults
from lab.boot import cgroups, mounts
from lab.console import LabError
from lab.instance import Instance
from lab.node import container, image, machine, network, ssh


def test_archive_addresses_of_debian_only():
    text = "Ubuntu|Ubuntu|http://a/ubuntu/\nDebian|Debian|http://m/debian/\nDebian|Debian-Security|http://m/sec/\nDebian|Debian|http://other/\n"
    assert machine.parse_targets(text) == ("http://m/debian", "http://m/sec")


def test_settings_that_say_how_archives_are_reached():
    text = (
        'Acquire "";\nAcquire::http "";\nAcquire::http::Proxy "http://p:3128";\nAcquire::Check-Date "false";\n'
        'APT::Install-Recommends "false";\nAcquire::IndexTargets::deb "x";\n'
    )
    assert machine.parse_settings(text) == ('Acquire::http::Proxy "http://p:3128";', 'Acquire::Check-Date "false";')


def test_resolvers_on_loopback_are_left_out(tmp_path):
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("nameserver 127.0.0.53\noptions edns0\n")
    real.write_text("# made by a service\nnameserver 127.0.0.1\nnameserver 192.0.2.53\nsearch lab\n")
    assert machine.resolv_conf((str(stub), str(real))) == "nameserver 192.0.2.53\nsearch lab\n"
    with pytest.raises(LabError, match=r"127\.0\.0\.0/8"):
        machine.resolv_conf((str(stub),))


@pytest.mark.parametrize(("name", "number"), [("gpu-node-01", 1), ("gpu-node-9", 9), ("node3", 3)])
def test_node_addresses(name, number):
    node = Instance(7).node(name)
    assert (node.address, node.veth) == (f"10.213.7.{10 + number}", f"gl7n{number}")
    assert len(node.veth) <= 15


@pytest.mark.parametrize("name", ["gpu-node", "gpu-node-10", "../x1", "Gpu-1", ""])
def test_names_that_are_no_nodes(name):
    with pytest.raises(ValueError, match="no name for a lab node"):
        Instance(0).node(name)


@pytest.mark.parametrize("text", ["256", "x", "-1", ""])
def test_wrong_instances(monkeypatch, text):
    monkeypatch.setenv("GPUNODE_LAB_INDEX", text)
    with pytest.raises(ValueError, match="GPUNODE_LAB_INDEX"):
        Instance.from_environment()


def test_instances_share_nothing():
    first, second = Instance(1), Instance(2)
    for one, other in ((first, second), (first.node("n1"), second.node("n1"))):
        names = [name for name in dir(type(one)) if isinstance(getattr(type(one), name), property)]
        assert names
        assert all(getattr(one, name) != getattr(other, name) for name in names)


def test_ruleset_names_one_subnet():
    text = network.ruleset(Instance(4))
    assert "10.213.4.0/24" in text
    assert "table ip gpulab4" in text


def test_interfaces_put_the_address_on_the_bridge():
    text = container.interfaces(Instance(4).node("gpu-node-02"))
    assert "iface eth0 inet manual" in text
    assert text.index("iface vmbr0") < text.index("address 10.213.4.12/24") < text.index("bridge-ports eth0")


def test_known_hosts_keeps_the_other_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.instance.HOMES", tmp_path)
    instance = Instance(4)
    (instance.home / "ssh").mkdir(parents=True)
    one, two = instance.node("gpu-node-01"), instance.node("gpu-node-02")
    ssh.remember(one, f"{one.address},{one.name} ssh-ed25519 A\n")
    ssh.remember(two, f"{two.address},{two.name} ssh-ed25519 B\n")
    ssh.remember(one, f"{one.address},{one.name} ssh-ed25519 C\n")
    assert ssh.known_hosts(instance).read_text().split() == [
        f"{two.address},{two.name}",
        "ssh-ed25519",
        "B",
        f"{one.address},{one.name}",
        "ssh-ed25519",
        "C",
    ]
    ssh.remember(two, None)
    assert two.name not in ssh.known_hosts(instance).read_text()


def test_ssh_always_checks_the_host_key():
    words = ssh.command(Instance(4).node("gpu-node-01"), ["true"])
    assert "StrictHostKeyChecking=yes" in words
    assert words[-2:] == ["root@10.213.4.11", "true"]


def test_sources_name_the_security_archive_when_there_is_one():
    archive = machine.Archive("http://m/debian", "http://m/sec")
    assert image.sources("trixie", archive, "http://m/debian").count("Types: deb") == 2
    assert image.sources("trixie", machine.Archive(), "http://m/debian").count("Types: deb") == 1


def test_every_input_of_a_root_file_system_is_in_its_key():
    recipe = image.Recipe("guest", "trixie", ("a",), (), machine.Archive(), "one", "two")
    base = image.Recipe("debian", "trixie", (), (), machine.Archive(), "", "", recipe)
    others = [
        image.Recipe("guest", "trixie", ("a", "b"), (), machine.Archive(), "one", "two"),
        image.Recipe("guest", "bookworm", ("a",), (), machine.Archive(), "one", "two"),
        image.Recipe("guest", "trixie", ("a",), (("f", "x"),), machine.Archive(), "one", "two"),
        image.Recipe("guest", "trixie", ("a",), (), machine.Archive("http://m"), "one", "two"),
        image.Recipe("guest", "trixie", ("a",), (), machine.Archive(), "one", "three"),
        image.Recipe("guest", "trixie", ("a",), (), machine.Archive(), "one", "two", base),
        image.Recipe("guest", "trixie", ("a",), (), machine.Archive(), "one", "two", None, "deb x"),
        image.Recipe("guest", "trixie", ("a",), (), machine.Archive(), "one", "two", None, "", "key"),
    ]
    assert len({recipe.key, *(other.key for other in others)}) == len(others) + 1


def test_prune_keeps_what_is_young_used_or_being_built(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUNODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image, "HOMES", tmp_path / "homes")
    root = tmp_path / "cache/rootfs"
    for name in ("node-old", "node-used", "node-dead.building", "node-live.building"):
        (root / name).mkdir(parents=True)
    config = tmp_path / "homes/1/nodes/gpu-node-01/config"
    config.parent.mkdir(parents=True)
    config.write_text(f"lxc.rootfs.path = overlay:{root}/node-used:/x\n")
    (tmp_path / "cache/templates/abc").mkdir(parents=True)
    now = (root / "node-old").stat().st_mtime
    with image.locked(image._lock("node-live"), "nothing"):
        assert [path.name for path in image.prune(now)] == ["node-dead.building"]
        assert [path.name for path in image.prune(now + 15 * 86400)] == ["abc", "node-old"]
    assert sorted(path.name for path in root.iterdir()) == ["node-live.building", "node-used"]


def test_old_hierarchies_of_control_groups():
    text = "9:name=systemd:/\n8:pids:/\n2:cpu,cpuacct:/x\n0::/y\n"
    assert cgroups.hierarchies(text) == ["pids", "cpu,cpuacct"]
    assert cgroups.hierarchies("0::/\n") == []


def test_mount_points_with_blanks():
    assert mounts.mounted("proc /proc proc rw 0 0\nx /a\\040b tmpfs rw 0 0\n") == {"/proc", "/a b"}


def test_a_package_is_built_once_and_published_signed(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUNODE_CACHE", str(tmp_path / "cache"))
    package = apt.Package(
        "lab-try", "1:2.0-1", "A try", {"Depends": "base-files"}, {"/usr/bin/lab-try": apt.File("#!/bin/sh\n", mode=0o755)},
        {"/usr/bin/lab-link": "lab-try"}, scripts={"postinst": "#!/bin/sh\nexit 0\n"},
    )  # fmt: skip
    other = apt.Package("lab-other", "1.0", "Another try")
    repository = apt.Repository("try", "Lab", "Lab", "trixie", {"main": [package, other]})
    place = apt.publish(repository, tmp_path / "apt")
    deb = place / "pool/main/lab-try_2.0-1_amd64.deb"
    listing = subprocess.run(["dpkg-deb", "-c", deb], check=True, capture_output=True, text=True).stdout
    assert "-rwxr-xr-x root/root" in next(line for line in listing.splitlines() if line.endswith("./usr/bin/lab-try"))
    assert "lab-link -> lab-try" in listing
    index = (place / "dists/trixie/main/binary-amd64/Packages").read_text()
    assert "Filename: pool/main/lab-try_2.0-1_amd64.deb" in index
    verified = subprocess.run(
        ["gpgv", "--keyring", tmp_path / "apt" / apt.KEYRING, place / "dists/trixie/InRelease"], check=False, capture_output=True
    )
    assert verified.returncode == 0, verified.stderr
    before = (place / "dists/trixie/InRelease").stat().st_ino
    apt.publish(repository, tmp_path / "apt")
    assert (place / "dists/trixie/InRelease").stat().st_ino == before
    apt.publish(repository, tmp_path / "apt", without=frozenset({"lab-try"}))
    assert "lab-try" not in (place / "dists/trixie/main/binary-amd64/Packages").read_text()


def test_a_packages_key_follows_its_content():
    one = apt.Package("p", "1", "d", files={"/a": "x"})
    assert one.key == apt.Package("p", "1", "d", files={"/a": apt.File("x")}).key
    assert one.key != apt.Package("p", "1", "d", files={"/a": apt.File("x", mode=0o755)}).key
    assert one.key != apt.Package("p", "1", "d", files={"/a": "y"}).key


def test_faults_are_remembered_once_each(tmp_path):
    path = tmp_path / "lab/faults.json"
    assert faults.active(path) == []
    for words in (["gpu-off-bus", "3"], ["hmm-on"], ["gpu-off-bus", "4"]):
        faults.remember(words, path)
    assert faults.active(path) == ["hmm-on", "gpu-off-bus 4"]


def test_every_fault_is_described():
    listing = faults.listing()
    assert {"kernel-dies", "esp-missing", "apt-locked"} <= set(listing)
    assert not [name for name, text in listing.items() if text == "(not described)"]
