"""Plans of updates: what this host runs, what apt offers, and what a run would do with it, as plain data and as lines for a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import driver_update, foreign, kernel_host, kernel_update, kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .kernel_host import Run

LOADED = Path("/sys/module/nvidia/version")


def kernel(run: Run, record: Mapping[str, Any] | None, release: str = "", package: str = "") -> dict[str, Any]:
    """Plan an update to ``release`` (empty takes the newest that is offered or installed) from the metapackage ``package``."""
    host = kernel_host.read(run)
    running, boot_id, installed = host["running"], host["boot_id"], list(host["kernels"])
    opened = record if record is not None and kernel_update.is_open(record) else None
    meta = package or f"proxmox-kernel-{kernels.series(running)}"
    offered = kernels.parse_depends(run(["apt-cache", "show", "--no-all-versions", meta])[1])
    source = opened["from"] if opened else running
    target = opened["to"] if opened else kernel_update.choose_target(release, offered, installed, running)
    cause = kernel_update.failure_of(opened, running, boot_id) if opened else ""
    plan: dict[str, Any] = {
        "kind": "kernel",
        "kernel": source,
        "from": source,
        "to": target,
        "steps": kernel_update.steps(record, running, boot_id) if target else [],
        "resumed": opened is not None,
        "cause": cause,
        "running": running,
        "pins_before": opened["pins_before"] if opened else kernel_update.pins_before(record, host["pins"]),
        "console": host["boot"]["console"].get(source, ""),
        "loader": host["boot"]["loader"],
        "problems": [],
    }
    packages, problems = choose_packages(run, target, is_installed=target in installed) if target and not cause else ([], [])
    plan["packages"] = packages
    plan["own_packages"] = opened["own_packages"] if opened and "own_packages" in opened else missing(run, packages)
    headers = meta.replace("kernel", "headers", 1)
    plan["metas"] = [meta, headers] if target and offered == target else []
    plan["settled_pins"] = kernel_update.settled_pins(opened, installed_after(opened, installed)) if opened else None
    plan["kept_pin"] = kernel_update.kept_pin(plan["pins_before"], target, sorted({*installed, target})) if target else ""
    if opened is None:
        plan["problems"] = problems
        if host["boot"]["unread"]:
            plan["problems"] += [f"what the boot loader does cannot be read: {reason}" for reason in host["boot"]["unread"]]
    plan["text"] = describe(plan)
    return plan


def installed_after(record: Mapping[str, Any], installed: Sequence[str]) -> list[str]:
    """The kernels that are left when the packages that the transaction brought are gone."""
    taken = any(package.startswith(f"proxmox-kernel-{record['to']}") for package in record.get("own_packages", []))
    return [release for release in installed if not (taken and release == record["to"])]


def missing(run: Run, packages: Sequence[str]) -> list[str]:
    """Those packages that dpkg has not installed."""
    return [name for name in packages if run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", name])[1][:2] != "ii"]


def choose_packages(run: Run, target: str, *, is_installed: bool) -> tuple[list[str], list[str]]:
    """The packages of a kernel and its headers, and why there are none."""
    signed, plain, headers = f"proxmox-kernel-{target}-signed", f"proxmox-kernel-{target}", f"proxmox-headers-{target}"
    known = {name: kernels.parse_candidate(run(["apt-cache", "policy", name])[1]) for name in (signed, plain, headers)}
    problems = []
    if not known[headers]:
        problems.append(
            f"apt offers no {headers}: DKMS could build no driver for {target}. Wait until the headers are published, or add the "
            "repository that has them (`apt-cache policy proxmox-headers-*`)"
        )
    if not known[signed] and not known[plain] and not is_installed:
        problems.append(f"apt offers neither {signed} nor {plain}: `apt-cache search proxmox-kernel` lists what there is")
    kernel = signed if known[signed] else plain
    return [name for name in (kernel, headers) if known[name]], problems


def describe(plan: Mapping[str, Any]) -> list[str]:
    """The plan of a kernel update for a person."""
    if not plan["to"]:
        return [f"Nothing to do: {plan['from']} runs, and no newer kernel is offered or installed."]
    lines = [f"Kernel {plan['from']} -> {plan['to']} ({plan['loader']})."]
    if plan["resumed"]:
        lines.append(f"An interrupted update goes on with: {', '.join(plan['steps']) or 'nothing'}.")
    else:
        lines.append(f"Steps: {', '.join(plan['steps'])}.")
    if plan["cause"]:
        lines.append(f"It failed, and goes back: {plan['cause']}.")
    if plan["own_packages"]:
        lines.append(f"Packages: {', '.join(plan['own_packages'])}.")
    pin = plan["pins_before"]["pin"]
    after = f"{plan['kept_pin']} pinned" if plan["kept_pin"] else "no pin, the newest kernel boots"
    lines.append(f"Pins now: {pin or 'none'}; while the update runs: {plan['from']}; when it was kept: {after}.")
    lines.append(
        f"Should the node not come up: {plan['to']} is pinned for one boot, but only a boot that reaches user space clears that. "
        f'At the console choose "{plan["console"] or plan["from"]}" in the boot menu, then run this playbook again.'
    )
    lines += [f"It must not begin: {problem}." for problem in plan["problems"]]
    return lines


def driver(run: Run, record: Mapping[str, Any] | None, release: str, package: str) -> dict[str, Any]:
    """Plan an update to the driver version ``release``; ``package`` is the one that brings the modules' source."""
    boot_id = kernel_host.text_of(kernel_host.BOOT_ID).strip()
    loaded = kernel_host.text_of(LOADED).strip()
    running = run(["uname", "-r"])[1].strip()
    pins = kernels.parse_pins(kernel_host.text_of(kernel_host.PIN), kernel_host.text_of(kernel_host.NEXT_BOOT_PIN))
    opened = record if record is not None and kernel_update.is_open(record) else None
    source, target = (opened["from"], opened["to"]) if opened else (loaded, release if release != loaded else "")
    built = sorted((name for name, modules in kernel_host.read_dkms(run).items() if "nvidia" in modules), key=kernels.release_key)
    plan: dict[str, Any] = {
        "kind": "driver",
        "kernel": opened["kernel"] if opened else running,
        "from": source,
        "to": target,
        "steps": driver_update.steps(opened, loaded, boot_id) if target else [],
        "resumed": opened is not None,
        "cause": driver_update.failure_of(opened, loaded, boot_id) if opened else "",
        "running": running,
        "loaded": loaded,
        "kernels": opened.get("kernels", built) if opened else built,
        "pins_before": opened["pins_before"] if opened else kernel_update.pins_before(record, pins),
        "own_packages": [],
        "console": "",
        "problems": [],
    }
    if opened is None and (target or not loaded):
        installed = run(["dpkg-query", "--show", "--showformat=${Version}", package])[1].strip()
        plan["problems"] = driver_update.problems(
            release,
            loaded,
            driver_update.upstream(installed) if installed else "",
            driver_update.versions_of(run(["apt-cache", "madison", package])[1]),
            package=package,
            runfile=Path(foreign.RUNFILE).exists(),
        )
    plan["text"] = describe_driver(plan)
    return plan


def describe_driver(plan: Mapping[str, Any]) -> list[str]:
    """The plan of a driver update for a person."""
    if not plan["to"]:
        lines = [f"Nothing to do: driver {plan['loaded']} is loaded."] if plan["loaded"] else []
    else:
        verb = "An interrupted update goes on with" if plan["resumed"] else "Steps"
        lines = [
            f"Driver {plan['from']} -> {plan['to']}, on the host and in its container, with one reboot (kernel {plan['kernel']}).",
            f"{verb}: {', '.join(plan['steps']) or 'nothing'}.",
            f"Its modules are built first for {', '.join(plan['kernels']) or 'no kernel'}, beside the old ones.",
        ]
    if plan["cause"]:
        lines.append(f"It failed, and goes back: {plan['cause']}.")
    return lines + [f"It must not begin: {problem}." for problem in plan["problems"]]


def of_kind(kind: str, run: Run, record: Mapping[str, Any] | None, release: str, package: str) -> dict[str, Any]:
    """Plan an update of this kind; one that meets an unfinished transaction of the other kind must not begin."""
    plan = driver(run, _own(record, kind), release, package) if kind == "driver" else kernel(run, _own(record, kind), release, package)
    if record is not None and kernel_update.is_open(record) and record.get("kind", "kernel") != kind:
        other = record.get("kind", "kernel")
        problem = (
            f"an update of the {other} from {record['from']} to {record['to']} was interrupted (step {record['step']}): finish it with "
            f"`ansible-playbook playbooks/{other}_update.yml -e kernel_update_ok=true` first"
        )
        plan |= {"problems": [problem], "text": [f"It must not begin: {problem}."], "steps": []}
    return plan


def _own(record: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any] | None:
    if record is None or record.get("kind", "kernel") == kind:
        return record
    # Of the other kind only its pin counts, where it ended and left one.
    return None if kernel_update.is_open(record) else record
