"""A container's life: created, changed, started, stopped, removed, each time only when it is not so already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..pve.conffile import edit_raw
from ..pve.errors import EXISTS, MISSING, MODIFIED
from ..pve.plan import Plan, PlanError, create_parameters, make_plan, slots
from ..pve.propstring import FAMILIES, PropertyError, is_on
from . import state as states
from .base import TAIL_LINES, ApiError, Deadline, TaskError, patiently, running_task
from .request import LifeError, Outcome, Request, raw_after, view
from .session import SECRETS, Session

if TYPE_CHECKING:
    from .base import Api
    from .node import Node
    from .state import Guest

SETTLE_S: Final = 60.0
"""Time for a container to be as its last task left it: the HA manager looks at its services every 10 s."""

ATTEMPTS: Final = 5
"""How often a change is planned anew after somebody else's, and a free vmid is asked for: more means that two tools fight."""


class Life(Session):
    """What a request asks, done to its container."""

    def __init__(self, api: Api, node: Node | None, request: Request) -> None:
        super().__init__(api, node, request)
        self.created = False

    # -- finding ------------------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Do what is asked. Raises ``LifeError``."""
        try:
            self.check_backend()
            self.out.node = self.request.node or self._here()
            guest = self._find()
            if guest is not None:
                self._guard(guest)
            if self.request.state == "absent":
                self._absent(guest)
            else:
                self._present(guest)
        except TaskError as error:
            tail = "\n".join(error.result.log[-TAIL_LINES:])
            raise LifeError(f"{error.explain(self.out.vmid, self.out.node)}\nThe task's log ends with:\n{tail}", error.result) from None
        except ApiError as error:
            raise LifeError(error.explain(self.out.vmid, self.out.node)) from None
        except (PlanError, PropertyError) as error:
            raise LifeError(str(error)) from None
        return self.out

    def _here(self) -> str:
        if self.files is not None:
            return self.files.name()
        for item in self.api.call("GET", "/cluster/status") or []:
            if item.get("type") == "node" and item.get("local"):
                return str(item["name"])
        raise LifeError("the API does not say which node it is: set the parameter node")

    def _find(self) -> Guest | None:
        if self.request.vmid is not None:
            return self.read(self.request.vmid)
        if self.files is not None:
            found = states.by_hostname_from_files(self.files, self.request.hostname)
        else:
            found = states.by_hostname_from_api(self.api, self.request.hostname)
        if len(found) > 1:
            raise LifeError(f"containers {', '.join(map(str, found))} are all named {self.request.hostname}: say which by its vmid")
        return self.read(found[0]) if found else None

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
        if guest.hostname == wanted.hostname or (guest.unfinished and not guest.hostname):
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
                found = self.read(guest.vmid)
                if found is None or not found.unfinished:
                    if found is not None:
                        self._guard(found)
                    return found
                break
            if not deadline.pause(number):
                raise LifeError(f"container {guest.vmid} is still being created by another task after {deadline.seconds:.0f} s")
            number += 1
        steps = f"`pct unlock {guest.vmid} && pct destroy {guest.vmid} --destroy-unreferenced-disks 1`"
        if not self.request.recreate_interrupted or self.files is None or self._was_restored(guest):
            raise LifeError(
                f"container {guest.vmid} is a leftover of a creation that was interrupted (lock: create, no task runs for it):"
                f" remove it with {steps} if nothing in it is needed, and run this again"
                + ("" if self.files is None else ", or set recreate_interrupted: true")
            )
        self.out.changed = True
        self.out.warnings.append(f"container {guest.vmid} was a leftover of an interrupted creation and was made anew")
        if not self.request.check:
            self.unlock(guest)
            self.task("DELETE", f"/nodes/{guest.node}/lxc/{guest.vmid}", {"destroy-unreferenced-disks": "1", "force": "1"})
        return None

    def _was_restored(self, guest: Guest) -> bool:
        """Whether a restore was interrupted, or may have been: then its volumes may be worth something."""
        tasks = self.api.call("GET", f"/nodes/{guest.node}/tasks", {"vmid": str(guest.vmid), "source": "all", "limit": "50"}) or []
        makers = [task for task in tasks if task.get("type") in {"vzcreate", "vzrestore"}]
        if not makers:
            return "rootfs" in guest.current.options
        return str(max(makers, key=lambda task: int(task.get("starttime", 0)))["type"]) != "vzcreate"

    def _create(self) -> Guest | None:
        wanted = self.request
        if not wanted.create.get("ostemplate"):
            raise LifeError(
                f"container {wanted.vmid or wanted.hostname} does not exist, and no ostemplate is given to make it from."
                " `pveam list STORAGE` shows the templates that are there"
            )
        parameters = create_parameters(wanted.desired, wanted.create)
        parameters.setdefault("unprivileged", "1")
        self.check_permissions(parameters, unprivileged=is_on(parameters["unprivileged"]))
        self.check_devices(value for key, value in parameters.items() if key.startswith("dev"))
        self.out.changed = self.created = True
        self.out.after = {key: value for key, value in parameters.items() if key not in SECRETS}
        if wanted.check:
            self.out.after |= raw_after(wanted.desired)
            self.out.status = "stopped"
            self._power(None)
            return None
        for _ in range(ATTEMPTS):
            vmid = wanted.vmid or int(self.api.call("GET", "/cluster/nextid"))
            self.out.vmid = vmid
            try:
                self.task("POST", f"/nodes/{self.out.node}/lxc", {**parameters, "vmid": str(vmid)})
                break
            except ApiError as error:
                # Nobody reserves a vmid: another creation may have taken it since it was read as free.
                if error.kind != EXISTS:
                    raise
                if wanted.vmid is not None or self.resent:
                    return self._lost_race(error, vmid)
        else:
            raise LifeError(f"{ATTEMPTS} vmids in a row were taken by others between being read as free and being used")
        guest = self.read(vmid)
        if guest is None:
            raise LifeError(f"container {vmid} was created, as its task says, but is not there: `pct list`")
        return guest

    def _lost_race(self, error: ApiError, vmid: int) -> Guest:
        """Somebody else created a container with our vmid just now (or we did, unheard): ours by its name, or none of our business."""
        guest = self.read(vmid)
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
            self.out.before = view(guest.current)
        applied = None
        for attempt in range(ATTEMPTS):
            plan = make_plan(guest.current, self.request.desired)
            if not plan:
                break
            if plan == applied:
                # Proxmox took it and says something else: the caller shall know, and asking again would not help.
                self.out.warnings += [f"{name} reads {plan.before[name]!r} after it was set to {plan.after[name]!r}" for name in plan.after]
                break
            self._check_plan(guest, plan)
            self.out.changed = True
            if self.request.check:
                self.out.after = view(guest.current) | plan.after
                self.out.restart_reasons = plan.needs_restart if guest.running else []
                return guest
            try:
                self._apply(guest, plan)
                applied = plan
            except ApiError as error:
                if error.kind != MODIFIED or attempt == ATTEMPTS - 1:
                    raise
            found = self.read(guest.vmid)
            if found is None:
                raise LifeError(f"container {guest.vmid} vanished while it was changed")
            guest = found
        if not self.request.check or not self.out.after:
            self.out.after = view(guest.current)
        return guest

    def _check_plan(self, guest: Guest, plan: Plan) -> None:
        self.check_permissions(plan.set, unprivileged=is_on(guest.current.options.get("unprivileged")))
        self.check_devices(value for key, value in plan.set.items() if key.startswith("dev"))
        if is_on(guest.current.options.get("protection")) and any(
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
            self.task("PUT", f"{base}/resize", {"disk": disk, "size": size})
        if plan.raw_add or plan.raw_remove:
            patiently(lambda: self._edit_raw(guest.vmid, plan, deadline), deadline)

    def _edit_raw(self, vmid: int, plan: Plan, deadline: Deadline) -> None:
        guest = self.read(vmid)
        if guest is None or guest.text is None or self.files is None:
            raise ApiError(f"Configuration file of container {vmid} does not exist")
        if guest.lock:
            raise ApiError(f"CT is locked ({guest.lock})")
        text = edit_raw(guest.text, plan.raw_remove, plan.raw_add)
        self.files.replace_config(guest.path, vmid, guest.current.digest, text, deadline)

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
            self.check_devices(guest.current.effective[slot] for slot in slots(FAMILIES["dev"], guest.current.effective))
        if self.request.check or guest is None:
            return
        if stop:
            self.stop(guest)
            self._await(guest.vmid, running=False)
        if start:
            self.act(guest, "start", {})
            self._await(guest.vmid, running=True)

    def _await(self, vmid: int, *, running: bool) -> None:
        """Wait until it runs, or does not: where the HA manager has it, a task only asks the manager and ends at once."""
        deadline = Deadline(SETTLE_S)
        number = 0
        while True:
            guest = self.read(vmid)
            if guest is not None and guest.running == running:
                return
            if not deadline.pause(number):
                break
            number += 1
        if running:
            raise LifeError(
                f"container {vmid} was started and does not run {SETTLE_S:.0f} s later: `pct start {vmid} --debug` shows its first process,"
                " `ha-manager status` whether the HA manager keeps it stopped"
            )
        raise LifeError(
            f"container {vmid} was stopped and runs {SETTLE_S:.0f} s later: `ha-manager status` shows whether the HA manager runs it"
        )

    def _absent(self, guest: Guest | None) -> None:
        if guest is None:
            return
        if is_on(guest.current.options.get("protection")):
            raise LifeError(
                f"container {guest.vmid} ({guest.hostname}) has protection: 1 and is not removed:"
                f" `pct set {guest.vmid} --protection 0` if you mean it"
            )
        self.out.changed = True
        self.out.before = view(guest.current) | {"status": "running" if guest.running else "stopped"}
        if self.request.check:
            return
        if guest.unfinished and running_task(self.api, guest.node, guest.vmid) is None:
            self.unlock(guest)
        if guest.running:
            self.stop(guest)
        parameters = {"purge": "1" if self.request.purge_references else "0", "destroy-unreferenced-disks": "1"}
        try:
            self.task("DELETE", f"/nodes/{guest.node}/lxc/{guest.vmid}", parameters)
        except ApiError as error:
            if error.kind != MISSING:
                raise

    # -- tasks and report -----------------------------------------------------------------------------------------------------------

    def _report(self, guest: Guest) -> None:
        """Read back what waits for the next start."""
        found = self.read(guest.vmid)
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
