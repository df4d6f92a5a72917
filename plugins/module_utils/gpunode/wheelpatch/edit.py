"""An edit and a patch: data, and the pure function that applies one to a file's text."""

from __future__ import annotations

from dataclasses import dataclass


class AnchorError(ValueError):
    """An anchor does not match exactly once: the published file is not the one that the patch was written for."""


@dataclass(frozen=True)
class Edit:
    """Replace one piece of text.

    ``old`` must occur exactly once in the file. ``present`` is text that shows that the file has the change already, by upstream
    or by an earlier run; the edit is then skipped.
    """

    path: str
    old: str
    new: str
    present: str


@dataclass(frozen=True)
class Patch:
    """A change of a published package, for the versions that need it.

    ``versions`` are exact release numbers, each tried against the published wheel. ``architectures`` are the GPU architectures
    that need it (``sm120``); on others it is not applied; empty means every one. ``model_types`` are the models that need it, as
    config.json names them; empty means every one. ``upstream`` names where the change is discussed or was merged.
    """

    id: str
    package: str
    versions: tuple[str, ...]
    architectures: tuple[str, ...]
    why: str
    upstream: str
    edits: tuple[Edit, ...]
    model_types: tuple[str, ...] = ()


def apply_edit(text: str, edit: Edit) -> tuple[str, bool]:
    """Return the edited text and whether anything changed.

    Raises AnchorError when the anchor is missing or ambiguous and the change is not there already.
    """
    if edit.present in text:
        return text, False
    count = text.count(edit.old)
    if count != 1:
        raise AnchorError(
            f"{edit.path}: the anchor occurs {count} times, expected once; the file is not the one this patch was written for"
        )
    return text.replace(edit.old, edit.new), True


def selected(patches: tuple[Patch, ...], package: str, version: str, architecture: str, model_type: str = "") -> list[Patch]:
    """The patches that this package version needs on this architecture for this kind of model, in catalogue order."""
    return [
        patch
        for patch in patches
        if patch.package == package
        and version in patch.versions
        and (not patch.architectures or architecture in patch.architectures)
        and (not patch.model_types or model_type in patch.model_types)
    ]


def revert_edit(text: str, edit: Edit) -> str:
    """Undo an edit that was applied; raises AnchorError when the new text does not occur exactly once."""
    count = text.count(edit.new)
    if count != 1:
        raise AnchorError(f"{edit.path}: what the patch wrote occurs {count} times, expected once; the file was changed since")
    return text.replace(edit.new, edit.old)
