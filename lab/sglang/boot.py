"""What sglang's part adds to a booting node: the wheel for releases, the settings that guests see, a checkpoint on the disk."""

from __future__ import annotations

from pathlib import Path

from lab.sglang import checkpoint, wheel

WHEELS = Path("/usr/lib/gpunode-lab/wheels")
SETTINGS = Path("/etc/lab/sglang")
GUEST = Path("/run/lab/guest.d/50-sglang.conf")
MODELS = Path("/var/lib/models/hub")


def main() -> None:
    """Idempotent; a checkpoint that somebody damaged or removed on purpose is left as it is while its folder stands."""
    wheel.build(WHEELS)
    SETTINGS.mkdir(parents=True, exist_ok=True)
    GUEST.parent.mkdir(parents=True, exist_ok=True)
    GUEST.write_text(f"lxc.mount.entry = {SETTINGS} {str(SETTINGS).lstrip('/')} none bind,ro,create=dir 0 0\n", encoding="utf-8")
    if not (MODELS / f"models--{checkpoint.REPO.replace('/', '--')}").exists():
        checkpoint.create(MODELS)
