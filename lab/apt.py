"""apt repositories of the lab: packages built with dpkg-deb, an index, and a signature by a key of this machine's own.

A part declares its repository as data (``lab/<part>/repository.py`` with ``repository() -> Repository``); ``python -m lab up`` publishes it
under the instance's home, and nodes and guests see it at ``/usr/lib/gpunode-lab-apt/<name>``. Packages are kept in the cache by content.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from lab.console import LabError, locked, run
from lab.instance import cache_home

KEYRING = "lab-archive-keyring.gpg"
KEY_OWNER = "gpunode lab archive"
# dpkg's own choice compresses best; the lab's packages travel one folder far.
_COMPRESSION = ("-Zzstd", "-z1")
ARCHITECTURE = "amd64"


@dataclass(frozen=True)
class File:
    """One file of a package: its text, or a path on this machine that is copied, and its mode."""

    text: str | None = None
    source: Path | None = None
    mode: int = 0o644


@dataclass(frozen=True)
class Package:
    """A binary package as data.

    ``files`` maps absolute paths to :class:`File` or to a plain text; ``links`` maps absolute paths to symlink targets; ``trees`` maps
    absolute folders to folders on this machine that are copied whole, ``trees_key`` stands for their content in the key; ``scripts``
    maps preinst, postinst, prerm, postrm, triggers, conffiles... to their text; ``fields`` are further control fields (Depends...).
    """

    name: str
    version: str
    description: str
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, File | str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    trees: dict[str, Path] = field(default_factory=dict)
    trees_key: str = ""
    scripts: dict[str, str] = field(default_factory=dict)
    architecture: str = ARCHITECTURE

    def control(self) -> str:
        """Return the control file's text."""
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "gpunode lab <lab@lab.internal>",
            "Section": "admin",
            "Priority": "optional",
            **self.fields,
            "Description": f"{self.description}\n Stand-in made by the gpunode lab.",
        }
        return "".join(f"{name}: {value}\n" for name, value in lines.items())

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits over everything in the package."""
        files = {}
        for path, entry in self.files.items():
            item = entry if isinstance(entry, File) else File(text=entry)
            content = item.text.encode() if item.text is not None else _source(path, item).read_bytes()
            files[path] = [hashlib.sha256(content).hexdigest(), item.mode]
        inputs = [self.control(), files, self.links, sorted(self.trees), self.trees_key, self.scripts]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """The package file's name as archives have it (an epoch is left out)."""
        return f"{self.name}_{self.version.partition(':')[2] or self.version}_{self.architecture}.deb"


@dataclass(frozen=True)
class Repository:
    """A repository: its folder under the apt root, what its Release file says, and the packages of each component."""

    name: str
    origin: str
    label: str
    suite: str
    components: dict[str, list[Package]]
    # A flat repository has no dists folder: its Packages file lies beside the packages ("deb file:... ./").
    flat: bool = False


def _source(path: str, item: File) -> Path:
    if item.source is None:
        raise LabError(f"{path}: a File needs a text or a source")
    return item.source


def build(package: Package) -> Path:
    """Return the .deb of a package, building it when the cache lacks it."""
    target = cache_home() / "lab-debs" / package.key / package.file_name
    if target.exists():
        return target
    with locked(cache_home() / "locks" / f"deb-{package.key}", f"another build of {package.name}"):
        if target.exists():
            return target
        work = target.parent.with_name(f"{package.key}.building")
        shutil.rmtree(work, ignore_errors=True)
        tree = work / "tree"
        _lay_out(package, tree)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(package.control(), encoding="utf-8")
        for name, text in package.scripts.items():
            path = tree / "DEBIAN" / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name in {"preinst", "postinst", "prerm", "postrm", "config"} else 0o644)
        run(["dpkg-deb", "--root-owner-group", *_COMPRESSION, "--build", tree, work / package.file_name])
        shutil.rmtree(tree)
        shutil.rmtree(target.parent, ignore_errors=True)
        work.rename(target.parent)
    return target


def _lay_out(package: Package, tree: Path) -> None:
    tree.mkdir(parents=True)
    for folder, origin in package.trees.items():
        shutil.copytree(origin, tree / folder.lstrip("/"), symlinks=True, dirs_exist_ok=True)
    for path, entry in package.files.items():
        item = entry if isinstance(entry, File) else File(text=entry)
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if item.text is not None:
            place.write_text(item.text, encoding="utf-8")
        else:
            shutil.copyfile(_source(path, item), place)
        place.chmod(item.mode)
    for path, destination in package.links.items():
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(destination)
    for folder, _, _ in os.walk(tree):
        Path(folder).chmod(0o755)


def _gpg(*words: str | Path, stdin: bytes | None = None) -> bytes:
    home = cache_home() / "lab-key"
    done = subprocess.run(
        ["gpg", "--batch", "--quiet", "--no-tty", "--homedir", str(home), *[str(word) for word in words]],
        check=False,
        capture_output=True,
        input=stdin,
    )
    if done.returncode != 0:
        raise LabError(f"gpg failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def keyring() -> bytes:
    """Return the public key (binary, as Signed-By wants it) that signs every repository of the lab on this machine."""
    home = cache_home() / "lab-key"
    with locked(cache_home() / "locks" / "lab-key", "another command that uses the lab's signing key"):
        exported = home / KEYRING
        if not exported.exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True, mode=0o700)
            _gpg("--passphrase", "", "--quick-generate-key", KEY_OWNER, "ed25519", "sign", "never")
            part = home / f"{KEYRING}.part"
            part.write_bytes(_gpg("--export", KEY_OWNER))
            part.rename(exported)
            _stop_agent()
        return exported.read_bytes()


def keyring_file() -> Path:
    """Return the public key as a file."""
    keyring()
    return cache_home() / "lab-key" / KEYRING


def _stop_agent() -> None:
    # gpg leaves an agent behind; the lab leaves nothing.
    subprocess.run(["gpgconf", "--homedir", str(cache_home() / "lab-key"), "--kill", "all"], check=False, capture_output=True)


def index_entry(control: str, deb: Path, name: str) -> str:
    """Return a package's paragraph of a Packages file."""
    content = deb.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f"{control}Filename: {name}\nSize: {len(content)}\nSHA256: {digest}\n\n"


def release_text(repository: Repository, indexes: dict[str, bytes]) -> str:
    """Return a Release file over the given index files (name -> content)."""
    lines = [
        f"Origin: {repository.origin}", f"Label: {repository.label}", f"Suite: {repository.suite}", f"Codename: {repository.suite}",
        f"Date: {formatdate(usegmt=True)}", f"Architectures: {ARCHITECTURE}", f"Components: {' '.join(repository.components)}", "SHA256:",
    ]  # fmt: skip
    lines += [f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}" for name, content in sorted(indexes.items())]
    return "".join(f"{line}\n" for line in lines)


def publish(repository: Repository, root: Path, *, without: frozenset[str] = frozenset()) -> Path:
    """Make ``root/<name>`` the signed repository and return it; packages named in ``without`` are left out. Quick when nothing changed."""
    public = keyring()
    root.mkdir(parents=True, exist_ok=True)
    (root / KEYRING).write_bytes(public)
    place = root / repository.name
    inputs = {component: [package.key for package in packages] for component, packages in repository.components.items()}
    facts = [
        inputs,
        repository.origin,
        repository.label,
        repository.suite,
        repository.flat,
        sorted(without),
        hashlib.sha256(public).hexdigest(),
    ]
    stamp = json.dumps(facts)
    if (place / ".stamp").is_file() and (place / ".stamp").read_text(encoding="utf-8") == stamp:
        return place
    fresh = place.with_name(f".{repository.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    indexes: dict[str, bytes] = {}
    for component, packages in repository.components.items():
        folder = "" if repository.flat else f"pool/{component}/"
        entries = []
        for package in packages:
            if package.name in without:
                continue
            deb = build(package)
            name = f"{folder}{package.file_name}"
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            _link(deb, fresh / name)
            entries.append(index_entry(package.control(), deb, f"./{name}" if repository.flat else name))
        text = "".join(entries).encode()
        prefix = "" if repository.flat else f"{component}/binary-{ARCHITECTURE}/"
        indexes[f"{prefix}Packages"] = indexes.get(f"{prefix}Packages", b"") + text
    for name in list(indexes):
        indexes[f"{name}.gz"] = gzip.compress(indexes[name], mtime=0)
    top = fresh if repository.flat else fresh / "dists" / repository.suite
    for name, content in indexes.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    _sign(release_text(repository, indexes), top)
    (fresh / ".stamp").write_text(stamp, encoding="utf-8")
    _exchange(fresh, place)
    return place


def _link(deb: Path, place: Path) -> None:
    try:
        place.hardlink_to(deb)
    except OSError:  # the cache lies on another file system
        shutil.copyfile(deb, place)
    place.chmod(0o644)


def _sign(release: str, folder: Path) -> None:
    with locked(cache_home() / "locks" / "lab-key", "another command that uses the lab's signing key"):
        (folder / "Release").write_text(release, encoding="utf-8")
        (folder / "InRelease").write_bytes(_gpg("--local-user", KEY_OWNER, "--clearsign", stdin=release.encode()))
        (folder / "Release.gpg").write_bytes(_gpg("--local-user", KEY_OWNER, "--armor", "--detach-sign", stdin=release.encode()))
        _stop_agent()


def _exchange(fresh: Path, place: Path) -> None:
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old, ignore_errors=True)
