"""A container's life against a Proxmox VE in memory: what is asked for, in which order, and what is never done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpunode.pveapi.base import ApiError
from gpunode.pveapi.request import LifeError

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

TEMPLATE = "local:vztmpl/debian-13.tar.zst"
OURS = "arch: amd64\nhostname: glm\nmemory: 1024\nostype: debian\nrootfs: local:vm-101-disk-0,size=8G\nunprivileged: 1\n"
WANTED = {
    "memory": 1024,
    "rootfs": "local:8",
    "dev": ["/dev/nvidia0,mode=0666"],
    "lxc": [{"key": "lxc.prlimit.memlock", "value": "unlimited"}],
}


def test_created_with_raw_lines_before_its_first_start(proxmox: Any, live: Run) -> None:
    out = live("started", ostemplate=TEMPLATE, **WANTED)
    assert proxmox.writes() == [("POST", "lxc"), ("POST", "start")]
    assert out.changed
    assert (out.status, out.pending, out.restart_reasons) == ("running", [], [])
    assert "lxc.prlimit.memlock = unlimited" in proxmox.files["/var/lib/lxc/101/config"]
    assert out.before == {}
    assert out.as_dict()["task"]["exitstatus"] == "OK"


def test_the_second_run_asks_nothing_at_all(proxmox: Any, live: Run) -> None:
    live("started", ostemplate=TEMPLATE, **WANTED)
    out = live("started", ostemplate=TEMPLATE, **WANTED)
    assert proxmox.calls == []
    assert not out.changed
    assert out.before == out.after


def test_check_mode_changes_nothing_and_says_what_would_be(proxmox: Any, live: Run) -> None:
    before = dict(proxmox.files)
    out = live("started", ostemplate=TEMPLATE, check=True, **WANTED)
    assert proxmox.calls == []
    assert proxmox.files == before
    assert out.changed
    assert out.after["dev0"] == "/dev/nvidia0,mode=0666"
    assert out.after["lxc.prlimit.memlock"] == ["unlimited"]
    assert out.after["status"] == "running"


def test_check_mode_of_a_change_equals_the_change(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS, running=True)
    change = {"memory": 2048, "features": {"nesting": True}, "lxc": [{"key": "lxc.autodev", "value": "1"}]}
    foretold = live(check=True, **change)
    assert foretold.restart_reasons == ["features", "lxc.autodev"]
    done = live(**change)
    assert foretold.after == done.after
    assert done.pending == ["features"]
    assert done.restart_reasons == ["features", "lxc.autodev"]


def test_what_waits_is_told_again_and_ends_with_a_restart(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS, running=True)
    change = {"features": {"nesting": True}, "lxc": [{"key": "lxc.autodev", "value": "1"}]}
    live(**change)
    again = live(**change)
    assert not again.changed
    assert again.restart_reasons == ["features", "lxc.autodev"]
    out = live("restarted", **change)
    assert proxmox.writes() == [("POST", "shutdown"), ("POST", "start")]
    assert (out.pending, out.restart_reasons) == ([], [])


def test_the_secret_is_in_no_outcome(proxmox: Any, live: Run) -> None:
    proxmox.name = "https"
    out = live(check=True, ostemplate=TEMPLATE, password="s3cret-pass")
    assert "s3cret-pass" not in str(out.as_dict())


def test_a_secret_is_refused_where_it_would_be_an_argument(proxmox: Any, live: Run) -> None:
    with pytest.raises(LifeError, match="password: pvesh takes it as an argument"):
        live(ostemplate=TEMPLATE, password="s3cret-pass")
    assert proxmox.calls == []


@pytest.mark.parametrize("state", ["present", "started", "stopped", "restarted"])
def test_a_container_of_another_name_is_not_touched(proxmox: Any, live: Run, state: str) -> None:
    proxmox.have(101, OURS.replace("glm", "other"))
    with pytest.raises(LifeError, match="named 'other', wanted is 'glm': it belongs to something else"):
        live(state, memory=2048)
    assert proxmox.calls == []


def test_adopted_with_consent(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS.replace("glm", "other"))
    out = live(memory=1024, adopt=True)
    assert out.changed
    assert proxmox.config(101).live.options["hostname"] == "glm"


def test_a_virtual_machine_is_no_container(proxmox: Any, live: Run) -> None:
    proxmox.files[proxmox.path(101, "qemu-server")] = "name: glm\n"
    with pytest.raises(LifeError, match="vmid 101 is the virtual machine glm"):
        live(adopt=True)


def test_a_container_of_another_node_is_named(proxmox: Any, live: Run) -> None:
    proxmox.files[proxmox.path(101, node="pve2")] = OURS
    with pytest.raises(LifeError, match=r"on node pve2, not on pve.*pct migrate 101 pve"):
        live()


def test_an_unmounted_etc_pve_is_no_empty_node(proxmox: Any, live: Run) -> None:
    proxmox.files.clear()
    with pytest.raises(LifeError, match="is pve-cluster running"):
        live(ostemplate=TEMPLATE)


def test_absent(proxmox: Any, live: Run) -> None:
    assert not live("absent").changed
    proxmox.have(101, OURS, running=True)
    assert live("absent", check=True).changed
    assert proxmox.writes() == []
    out = live("absent")
    assert proxmox.writes() == [("POST", "shutdown"), ("DELETE", "101")]
    assert out.status == "absent"


def test_absent_asks_for_the_name_even_with_adopt(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS.replace("glm", "other"))
    with pytest.raises(LifeError, match="named 'other', not 'glm': it is not removed"):
        live("absent", adopt=True)


@pytest.mark.parametrize("word", ["1", "yes"])
def test_absent_honours_protection(proxmox: Any, live: Run, word: str) -> None:
    proxmox.have(101, OURS + f"protection: {word}\n")
    with pytest.raises(LifeError, match="protection: 1 and is not removed"):
        live("absent")
    assert proxmox.writes() == []


def test_the_digest_is_sent_and_a_change_meanwhile_is_planned_anew(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS)

    def meanwhile() -> None:
        proxmox.files[proxmox.path(101)] = OURS + "tags: gpu\n"

    proxmox.before_write = meanwhile
    live(memory=2048, tags=["gpu"])
    puts = [params for method, _, params in proxmox.calls if method == "PUT"]
    assert [set(params) for params in puts] == [{"digest", "memory", "tags"}, {"digest", "memory"}]
    assert puts[0]["digest"] != puts[1]["digest"]


def test_a_lock_is_waited_for(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS)
    proxmox.failures["PUT config"] = [
        ApiError("CT is locked (backup)"),
        ApiError("can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout"),
    ]
    assert live(memory=2048).changed
    assert proxmox.config(101).live.options["memory"] == "2048"


def test_a_lock_that_stays_is_named_with_the_way_out(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS + "lock: backup\n")
    with pytest.raises(LifeError, match=r"CT is locked \(backup\).*pct unlock 101"):
        live(memory=2048)
    with pytest.raises(LifeError, match=r"CT is locked \(backup\)"):
        live(lxc=[{"key": "lxc.autodev", "value": "1"}])


def test_a_free_vmid_that_was_taken_meanwhile_is_replaced_by_the_next(proxmox: Any, live: Run) -> None:
    proxmox.have(100, OURS.replace("glm", "other"))
    proxmox.next_ids = [100, 100, 102]
    out = live(vmid=None, ostemplate=TEMPLATE, memory=1024)
    assert out.vmid == 102
    assert "other" in proxmox.files[proxmox.path(100)]


def test_a_creation_that_was_taken_unheard_is_not_made_twice(proxmox: Any, live: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    start, asked = proxmox.start, []

    def silent_once(method: str, path: str, params: Any, deadline: Any) -> str:
        asked.append(path)
        upid = start(method, path, params, deadline)
        if len(asked) == 1:
            raise ApiError("connection reset by peer", status=599)
        return str(upid)

    monkeypatch.setattr(proxmox, "start", silent_once)
    proxmox.next_ids = [100, 102]
    out = live(vmid=None, ostemplate=TEMPLATE, memory=1024)
    assert (out.vmid, out.changed) == (100, True)
    assert proxmox.path(102) not in proxmox.files


def test_without_a_vmid_the_hostname_is_the_identity(proxmox: Any, live: Run) -> None:
    proxmox.have(117, OURS)
    out = live(vmid=None, ostemplate=TEMPLATE, memory=1024)
    assert (out.vmid, out.changed) == (117, False)
    proxmox.have(118, OURS)
    with pytest.raises(LifeError, match="containers 117, 118 are all named glm"):
        live(vmid=None)


@pytest.mark.parametrize(("name", "told"), [("glm", None), ("other", "belongs to something else")])
def test_a_lost_race_for_a_given_vmid(proxmox: Any, live: Run, name: str, told: str | None) -> None:
    proxmox.failures["POST lxc"] = [ApiError("unable to create CT 101 - CT 101 already exists on node 'pve'")]
    read = proxmox.read_many

    def appears(patterns: list[str]) -> Any:
        if any(method == "POST" for method, _, _ in proxmox.calls):
            proxmox.files.setdefault(proxmox.path(101), OURS.replace("glm", name))
        return read(patterns)

    proxmox.read_many = appears
    if told:
        with pytest.raises(LifeError, match=told):
            live(ostemplate=TEMPLATE, memory=2048)
        assert "memory: 1024" in proxmox.files[proxmox.path(101)]
    else:
        live(ostemplate=TEMPLATE, memory=2048)
        assert proxmox.config(101).live.options["memory"] == "2048"


def test_an_interrupted_creation_is_reported_with_the_steps(proxmox: Any, live: Run) -> None:
    proxmox.have(101, "lock: create\n")
    with pytest.raises(LifeError, match=r"interrupted.*pct unlock 101 && pct destroy 101"):
        live(ostemplate=TEMPLATE)
    assert proxmox.writes() == []


def test_an_interrupted_creation_is_made_anew_with_consent(proxmox: Any, live: Run) -> None:
    proxmox.have(101, "lock: create\n")
    out = live(ostemplate=TEMPLATE, memory=1024, recreate_interrupted=True)
    assert proxmox.writes() == [("UNLOCK", "101"), ("DELETE", "101"), ("POST", "lxc")]
    assert "leftover of an interrupted creation" in out.warnings[0]


def test_an_interrupted_restore_is_never_thrown_away(proxmox: Any, live: Run) -> None:
    proxmox.have(101, "lock: create\n" + OURS)
    proxmox.tasks["x"] = {"status": "stopped", "type": "vzrestore", "starttime": 5}
    with pytest.raises(LifeError, match="if nothing in it is needed"):
        live(ostemplate=TEMPLATE, recreate_interrupted=True)
    assert proxmox.writes() == []


def test_a_creation_that_still_runs_is_waited_for(proxmox: Any, live: Run) -> None:
    proxmox.have(101, "lock: create\n")
    proxmox.tasks["x"] = {"status": "running", "upid": "UPID:pve:0000ABCD:0123ABCD:6B0D9869:vzcreate:101:root@pam:", "type": "vzcreate"}
    with pytest.raises(LifeError, match="still being created"):
        live(ostemplate=TEMPLATE)
    call = proxmox.call

    def ends(method: str, path: str, params: Any = None, **given: Any) -> Any:
        answer = call(method, path, params, **given)
        if path.endswith("/tasks"):
            proxmox.tasks.clear()
            proxmox.have(101, OURS)
        return answer

    proxmox.call = ends
    assert not live(ostemplate=TEMPLATE, memory=1024).changed


def test_warnings_of_a_task_are_success_and_shown(proxmox: Any, live: Run) -> None:
    proxmox.exitstatus, proxmox.log = (
        "WARNINGS: 1",
        ["extracting", "WARN: Systemd 257 detected. You may need to enable nesting.", "TASK WARNINGS: 1"],
    )
    out = live(ostemplate=TEMPLATE, memory=1024)
    assert out.warnings == ["WARN: Systemd 257 detected. You may need to enable nesting."]


def test_a_failed_task_shows_the_tail_of_its_log(proxmox: Any, live: Run) -> None:
    proxmox.exitstatus, proxmox.log = "unable to create CT 101 - No space left on device", [f"line {n}" for n in range(40)]
    with pytest.raises(LifeError) as caught:
        live(ostemplate=TEMPLATE, memory=1024)
    assert "pvesm status" in str(caught.value)
    assert "line 39" in str(caught.value)
    assert "line 5\n" not in str(caught.value)
    assert caught.value.result is not None


def test_the_reason_may_stand_in_the_log_alone(proxmox: Any, live: Run) -> None:
    proxmox.exitstatus = "unable to create CT 101 - command 'tar xpf -' failed: exit code 2"
    proxmox.log = ["tar: ./usr: Cannot write: No space left on device"]
    with pytest.raises(LifeError, match="pvesm status"):
        live(ostemplate=TEMPLATE, memory=1024)


def test_missing_device_nodes_are_named_before_anything_is_asked(proxmox: Any, live: Run) -> None:
    with pytest.raises(LifeError, match=r"/dev/nvidia8 is missing on node pve.*the unit"):
        live(ostemplate=TEMPLATE, dev=["/dev/nvidia8"], device_hint="Ask the unit.")
    assert proxmox.calls == []
    proxmox.have(101, OURS + "dev0: /dev/nvidia9\n")
    with pytest.raises(LifeError, match="/dev/nvidia9 is missing"):
        live("started")
    assert proxmox.writes() == []
    assert "/dev/nvidia9" in live("started", check=True).warnings[0]


def test_a_volume_grows_by_its_own_request(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS)
    live(rootfs="local:16")
    assert proxmox.writes() == [("PUT", "resize")]
    assert not live(rootfs="local:16").changed


def test_raw_lines_survive_an_api_write(proxmox: Any, live: Run) -> None:
    proxmox.have(101, "# my notes\n" + OURS + "lxc.cap.drop: sys_module\n\n[before]\nhostname: glm\nlxc.cap.drop: sys_time\nsnaptime: 1\n")
    live(lxc=[{"key": "lxc.autodev", "value": "1"}])
    live(memory=2048, onboot=True)
    config = proxmox.config(101)
    assert config.live.raw == [("lxc.cap.drop", "sys_module"), ("lxc.autodev", "1")]
    assert config.live.description == " my notes\n"
    assert config.snapshots["before"].raw == [("lxc.cap.drop", "sys_time")]


def test_stopped_and_started_only_when_it_is_not_so(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS, running=True)
    assert not live("started").changed
    assert live("stopped", force_stop=False).changed
    assert proxmox.calls[0][2] == {"timeout": "60", "forceStop": "0"}
    assert not live("stopped").changed


def test_a_container_of_the_ha_manager_is_waited_for(proxmox: Any, live: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    proxmox.have(101, OURS)
    monkeypatch.setattr(proxmox, "_do", lambda *_: None)
    read, looks = proxmox.read_many, []

    def later(patterns: Any) -> Any:
        looks.append(1)
        if len(looks) == 4:
            proxmox.boot(101)
        return read(patterns)

    monkeypatch.setattr(proxmox, "read_many", later)
    assert live("started").status == "running"
    monkeypatch.setattr("gpunode.pveapi.life.SETTLE_S", 0.01)
    with pytest.raises(LifeError, match=r"was stopped and runs .*ha-manager status"):
        live("stopped")
    proxmox.up.clear()
    looks.extend([1] * 9)
    with pytest.raises(LifeError, match=r"was started and does not run .*pct start 101 --debug"):
        live("started")


def test_somebody_else_who_started_it_first_is_no_error(proxmox: Any, live: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    proxmox.have(101, OURS)

    def start(*_: Any) -> str:
        proxmox.boot(101)
        raise ApiError("CT 101 already running")

    monkeypatch.setattr(proxmox, "start", start)
    assert live("started").changed


def test_a_template_is_left_alone(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS + "template: 1\n")
    with pytest.raises(LifeError, match="is a template"):
        live("started")


def test_a_value_that_proxmox_does_not_keep_is_a_warning_and_no_loop(proxmox: Any, live: Run) -> None:
    proxmox.have(101, OURS)
    proxmox.call = lambda *_, **__: proxmox.calls.append(("PUT", "config", {}))
    out = live(memory=2048)
    assert len(proxmox.calls) == 1
    assert out.warnings == ["memory reads '1024' after it was set to '2048'"]


def test_a_token_is_told_before_anything_changes(proxmox: Any, live: Run) -> None:
    proxmox.user = "root@pam!ansible"
    with pytest.raises(LifeError, match=r"root@pam!ansible may not set dev0 \(device passthrough\), mp0 \(mount of the host's /srv\)"):
        live(ostemplate=TEMPLATE, dev=["/dev/nvidia0"], mp=["/srv,mp=/srv"])
    assert proxmox.calls == []
    assert live(ostemplate=TEMPLATE, features={"nesting": True}).changed


def test_without_a_template_nothing_is_created(proxmox: Any, live: Run) -> None:
    with pytest.raises(LifeError, match="no ostemplate is given"):
        live()
    assert proxmox.calls == []
