"""The texts with which Proxmox VE refuses what is asked of a container: each leads to what is documented for its kind."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import fakepve
import pytest

from gpunode.pve import errors
from gpunode.pve.errors import classify

CATALOGUE = json.loads(gzip.decompress((Path(fakepve.__file__).parent / "data/pve-errors.json.gz").read_bytes()))["errors"]
CALLS = (
    "POST /nodes/{node}/lxc",
    "PUT /nodes/{node}/lxc/{vmid}/config",
    "PUT /nodes/{node}/lxc/{vmid}/resize",
    "DELETE /nodes/{node}/lxc/{vmid}",
    "GET /nodes/{node}/lxc/{vmid}/config",
    "POST /nodes/{node}/lxc/{vmid}/status/start",
    "POST /nodes/{node}/lxc/{vmid}/status/shutdown",
    "GET /cluster/nextid",
    "POST /access/ticket",
)
FILLED = {
    "vmid": "101", "node": "pve", "lock": "backup", "guest_type": "CT", "storeid": "tank", "sid": "tank", "storage": "tank",
    "bridge": "vmbr9", "volid": "local:vztmpl/debian.tar.zst", "opt": "dev0", "key": "dev0", "k": "net0", "mtu": "9000",
    "bridge_mtu": "1500", "type": "bind", "err_msg": "can't remove CT 101", "cfspath": "nodes/pve/lxc/101.conf", "lower": "100",
    "upper": "200", "kernel": "4.9", "tag": "a",
}  # fmt: skip

EXPECTED = {
    errors.LOCKED: r"is locked \(",
    errors.MISSING: r"Configuration file '.*' does not exist",
    errors.PROTECTED: r"protection mode enabled",
    errors.ROOT_ONLY: r"only allowed for root@pam|Only root can",
    errors.FORBIDDEN: r"^Permission check failed(?: \((?!mount|conf|chang)|$)|missing privileges",
    errors.STORAGE: r"storage '.*' (?:does not|is )|connection check for storage|no storage ID|unable to parse volume ID",
    errors.TEMPLATE: r"content type needs to be",
    errors.BRIDGE: r"bridge '.*' does not exist|bigger than bridge MTU",
    errors.DEVICE: r"passthrough device",
    errors.FIXED: r"unable to (?:delete|modify) (?:required|read-only) option",
    errors.HOST: r"script '.*'|snippets directory|kernel too old",
    errors.NO_VMID: r"unable to get any free VMID",
    errors.AUTHENTICATION: r"authentication failure",
    errors.ALREADY: r"CT 101 (?:already|not) running",
}
"""Which of the catalogue's texts are of which kind, said independently of the rules."""


def texts() -> list[tuple[str, int, str]]:
    found = {}
    for call in CALLS:
        for entry in CATALOGUE.get(call, []):
            message = entry["message"].replace("needs to be '{type}'", "needs to be 'vztmpl'")
            text = re.sub(r"\{(\w+)\}", lambda match: FILLED.get(match[1], match[1]), message)
            found[text, entry["status"]] = call
    return [(call, status, text) for (text, status), call in sorted(found.items())]


def wanted_kind(text: str) -> str | None:
    return next((kind for kind, pattern in EXPECTED.items() if re.search(pattern, text)), None)


def test_the_catalogue_has_what_this_is_about() -> None:
    kinds = {wanted_kind(text) for _, _, text in texts()}
    assert len(texts()) > 50
    assert kinds >= set(EXPECTED) - {errors.ALREADY}


@pytest.mark.parametrize(("call", "status", "text"), texts(), ids=[text[:60] for _, _, text in texts()])
def test_each_text_leads_to_its_kind_and_a_way_out(call: str, status: int, text: str) -> None:
    kind, remedy = classify(text, status)
    wanted = wanted_kind(text)
    if wanted is None:
        # What nobody foresaw is shown as it is, and never taken for something that goes away by itself.
        assert kind in {errors.OTHER, errors.PARAMETER, errors.FORBIDDEN}, (call, kind)
        return
    assert kind == wanted
    assert remedy or kind in {errors.ALREADY, errors.HOST}


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("unable to create CT 200 - CT 200 already exists on node 'pve'", None, errors.EXISTS),
        ("can't lock file '/run/lock/lxc/pve-config-200.lock' - got timeout", 500, errors.LOCKED),
        ("unable to create CT 200 - can't lock file '/run/lock/lxc/pve-config-200.lock' - got timeout", None, errors.LOCKED),
        ("detected modified configuration - file changed by other user? Try again.", 500, errors.MODIFIED),
        ("Device /dev/nvidia0 does not exist", 500, errors.DEVICE),
        ("cluster not ready - no quorum?", 500, errors.QUORUM),
        ("tar: ./usr: Cannot write: No space left on device", None, errors.STORAGE_FULL),
        ("zfs error: cannot create 'tank/subvol-101-disk-0': out of space", 500, errors.STORAGE_FULL),
        ("volume 'local:vztmpl/debian.tar.zst' does not exist", 500, errors.TEMPLATE),
        ("permission denied - invalid PVE ticket", 401, errors.AUTHENTICATION),
        ("", 595, errors.RESTARTING),
        ("localhost:8006: connection refused or broken ([Errno 111] Connection refused)", 599, errors.RESTARTING),
        ("Parameter verification failed.", 400, errors.PARAMETER),
        ("something new", 500, errors.OTHER),
        ("something new", 403, errors.FORBIDDEN),
    ],
)
def test_texts_beyond_the_catalogue(text: str, status: int | None, kind: str) -> None:
    assert classify(text, status)[0] == kind


def test_texts_by_parameter_count_too() -> None:
    assert (
        classify("Parameter verification failed.", 400, {"dev0": "unable to hotplug dev0: Device /dev/nvidia9 does not exist"})[0]
        == errors.DEVICE
    )
    assert classify("Parameter verification failed.", 400, {"memory": "type check ('integer') failed - got '8G'"})[0] == errors.PARAMETER


def test_what_goes_away_by_itself_is_little() -> None:
    assert {errors.LOCKED, errors.RESTARTING} == errors.WAIT
