#!/usr/bin/python
"""Ansible module: the kernel command line of a Proxmox VE host, for GRUB and for systemd-boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_kernel_cmdline
short_description: Set options of the kernel command line of a Proxmox VE host
description:
  - Edits C(/etc/kernel/cmdline) where proxmox-boot-tool boots the host with systemd-boot, else C(/etc/default/grub), and refreshes the boot
    loader. Options that nobody named stay.
  - Says whether the running kernel was started with them, so that a change that waits for a reboot is told apart from one that is live.
options:
  present:
    description: Options wanted, each V(key) or V(key=value). A key that is there gets this value.
    type: list
    elements: str
    default: []
  absent:
    description: Keys that must not be there; a key that is also wanted stays.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Pass DMA through the IOMMU untranslated
  pve_kernel_cmdline:
    present: [iommu=pt]
"""

RETURN = r"""
loader:
  description: V(systemd-boot) or V(grub).
  type: str
  returned: always
file:
  description: The file that holds the command line.
  type: str
  returned: always
cmdline:
  description: The configured command line.
  type: str
  returned: always
pending:
  description: Whether a reboot is needed to make it live.
  type: bool
  returned: always
missing:
  description: Options wanted that the running kernel was not started with.
  type: list
  returned: always
leftover:
  description: Unwanted options that the running kernel was started with.
  type: list
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode.cmdline import compare, merge, read_grub, write_grub

SYSTEMD_BOOT = Path("/etc/kernel/cmdline")
GRUB = Path("/etc/default/grub")
PENDING_REFRESH = Path("/etc/kernel/.gpunode-refresh")
"""Stands while the boot loader has not been refreshed since the last edit: an interrupted run is finished by the next."""


def boots_with_systemd(module: AnsibleModule) -> bool:
    """Whether proxmox-boot-tool configures systemd-boot: ESPs are registered and the firmware did not start GRUB from them."""
    if not Path("/etc/kernel/proxmox-boot-uuids").exists() or not SYSTEMD_BOOT.exists():
        return False
    rc, out, _ = module.run_command(["proxmox-boot-tool", "status"], environ_update={"LC_ALL": "C"})
    return rc != 0 or "grub" not in out.lower()


def write(path: Path, text: str) -> None:
    """Replace a file at once; its mode stays."""
    partial = path.with_name(f".{path.name}.gpunode")
    partial.write_text(text)
    partial.chmod(path.stat().st_mode if path.exists() else 0o644)
    partial.replace(path)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "present": {"type": "list", "elements": "str", "default": []},
            "absent": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    present, absent = module.params["present"], module.params["absent"]
    systemd = boots_with_systemd(module)
    path = SYSTEMD_BOOT if systemd else GRUB
    try:
        before = path.read_text() if path.exists() else ""
        current = before.splitlines()[0] if systemd and before else "" if systemd else read_grub(before)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{path} cannot be read: {error}. Mend the file by hand; nothing was changed.")
    cmdline = merge(current, present, absent)
    after = f"{cmdline}\n" if systemd else write_grub(before, cmdline)
    if cmdline == current:
        after = before
    live = compare(Path("/proc/cmdline").read_text(), present, absent)
    refresh = after != before or PENDING_REFRESH.exists()
    if refresh and not module.check_mode:
        PENDING_REFRESH.parent.mkdir(exist_ok=True)
        PENDING_REFRESH.touch()
        if after != before:
            write(path, after)
        command = ["proxmox-boot-tool", "refresh"] if systemd else ["update-grub"]
        rc, out, err = module.run_command(command, environ_update={"LC_ALL": "C"})
        if rc != 0:
            module.fail_json(
                msg=f"{path} was written, but `{' '.join(command)}` failed (rc {rc}): {(err or out).strip()[-2000:]}. "
                "The next run tries again; the boot loader still has the old command line."
            )
        PENDING_REFRESH.unlink()
    module.exit_json(
        changed=refresh,
        loader="systemd-boot" if systemd else "grub",
        file=str(path),
        cmdline=cmdline,
        pending=live.pending,
        missing=list(live.missing),
        leftover=list(live.leftover),
        diff={"before": before, "after": after, "before_header": str(path), "after_header": str(path)},
    )


if __name__ == "__main__":
    main()
