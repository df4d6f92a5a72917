"""A wheel, unpacked, edited and packed again under a local version, with a RECORD that is right."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import posixpath
import re
import zipfile
from typing import TYPE_CHECKING, Any

from .edit import AnchorError, apply_edit, revert_edit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .edit import Patch

MANIFEST = "gpunode-patches.json"
"""Name of the manifest inside the wheel's dist-info folder."""

METADATA = "METADATA"
"""Path of an edit that changes the wheel's own metadata, wherever its dist-info folder is."""

_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
"""Every packed file carries this time: the same input gives the same bytes."""


class WheelError(ValueError):
    """The file is not a wheel that can be patched."""


def patched_version(version: str, patches: Iterable[Patch]) -> str:
    """The version with a local label that names what was applied: ``0.5.23+gpunode.1a2b3c4d``."""
    content = json.dumps([[patch.id, [[edit.path, edit.old, edit.new] for edit in patch.edits]] for patch in patches], sort_keys=True)
    label = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{version}+gpunode.{label}"


def record_line(name: str, data: bytes) -> tuple[str, str, str]:
    """One line of RECORD: path, ``sha256=<urlsafe base64 without padding>``, size in bytes."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", str(len(data))


def verify_record(wheel: Path) -> list[str]:
    """Every disagreement between a wheel's RECORD and its content; an empty list means that it is right."""
    problems: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        info = _dist_info(archive)
        names = {name for name in archive.namelist() if not name.endswith("/")}
        rows = list(csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())))
        listed = {row[0] for row in rows}
        problems.extend(f"{name}: not in RECORD" for name in sorted(names - listed))
        problems.extend(f"{name}: in RECORD, not in the wheel" for name in sorted(listed - names))
        for name, digest, size in rows:
            if name in names and digest and record_line(name, archive.read(name)) != (name, digest, size):
                problems.append(f"{name}: content differs from RECORD")
    return problems


def patch_wheel(source: Path, target_dir: Path, patches: list[Patch]) -> dict[str, Any]:
    """Write the patched wheel and return its manifest.

    The manifest is ``{"package", "version", "from", "wheel", "patches": [{"id", "why", "upstream", "files", "state"}]}`` with
    state ``applied`` or ``present``; ``wheel`` is the new file's name. Nothing is written when an anchor has moved.

    Raises AnchorError with the patch's id, or WheelError for a file that is no wheel.
    """
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as error:
        raise WheelError(f"{source}: not a wheel ({error})") from error
    with archive:
        info = _dist_info(archive)
        distribution, version = info[: -len(".dist-info")].rsplit("-", 1)
        content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        attributes = {entry.filename: entry.external_attr for entry in archive.infolist()}
    states = _edit_all(content, patches, info)
    new_version = patched_version(version, patches)
    _set_own_version(content, distribution, version, new_version)
    tags = source.name[: -len(".whl")].split("-", 2)[2]
    wheel_name = f"{distribution}-{new_version}-{tags}.whl"
    manifest: dict[str, Any] = {
        "package": distribution,
        "version": new_version,
        "from": version,
        "wheel": wheel_name,
        "patches": states,
    }
    content[f"{info}/{MANIFEST}"] = json.dumps(manifest, indent=1).encode()
    _repack(target_dir / wheel_name, content, attributes, info, f"{distribution}-{new_version}.dist-info")
    return manifest


def read_manifest(wheel: Path) -> dict[str, Any] | None:
    """The manifest of a patched wheel that is there and readable, else None."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(f".dist-info/{MANIFEST}"))
            manifest: dict[str, Any] = json.loads(archive.read(name))
            return manifest
    except (OSError, StopIteration, ValueError, zipfile.BadZipFile):
        return None


def revert_wheel(source: Path, target_dir: Path, patches: Iterable[Patch]) -> Path:
    """Write the published wheel again from a patched one; every file of the package has its published content.

    ``patches`` is the catalogue: what the manifest says was applied is looked up there by id and version. Raises AnchorError when a file
    was changed since, WheelError when the wheel carries no manifest or names a patch that is not known.
    """
    manifest = read_manifest(source)
    if manifest is None:
        raise WheelError(f"{source}: carries no {MANIFEST}, so it is no wheel that was patched here")
    known = {patch.id: patch for patch in patches if manifest["from"] in patch.versions}
    with zipfile.ZipFile(source) as archive:
        info = _dist_info(archive)
        content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        attributes = {entry.filename: entry.external_attr for entry in archive.infolist()}
    for state in reversed(manifest["patches"]):
        if state["id"] not in known:
            raise WheelError(f"{source}: patch {state['id']} is not in the catalogue for {manifest['from']}")
        for edit in reversed(known[state["id"]].edits) if state["state"] == "applied" else ():
            path = _where(edit.path, info)
            content[path] = revert_edit(content[path].decode(), edit).encode()
    _set_own_version(content, manifest["package"], manifest["version"], manifest["from"])
    del content[f"{info}/{MANIFEST}"]
    tags = source.name[: -len(".whl")].split("-", 2)[2]
    target = target_dir / f"{manifest['package']}-{manifest['from']}-{tags}.whl"
    _repack(target, content, attributes, info, f"{manifest['package']}-{manifest['from']}.dist-info")
    return target


def _repack(target: Path, content: dict[str, bytes], attributes: dict[str, int], info: str, new_info: str) -> None:
    """Write the wheel under its new version: dist-info renamed, Version set, RECORD made anew."""
    version = new_info[: -len(".dist-info")].rsplit("-", 1)[1]
    renamed = {_rename(name, info, new_info): data for name, data in content.items()}
    modes = {_rename(name, info, new_info): attribute for name, attribute in attributes.items()}
    metadata = renamed[f"{new_info}/METADATA"].decode()
    renamed[f"{new_info}/METADATA"] = re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata, count=1).encode()
    renamed.pop(f"{new_info}/RECORD", None)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    _pack(partial, renamed, modes, f"{new_info}/RECORD")
    partial.replace(target)


def _set_own_version(content: dict[str, bytes], package: str, old: str, new: str) -> None:
    """Let the package tell its label where it keeps its version in a file of its own (setuptools-scm): a server reports that one."""
    name = f"{package}/_version.py"
    was, now = (f"__version__ = version = '{version}'".encode() for version in (old, new))
    if content.get(name, b"").count(was) == 1:
        content[name] = content[name].replace(was, now)


def _where(path: str, info: str) -> str:
    """An edit's path; METADATA alone means the one of the wheel's dist-info folder."""
    return f"{info}/METADATA" if path == METADATA else path


def _dist_info(archive: zipfile.ZipFile) -> str:
    folders = {posixpath.dirname(name) for name in archive.namelist() if posixpath.dirname(name).endswith(".dist-info")}
    top = sorted(folder for folder in folders if "/" not in folder)
    if len(top) != 1:
        raise WheelError(f"{archive.filename}: expected one dist-info folder, found {top}")
    return top[0]


def _edit_all(content: dict[str, bytes], patches: list[Patch], info: str) -> list[dict[str, Any]]:
    states = []
    for patch in patches:
        changed = False
        for edit in patch.edits:
            path = _where(edit.path, info)
            if path not in content:
                raise AnchorError(f"patch {patch.id}: {path} is not in the wheel")
            try:
                text, edited = apply_edit(content[path].decode(), edit)
            except AnchorError as error:
                raise AnchorError(f"patch {patch.id}: {error}") from error
            if path.endswith(".py"):
                compile(text, path, "exec", dont_inherit=True)
            content[path] = text.encode()
            changed = changed or edited
        states.append(
            {
                "id": patch.id,
                "why": patch.why,
                "upstream": patch.upstream,
                "files": [edit.path for edit in patch.edits],
                "state": "applied" if changed else "present",
            }
        )
    return states


def _rename(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(f"{old}/") else name


def _pack(target: Path, content: dict[str, bytes], modes: dict[str, int], record: str) -> None:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.external_attr = modes.get(name, 0o644 << 16)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content[name])
            writer.writerow(record_line(name, content[name]))
        writer.writerow((record, "", ""))
        entry = zipfile.ZipInfo(record, _TIMESTAMP)
        entry.external_attr = 0o644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, rows.getvalue())
