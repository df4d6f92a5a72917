#!/usr/bin/python
"""Ansible module: what configures an NVIDIA driver on a host, whoever put it there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_config
short_description: Effective module options, foreign drivers and stale initial RAM disks of a host
description:
  - Computes what kmod hands to the modules, from all folders of modprobe.d and the kernel command line, and names the file that overrides.
  - Finds drivers that somebody else installed. Changes nothing.
options:
  wanted:
    description: Module to option to value; those that come out otherwise are returned.
    type: dict
    default: {}
  file:
    description: File whose content the initial RAM disks must have; those that are older are returned.
    type: path
attributes:
  check_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Does HMM stay off?
  nvidia_config:
    wanted: {nvidia_uvm: {uvm_disable_hmm: 1}}
"""

RETURN = r"""
overridden:
  description: Options that come out otherwise, each with module, option, wanted, value (null when unset) and file.
  type: list
  elements: dict
  returned: always
kept_out:
  description: Lines about files that keep the driver's modules from loading.
  type: list
  elements: str
  returned: always
foreign:
  description: What somebody else installed, each with kind, what, evidence, remedy, packages and files.
  type: list
  elements: dict
  returned: always
stale:
  description: Kernels whose initial RAM disk is older than O(file).
  type: list
  elements: str
  returned: always
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import foreign, kernel_host, modprobe


def read_files() -> dict[str, str]:
    """Path to text of every modprobe.d file; a link to the same folder (/lib and /usr/lib) is read once."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    for folder in map(Path, modprobe.FOLDERS):
        if folder.resolve() in seen or not folder.is_dir():
            continue
        seen.add(folder.resolve())
        found |= {str(path): kernel_host.text_of(path) for path in folder.glob("*.conf")}
    return found


def find_foreign(module: AnsibleModule) -> list[foreign.Foreign]:
    """What somebody else installed."""
    _, out, _ = module.run_command(["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Abbrev}\n"])
    rows = [line.split() for line in out.splitlines()]
    packages = {row[0]: row[1] for row in rows if len(row) == 3 and row[2] in {"ii", "iF", "iU", "iH"}}
    files = [str(path) for path in Path("/lib/modules").glob("*/**/nvidia*.ko*") if "/kernel/drivers/net/" not in str(path)]
    ours = [path for path in files if "/updates/dkms/" not in path]
    owned = [path for path in ours if module.run_command(["dpkg-query", "--search", path])[0] == 0]
    return [
        *foreign.foreign_packages(packages),
        *foreign.foreign_runfile(uninstaller=Path(foreign.RUNFILE).exists(), log=Path("/var/log/nvidia-installer.log").exists()),
        *foreign.foreign_modules(ours, owned),
    ]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"wanted": {"type": "dict", "default": {}}, "file": {"type": "path"}},
        supports_check_mode=True,
    )
    found = modprobe.effective(read_files(), kernel_host.text_of(Path(modprobe.CMDLINE)))
    file = Path(module.params["file"]) if module.params["file"] else None
    stale = []
    if file is not None and file.exists():
        for release in kernel_host.installed():
            initrd = Path(f"/boot/initrd.img-{release}")
            if not initrd.exists() or initrd.stat().st_mtime < file.stat().st_mtime:
                stale.append(release)
    module.exit_json(
        changed=False,
        overridden=[asdict(item) for item in modprobe.overridden(found, module.params["wanted"])],
        kept_out=modprobe.kept_out(found),
        foreign=[item.to_dict() for item in find_foreign(module)],
        stale=stale,
    )


if __name__ == "__main__":
    main()
