"""A level spread over processes when one core is not enough; each is an interpreter of its own, told by pickle over its pipes."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpunode_tools.smoke.level import Data, Level, Plan, Target

if TYPE_CHECKING:
    from collections.abc import Callable

STREAMS_PER_PROCESS: Final = 256
"""Streams that one process reads with three quarters of its core to spare at 100 tokens a second each."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def count(concurrency: int, asked: int | None) -> int:
    """Processes for a level: as asked, else one for each 256 streams, leaving one core to the rest of the machine."""
    if asked:
        return max(1, min(asked, concurrency))
    return max(1, min(max(1, cores() - 1), -(-concurrency // STREAMS_PER_PROCESS)))


def split(plan: Plan, processes: int) -> list[Plan]:
    """Shares of a plan: slots and requests as even as they go, prompts interleaved so that none is sent twice."""
    plans = []
    for index in range(processes):
        slots = plan.concurrency // processes + (index < plan.concurrency % processes)
        requests = None if plan.requests is None else plan.requests // processes + (index < plan.requests % processes)
        plans.append(
            replace(
                plan,
                concurrency=slots,
                requests=requests,
                first_prompt=plan.first_prompt + index * plan.prompt_step,
                prompt_step=plan.prompt_step * processes,
            )
        )
    return plans


class Running:
    """A level that runs, in this process or in several."""

    def __init__(self, target: Target, plan: Plan, processes: int, progress: Callable[[Level], None] | None) -> None:
        self.target, self.plan, self.processes, self.progress = target, plan, processes, progress
        self.level: Level | None = None
        self.children: list[asyncio.subprocess.Process] = []

    async def run(self) -> list[Data]:
        """What each process saw."""
        if self.processes == 1:
            self.level = Level(self.target, self.plan, self.progress)
            return [await self.level.run()]
        return list(await asyncio.gather(*(self._child(plan) for plan in split(self.plan, self.processes))))

    async def _child(self, plan: Plan) -> Data:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from gpunode_tools.smoke.shards import main; main()",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.children.append(child)
        output, _ = await child.communicate(pickle.dumps((self.target, plan)))
        if child.returncode != 0 or not output:
            raise RuntimeError(f"a load process ended with {child.returncode}")
        data = pickle.loads(output)  # noqa: S301 - our own child
        if not isinstance(data, Data):
            raise TypeError("a load process answered something else than its data")
        return data

    def stop(self) -> None:
        """End the level now; its data so far is returned by `run`."""
        if self.level is not None:
            self.level.stop()
        for child in self.children:
            if child.returncode is None:
                child.send_signal(signal.SIGINT)


async def _serve() -> Data:
    target, plan = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - our own parent
    level = Level(target, plan)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, level.stop)
    return await level.run()


def main() -> None:
    """One load process."""
    import uvloop

    sys.stdout.buffer.write(pickle.dumps(uvloop.run(_serve())))
