"""Storages: storage.cfg, templates, and the volumes of containers (directories of the recorded size)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from lab.proxmox import propstr
from lab.proxmox.errors import PveError
from lab.proxmox.formats import split_list

if TYPE_CHECKING:
    from pathlib import Path

    from lab.proxmox.world import World

Storage = dict[str, Any]
DEFAULT_CFG = """\
dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup,rootdir,images,snippets

lvmthin: local-lvm
\tthinpool data
\tvgname pve
\tcontent rootdir,images
"""
NEW_VOLUME = re.compile(r"([^:\s]+):(\d+(?:\.\d+)?)")
_PATH_TYPES = {"dir", "nfs", "cifs", "btrfs"}
_CONTENT_FOLDERS = {"vztmpl": "template/cache", "iso": "template/iso", "backup": "dump", "snippets": "snippets", "import": "import"}
_TINY = "16M"  # what a storage that is full still holds: less than any root file system, more than nothing


def config(world: World) -> dict[str, Storage]:
    """Every storage of storage.cfg, in its order."""
    try:
        text = (world.pve / "storage.cfg").read_text()
    except FileNotFoundError:
        text = DEFAULT_CFG
    found: dict[str, Storage] = {}
    current: Storage = {}
    for line in text.splitlines():
        header = re.fullmatch(r"([a-z]+):\s*(\S+)\s*", line)
        if header:
            current = found[header[2]] = {"storage": header[2], "type": header[1]}
        elif line.strip() and not line.startswith("#"):
            key, _, value = line.strip().partition(" ")
            current[key] = value.strip() or "1"
    for storage in found.values():
        storage["content"] = split_list(storage.get("content", "images,rootdir"))
    return found


def get(world: World, name: str, node: str | None = None) -> Storage:
    """One storage; PveError when it does not exist, is disabled or not on this node."""
    if not name:
        raise PveError("no storage ID specified")
    storage = config(world).get(name)
    if storage is None:
        raise PveError(f"storage '{name}' does not exist")
    if storage.get("disable") == "1":
        raise PveError(f"storage '{name}' is disabled")
    if node and storage.get("nodes") and node not in split_list(storage["nodes"]):
        raise PveError(f"storage '{name}' is not available on node '{node}'")
    return storage


def base(world: World, storage: Storage) -> Path:
    """The directory behind a storage; block storages of the lab are directories too."""
    return world.path(storage["path"] if storage["type"] in _PATH_TYPES else f"/var/lib/lab/storage/{storage['storage']}")


def parse_volume_id(volume: str) -> tuple[str, str]:
    """Split `STORAGE:NAME`; PveError when it is none."""
    match = re.fullmatch(r"([a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]):(\S+)", volume)
    if match is None:
        raise PveError(f"unable to parse volume ID '{volume}'")
    return match[1], match[2]


def volume_type(name: str) -> str:
    """The content type of a volume's name: `vztmpl/x` is vztmpl, a disk is images."""
    folder = name.partition("/")[0]
    return folder if folder in _CONTENT_FOLDERS else "images"


def path(world: World, volume: str) -> Path:
    """Where a volume lies on this machine."""
    name, rest = parse_volume_id(volume)
    storage = get(world, name)
    kind = volume_type(rest)
    if kind != "images":
        return base(world, storage) / _CONTENT_FOLDERS[kind] / rest.partition("/")[2]
    return base(world, storage) / ("images" if storage["type"] in _PATH_TYPES else "") / rest


def activated(world: World, volume: str) -> Path:
    """The path of a volume that exists; PveError with Proxmox's words when it does not."""
    if not re.match(r"[a-zA-Z][a-zA-Z0-9\-_.]*:", volume):
        file = world.path(volume) if volume.startswith("/") else None
        if file is None or not file.is_file():
            raise PveError(f"can't find file '{volume}'")
        return file
    found = path(world, volume)
    if not found.exists():
        raise PveError(f"volume '{volume}' does not exist")
    return found


def owner(name: str) -> int | None:
    """The guest that a disk belongs to by its name."""
    match = re.search(r"(?:vm|subvol|base)-(\d+)-disk-", name)
    return int(match[1]) if match else None


def allocate(world: World, name: str, vmid: int, gib: float, shift: int) -> tuple[str, str]:
    """Make a volume of `gib` GiB (0: without a limit) whose files belong to `shift`; returns its id and its size as text ("" for none)."""
    storage = get(world, name, world.node)
    by_path = storage["type"] in _PATH_TYPES
    root = base(world, storage) / (f"images/{vmid}" if by_path else "")
    root.mkdir(parents=True, exist_ok=True)
    size = int(gib * 2**30)
    stem, ending = ("vm", ".raw" if by_path else "") if size and storage["type"] != "zfspool" else ("subvol", ".subvol" if by_path else "")
    number = 0
    while True:
        disk = f"{stem}-{vmid}-disk-{number}{ending}"
        try:
            (root / disk).mkdir(mode=0o755)
            break
        except FileExistsError:
            number += 1
    if world.fault("storage-full") == name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_TINY},mode=0755", "lab-storage-full", str(root / disk)], check=True)
    os.chown(root / disk, shift, shift)
    if by_path and size:
        print(f"Formatting '{root / disk}', fmt=raw size={size} preallocation=off", flush=True)
    elif size:
        print(f'  Logical volume "{disk}" created.', flush=True)
    return f"{name}:{vmid}/{disk}" if by_path else f"{name}:{disk}", propstr.size_text(size) if size else "0T"


def free(world: World, volume: str) -> None:
    """Destroy a volume that may be gone already."""
    where = path(world, volume)
    if os.path.ismount(where):
        subprocess.run(["umount", str(where)], check=True)
    shutil.rmtree(where, ignore_errors=True)
    with contextlib.suppress(OSError):
        if where.parent.name.isdigit():
            where.parent.rmdir()


def status(world: World, storage: Storage) -> dict[str, Any]:
    """Space of a storage in bytes, and whether it can be used."""
    active = int(storage.get("disable") != "1")
    entry = {
        "storage": storage["storage"],
        "type": storage["type"],
        "content": ",".join(sorted(storage["content"])),
        "active": active,
        "enabled": active,
        "shared": int(storage.get("shared", "0") == "1"),
    }
    where = base(world, storage)
    while not where.exists():
        where = where.parent
    space = os.statvfs(where)
    total = int(storage.get("lab-size", 0)) or space.f_blocks * space.f_frsize
    avail = min(total, space.f_bavail * space.f_frsize)
    if world.fault("storage-full") == storage["storage"]:
        avail = 2**20
    return entry | {"total": total, "avail": avail, "used": total - avail, "used_fraction": (total - avail) / total if total else 0}


def content(world: World, storage: Storage, kind: str | None = None, vmid: int | None = None) -> list[dict[str, Any]]:
    """The volumes of a storage, of one content type or one guest only."""
    found = []
    for name, folder in _CONTENT_FOLDERS.items():
        if name not in storage["content"] or (kind and kind != name) or vmid:
            continue
        for file in sorted((base(world, storage) / folder).glob("*")):
            if file.is_file():
                form = re.search(r"(tar\.\w+|tgz|iso|img|[^.]+)$", file.name)
                entry = {
                    "volid": f"{storage['storage']}:{name}/{file.name}",
                    "content": name,
                    "format": form[1].replace("tar.", "t") if form else "",
                }
                found.append(entry | {"size": file.stat().st_size, "ctime": int(file.stat().st_ctime)})
    disks = base(world, storage) / "images" if storage["type"] in _PATH_TYPES else base(world, storage)
    for disk in sorted(disks.glob("*/*" if storage["type"] in _PATH_TYPES else "*")):
        held = owner(disk.name)
        if held is None or (vmid and held != vmid) or (kind and kind not in {"rootdir", "images"}):
            continue
        volume = f"{storage['storage']}:{disk.relative_to(disks)}"
        found.append(
            {
                "volid": volume,
                "content": "rootdir",
                "format": "raw" if disk.name.startswith("vm-") else "subvol",
                "vmid": held,
                "size": recorded_size(world, held, volume),
                "ctime": int(disk.stat().st_ctime),
            }
        )
    return found


def recorded_size(world: World, vmid: int, volume: str) -> int:
    """The size of a volume as its guest's configuration records it, in bytes (0 when unknown)."""
    with contextlib.suppress(OSError):
        match = re.search(rf"{re.escape(volume)}(?:,.*?)?,size=([0-9.]+[KMGT]?)", world.lxc_config(vmid).read_text())
        if match:
            return propstr.size_bytes(match[1]) or 0
    return 0
