"""What the lab takes over from the machine: apt archives and settings, certificates, resolvers, pip's settings."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from lab.console import LabError, run

_SETTING = re.compile(
    r"Acquire::(?:(?:http|https|ftp)(?:::.*)?|Retries|Check-Valid-Until|Check-Date|ForceIPv[46]|Max-ValidTime|AllowReleaseInfoChange(?:::.*)?)"
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_RESOLVERS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")


@dataclass(frozen=True)
class Archive:
    """Where Debian's packages come from; ``None`` leaves the choice to debootstrap."""

    mirror: str | None = None
    security: str | None = None
    settings: tuple[str, ...] = field(default=())


def parse_targets(text: str) -> tuple[str | None, str | None]:
    """Return (mirror, security) from lines ``origin|label|repository address`` of ``apt-get indextargets``; first one wins."""
    mirror = security = None
    for line in text.splitlines():
        origin, label, address = line.split("|", 2)
        if origin != "Debian":
            continue
        if label == "Debian-Security":
            security = security or address.rstrip("/")
        elif label == "Debian":
            mirror = mirror or address.rstrip("/")
    return mirror, security


def parse_settings(text: str) -> tuple[str, ...]:
    """Return the lines of ``apt-config dump`` that say how archives are reached (proxies, timeouts, clock checks)."""
    kept = []
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if _SETTING.fullmatch(name.removesuffix("::")) and value not in ('"";', ""):
            kept.append(line)
    return tuple(kept)


def archive() -> Archive:
    """Read the machine's apt configuration; an empty Archive where the machine has no apt."""
    if not Path("/usr/bin/apt-get").exists():
        return Archive()
    targets = run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"], check=False)
    mirror, security = parse_targets(targets)
    return Archive(mirror, security, parse_settings(run(["apt-config", "dump"])))


def certificates() -> list[str]:
    """Return the certificates (PEM) that the machine trusts; empty where it has no bundle."""
    named = [os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES]
    bundle = next((Path(path) for path in named if path and Path(path).is_file()), None)
    return [] if bundle is None else _CERTIFICATE.findall(bundle.read_text(encoding="utf-8", errors="replace"))


def resolv_conf(candidates: tuple[str, ...] = _RESOLVERS) -> str:
    """Return a resolv.conf that works from another network namespace; LabError when only loopback resolvers are known."""
    for candidate in candidates:
        path = Path(candidate)
        if not path.exists():
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        servers = [line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1]
        if any(not server.startswith(("127.", "::1")) for server in servers):
            return "".join(f"{line}\n" for line in lines if not re.match(r"nameserver\s+(127\.|::1)|[#;]", line))
    raise LabError(
        f"no name server that a container can reach in {' or '.join(candidates)}: name a resolver with an address outside 127.0.0.0/8 there"
    )


def pip_conf() -> str:
    """Return a pip.conf with the machine's package index, or an empty text where it uses the default one."""
    for path in (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf")):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    options = {"index-url": "PIP_INDEX_URL", "extra-index-url": "PIP_EXTRA_INDEX_URL", "proxy": "PIP_PROXY"}
    lines = [f"{option} = {os.environ[name]}\n" for option, name in options.items() if os.environ.get(name)]
    return "".join(["[global]\n", *lines]) if lines else ""
