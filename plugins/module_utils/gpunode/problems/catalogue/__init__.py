"""The catalogue: every entry is one block in the file of its layer, its tests included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import container, harmless, host, kernel, models, network, runtime, server, server_memory, xids

if TYPE_CHECKING:
    from ..model import Problem

CATALOGUE: Final[tuple[Problem, ...]] = (
    *host.PROBLEMS,
    *kernel.PROBLEMS,
    *xids.PROBLEMS,
    *container.PROBLEMS,
    *runtime.PROBLEMS,
    *models.PROBLEMS,
    *server.PROBLEMS,
    *server_memory.PROBLEMS,
    *network.PROBLEMS,
    *harmless.PROBLEMS,
)
"""All entries, from the hardware upwards, the harmless ones last."""

BY_ID: Final = {problem.id: problem for problem in CATALOGUE}
