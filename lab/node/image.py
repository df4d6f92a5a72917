"""Root file systems: Debian for guests and nodes, built once, kept in the cache by what went into them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lab.console import LabError, free, locked, run, say, timed
from lab.instance import HOMES, cache_home
from lab.node import machine, packages

GUEST_TEMPLATES = {"trixie": "debian-13-standard_13.1-1_amd64.tar.zst", "bookworm": "debian-12-standard_12.12-1_amd64.tar.zst"}
NODE_SUITE = "trixie"
_UNUSED_S = 14 * 86400
_COMPONENTS = "main contrib non-free-firmware"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# An interrupted build leaves no process, which dies with the one that started it, and nothing mounted: its mount namespace dies with it.
_ALONE = ("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--")


@dataclass(frozen=True)
class Recipe:
    """What a root file system is made of; its key changes whenever one of these does."""

    kind: str
    suite: str
    packages: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    archive: machine.Archive
    first: str
    then: str
    base: Recipe | None = None
    lab_source: str = ""
    lab_key: str = ""

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits over everything that went in."""
        inputs = [self.kind, self.suite, self.packages, self.files, self.archive.mirror, self.archive.security, self.archive.settings]
        inputs += [self.first, self.then, self.base.key if self.base else "", self.lab_source, self.lab_key]
        if self.kind == "node":
            inputs.append(packages.MASKED_IN_NODE)
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """Where the finished tree lies in the cache."""
        return cache_home() / "rootfs" / f"{self.kind}-{self.suite}-{self.key}"


def sources(suite: str, archive: machine.Archive, mirror: str) -> str:
    """Return Debian's deb822 sources for a suite."""
    blocks = [f"Types: deb\nURIs: {mirror}\nSuites: {suite} {suite}-updates\nComponents: {_COMPONENTS}\nSigned-By: {_KEYRING}\n"]
    if archive.security:
        blocks.append(f"Types: deb\nURIs: {archive.security}\nSuites: {suite}-security\nComponents: {_COMPONENTS}\nSigned-By: {_KEYRING}\n")
    return "\n".join(blocks)


def _machine_files() -> tuple[tuple[str, str], ...]:
    files = {f"usr/local/share/ca-certificates/machine-{number:03d}.crt": text for number, text in enumerate(machine.certificates())}
    if text := machine.pip_conf():
        files["etc/pip.conf"] = text
    return tuple(files.items())


_BOOTSTRAP = """
mkdir -p "$TREE/etc/dpkg/dpkg.cfg.d" "$DEBS"
echo force-unsafe-io >"$TREE/etc/dpkg/dpkg.cfg.d/90lab-unsafe-io"
debootstrap --variant=minbase --cache-dir="$DEBS" "$SUITE" "$TREE" $MIRROR
"""
_COPY = """
cp -a "$BASE" "$TREE"
"""
_MOUNTS = """
printf '#!/bin/sh\\nexit 101\\n' >"$TREE/usr/sbin/policy-rc.d"
chmod 755 "$TREE/usr/sbin/policy-rc.d"
rm -f "$TREE"/var/cache/apt/archives/*.deb
mount --bind "$DEBS" "$TREE/var/cache/apt/archives"
mount -t proc proc "$TREE/proc"
mount -t tmpfs tmp "$TREE/tmp"
cp /etc/resolv.conf "$TREE/etc/resolv.conf"
in_tree() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$TREE" "$@"; }
apt="apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Keep-Downloaded-Packages=true"
"""
_PACKAGES = """
in_tree $apt update
in_tree $apt -y dist-upgrade
in_tree $apt -y --no-install-recommends install $PACKAGES
in_tree update-ca-certificates >/dev/null
in_tree $apt autoclean
# ifupdown has the interfaces; networkd enabled beside it makes everything after network-online.target wait two minutes in vain.
in_tree systemctl --quiet disable systemd-networkd.service systemd-networkd-wait-online.service systemd-networkd.socket
"""
_LAB_PACKAGES = """
mkdir -p "$TREE/usr/lib/gpunode-lab/lab" "$TREE/usr/lib/gpunode-lab-apt" "$TREE/run/lab"
mount --bind "$CODE" "$TREE/usr/lib/gpunode-lab/lab"
mount --bind "$REPOSITORIES" "$TREE/usr/lib/gpunode-lab-apt"
mount -t tmpfs tmp "$TREE/run/lab"
echo "$LAB_SOURCE" >"$TREE/etc/apt/sources.list.d/lab-build.list"
in_tree $apt -o Dir::Etc::sourcelist=sources.list.d/lab-build.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 update
in_tree $apt -y --no-install-recommends install $PACKAGES
rm "$TREE/etc/apt/sources.list.d/lab-build.list"
rm -f "$TREE"/var/lib/apt/lists/*gpunode-lab*
in_tree update-grub
"""
_TIDY = """
rm -f "$TREE"/usr/sbin/policy-rc.d "$TREE"/etc/machine-id "$TREE"/etc/resolv.conf "$TREE"/etc/hostname "$TREE"/etc/ssh/ssh_host_*
rm -rf "$TREE"/var/log/*.log "$TREE"/var/log/apt
touch "$TREE/etc/machine-id"
"""


def guest_recipe(suite: str) -> Recipe:
    """Return the recipe of a standard container template of that suite."""
    return Recipe("guest", suite, packages.GUEST, _machine_files(), machine.archive(), _BOOTSTRAP, _MOUNTS + _PACKAGES + _TIDY)


def debian_recipe(guest: Recipe) -> Recipe:
    """Return the recipe of what Debian gives a node, on top of the guest of the same suite."""
    return Recipe("debian", guest.suite, packages.NODE, (), guest.archive, _COPY, _MOUNTS + _PACKAGES + _TIDY, guest)


def node_recipe(debian: Recipe, names: tuple[str, ...], source: str, key: str) -> Recipe:
    """Return the recipe of a node: packages of the lab's published repositories (``source``, an apt line; ``key``, their content)."""
    files = (("etc/apt/apt.conf.d/91lab-archives", 'APT::Keep-Downloaded-Packages "true";\n'),)
    return Recipe("node", debian.suite, names, files, debian.archive, _COPY, _MOUNTS + _LAB_PACKAGES + _TIDY, debian, source, key)


def _write_files(tree: Path, recipe: Recipe) -> None:
    for name, text in recipe.files:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _write_sources(tree: Path, recipe: Recipe) -> None:
    default = tree / "etc/apt/sources.list"
    mirror = recipe.archive.mirror or (default.read_text(encoding="utf-8").split()[1] if default.exists() else "")
    if not mirror:
        raise LabError(f"debootstrap named no mirror in {default}, and apt on this machine names none either")
    default.unlink(missing_ok=True)
    (tree / "etc/apt/sources.list.d/debian.sources").write_text(sources(recipe.suite, recipe.archive, mirror), encoding="utf-8")
    settings = ['Acquire::Languages "none";', *recipe.archive.settings]
    (tree / "etc/apt/apt.conf.d/90lab-machine").write_text("".join(f"{line}\n" for line in settings), encoding="utf-8")


def repositories() -> Path:
    """Return where the repositories lie that root file systems are built from; each instance has its own ones besides."""
    return cache_home() / "lab-apt"


def run_script(steps: str, tree: Path, recipe: Recipe, base: Path | None) -> None:
    """Run shell steps in mounts of their own, with TREE, DEBS, BASE... set; LabError with the log's end when one fails."""
    debs = cache_home() / "debs" / recipe.suite
    debs.mkdir(parents=True, exist_ok=True)
    variables = {
        "TREE": tree,
        "DEBS": debs,
        "SUITE": recipe.suite,
        "MIRROR": recipe.archive.mirror or "",
        "BASE": base or "",
        "PACKAGES": " ".join(recipe.packages),
        "LAB_SOURCE": recipe.lab_source,
        "REPOSITORIES": repositories(),
        "CODE": Path(__file__).resolve().parents[1],
    }
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    log = tree.parent / f"{tree.name}.log"
    with log.open("a") as output:
        done = subprocess.run(
            [*_ALONE, "bash", "-euc", steps], check=False, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment | {name: str(value) for name, value in variables.items()},
        )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise LabError(f"building the {recipe.kind} root file system failed (whole log: {log}):\n{tail}")


def build(recipe: Recipe) -> Path:
    """Return the folder of the finished tree, building it and its bases when the cache lacks it; LabError with the log's end on failure."""
    if recipe.folder.is_dir():
        os.utime(recipe.folder)
        return recipe.folder
    if recipe.base is not None:
        build(recipe.base)
    with locked(_lock(recipe.folder.name), f"another build of the {recipe.kind} root file system"):
        if recipe.folder.is_dir():
            return recipe.folder
        tree = recipe.folder.with_name(f"{recipe.folder.name}.building")
        shutil.rmtree(tree, ignore_errors=True)
        tree.parent.mkdir(parents=True, exist_ok=True)
        tree.parent.chmod(0o700)
        tree.with_name(f"{tree.name}.log").unlink(missing_ok=True)
        # One at a time: they share apt's archive of packages.
        with (
            locked(_lock("rootfs"), "another build of a root file system"),
            timed(f"building the {recipe.kind} root file system ({recipe.suite}): {len(recipe.packages)} packages on the base"),
        ):
            run_script(recipe.first, tree, recipe, recipe.base.folder if recipe.base else None)
            _write_files(tree, recipe)
            if recipe.base is None:
                _write_sources(tree, recipe)
            run_script(recipe.then, tree, recipe, None)
            if recipe.kind == "node":
                _mask(tree)
        tree.rename(recipe.folder)
        tree.with_name(f"{tree.name}.log").unlink(missing_ok=True)
    prune()
    return recipe.folder


def _lock(name: str) -> Path:
    return cache_home() / "locks" / name


def prune(now: float | None = None) -> list[Path]:
    """Remove root file systems that no node stands on and no build asked for in two weeks, and what interrupted builds left."""
    now = time.time() if now is None else now
    root = cache_home() / "rootfs"
    used = "\n".join(path.read_text(encoding="utf-8") for path in HOMES.glob("*/nodes/*/config"))
    removed = _prune_made_of(now)
    for log in root.glob("*.building.log"):
        if (root / log.name.removesuffix(".building.log")).is_dir():
            log.unlink(missing_ok=True)
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        name = folder.name.removesuffix(".building")
        old = now - folder.stat().st_mtime > _UNUSED_S
        if not (folder.name.endswith(".building") or (old and str(folder) not in used)):
            continue
        with free(_lock(name)) as nobody_builds:
            if nobody_builds:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _prune_made_of(now: float) -> list[Path]:
    # Archives and headers made of a root file system; nodes hold links or copies of their own.
    folders = [path for name in ("templates", "kernel-headers") for path in (cache_home() / name).glob("*") if path.is_dir()]
    old = [path for path in folders if now - path.stat().st_mtime > _UNUSED_S]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return old


def _mask(tree: Path) -> None:
    for unit in packages.MASKED_IN_NODE:
        link = tree / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def template(recipe: Recipe) -> Path:
    """Return the guest template's archive, packing it when the cache lacks it."""
    archive = cache_home() / "templates" / recipe.key / GUEST_TEMPLATES[recipe.suite]
    if archive.exists():
        os.utime(archive.parent)
        return archive
    tree = build(recipe)
    with locked(cache_home() / "locks" / f"template-{recipe.key}", "another build of the guest template"):
        if archive.exists():
            return archive
        archive.parent.mkdir(parents=True, exist_ok=True)
        part = archive.with_name(f"{archive.name}.part")
        with timed(f"packing {archive.name}"):
            run(
                ["tar", "-C", tree, "--numeric-owner", "--xattrs", "--exclude=./var/lib/apt/lists/*", "-I", "zstd -3 -T2", "-cf", part, "."]
            )
        part.rename(archive)
    say(f"template {archive.name}: {archive.stat().st_size >> 20} MiB")
    return archive
