#!/usr/bin/python
"""Ansible module: one LXC container of Proxmox VE, exactly as described."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_lxc
short_description: One LXC container of Proxmox VE, exactly as described
description:
  - Creates, changes, starts, stops and removes a container, each only where it is not so already. What is not described stays as it is,
    unless its family is named in O(purge_unmanaged).
  - Options have the names of Proxmox VE's API. Members of a numbered family (O(dev), O(mp), O(net)) are lists; a member keeps its number,
    found by what it is (C(path) of a device, C(mp) of a mount point, C(name) of an interface).
  - Raw C(lxc.*) lines, which the API cannot write, are edited in the container's file, above its first section and without marker comments.
  - Two values that mean the same to Proxmox VE are the same, whatever their spelling or order.
options:
  hostname:
    description: Name of the container. An existing container of another name is somebody else's and is refused, see O(adopt).
    type: str
    required: true
  vmid:
    description: Number of the container. Without it a container of this hostname is looked for, and a new one gets the next free number.
    type: int
  node:
    description: Name of the node. The default is the node that is asked.
    type: str
  state:
    description:
      - V(present) creates and changes it, running or not; V(started) and V(stopped) see to its power too.
      - V(restarted) stops and starts it, so that pending changes take effect. V(absent) removes it, after stopping it.
    type: str
    choices: [present, started, stopped, restarted, absent]
    default: present
  ostemplate:
    description: Volume of the template from which it is made, for example V(local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst).
    type: str
  dev:
    description:
      - Devices of the node as mappings of C(path), C(mode), C(uid), C(gid), C(deny-write), or as property strings. They must exist.
    type: list
    elements: raw
  mp:
    description:
      - Mount points as mappings of C(volume), C(mp), C(backup), C(ro) and so on, or as property strings.
      - A volume C(STORAGE:GiB) is allocated, and grows when the number grows.
    type: list
    elements: raw
  net:
    description: Interfaces as mappings of C(name), C(bridge), C(ip), C(gw) and so on, or as property strings.
    type: list
    elements: raw
  unused:
    description: Volumes of the container that nothing uses. An empty list with O(purge_unmanaged) deletes them and their data.
    type: list
    elements: raw
  rootfs:
    description:
      - Root file system as a mapping or a property string.
      - A volume C(STORAGE:GiB) is allocated at the creation, and grows when the number grows.
    type: raw
  features:
    description: Features as a mapping (C(nesting), C(keyctl) and so on) or a property string.
    type: raw
  startup:
    description: Order and delays of the start at boot, as a mapping of C(order), C(up), C(down) or a property string.
    type: raw
  lxc:
    description:
      - Raw lines.
      - A key that may stand several times (C(lxc.mount.entry)) is added beside others, any other key's lines are replaced.
    type: list
    elements: dict
    suboptions:
      key:
        description: Name of the key.
        type: str
        required: true
      value:
        description: Its value.
        type: str
      state:
        description: V(absent) takes out the lines of this key, or of this key and value.
        type: str
        choices: [present, absent]
        default: present
  arch: {description: Architecture., type: str, choices: [amd64, i386, arm64, armhf, riscv32, riscv64]}
  cmode: {description: Console mode., type: str, choices: [shell, console, tty]}
  console: {description: Whether it has a console device., type: bool}
  cores: {description: Number of CPUs; Proxmox VE picks them at random at each start., type: int}
  cpulimit: {description: Limit of CPU time in CPUs., type: float}
  cpuunits: {description: CPU weight., type: int}
  debug: {description: Whether its start is logged in detail., type: bool}
  description: {description: Notes., type: str}
  entrypoint: {description: First process of an OCI container., type: str}
  env: {description: Environment of an OCI container., type: raw}
  hookscript: {description: Volume of a script that runs at steps of its life., type: str}
  memory: {description: Memory in MiB., type: int}
  nameserver: {description: Name servers., type: list, elements: str}
  onboot: {description: Whether it starts with the node., type: bool}
  ostype: {description: Kind of operating system., type: str}
  protection: {description: Whether it is protected from removal., type: bool}
  searchdomain: {description: Search domains., type: list, elements: str}
  swap: {description: Swap in MiB., type: int}
  tags: {description: Tags., type: list, elements: str}
  timezone: {description: Time zone., type: str}
  tty: {description: Number of terminals., type: int}
  unprivileged: {description: Whether its root is an ordinary user of the node. Fixed at creation; the default then is true., type: bool}
  bwlimit: {description: Limit of a restore in KiB/s. Creation only., type: float}
  force: {description: Whether a restore may overwrite a container. Creation only., type: bool}
  ha-managed: {description: Whether it becomes a resource of the HA manager. Creation only., type: bool, aliases: [ha_managed]}
  ignore-unpack-errors: {description: Whether errors of unpacking are ignored. Creation only., type: bool, aliases: [ignore_unpack_errors]}
  password: {description: Password of its root. Creation only., type: str}
  pool: {description: Pool. Creation only., type: str}
  restore: {description: Whether O(ostemplate) is a backup. Creation only., type: bool}
  ssh-public-keys: {description: "Keys for its root, one a line. Creation only.", type: str, aliases: [ssh_public_keys]}
  storage: {description: Default storage. Creation only., type: str}
  unique: {description: Whether a restored one gets new addresses. Creation only., type: bool}
  delete:
    description: Options that shall not be set (V(cores), V(mp3)).
    type: list
    elements: str
    default: []
  purge_unmanaged:
    description: Families whose members that are not described are removed (V(dev), V(mp), V(net), V(lxc), or any option).
    type: list
    elements: str
    default: []
  adopt:
    description: Whether an existing container of another hostname may be taken over.
    type: bool
    default: false
  recreate_interrupted:
    description: Whether what an interrupted creation left (locked by it, without a name or a root file system) is removed and made anew.
    type: bool
    default: false
  force_stop:
    description: Whether a container that does not shut down in time is stopped hard.
    type: bool
    default: true
  purge_references:
    description: Whether removal also takes it out of backup jobs, replication and the HA manager.
    type: bool
    default: false
  device_unit:
    description: Name of the unit that makes the device nodes at boot, for the message when one is missing.
    type: str
    default: gpunode-nvidia-nodes.service
  api_backend:
    description:
      - V(local) uses pvesh on the node itself and needs nothing but root. V(ssh_paramiko) does the same over ssh from where the module
        runs, with verified host keys. V(https) uses the API on port 8006.
      - Proxmox VE lets nobody but root@pam pass devices, mount directories of the host, set features beyond nesting, or name a hook script;
        an API token of root@pam is not root@pam. Raw lines are beyond the API. Such a request is refused before anything changes.
    type: str
    choices: [local, https, ssh_paramiko]
    default: local
  api_host: {description: Address of the node for V(https) and V(ssh_paramiko). Environment PROXMOX_HOST., type: str}
  api_port: {description: Its port; 8006 for V(https) and 22 for V(ssh_paramiko) without it., type: int}
  api_user: {description: User with realm. Environment PROXMOX_USER., type: str, default: root@pam}
  api_password: {description: Password of the user. Environment PROXMOX_PASSWORD., type: str}
  api_otp: {description: Current one-time code of the user., type: str}
  api_totp_secret: {description: Secret from which one-time codes are made. Environment PROXMOX_TOTP_SECRET., type: str}
  api_token_id: {description: "Name of an API token, with or without the user (C(root@pam!name)). Environment PROXMOX_TOKEN_ID.", type: str}
  api_token_secret: {description: Secret of the token. Environment PROXMOX_TOKEN_SECRET., type: str}
  api_ca_file: {description: Certificates that may sign the node's one., type: path}
  api_fingerprint: {description: SHA-256 fingerprint of the node's certificate. Environment PROXMOX_FINGERPRINT., type: str}
  api_ssh_key_file: {description: Private key for V(ssh_paramiko)., type: path}
  api_ssh_known_hosts: {description: File of known host keys for V(ssh_paramiko)., type: path}
  timeouts:
    description: Seconds to wait.
    type: dict
    default: {}
    suboptions:
      lock: {description: For a lock that another task holds or a daemon that restarts., type: float, default: 60}
      task: {description: For a task., type: float, default: 1800}
      shutdown: {description: For an orderly shutdown., type: float, default: 60}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: gpunode
"""

EXAMPLES = r"""
- name: A container with two GPUs
  pve_lxc:
    vmid: 101
    hostname: glm
    ostemplate: local:vztmpl/debian-13-standard_13.1-1_amd64.tar.zst
    rootfs: local-lvm:64
    memory: 262144
    features: {nesting: true}
    net:
      - {name: eth0, bridge: vmbr0, ip: 192.0.2.10/24, gw: 192.0.2.1}
    dev:
      - {path: /dev/nvidia0, mode: "0666"}
      - {path: /dev/nvidia1, mode: "0666"}
      - {path: /dev/nvidiactl, mode: "0666"}
      - {path: /dev/nvidia-uvm, mode: "0666"}
    lxc:
      - {key: lxc.prlimit.memlock, value: unlimited}
    purge_unmanaged: [dev]
    state: started

- name: Remove it
  pve_lxc:
    vmid: 101
    hostname: glm
    state: absent
"""

RETURN = r"""
vmid: {description: Number of the container., type: int, returned: always}
node: {description: Node that it is on., type: str, returned: always}
status: {description: "V(running), V(stopped) or V(absent)", type: str, returned: always}
pending: {description: Options whose change waits for the next start., type: list, elements: str, returned: always}
restart_required: {description: Whether the running container lacks something that is configured., type: bool, returned: always}
restart_reasons: {description: Options and raw keys that the running container lacks., type: list, elements: str, returned: always}
task: {description: "The last task: C(upid), C(exitstatus), C(log).", type: dict, returned: when a task ran}
tasks: {description: All tasks., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible.module_utils.gpunode.pve.options import CREATE_ONLY, desired_value
from ansible.module_utils.gpunode.pve.plan import desired_from_user
from ansible.module_utils.gpunode.pve.propstring import PropertyError
from ansible.module_utils.gpunode.pveapi.backends import ENVIRONMENT, PARAMETERS, connect
from ansible.module_utils.gpunode.pveapi.base import ApiError
from ansible.module_utils.gpunode.pveapi.life import Life
from ansible.module_utils.gpunode.pveapi.request import LifeError, Request, Timeouts, device_hint

_TYPES = {
    "str": "ostemplate cmode description entrypoint hookscript ostype timezone arch pool storage",
    "bool": "console debug onboot protection unprivileged force restore unique",
    "int": "cores cpuunits memory swap tty",
    "float": "cpulimit bwlimit",
    "raw": "rootfs features startup env",
}


def argument_spec() -> dict[str, dict[str, object]]:
    """The module's parameters; a test compares them with the documentation."""
    spec: dict[str, dict[str, object]] = {name: {"type": kind} for kind, names in _TYPES.items() for name in names.split()}
    spec |= {name: {"type": "list", "elements": "raw"} for name in ("dev", "mp", "net", "unused")}
    spec |= {name: {"type": "list", "elements": "str"} for name in ("nameserver", "searchdomain", "tags")}
    spec |= {name: {"type": "list", "elements": "str", "default": []} for name in ("delete", "purge_unmanaged")}
    spec["arch"]["choices"] = ["amd64", "i386", "arm64", "armhf", "riscv32", "riscv64"]
    spec["cmode"]["choices"] = ["shell", "console", "tty"]
    spec |= {
        "hostname": {"type": "str", "required": True},
        "vmid": {"type": "int"},
        "node": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "started", "stopped", "restarted", "absent"], "default": "present"},
        "lxc": {
            "type": "list",
            "elements": "dict",
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "value": {"type": "str"},
                "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            },
        },
        "ha-managed": {"type": "bool", "aliases": ["ha_managed"]},
        "ignore-unpack-errors": {"type": "bool", "aliases": ["ignore_unpack_errors"]},
        "ssh-public-keys": {"type": "str", "aliases": ["ssh_public_keys"], "no_log": False},
        "password": {"type": "str", "no_log": True},
        "adopt": {"type": "bool", "default": False},
        "recreate_interrupted": {"type": "bool", "default": False},
        "force_stop": {"type": "bool", "default": True},
        "purge_references": {"type": "bool", "default": False},
        "device_unit": {"type": "str", "default": "gpunode-nvidia-nodes.service"},
        "timeouts": {
            "type": "dict",
            "default": {},
            "options": {
                "lock": {"type": "float", "default": 60},
                "task": {"type": "float", "default": 1800},
                "shutdown": {"type": "float", "default": 60},
            },
        },
    }
    for name, about in PARAMETERS.items():
        spec[name] = {**about, "fallback": (env_fallback, [ENVIRONMENT[name]])} if name in ENVIRONMENT else dict(about)
    return spec


def request_of(params: dict[str, object], *, check: bool) -> Request:
    """The request that the parameters describe. Raises ``PropertyError``."""
    create = {name: desired_value(name, params[name]) for name in CREATE_ONLY if params.get(name) is not None}
    given = params.get("timeouts") or {}
    timeouts = Timeouts(**{name: value for name, value in dict(given).items() if value is not None})  # type: ignore[call-overload]
    return Request(
        state=str(params["state"]),
        hostname=desired_value("hostname", params["hostname"]),
        desired=desired_from_user(params),
        vmid=params.get("vmid"),  # type: ignore[arg-type]
        node=str(params.get("node") or ""),
        create=create,
        adopt=bool(params["adopt"]),
        recreate_interrupted=bool(params["recreate_interrupted"]),
        force_stop=bool(params["force_stop"]),
        purge_references=bool(params["purge_references"]),
        timeouts=timeouts,
        check=check,
        device_hint=device_hint(str(params["device_unit"])),
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        request = request_of(module.params, check=module.check_mode)
        outcome = Life(*connect(module.params), request).run()
    except LifeError as error:
        module.fail_json(msg=str(error), task=error.result.as_dict() if error.result else None)
    except (ApiError, PropertyError) as error:
        module.fail_json(msg=str(error))
    for warning in outcome.warnings:
        module.warn(warning)
    module.exit_json(**outcome.as_dict())


if __name__ == "__main__":
    main()
