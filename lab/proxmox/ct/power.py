"""Starting and stopping containers."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.proxmox import install, pctconf, storage
from lab.proxmox.ct import guest, lxcfile, mounts, pending, state
from lab.proxmox.errors import PveError

if TYPE_CHECKING:
    from lab.proxmox.context import Context
    from lab.proxmox.pctconf import Conf

_START_TIMEOUT_S = 90  # a root file system of systemd needs 1 to 5 s here; a machine under load many times that


def start(ctx: Context, vmid: int, *, skiplock: bool = False) -> None:
    """Start a container, in the order of the real one: pending changes, LXC configuration, hook script, service.

    Raises PveError for a lock, a missing device node or directory, a failed hook script, or what LXC said.
    """
    conf = ctx.load(vmid)
    if conf.get("template"):
        raise PveError("you can't start a CT if it's a template")
    if not skiplock and conf.get("lock") != "mounted":
        pctconf.check_lock(conf)
    if conf.get("unprivileged") and any(mount.get("quota") for _, mount in mounts.each(ctx, conf)):
        raise PveError("Quotas are not supported by unprivileged containers.")
    if conf["pending"]:
        errors: dict[str, str] = {}
        pending.apply_stopped(ctx, vmid, conf, None, errors)
        pctconf.save(ctx.world, vmid, conf)
        conf = ctx.load(vmid)
    lxcfile.write(ctx, vmid, conf)
    hook(ctx, vmid, conf, "pre-start", fatal=True)
    rootfs = next(mount for key, mount in mounts.each(ctx, conf) if key == "rootfs")
    guest.prepare(ctx, conf, lxcfile.source_of(ctx, rootfs))
    _launch(ctx, vmid)
    hook(ctx, vmid, conf, "post-start")


def _launch(ctx: Context, vmid: int) -> None:
    log = ctx.world.path(f"/run/pve/ct-{vmid}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    if not ctx.world.systemd:
        done = subprocess.run(
            [
                "lxc-start",
                "-P",
                state.lxc_path(ctx.world),
                "-n",
                str(vmid),
                "-f",
                str(lxcfile.started_file(ctx, vmid)),
                "-o",
                str(log),
                "-l",
                "ERROR",
            ],
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise _failed(vmid, log)
        return
    unit = f"pve-container@{vmid}.service"
    if install.renew_units(Path("/")):
        subprocess.run(["systemctl", "daemon-reload"], check=False)
    subprocess.run(["systemctl", "reset-failed", unit], capture_output=True, check=False)
    if subprocess.run(["systemctl", "start", unit], check=False).returncode:
        raise _failed(vmid, log)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        seen = subprocess.run(["lxc-info", "-n", str(vmid), "-s", "-H"], capture_output=True, text=True, check=False)
        if seen.stdout.strip() == "RUNNING":
            return
        active = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False).stdout.strip()
        if active not in {"active", "activating"}:
            break
        time.sleep(0.05)  # lxc-wait would wait for ever when the start fails
    raise _failed(vmid, log)


def _failed(vmid: int, log: Path) -> PveError:
    words = (
        [re.sub(r"^lxc-start \S+ \S+ ERROR\s+", "", line) for line in log.read_text(errors="replace").splitlines()] if log.exists() else []
    )
    for line in words[-20:]:
        print(line, flush=True)
    return PveError(f"startup for container '{vmid}' failed")


def hook(ctx: Context, vmid: int, conf: Conf, phase: str, *, fatal: bool = False) -> None:
    """Run the container's hook script for a phase; its failure matters before the start only."""
    script = conf.get("hookscript")
    if not script:
        return
    try:
        path = check_hookscript(ctx, str(script))
        done = subprocess.run([str(path), str(vmid), phase], check=False)
        if done.returncode:
            raise PveError(f"command '{path} {vmid} {phase}' failed: exit code {done.returncode}")
    except PveError as error:
        text = f"hookscript error for {vmid} on {phase}: {error.text}"
        if fatal:
            raise PveError(text) from None
        print(text, flush=True)


def check_hookscript(ctx: Context, volume: str) -> Path:
    """The path of a hook script in a storage's snippets; PveError when it is none that can run."""
    path = storage.path(ctx.world, volume)
    if storage.volume_type(storage.parse_volume_id(volume)[1]) != "snippets":
        raise PveError(f"'{volume}' is not in the snippets directory")
    if not path.exists():
        raise PveError(f"script '{volume}' does not exist")
    if not os.access(path, os.X_OK):
        raise PveError(f"script '{volume}' is not executable")
    return path


def stop(ctx: Context, vmid: int, *, kill: bool, timeout: int = 60, force: bool = False) -> None:
    """Stop a container: at once, or by its init's halt signal within `timeout` seconds (then kill it when `force`).

    Raises PveError when it did not stop.
    """
    conf = ctx.load(vmid)
    if not kill:
        hook(ctx, vmid, conf, "pre-stop")
        command = ["lxc-stop", "-n", str(vmid), "--nokill", "--timeout", str(timeout)]
        done = subprocess.run([*command, "-P", state.lxc_path(ctx.world)], stdin=subprocess.DEVNULL, check=False)
        if done.returncode and state.running(ctx.world, vmid) and not force:
            raise PveError(f"command '{' '.join(command)}' failed: exit code {done.returncode}")
    if state.running(ctx.world, vmid):
        subprocess.run(["lxc-stop", "-n", str(vmid), "-P", state.lxc_path(ctx.world), "--kill"], stdin=subprocess.DEVNULL, check=False)
    deadline = time.monotonic() + 10
    while state.running(ctx.world, vmid):
        if time.monotonic() > deadline:
            raise PveError("container did not stop")
        time.sleep(0.05)  # the monitor cleans up after lxc-stop has returned
    if ctx.world.systemd:
        subprocess.run(["systemctl", "stop", f"pve-container@{vmid}.service"], check=False)
    hook(ctx, vmid, conf, "post-stop")


def reboot(ctx: Context, vmid: int, timeout: int | None) -> None:
    """Shut a container down and start it again, which applies pending changes."""
    stop(ctx, vmid, kill=False, timeout=timeout if timeout is not None else 60)
    start(ctx, vmid)
