"""Measuring a node: where the driver is used, with the GPUs in use or not, with progress on a terminal."""

from __future__ import annotations

import re
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.collect.errors import UnreachableError
from gpunode_tools.collect.node import BUSY_MIB, as_snapshot_keys
from gpunode_tools.probe import Options, command, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpunode_tools.collect.machines import Machine

SERVICE_TIMEOUT_S: Final = 300.0
"""Stopping a server that frees hundreds of gigabytes takes minutes at worst."""
GUARD_LIMIT_S: Final = 1800
"""Longer than any honest measurement: after that the guard takes this program, or the way to it, for gone."""
GUARD: Final = """\
trap '' HUP INT TERM PIPE
echo armed
timeout -s KILL {limit} sh -c 'read -r word' || "$@" >/dev/null 2>&1
"""
"""Starts the server when its standard input ends without a word: however this program ends, SIGKILL and a lost connection included."""
GUARD_START_S: Final = 20.0
START: Final = """\
systemctl reset-failed "$0" 2>/dev/null
systemctl start --no-block "$0" || exit
for second in 1 2 3; do
    state=$(systemctl is-active "$0")
    case $state in active|failed) break ;; esac
    sleep 1
done
case $state in
active|activating|reloading) exit 0 ;;
inactive) [ -z "$(systemctl show --property Job --value "$0")" ] || exit 0 ;; # waits for another unit
esac
echo "it is $state: journalctl -u $0" >&2
exit 1
"""
"""Starts the unit whatever it has been started within the hour (a limit of systemd's counts our starts too), and sees it begin."""


def measure_node(machine: Machine, data: dict[str, Any], options: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure and return the snapshot's ``measured`` and ``measurement``. ``data`` is the node's snapshot, for container and use."""
    container = data.get("container", {}).get("vmid")
    place = f"container {container}" if container else machine.name
    busy = gpus_in_use(data)
    how = options["when_busy"]
    if busy and how == "refuse":
        reason = f"GPUs are in use ({busy}) and --when-busy refuse was asked"
        return {
            "measured": [],
            "measurement": {
                "mode": options["measure"],
                "where": place,
                "fatal": {"where": "use", "code": None, "name": "", "summary": reason},
            },
        }
    wanted = Options(
        measure=options["measure"],
        pairs=options["pairs"],
        pair_timeout_s=options["pair_timeout"],
        light=False if how != "light" else True if busy else "auto",  # auto: small buffers where memory is in use after all
    )
    argv = command(container)
    show = Progress(place) if sys.stderr.isatty() else None
    with stopped_server(machine, container, options["server_unit"], say, needed=bool(busy) and how == "stop"):
        result = measure(wanted, lambda: machine.session(argv), show)
    if show:
        show.end()
    keys = as_snapshot_keys(result, options)
    keys["measurement"]["where"] = place
    return keys


def gpus_in_use(data: dict[str, Any]) -> str:
    """Say in words which GPUs are in use by nvidia-smi -q; '' when none is, or nothing tells."""
    from gpunode.snapshot import Snapshot
    from gpunode.state import State

    gpus = State(Snapshot(data)).gpus
    used = [gpu for gpu in gpus if gpu.info and (gpu.info.process_ids or (gpu.info.fb_used_mib or 0) > BUSY_MIB)]
    return ", ".join(f"{gpu.name} {gpu.info.fb_used_mib if gpu.info else '?'} MiB" for gpu in used)


@contextmanager
def stopped_server(machine: Machine, container: int | None, unit: str, say: Callable[[str], None], *, needed: bool) -> Iterator[None]:
    """Stop the server for the time of the block when it runs and that is needed; start it again whatever happens, signals included."""
    prefix = ["pct", "exec", str(container), "--"] if container else []
    if not needed or machine.run([*prefix, "systemctl", "is-active", "--quiet", unit], timeout=30)[0] != 0:
        yield
        return

    start = [*prefix, "sh", "-c", START, unit]
    try:
        guard = machine.session(["sh", "-c", GUARD.format(limit=GUARD_LIMIT_S), "gpunode-guard", *start])
    except OSError as failed:
        raise UnreachableError(f"{unit} was not stopped: {failed}") from None
    try:
        armed = guard.readline(GUARD_START_S)
    except TimeoutError:
        armed = b""
    if armed != b"armed\n":
        _, said = guard.close()
        raise UnreachableError(
            f"{unit} was not stopped: what would start it again does not run on {machine.name}: {said or 'no word from it'}"
        )

    def interrupt(number: int, frame: object) -> None:
        del frame
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        say(f"verify-p2p: stopping {unit}; it is started again afterwards")
        code, _, error = machine.run([*prefix, "systemctl", "stop", unit], timeout=SERVICE_TIMEOUT_S)
        if code != 0:
            say(f"verify-p2p: {unit} could not be stopped: {error.strip()}")
        yield
    finally:
        code, _, error = machine.run(start, timeout=60)
        guard.send(b"started\n" if code == 0 else b"")  # without a word it tries as well
        guard.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        if code != 0:
            again = f"{' '.join([*prefix, 'systemctl', 'reset-failed', unit])}; {' '.join([*prefix, 'systemctl', 'start', unit])}"
            say(f"verify-p2p: {unit} COULD NOT BE STARTED AGAIN: {error.strip()}; run: {again}")


class Progress:
    """One line on a terminal's standard error that follows the measurement."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.shown = False

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event of the probe."""
        pair = event.get("pair")
        if pair:
            rate = f"{pair['copy_gbps']:.1f} GB/s" if pair.get("copy_gbps") else pair.get("status", "")
            self._line(
                f"{event.get('done', '?')}/{event.get('total', '?')} pairs in {self.place}, GPU{pair['src']}->GPU{pair['dst']} {rate}"
            )
        elif event.get("event") == "gpus":
            self._line(f"{len(event['gpus'])} GPUs in {self.place}, starting")
        elif event.get("event") == "pattern":
            self._line(f"pattern {event['pattern'].get('name')} in {self.place}")

    def _line(self, text: str) -> None:
        self.shown = True
        print("\r\x1b[K" + re.sub(r"[^\x20-\x7e]", "?", text), end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
