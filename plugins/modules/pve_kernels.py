#!/usr/bin/python
"""Ansible module: kernels of a Proxmox VE host, what it boots next, and pins that were read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_kernels
short_description: Kernels of a Proxmox VE host, what it boots next, and pins
description:
  - Lists installed kernels with headers, initial RAM disk and what DKMS built for each, and reads from the boot loader's own configuration
    (grub.cfg and grubenv, or the entries on every ESP) which one it starts next.
  - Pins kernels through proxmox-boot-tool, refreshes, and fails unless the boot loader then starts what the pins say. A pin whose refresh
    was interrupted is caught up.
options:
  pin:
    description: Kernel release to pin; empty unpins. Left alone when unset.
    type: str
  next_boot:
    description: Kernel release to pin for the next boot only; empty unpins. Left alone when unset.
    type: str
  prove:
    description: Kernel release that must be able to drive the GPUs as O(like) does; what is missing is returned, nothing fails.
    type: str
  like:
    description: Kernel release to compare with. Defaults to the running one.
    type: str
  driver:
    description: Version of the driver that must be built for O(prove). Defaults to that of O(like).
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: Stay on the kernel that runs
  pve_kernels:
    pin: "{{ ansible_facts['kernel'] }}"

- name: Would the new kernel come up with its GPUs?
  pve_kernels:
    prove: 7.0.16-2-pve
  register: kernels
  failed_when: kernels.problems | length > 0
"""

RETURN = r"""
running:
  description: Release of the running kernel.
  type: str
  returned: always
boot_id:
  description: Identity of this boot.
  type: str
  returned: always
kernels:
  description: Installed kernels by release, each with image, initrd, headers, dkms and modules.
  type: dict
  returned: always
pins:
  description: The pins, V(pin) and V(next_boot); empty where nothing is pinned.
  type: dict
  returned: always
boot:
  description:
    - What the boot loader does, as loader, next (release; empty when it could not be read), console (release to the entry to choose in its
      menu) and unread (why something could not be read).
  type: dict
  returned: always
secure_boot:
  description: Whether Secure Boot is on; null when unknown.
  type: bool
  returned: always
problems:
  description: What O(prove) lacks, each with the command that mends it.
  type: list
  elements: str
  returned: when O(prove) is given
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpunode import kernel_host
from ansible.module_utils.gpunode.kernels import expected_boot, prove

TOOL = "proxmox-boot-tool"


def set_pins(module: AnsibleModule, before: dict, wanted: dict) -> None:
    """Make the pins so, the one-time pin last, and have the boot loader's configuration written again."""

    def tool(*words: str) -> None:
        rc, out, err = module.run_command([TOOL, *words], environ_update={"LC_ALL": "C"})
        if rc != 0:
            module.fail_json(msg=f"`{TOOL} {' '.join(words)}` failed (rc {rc}): {(err or out).strip()[-2000:]}. The next run tries again.")

    if not wanted["pin"] and (before["pin"] or not wanted["next_boot"]):
        tool("kernel", "unpin")
    elif before["next_boot"] and not wanted["next_boot"]:
        tool("kernel", "unpin", "--next-boot")
    if wanted["pin"]:
        tool("kernel", "pin", wanted["pin"])
    if wanted["next_boot"]:
        tool("kernel", "pin", wanted["next_boot"], "--next-boot")
    if kernel_host.ESP_LIST.exists():
        tool("refresh")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "pin": {"type": "str"},
            "next_boot": {"type": "str"},
            "prove": {"type": "str"},
            "like": {"type": "str"},
            "driver": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )

    def run(command: list[str]) -> tuple[int, str, str]:
        try:
            rc, out, err = module.run_command(command, environ_update={"LC_ALL": "C"}, handle_exceptions=False)
        except OSError as error:
            return 127, "", str(error)
        return rc, out, err

    found = kernel_host.read(run)
    before = found["pins"]
    wanted = {name: before[name] if module.params[name] is None else module.params[name] for name in before}
    asked = module.params["pin"] is not None or module.params["next_boot"] is not None
    changed = False
    if asked:
        for release in filter(None, wanted.values()):
            if release not in found["kernels"]:
                module.fail_json(msg=f"Kernel {release} cannot be pinned: /boot/vmlinuz-{release} does not exist. Nothing was changed.")
        changed = wanted != before or found["boot"]["next"] != expected_boot(wanted, found["kernels"])
        if changed and not module.check_mode:
            set_pins(module, before, wanted)
            found = kernel_host.read(run)
            expected = expected_boot(wanted, found["kernels"])
            if found["pins"] != wanted or found["boot"]["next"] != expected:
                module.fail_json(
                    msg=f"Pinned {wanted}, but the boot loader ({found['boot']['loader']}) would start "
                    f"{found['boot']['next'] or 'what could not be read'} and not {expected}"
                    f"{': ' + '; '.join(found['boot']['unread']) if found['boot']['unread'] else ''}. "
                    f"Look at `{TOOL} status` and `{TOOL} kernel list`; do not reboot before it says so.",
                    **found,
                )
    if module.params["prove"]:
        release, like = module.params["prove"], module.params["like"] or found["running"]
        found["problems"] = prove(
            release,
            found["kernels"].get(release),
            found["kernels"].get(like),
            driver=module.params["driver"],
            secure_boot=found["secure_boot"],
        )
    diff = {"before": f"{before}\n", "after": f"{wanted if asked else before}\n", "before_header": "pins", "after_header": "pins"}
    module.exit_json(changed=changed, diff=diff, **found)


if __name__ == "__main__":
    main()
