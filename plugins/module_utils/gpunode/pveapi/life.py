"""A container's life: created, changed, started, stopped, removed, each time only when it is not so already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..pve.conffile import edit_raw
from ..pve.errors import ALREADY, EXISTS, MISSING, MODIFIED
from ..pve.permissions import INSTEAD, ROOT, cannot, refused
from ..pve.plan import Current, Desired, Plan, PlanError, create_parameters, diff_text, make_plan
from ..pve.propstring import FAMILIES, PropertyError, family_of, parse
from . import state as states
from .base import Api, ApiError, Deadline, TaskError, TaskResult, follow, patiently, running_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node
    from .state import Guest

ATTEMPTS: Final = 5
"""How often a change is planned anew after somebody else's, and a free vmid is asked for: more means that two tools fight."""

SECRETS: Final = ("password",)


class LifeError(Exception):
    """What was asked cannot be done; the text says what was found and what to run next. ``result`` is the failed task's, if any."""

    def __init__(self, text: str, result: TaskResult | None = None) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True)
class Timeouts:
    """Seconds: for a lock or a restarting daemon, for a task, for a container's orderly shutdown."""

    lock: float = 60
    task: float = 1800
    shutdown: float = 60


@dataclass(frozen=True)
class Request:
    """What is wanted. ``create`` holds the parameters that only a creation has, ``ostemplate`` among them."""

    state: str
    hostname: str
    desired: Desired
    vmid: int | None = None
    node: str = ""
    create: Mapping[str, str] = field(default_factory=dict)
    adopt: bool = False
    recreate_interrupted: bool = False
    force_stop: bool = True
    purge_references: bool = False
    timeouts: Timeouts = Timeouts()
    check: bool = False
    device_hint: str = ""


@dataclass
class Outcome:
    """What was found and done."""

    changed: bool = False
    vmid: int | None = None
    node: str = ""
    status: str = "absent"
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    restart_reasons: list[str] = field(default_factory=list)
    tasks: list[TaskResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The module's result."""
        last = self.tasks[-1].as_dict() if self.tasks else None
        return {
            "changed": self.changed,
            "vmid": self.vmid,
            "node": self.node,
            "status": self.status,
            "pending": self.pending,
            "restart_required": bool(self.restart_reasons),
            "restart_reasons": self.restart_reasons,
            "task": last,
            "tasks": [task.as_dict() for task in self.tasks],
            "diff": {
                "before_header": f"container {self.vmid} on {self.node}",
                "after_header": f"container {self.vmid} on {self.node}",
                "before": diff_text(self.before),
                "after": diff_text(self.after),
            },
        }


class Life:
    """One request against one node, through an API and, where the backend has them, the node's files."""

    def __init__(self, api: Api, node: Node | None, request: Request) -> None:
        self.api = api
        self.files = node
        self.request = request
        self.out = Outcome(vmid=request.vmid)
        self.created = False

    # -- finding ------------------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Do what is asked. Raises ``LifeError``."""
        try:
            self._check_backend()
            self.out.node = self.request.node or self._here()
            guest = self._find()
            if guest is not None:
                self._guard(guest)
            if self.request.state == "absent":
                self._absent(guest)
            else:
                self._present(guest)
        except TaskError as error:
            tail = "\n".join(error.result.log[-15:])
            raise LifeError(f"{error.explain(self.out.vmid, self.out.node)}\nThe task's log ends with:\n{tail}", error.result) from None
        except ApiError as error:
            raise LifeError(error.explain(self.out.vmid, self.out.node)) from None
        except (PlanError, PropertyError) as error:
            raise LifeError(str(error)) from None
        return self.out

    def _check_backend(self) -> None:
        """Say before anything changes what this backend or user cannot do."""
        secrets = [name for name in SECRETS if self.request.create.get(name)]
        problems = cannot(self.api.name, raw=bool(self.request.desired.raw), secrets=secrets)
        if problems:
            raise LifeError(f"api_backend {self.api.name} cannot do this: {'; '.join(problems)}")

    def _check_permissions(self, parameters: Mapping[str, str], *, unprivileged: bool) -> None:
        if self.api.user == ROOT:
            return
        options = refused(parameters, unprivileged=unprivileged)
        if options:
            raise LifeError(f"{self.api.user} may not set {', '.join(options)}. {INSTEAD}")

    def _here(self) -> str:
        if self.files is not None:
            return self.files.name()
        for item in self.api.call("GET", "/cluster/status") or []:
            if item.get("type") == "node" and item.get("local"):
                return str(item["name"])
        raise LifeError("the API does not say which node it is: set the parameter node")

    def _find(self) -> Guest | None:
        if self.request.vmid is not None:
            return self._read(self.request.vmid)
        if self.files is not None:
            found = states.by_hostname_from_files(self.files, self.request.hostname)
        else:
            found = states.by_hostname_from_api(self.api, self.request.hostname)
        if len(found) > 1:
            raise LifeError(f"containers {', '.join(map(str, found))} are all named {self.request.hostname}: say which by its vmid")
        return self._read(found[0]) if found else None

    def _read(self, vmid: int) -> Guest | None:
        self.out.vmid = vmid
        if self.files is not None:
            return states.from_files(self.files, self.out.node, vmid)
        return states.from_api(self.api, self.out.node, vmid)

    def _guard(self, guest: Guest) -> None:
        """Refuse what belongs to something else."""
        wanted = self.request
        if guest.kind != "lxc":
            raise LifeError(
                f"vmid {guest.vmid} is the virtual machine {guest.hostname or '(unnamed)'} on node {guest.node}, no container:"
                " choose another vmid"
            )
        if guest.node != self.out.node:
            raise LifeError(
                f"container {guest.vmid} ({guest.hostname}) is on node {guest.node}, not on {self.out.node}: run this against {guest.node},"
                f" or bring it here with `pct migrate {guest.vmid} {self.out.node}`"
            )
        if guest.unfinished or guest.hostname == wanted.hostname:
            return
        if wanted.state == "absent":
            raise LifeError(
                f"container {guest.vmid} is named {guest.hostname!r}, not {wanted.hostname!r}: it is not removed."
                " Name it by its hostname if you mean it"
            )
        if not wanted.adopt:
            raise LifeError(
                f"container {guest.vmid} exists and is named {guest.hostname!r}, wanted is {wanted.hostname!r}:"
                " it belongs to something else and was not touched. Choose another vmid, or set adopt: true to take it over"
            )

    # -- present ------------------------------------------------------------------------------------------------------------------

    def _present(self, guest: Guest | None) -> None:
        if guest is not None and guest.unfinished:
            guest = self._interrupted(guest)
        if guest is None:
            guest = self._create()
        if guest is not None:
            guest = self._update(guest)
            self._power(guest)
        if guest is not None and not self.request.check:
            self._report(guest)

    def _interrupted(self, guest: Guest) -> Guest | None:
        """A container that is being created, or whose creation was cut short by a reboot."""
        deadline = Deadline(self.request.timeouts.task)
        number = 0
        while True:
            if running_task(self.api, guest.node, guest.vmid) is None:
                found = self._read(guest.vmid)
                if found is None or not found.unfinished:
                    if found is not None:
                        self._guard(found)
                    return found
                break
            if not deadline.pause(number):
                raise LifeError(f"container {guest.vmid} is still being created by another task after {deadline.seconds:.0f} s")
            number += 1
        steps = f"`pct unlock {guest.vmid} && pct destroy {guest.vmid} --destroy-unreferenced-disks 1`"
        if not self.request.recreate_interrupted or self.files is None:
            raise LifeError(
                f"container {guest.vmid} is a leftover of a creation that was interrupted (lock: create, no task runs for it):"
                f" remove it with {steps} and run this again" + ("" if self.files is None else ", or set recreate_interrupted: true")
            )
        self.out.changed = True
        self.out.warnings.append(f"container {guest.vmid} was a leftover of an interrupted creation and was made anew")
        if not self.request.check:
            self._unlock(guest)
            self._task("DELETE", f"/nodes/{guest.node}/lxc/{guest.vmid}", {"destroy-unreferenced-disks": "1", "force": "1"})
        return None

    def _unlock(self, guest: Guest) -> None:
        shell = getattr(self.api, "shell", None)
        if shell is None:
            raise LifeError(f"the API cannot unlock a container: `pct unlock {guest.vmid}`")
        code, _, err = shell.run(["pct", "unlock", str(guest.vmid)])
        if code != 0:
            raise LifeError(f"`pct unlock {guest.vmid}` failed: {err.strip()}")

    def _create(self) -> Guest | None:
        wanted = self.request
        if not wanted.create.get("ostemplate"):
            raise LifeError(
                f"container {wanted.vmid or wanted.hostname} does not exist, and no ostemplate is given to make it from."
                " `pveam list STORAGE` shows the templates that are there"
            )
        parameters = create_parameters(wanted.desired, wanted.create)
        parameters.setdefault("unprivileged", "1")
        self._check_permissions(parameters, unprivileged=parameters["unprivileged"] == "1")
        self._check_devices(value for key, value in parameters.items() if key.startswith("dev"))
        self.out.changed = self.created = True
        self.out.after = {key: value for key, value in parameters.items() if key not in SECRETS}
        if wanted.check:
            self.out.after |= _raw_after(wanted.desired)
            self.out.status = "stopped"
            self._power(None)
            return None
        for _ in range(ATTEMPTS):
            vmid = wanted.vmid or int(self.api.call("GET", "/cluster/nextid"))
            self.out.vmid = vmid
            try:
                self._task("POST", f"/nodes/{self.out.node}/lxc", {**parameters, "vmid": str(vmid)})
                break
            except ApiError as error:
                # Nobody reserves a vmid: another creation may have taken it since it was read as free.
                if error.kind != EXISTS:
                    raise
                if wanted.vmid is not None:
                    return self._lost_race(error)
        else:
            raise LifeError(f"{ATTEMPTS} vmids in a row were taken by others between being read as free and being used")
        guest = self._read(vmid)
        if guest is None:
            raise LifeError(f"container {vmid} was created, as its task says, but is not there: `pct list`")
        return guest

    def _lost_race(self, error: ApiError) -> Guest:
        """Somebody else created a container with our vmid just now: ours by its name, or none of our business."""
        guest = self._read(self.request.vmid or 0)
        if guest is None:
            raise error
        if guest.unfinished:
            found = self._interrupted(guest)
            if found is None:
                raise error
            guest = found
        self._guard(guest)
        self.out.after = {}
        return guest

    def _update(self, guest: Guest) -> Guest:
        if guest.template:
            raise LifeError(f"container {guest.vmid} ({guest.hostname}) is a template: it is not changed or started")
        if not self.out.before and not self.out.after:
            self.out.before = _view(guest.current)
        for attempt in range(ATTEMPTS):
            plan = make_plan(guest.current, self.request.desired)
            if not plan:
                break
            self._check_plan(guest, plan)
            self.out.changed = True
            if self.request.check:
                self.out.after = _view(guest.current) | plan.after
                self.out.restart_reasons = plan.needs_restart if guest.running else []
                return guest
            try:
                self._apply(guest, plan)
            except ApiError as error:
                if error.kind != MODIFIED or attempt == ATTEMPTS - 1:
                    raise
            found = self._read(guest.vmid)
            if found is None:
                raise LifeError(f"container {guest.vmid} vanished while it was changed")
            guest = found
        else:
            left = make_plan(guest.current, self.request.desired)
            self.out.warnings += [f"{name} reads {left.before[name]!r} after it was set to {left.after[name]!r}" for name in left.after]
        if not self.request.check or not self.out.after:
            self.out.after = _view(guest.current)
        return guest

    def _check_plan(self, guest: Guest, plan: Plan) -> None:
        self._check_permissions(plan.set, unprivileged=guest.current.options.get("unprivileged") == "1")
        self._check_devices(value for key, value in plan.set.items() if key.startswith("dev"))
        if guest.current.options.get("protection") == "1" and any(
            key == "rootfs" or key.startswith(("mp", "unused")) for key in (*plan.set, *plan.delete)
        ):
            raise LifeError(
                f"container {guest.vmid} has protection: 1, which refuses changes of its mounts: `pct set {guest.vmid} --protection 0`"
            )
        if (plan.raw_add or plan.raw_remove) and self.files is None:
            raise LifeError(
                "raw lxc lines have to change, which Proxmox VE's API cannot: use api_backend local on the node, or ssh_paramiko"
            )

    def _apply(self, guest: Guest, plan: Plan) -> None:
        deadline = Deadline(self.request.timeouts.lock)
        base = f"/nodes/{guest.node}/lxc/{guest.vmid}"
        if plan.set or plan.delete:
            parameters = dict(plan.set)
            if plan.delete:
                parameters["delete"] = ",".join(plan.delete)
            if guest.current.digest:
                parameters["digest"] = guest.current.digest
            patiently(lambda: self.api.call("PUT", f"{base}/config", parameters), deadline)
        for disk, size in plan.resize.items():
            self._task("PUT", f"{base}/resize", {"disk": disk, "size": size})
        if plan.raw_add or plan.raw_remove:
            patiently(lambda: self._edit_raw(guest.vmid, plan, deadline), deadline)

    def _edit_raw(self, vmid: int, plan: Plan, deadline: Deadline) -> None:
        guest = self._read(vmid)
        if guest is None or guest.text is None or self.files is None:
            raise ApiError(f"Configuration file of container {vmid} does not exist")
        if guest.lock:
            raise ApiError(f"CT is locked ({guest.lock})")
        text = edit_raw(guest.text, plan.raw_remove, plan.raw_add)
        self.files.replace_config(guest.path, vmid, guest.current.digest, text, deadline)

    def _check_devices(self, values: Any) -> None:
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

    # -- power --------------------------------------------------------------------------------------------------------------------

    def _power(self, guest: Guest | None) -> None:
        wanted, runs = self.request.state, guest is not None and guest.running
        if guest is not None:
            self.out.status = "running" if runs else "stopped"
        stop = runs and wanted in {"stopped", "restarted"}
        start = wanted == "restarted" or (wanted == "started" and not runs)
        if not stop and not start:
            return
        self.out.changed = True
        if guest is not None and not self.created:
            self.out.before["status"] = "running" if runs else "stopped"
        self.out.after["status"] = ("running, restarted" if stop else "running") if start else "stopped"
        self.out.status = "running" if start else "stopped"
        if start and guest is not None:
            self._check_devices(value for key, value in guest.current.effective.items() if _is_member(key, "dev"))
        if self.request.check or guest is None:
            return
        if stop:
            self._stop(guest)
        if start:
            self._act(guest, "start", {})

    def _stop(self, guest: Guest) -> None:
        timeouts = self.request.timeouts
        parameters = {"timeout": str(int(timeouts.shutdown)), "forceStop": "1" if self.request.force_stop else "0"}
        self._act(guest, "shutdown", parameters)

    def _act(self, guest: Guest, action: str, parameters: Mapping[str, str]) -> None:
        try:
            self._task("POST", f"/nodes/{guest.node}/lxc/{guest.vmid}/status/{action}", parameters)
        except ApiError as error:
            if error.kind != ALREADY:
                raise

    def _absent(self, guest: Guest | None) -> None:
        if guest is None:
            return
        if guest.current.options.get("protection") == "1":
            raise LifeError(
                f"container {guest.vmid} ({guest.hostname}) has protection: 1 and is not removed:"
                f" `pct set {guest.vmid} --protection 0` if you mean it"
            )
        self.out.changed = True
        self.out.before = _view(guest.current) | {"status": "running" if guest.running else "stopped"}
        if self.request.check:
            return
        if guest.unfinished and running_task(self.api, guest.node, guest.vmid) is None:
            self._unlock(guest)
        if guest.running:
            self._stop(guest)
        parameters = {"purge": "1" if self.request.purge_references else "0", "destroy-unreferenced-disks": "1"}
        try:
            self._task("DELETE", f"/nodes/{guest.node}/lxc/{guest.vmid}", parameters)
        except ApiError as error:
            if error.kind != MISSING:
                raise

    # -- tasks and report -----------------------------------------------------------------------------------------------------------

    def _task(self, method: str, path: str, parameters: Mapping[str, str]) -> None:
        """Start a task and follow it; a lock is waited for, whether the request or the task runs into it."""
        timeouts = self.request.timeouts

        def once() -> TaskResult:
            deadline = Deadline(timeouts.task)
            upid = self.api.start(method, path, parameters, deadline)
            return follow(self.api, self.out.node, upid, deadline) if upid else TaskResult(exitstatus="OK")

        result = patiently(once, Deadline(timeouts.lock))
        self.out.tasks.append(result)
        self.out.warnings += result.warnings

    def _report(self, guest: Guest) -> None:
        """Read back what waits for the next start."""
        found = self._read(guest.vmid)
        if found is None:
            return
        self.out.status = "running" if found.running else "stopped"
        self.out.pending = found.current.waiting
        if found.running:
            late = {key for key, value in found.current.raw if found.started_raw is not None and (key, value) not in found.started_raw}
            self.out.restart_reasons = sorted({*found.current.waiting, *late, *self._raw_changed(guest)})

    def _raw_changed(self, guest: Guest) -> set[str]:
        """Raw keys that this run changed under a container that ran on: lines that went cannot be told from the start's."""
        if self.request.state == "restarted" or not guest.running:
            return set()
        keys = {key for key in (*self.out.before, *self.out.after) if key.startswith("lxc.")}
        return {key for key in keys if self.out.before.get(key) != self.out.after.get(key)}


def _view(current: Current) -> dict[str, Any]:
    """What a diff shows of a container: its options as they will be, and its raw lines."""
    view: dict[str, Any] = dict(current.effective)
    for key, value in current.raw:
        view.setdefault(key, []).append(value)
    return view


def _raw_after(desired: Desired) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for line in desired.raw:
        if line.present:
            view.setdefault(line.key, []).append(line.value)
    return view


def _is_member(option: str, name: str) -> bool:
    family = family_of(option)
    return family is not None and family.name == name


def device_hint(unit: str) -> str:
    """What makes NVIDIA's device nodes, now and at boot."""
    return (
        f"Unit {unit} makes NVIDIA's at boot, before the guests start: `systemctl status {unit}`;"
        " `nvidia-modprobe -c 0 -u` makes the first ones now"
    )
