"""Power and utilisation of this machine's GPUs while a server is measured, from nvidia-smi."""

from __future__ import annotations

import asyncio
import shutil
import socket
from typing import Any, Final

PERIOD_S: Final = 2.0
TIMEOUT_S: Final = 5.0
"""nvidia-smi hangs when a GPU has fallen off the bus; it is killed and not asked again."""
QUERY: Final = ("nvidia-smi", "--query-gpu=power.draw,power.limit,utilization.gpu,name", "--format=csv,noheader,nounits")


def local(host: str) -> bool:
    """Whether an address is this machine's own: only then are its GPUs those of the server."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    for address in addresses:
        family = socket.AF_INET6 if ":" in str(address) else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((str(address), 0))
            except OSError:
                return False
    return True


class Gpus:
    """Samples of all GPUs together."""

    def __init__(self, *, wanted: bool) -> None:
        self.able = wanted and shutil.which(QUERY[0]) is not None
        self.samples: list[tuple[float, float, float]] = []
        self.simulated = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a level."""
        self.samples = []
        if self.able:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End a level."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while self.able:
            await self._once()
            await asyncio.sleep(PERIOD_S)

    async def _once(self) -> None:
        process = await asyncio.create_subprocess_exec(*QUERY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            self.able = False
            process.kill()
            return
        except asyncio.CancelledError:
            process.kill()
            raise
        rows = [row.split(", ") for row in output.decode("utf-8", "replace").splitlines() if row.count(", ") >= 3]
        try:
            values = [(float(row[0]), float(row[1]), float(row[2])) for row in rows]
        except ValueError:
            self.able = False
            return
        if values:
            self.simulated = self.simulated or any("(simulated)" in row[3] for row in rows)
            count = len(values)
            self.samples.append(
                (
                    sum(value[0] for value in values) / count,
                    sum(value[1] for value in values) / count,
                    sum(value[2] for value in values) / count,
                )
            )

    def level(self) -> dict[str, Any] | None:
        """Means over the level, None when nothing was read."""
        if not self.samples:
            return None
        count = len(self.samples)
        power, limit, use = (sum(sample[index] for sample in self.samples) / count for index in range(3))
        return {"power_w_mean": round(power, 1), "power_limit_w": round(limit, 1), "utilisation_mean": round(use, 1), "samples": count}
