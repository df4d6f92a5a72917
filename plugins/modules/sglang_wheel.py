#!/usr/bin/python
"""Ansible module: patch a published wheel for a GPU architecture and keep it in a wheelhouse."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_wheel
short_description: Patch a published wheel for a GPU architecture
description:
  - Selects the patches that this version of the package needs on this architecture, applies them to a copy of the wheel, and writes it
    with a local version label, a correct RECORD and a manifest.
  - A patch whose anchors do not match exactly once is refused by name and nothing is written.
options:
  source:
    description: The published wheel.
    type: path
    required: true
  dest:
    description: Folder for the patched wheel, a wheelhouse.
    type: path
    required: true
  package:
    description: Name of the package in the catalogue of patches.
    type: str
    default: sglang
  version:
    description: The published version.
    type: str
    required: true
  architecture:
    description: GPU architecture, for example V(sm120).
    type: str
    required: true
  model_type:
    description: Kind of model that will be served, as its config.json names it; some patches are for one kind alone.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Patch sglang for SM120
  sglang_wheel:
    source: /opt/sglang/wheelhouse/published/sglang-0.5.23-cp313-cp313-manylinux_2_34_x86_64.whl
    dest: /opt/sglang/wheelhouse
    version: 0.5.23
    architecture: sm120
"""

RETURN = r"""
wheel:
  description: The wheel to install, the published one where no patch is needed.
  type: str
  returned: always
manifest:
  description: Which patches were applied, with the reason and the upstream reference.
  type: dict
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode.wheelpatch.catalogue import PATCHES
from ansible.module_utils.gpunode.wheelpatch.edit import AnchorError, selected
from ansible.module_utils.gpunode.wheelpatch.wheel import WheelError, patch_wheel, patched_version, read_manifest


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "package": {"type": "str", "default": "sglang"},
            "version": {"type": "str", "required": True},
            "architecture": {"type": "str", "required": True},
            "model_type": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    source = Path(params["source"])
    patches = selected(PATCHES, params["package"], params["version"], params["architecture"], params["model_type"])
    if not patches:
        manifest = {
            "package": params["package"],
            "version": params["version"],
            "from": params["version"],
            "wheel": source.name,
            "patches": [],
        }
        module.exit_json(changed=False, wheel=str(source), manifest=manifest)
    tags = source.name[: -len(".whl")].split("-", 2)[2]
    target = Path(params["dest"]) / f"{params['package']}-{patched_version(params['version'], patches)}-{tags}.whl"
    manifest = read_manifest(target)
    if manifest is not None:
        module.exit_json(changed=False, wheel=str(target), manifest=manifest)
    if module.check_mode:
        module.exit_json(changed=True, wheel=str(target), manifest={})
    try:
        manifest = patch_wheel(source, Path(params["dest"]), patches)
    except (AnchorError, WheelError, OSError) as error:
        module.fail_json(msg=f"{error}. Nothing was written. Choose a version whose patches are known, or an architecture that needs none.")
    module.exit_json(changed=True, wheel=str(target), manifest=manifest)


if __name__ == "__main__":
    main()
