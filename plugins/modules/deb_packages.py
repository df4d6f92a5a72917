#!/usr/bin/python
"""Ansible module: which packages a Debian machine lacks, asked of dpkg once and of nobody else."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deb_packages
short_description: Which packages are lacking, and what an interrupted run left half-installed
description:
  - Asks dpkg, in a few hundredths of a second. Opening apt's cache, which M(ansible.builtin.apt) does even where nothing is to be done,
    takes seconds; so apt is asked where something is lacking, and only there.
  - Changes nothing.
options:
  names:
    description: Packages that are wanted, as V(name) or V(name=version).
    type: list
    elements: str
    default: []
  version:
    description: What the version of each of O(names) must begin with, after its epoch; with another version it is lacking. Empty takes any.
    type: str
    default: ""
  others:
    description: Packages that are wanted in whatever version.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Ask dpkg for the driver
  deb_packages:
    names: [nvidia-kernel-open-dkms]
    version: "580.159.04"
  register: driver_packages

- name: Install the driver
  ansible.builtin.apt:
    name: nvidia-kernel-open-dkms
  when: driver_packages.lacking | length > 0
"""

RETURN = r"""
lacking:
  description: Those of O(names) and O(others) that are not installed whole, or not in the version that is wanted.
  type: list
  elements: str
  returned: always
half:
  description: Packages of the whole machine that dpkg has not finished, and V(dpkg's journal) where that holds something.
  type: list
  elements: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import packages

JOURNAL = Path("/var/lib/dpkg/updates")
"""What dpkg had not yet written into its database when it was interrupted."""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str", "default": ""},
            "others": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    command = ["dpkg-query", "--show", f"--showformat={packages.FORMAT}"]
    rc, out, err = module.run_command(command, environ_update={"LC_ALL": "C"})
    if rc != 0:
        module.fail_json(
            msg=f"`{' '.join(command[:2])}` ended with {rc}: {err.strip()}. `dpkg --audit` says what is wrong with dpkg's database."
        )
    try:
        known = packages.parse(out)
    except ValueError as error:
        module.fail_json(msg=f"dpkg-query answered with a line that is not understood: {error}")
    pending = JOURNAL.is_dir() and any(JOURNAL.iterdir())
    module.exit_json(
        changed=False,
        lacking=[
            *packages.lacking(known, module.params["names"], module.params["version"]),
            *packages.lacking(known, module.params["others"]),
        ],
        half=packages.half(known) + (["dpkg's journal"] if pending else []),
    )


if __name__ == "__main__":
    main()
