#!/usr/bin/python
"""Ansible module: find a checkpoint in any cache layout and say whether it is complete."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hf_checkpoint
short_description: Find a checkpoint and say whether it is complete
description:
  - Looks for a folder or a repository id in Hugging Face caches (any layout) and checks index, shards, sizes and headers. Changes nothing.
options:
  name:
    description: Repository id such as V(org/name), or a path.
    type: str
    required: true
  roots:
    description: Caches, or folders that hold a cache or the model.
    type: list
    elements: path
    default: []
  revision:
    description: Branch, tag or commit; empty takes refs/main, or the only snapshot.
    type: str
    default: ""
  hashes:
    description: Also read every file and compare it with the hash that the hub names it by; minutes for hundreds of GB.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: gpunode
"""

EXAMPLES = r"""
- name: Find the checkpoint
  hf_checkpoint:
    name: lukealonso/GLM-5-NVFP4
    roots: [/models]
"""

RETURN = r"""
found:
  description: Whether a checkpoint is there.
  type: bool
  returned: always
path:
  description: The folder with config.json.
  type: str
  returned: always
revision:
  description: The commit of a snapshot.
  type: str
  returned: always
complete:
  description: Whether nothing is missing, cut or half-downloaded.
  type: bool
  returned: always
problems:
  description: What is wrong, one text each.
  type: list
  returned: always
size_bytes:
  description: Bytes of weights.
  type: int
  returned: always
shape:
  description: Layers, experts, quantisation, context and MTP weights, by config.json and the headers; empty where unreadable.
  type: dict
  returned: always
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode.checkpoint.complete import check
from ansible.module_utils.gpunode.checkpoint.hashes import verify_hashes
from ansible.module_utils.gpunode.checkpoint.locate import AmbiguousRevisionError, cache_roots, locate
from ansible.module_utils.gpunode.checkpoint.shape import read_shape


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "roots": {"type": "list", "elements": "path", "default": []},
            "revision": {"type": "str", "default": ""},
            "hashes": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    roots = [Path(root) for root in module.params["roots"]] + cache_roots(os.environ, Path.home())
    try:
        location = locate(module.params["name"], roots, module.params["revision"])
    except AmbiguousRevisionError as error:
        module.fail_json(msg=str(error))
    if location is None:
        module.exit_json(changed=False, found=False, path="", revision="", complete=False, problems=[], shards=0, size_bytes=0, shape={})
    result = check(location.path)
    problems = list(result.problems)
    if module.params["hashes"] and result.complete:
        problems += verify_hashes(location.path)[1]
    try:
        shape = read_shape(location.path).to_dict()
    except ValueError:
        shape = {}
    module.exit_json(
        changed=False,
        found=True,
        path=str(location.path),
        revision=location.revision,
        complete=not problems,
        problems=problems,
        shards=result.shards,
        size_bytes=result.size_bytes,
        shape=shape,
    )


if __name__ == "__main__":
    main()
