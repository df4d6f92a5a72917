"""Connection plugin ``pct``: tasks inside a container, through ssh to its Proxmox VE node and ``pct exec``.

A subclass of the builtin ssh connection: its multiplexing, pipelining, retries and options are all there.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: pct
short_description: Run tasks in a container of a Proxmox VE node
description:
  - Connects to the node over ssh, exactly as the builtin ssh connection does and over the same multiplexed connection, and runs each
    command with C(pct exec). Nothing is needed inside the container but a shell, no ssh server, no address.
  - Standard input, both outputs and the exit status of a command pass unchanged, whatever bytes they hold.
  - A container that is stopped or missing is reported as unreachable, with the command that starts it.
author: gpunode
extends_documentation_fragment:
  - connection_pipelining
options:
  vmid:
    description: The container.
    type: int
    vars:
      - name: gpu_container_vmid
      - name: ansible_pct_vmid
  pct_shortcut:
    description:
      - Whether to do what C(pct exec) does without starting pct, which takes most of a second on a busy node. The container's monitor is
        looked for first, as pct does; where it is not seen, pct itself runs and says why.
    type: bool
    default: true
    vars:
      - name: ansible_pct_shortcut
  pct_executable:
    description: The pct program of the node, with what raises privileges before it where the user is not root (C(sudo -n /usr/sbin/pct)).
    type: string
    default: "/usr/sbin/pct"
    vars:
      - name: ansible_pct_executable
  host:
    description: Address of the Proxmox VE node.
    type: string
    default: "inventory_hostname"
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_ssh_host
  host_key_checking:
    description: Whether ssh refuses a node whose host key it does not know.
    type: boolean
    default: true
    ini:
      - {section: defaults, key: host_key_checking}
      - {section: ssh_connection, key: host_key_checking}
    env:
      - name: ANSIBLE_HOST_KEY_CHECKING
      - name: ANSIBLE_SSH_HOST_KEY_CHECKING
    vars:
      - name: ansible_host_key_checking
      - name: ansible_ssh_host_key_checking
  password:
    description: Password of the user on the node, where no key serves.
    type: string
    vars:
      - name: ansible_password
      - name: ansible_ssh_pass
      - name: ansible_ssh_password
  password_mechanism:
    description: How the password reaches ssh.
    type: string
    default: "ssh_askpass"
    choices: [ssh_askpass, sshpass, disable]
    ini:
      - {section: ssh_connection, key: password_mechanism}
    env:
      - name: ANSIBLE_SSH_PASSWORD_MECHANISM
    vars:
      - name: ansible_ssh_password_mechanism
  sshpass_prompt:
    description: Prompt for which sshpass waits.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: sshpass_prompt}
    env:
      - name: ANSIBLE_SSHPASS_PROMPT
    vars:
      - name: ansible_sshpass_prompt
  ssh_args:
    description: Arguments of every ssh command, multiplexing among them.
    type: string
    default: "-C -o ControlMaster=auto -o ControlPersist=60s"
    ini:
      - {section: ssh_connection, key: ssh_args}
    env:
      - name: ANSIBLE_SSH_ARGS
    vars:
      - name: ansible_ssh_args
  ssh_common_args:
    description: More arguments of ssh, sftp and scp.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: ssh_common_args}
    env:
      - name: ANSIBLE_SSH_COMMON_ARGS
    vars:
      - name: ansible_ssh_common_args
    cli:
      - name: ssh_common_args
  ssh_executable:
    description: The ssh program of the controller.
    type: string
    default: "ssh"
    ini:
      - {section: ssh_connection, key: ssh_executable}
    env:
      - name: ANSIBLE_SSH_EXECUTABLE
    vars:
      - name: ansible_ssh_executable
  sftp_executable:
    description: Not used; files travel through pct.
    type: string
    default: "sftp"
    ini:
      - {section: ssh_connection, key: sftp_executable}
    env:
      - name: ANSIBLE_SFTP_EXECUTABLE
    vars:
      - name: ansible_sftp_executable
  scp_executable:
    description: Not used; files travel through pct.
    type: string
    default: "scp"
    ini:
      - {section: ssh_connection, key: scp_executable}
    env:
      - name: ANSIBLE_SCP_EXECUTABLE
    vars:
      - name: ansible_scp_executable
  scp_extra_args:
    description: Not used; files travel through pct.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: scp_extra_args}
    env:
      - name: ANSIBLE_SCP_EXTRA_ARGS
    vars:
      - name: ansible_scp_extra_args
    cli:
      - name: scp_extra_args
  sftp_extra_args:
    description: Not used; files travel through pct.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: sftp_extra_args}
    env:
      - name: ANSIBLE_SFTP_EXTRA_ARGS
    vars:
      - name: ansible_sftp_extra_args
    cli:
      - name: sftp_extra_args
  ssh_extra_args:
    description: More arguments of ssh alone.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: ssh_extra_args}
    env:
      - name: ANSIBLE_SSH_EXTRA_ARGS
    vars:
      - name: ansible_ssh_extra_args
    cli:
      - name: ssh_extra_args
  reconnection_retries:
    description: How often an ssh connection is tried again.
    type: integer
    default: 0
    ini:
      - {section: connection, key: retries}
      - {section: ssh_connection, key: retries}
    env:
      - name: ANSIBLE_SSH_RETRIES
    vars:
      - name: ansible_ssh_retries
  port:
    description: Port of the node's ssh server.
    type: int
    ini:
      - {section: defaults, key: remote_port}
    env:
      - name: ANSIBLE_REMOTE_PORT
    vars:
      - name: ansible_port
      - name: ansible_ssh_port
    keyword:
      - name: port
  remote_user:
    description: User on the node, root or one for whom O(pct_executable) raises privileges.
    type: string
    ini:
      - {section: defaults, key: remote_user}
    env:
      - name: ANSIBLE_REMOTE_USER
    vars:
      - name: ansible_user
      - name: ansible_ssh_user
    cli:
      - name: user
    keyword:
      - name: remote_user
  pipelining:
    description: Whether modules are sent over standard input, which saves most of the commands of a task.
    ini:
      - {section: defaults, key: pipelining}
      - {section: connection, key: pipelining}
      - {section: ssh_connection, key: pipelining}
    env:
      - name: ANSIBLE_PIPELINING
      - name: ANSIBLE_SSH_PIPELINING
    vars:
      - name: ansible_pipelining
      - name: ansible_ssh_pipelining
  private_key_file:
    description: File of the private key.
    type: string
    ini:
      - {section: defaults, key: private_key_file}
    env:
      - name: ANSIBLE_PRIVATE_KEY_FILE
    vars:
      - name: ansible_private_key_file
      - name: ansible_ssh_private_key_file
    cli:
      - {name: private_key_file, option: --private-key}
  private_key:
    description: The private key itself, handed to an ssh agent.
    type: string
    env:
      - name: ANSIBLE_PRIVATE_KEY
    vars:
      - name: ansible_private_key
      - name: ansible_ssh_private_key
  private_key_passphrase:
    description: Passphrase of O(private_key).
    type: string
    env:
      - name: ANSIBLE_PRIVATE_KEY_PASSPHRASE
    vars:
      - name: ansible_private_key_passphrase
      - name: ansible_ssh_private_key_passphrase
  control_path:
    description: Socket of the multiplexed connection; the plain ssh connection to the same node shares it.
    type: string
    ini:
      - {section: ssh_connection, key: control_path}
    env:
      - name: ANSIBLE_SSH_CONTROL_PATH
    vars:
      - name: ansible_control_path
  control_path_dir:
    description: Folder of that socket.
    type: string
    default: "~/.ansible/cp"
    ini:
      - {section: ssh_connection, key: control_path_dir}
    env:
      - name: ANSIBLE_SSH_CONTROL_PATH_DIR
    vars:
      - name: ansible_control_path_dir
  sftp_batch_mode:
    description: Not used; files travel through pct.
    type: bool
    default: true
    ini:
      - {section: ssh_connection, key: sftp_batch_mode}
    env:
      - name: ANSIBLE_SFTP_BATCH_MODE
    vars:
      - name: ansible_sftp_batch_mode
  ssh_transfer_method:
    description: Not used; files travel through pct.
    type: string
    default: "smart"
    choices: [sftp, scp, piped, smart]
    ini:
      - {section: ssh_connection, key: transfer_method}
    env:
      - name: ANSIBLE_SSH_TRANSFER_METHOD
    vars:
      - name: ansible_ssh_transfer_method
  use_tty:
    description: Whether ssh asks for a terminal. Off, since a terminal would merge the outputs and change bytes.
    type: bool
    default: false
    ini:
      - {section: ssh_connection, key: usetty}
    env:
      - name: ANSIBLE_SSH_USETTY
    vars:
      - name: ansible_ssh_use_tty
  timeout:
    description: Seconds until a connection attempt ends.
    type: integer
    default: 10
    ini:
      - {section: defaults, key: timeout}
      - {section: ssh_connection, key: timeout}
    env:
      - name: ANSIBLE_TIMEOUT
      - name: ANSIBLE_SSH_TIMEOUT
    vars:
      - name: ansible_ssh_timeout
    cli:
      - name: timeout
  pkcs11_provider:
    description: PKCS11 library of a smart card.
    type: string
    default: ""
    ini:
      - {section: ssh_connection, key: pkcs11_provider}
    env:
      - name: ANSIBLE_PKCS11_PROVIDER
    vars:
      - name: ansible_ssh_pkcs11_provider
  verbosity:
    description: How much ssh tells.
    type: int
    default: 0
    ini:
      - {section: ssh_connection, key: verbosity}
    env:
      - name: ANSIBLE_SSH_VERBOSITY
    vars:
      - name: ansible_ssh_verbosity
"""

EXAMPLES = r"""
- name: Work inside the container of each node
  hosts: gpu_nodes
  vars:
    ansible_connection: pct
    ansible_become: false
    ansible_python_interpreter: /usr/bin/python3
  tasks:
    - name: See the GPUs from inside
      ansible.builtin.command: nvidia-smi -L
      changed_when: false
"""

import contextlib
import re
import shlex
import threading
from pathlib import Path
from typing import Any, Final

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.module_utils.common.text.converters import to_bytes, to_native, to_text
from ansible.plugins.connection.ssh import Connection as SshConnection
from ansible.utils.display import Display

display = Display()

MARK: Final = "gpunode-pct-status:"
"""Precedes what ``pct status`` said, at the end of the error output of a command that ended with 255."""

MODE_MARK: Final = "gpunode-mode:"
"""Precedes a fetched file's mode."""

ENVIRONMENT: Final = (
    "HOME=/root",
    "LANG=C.UTF-8",
    "LOGNAME=root",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL=/bin/sh",
    "TERM=dumb",
    "USER=root",
    "container=lxc",
)
"""All that a command gets. pct of Proxmox VE 8 passes the node's own environment on, that of 9 an empty one."""

PIPE_BYTES: Final = 65536
"""What a pipe takes without a reader. Source: pipe(7)."""

ATTACH: Final = "lxc-attach"
"""What ``pct exec`` becomes after it has seen that the container runs on this node."""

GONE: Final = re.compile(rb"lxc-attach: \S+ .*(?:Failed to get init pid|Connection refused|No such process)")
"""What lxc-attach says of a container that stopped after pct had looked."""


class Connection(SshConnection):
    """The builtin ssh connection, each command wrapped in ``pct exec``."""

    transport = "pct"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a command in the container: exit status, output, error output."""
        return self._outcome(*super().exec_command(self._wrap(cmd), in_data=in_data, sudoable=sudoable))

    def _send_initial_data(self, fh: Any, in_data: bytes, ssh_process: Any) -> None:
        """Send input while the output is read: a command that answers as it reads would fill its output and wait for ever."""
        if len(in_data) <= PIPE_BYTES:
            super()._send_initial_data(fh, in_data, ssh_process)
            return

        def send() -> None:
            # A command that ends without reading breaks the pipe; its exit status says what there is to say.
            with contextlib.suppress(OSError, ValueError):
                fh.write(in_data)
                fh.close()

        threading.Thread(target=send, daemon=True).start()

    def put_file(self, in_path: str, out_path: str) -> None:
        """Send a file, its mode included. Its bytes go from the file into ssh; none are held here."""
        source = Path(to_text(in_path))
        if not source.is_file():
            raise AnsibleFileNotFound(f"file does not exist: {in_path}")
        display.vvv(f"PUT {in_path} TO {out_path} IN {self._vmid()}", host=self.get_option("host"))
        mode = source.stat().st_mode & 0o777
        target = shlex.quote(to_text(out_path))
        # The mode comes last: until then nobody else can read what may be a secret.
        script = f"umask 077 && cat > {target} && chmod {mode:04o} {target}"
        self._transfer(script, f"< {shlex.quote(str(source))}", f"sending {in_path} to {out_path}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Get a file, its mode included. Its bytes go from ssh into the file; none are held here."""
        display.vvv(f"FETCH {in_path} TO {out_path} IN {self._vmid()}", host=self.get_option("host"))
        source, target = shlex.quote(to_text(in_path)), Path(to_text(out_path))
        script = f"stat -L -c {MODE_MARK}%a {source} >&2 && cat {source}"
        new = not target.exists()
        try:
            said = self._transfer(script, f"> {shlex.quote(str(target))}", f"fetching {in_path} to {out_path}")
        except AnsibleError:
            if new:  # what arrived of it is no file that anybody asked for
                target.unlink(missing_ok=True)
            raise
        mode = re.search(rf"^{MODE_MARK}([0-7]+)$", to_text(said), re.MULTILINE)
        if mode:
            target.chmod(int(mode[1], 8) & 0o777)

    def _vmid(self) -> int:
        vmid = self.get_option("vmid")
        if not vmid:
            raise AnsibleError("connection pct: no container is named: set gpu_container_vmid in the host's variables")
        return int(vmid)

    def _wrap(self, cmd: str) -> str:
        """The node's command for a command of the container.

        255 is what ssh itself ends with when the connection fails, and what pct ends with when the container does not run. A command
        that ends so is told apart by the node: it asks for the container's status and ends with 254.
        """
        pct, vmid = self.get_option("pct_executable"), self._vmid()
        inner = " ".join(shlex.quote(word) for word in ("/usr/bin/env", "-i", *ENVIRONMENT, "/bin/sh", "-c", cmd))
        run = f"{pct} exec {vmid} -- {inner}"
        if self.get_option("pct_shortcut"):
            # The shell knows by itself whether it is root's: no program is started for that.
            run = (
                f"a={shlex.quote(f'{pct} exec {vmid}')}; [ -O / ] && command -v {ATTACH} >/dev/null"
                f" && grep -q ' @/var/lib/lxc/{vmid}/command$' /proc/net/unix && a='{ATTACH} -n {vmid} --clear-env'; $a -- {inner}"
            )
        return f"{run}; r=$?; [ $r -ne 255 ] || {{ printf '\\n{MARK}%s' \"$({pct} status {vmid} 2>&1 </dev/null)\" >&2; r=254; }}; exit $r"

    def _outcome(self, code: int, out: bytes, err: bytes) -> tuple[int, bytes, bytes]:
        """The command's own result, or a clear word that the container is not there."""
        if code == 254 and to_bytes(f"\n{MARK}") in err:
            err, _, status = err.rpartition(to_bytes(f"\n{MARK}"))
            if status.strip() != b"status: running":
                raise AnsibleConnectionFailure(self._gone(to_native(status).strip()))
            return 255, out, err
        if code != 0 and GONE.search(err):
            raise AnsibleConnectionFailure(self._gone("it stopped meanwhile"))
        return code, out, err

    def _gone(self, status: str) -> str:
        vmid, host = self._vmid(), self.get_option("host")
        if "does not exist" in status:
            return f"container {vmid} does not exist on {host} ({status}): `pct list` on the node shows those that do"
        stopped = status.removeprefix("status: ")
        return f"container {vmid} on {host} is not running ({stopped}): `pct start {vmid}` on the node starts it"

    def _transfer(self, script: str, redirection: str, what: str) -> bytes:
        """Run a script in the container with ssh's own input or output redirected on this side."""
        self.host = self.get_option("host") or self._play_context.remote_addr
        command = self._build_command(self.get_option("ssh_executable"), "ssh", self.host, self._wrap(script))
        # A file that comes here is nobody else's to read until it has its mode.
        local: list[Any] = ["/bin/sh", "-c", f'umask 077; exec "$@" {redirection}', "sh", *command]
        code, out, err = self._outcome(*self._run(local, None, sudoable=False))
        if code != 0:
            said = re.sub(rf"^{MODE_MARK}\d+\n", "", to_native(err), flags=re.MULTILINE).strip()
            raise AnsibleError(f"{what} in container {self._vmid()} failed with status {code}: {said}")
        del out
        return err
