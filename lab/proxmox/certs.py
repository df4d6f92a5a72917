"""The node's certificate, signed by the cluster's own authority: what `pvecm updatecerts` makes at the first start."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from lab.proxmox.world import World

_DAYS = "730"  # as the real one's


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def ensure(world: World) -> None:
    """Make the authority and the node's certificate where they are missing."""
    authority, key = world.pve / "pve-root-ca.pem", world.pve / "priv/pve-root-ca.key"
    local = world.pve / "nodes" / world.node
    if (local / "pve-ssl.pem").exists():
        return
    key.parent.mkdir(parents=True, exist_ok=True)
    if not authority.exists():
        _openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "3650",
            "-keyout",
            key,
            "-out",
            authority,
            "-subj",
            "/CN=Proxmox Virtual Environment/OU=lab/O=PVE Cluster Manager CA",
        )
        key.chmod(0o600)
    address = (world.lab("node", {}) or {}).get("address", "127.0.0.1")
    names = f"IP:127.0.0.1,IP:::1,DNS:localhost,IP:{address},DNS:{world.node},DNS:{world.node}.lab.internal"
    with tempfile.TemporaryDirectory() as folder:
        request, extension = Path(folder, "request"), Path(folder, "extension")
        extension.write_text(f"basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName={names}\n")
        _openssl(
            "req",
            "-new",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            local / "pve-ssl.key",
            "-out",
            request,
            "-subj",
            f"/OU=PVE Cluster Node/O=Proxmox Virtual Environment/CN={world.node}.lab.internal",
        )
        (local / "pve-ssl.key").chmod(0o640)
        _openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-days",
            _DAYS,
            "-CA",
            authority,
            "-CAkey",
            key,
            "-CAcreateserial",
            "-CAserial",
            Path(folder, "serial"),
            "-extfile",
            extension,
            "-out",
            local / "pve-ssl.pem.new",
        )
        (local / "pve-ssl.pem.new").rename(local / "pve-ssl.pem")


if __name__ == "__main__":
    ensure(World())
