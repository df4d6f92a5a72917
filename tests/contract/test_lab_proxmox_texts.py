"""Every error text that the real API gives for a container's calls: the lab's Proxmox VE gives it, or it is named here with the reason."""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import re
from pathlib import Path

import pytest

CALLS = [
    "POST /nodes/{node}/lxc",
    "DELETE /nodes/{node}/lxc/{vmid}",
    "GET /nodes/{node}/lxc/{vmid}/config",
    "PUT /nodes/{node}/lxc/{vmid}/config",
    "PUT /nodes/{node}/lxc/{vmid}/resize",
    "POST /nodes/{node}/lxc/{vmid}/template",
    *(f"POST /nodes/{{node}}/lxc/{{vmid}}/status/{verb}" for verb in ("start", "stop", "shutdown", "reboot")),
    "GET /cluster/nextid",
    "GET /nodes/{node}/storage/{storage}/content",
    "GET /nodes/{node}/tasks/{upid}/status",
    "POST /access/ticket",
]
# A part of the text -> why the lab never says it.
BEYOND = {
    "kernel too old": "no kernel below 5.3 is under the lab",
    "skiplock_flag_fn": "the lab needs no flag file for starts that skip locks",
    "command socket": "LXC's own tools talk to the monitor",
    "'reverse' iteration": "an internal error of the real code",
    "internal error": "an internal error of the real code",
    "parse_volume - unknown type": "an internal error of the real code",
    "unexpeted error": "an internal error of the real code",
    "failed to remove config file": "an error of the cluster file system",
    "current size of volume": "volumes are directories: their size is what the configuration says",
    "resize file/device": "likewise",
    "invalid size: ": "refused by the schema's format before",
    "another container": "linked clones",
    "linked clone": "linked clones",
    "Template feature": "every directory can be a template",
    "snippet": "scripts are root's, who passes this check",
    "missing privileges to access": "the check of a volume's storage speaks first",
    "modifying tag": "no registered tags",
    "case insensitive": "realms pam and pve distinguish case",
    "overwrite running container": "restoring backups",
    "restore from pipe": "restoring backups",
    "replicat": "replication",
    "connection check": "storages over the network",
    "not online": "storages over the network",
    "idmap": "id maps of mount points",
    "invalid map entry": "id maps are checked by LXC",
    "HA resources": "high availability",
    "SLAAC": "host-managed networks",
    "Path is not defined": "a device without a path is refused as `Path has to be defined`, as the real parser does first",
    "found lock": "the lab removes the lock it finds",
}


def catalogue() -> dict[str, list[dict[str, str]]]:
    found = importlib.util.find_spec("fakepve")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("the development dependency fakepve (data only) is not installed")
    file = Path(found.submodule_search_locations[0]) / "data/pve-errors.json.gz"
    return json.loads(gzip.decompress(file.read_bytes()))["errors"]


def shape(node: ast.AST) -> str | None:
    """A literal's text with NUL for each filled-in value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
    return None


def pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join("(?:.|\0)*" if letter == "\0" else re.escape(letter) for letter in text), re.DOTALL)


def said() -> list[str]:
    lab = Path(__file__).parents[2] / "lab/proxmox"
    texts = []
    for file in lab.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            text = shape(node)
            if text and len(text.replace("\0", "").strip()) > 7:
                texts += [text, f"Permission check failed ({text})"] if file.name == "perms.py" else [text]
    return texts


def test_the_texts_of_containers_calls():
    texts = [(text, pattern(text)) for text in said()]
    missing = []
    for call in CALLS:
        for entry in catalogue()[call]:
            real = re.sub(r"\{[^}]*\}", "\0", entry["message"].strip())
            loose = pattern(real) if len(real.replace("\0", "")) > 7 else None
            known = any(one.fullmatch(real) or (loose and loose.fullmatch(text)) for text, one in texts)
            if not known and not any(part in entry["message"] for part in BEYOND):
                missing.append(f"{call}: {entry['message']}")
    assert missing == []


def test_no_exception_is_left_over():
    messages = [entry["message"] for call in CALLS for entry in catalogue()[call]]
    assert [part for part in BEYOND if not any(part in message for message in messages)] == []
