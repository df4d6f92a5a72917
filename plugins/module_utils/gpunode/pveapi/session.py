"""One request against one node: reading the container, tasks, and the checks before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..pve.errors import ALREADY, RESTARTING
from ..pve.permissions import INSTEAD, ROOT, cannot, refused
from ..pve.propstring import FAMILIES, PropertyError, parse
from . import state as states
from .base import Api, ApiError, Deadline, TaskResult, follow, patiently
from .request import LifeError, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .node import Node
    from .request import Request
    from .state import Guest

SECRETS: Final = ("password",)


class Session:
    """An API, the node's files where the backend has them, a request and its outcome."""

    def __init__(self, api: Api, node: Node | None, request: Request) -> None:
        self.api = api
        self.files = node
        self.request = request
        self.out = Outcome(vmid=request.vmid)
        self.resent = False
        """Whether a task was asked for again because the API fell silent: the first request may have been taken all the same."""

    def check_backend(self) -> None:
        """Say before anything changes what this backend or user cannot do."""
        secrets = [name for name in SECRETS if self.request.create.get(name)]
        problems = cannot(self.api.name, raw=bool(self.request.desired.raw), secrets=secrets)
        if problems:
            raise LifeError(f"api_backend {self.api.name} cannot do this: {'; '.join(problems)}")

    def check_permissions(self, parameters: Mapping[str, str], *, unprivileged: bool) -> None:
        """Refuse what this user may not set, before anything changes."""
        if self.api.user == ROOT:
            return
        options = refused(parameters, unprivileged=unprivileged)
        if options:
            raise LifeError(f"{self.api.user} may not set {', '.join(options)}. {INSTEAD}")

    def read(self, vmid: int) -> Guest | None:
        """The guest with this vmid as it is now."""
        self.out.vmid = vmid
        if self.files is not None:
            return states.from_files(self.files, self.out.node, vmid)
        return states.from_api(self.api, self.out.node, vmid)

    def unlock(self, guest: Guest) -> None:
        """Take off a lock that no task owns."""
        shell = getattr(self.api, "shell", None)
        if shell is None:
            raise LifeError(f"the API cannot unlock a container: `pct unlock {guest.vmid}`")
        code, _, err = shell.run(["pct", "unlock", str(guest.vmid)])
        if code != 0:
            raise LifeError(f"`pct unlock {guest.vmid}` failed: {err.strip()}")

    def check_devices(self, values: Iterable[str]) -> None:
        """Device nodes must exist before Proxmox is asked: it refuses them one at a time, and at a start says it in a log."""
        if self.files is None:
            return
        paths = []
        for value in values:
            try:
                paths.append(parse(FAMILIES["dev"], value).get("path", ""))
            except PropertyError:
                continue
        missing = self.files.missing_devices(sorted({path for path in paths if path}))
        if missing:
            hint = self.request.device_hint if any(path.startswith("/dev/nvidia") for path in missing) else ""
            text = (
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing on node {self.out.node}:"
                f" Proxmox VE neither takes them over nor starts a container that has them. {hint}"
            ).rstrip()
            # In check mode what makes them has not run either.
            if not self.request.check:
                raise LifeError(text)
            if text not in self.out.warnings:
                self.out.warnings.append(text)

    def stop(self, guest: Guest) -> None:
        """Shut it down, hard when it does not follow in time and that is allowed."""
        timeouts = self.request.timeouts
        parameters = {"timeout": str(int(timeouts.shutdown)), "forceStop": "1" if self.request.force_stop else "0"}
        self.act(guest, "shutdown", parameters)

    def act(self, guest: Guest, action: str, parameters: Mapping[str, str]) -> None:
        """A change of power; that it is so already is no error."""
        try:
            self.task("POST", f"/nodes/{guest.node}/lxc/{guest.vmid}/status/{action}", parameters)
        except ApiError as error:
            if error.kind != ALREADY:
                raise

    def task(self, method: str, path: str, parameters: Mapping[str, str]) -> None:
        """Start a task and follow it; a lock is waited for, whether the request or the task runs into it."""
        timeouts = self.request.timeouts

        def once() -> TaskResult:
            deadline = Deadline(timeouts.task)
            try:
                upid = self.api.start(method, path, parameters, deadline)
            except ApiError as error:
                self.resent = self.resent or error.kind == RESTARTING
                raise
            return follow(self.api, self.out.node, upid, deadline) if upid else TaskResult(exitstatus="OK")

        result = patiently(once, Deadline(timeouts.lock))
        self.out.tasks.append(result)
        self.out.warnings += result.warnings
