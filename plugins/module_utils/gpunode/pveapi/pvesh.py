"""The API over pvesh, as root@pam on the node itself: no password, no token, nothing installed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from ..pve.tasks import find_upid
from .base import ApiError, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .shells import Shell

_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "set", "DELETE": "delete"}
REQUEST_S: Final = 60.0
"""Time for one request: Proxmox's own lock time-out is 10 s, and a loaded node takes seconds to start pvesh."""


class PveshApi:
    """Requests as ``pvesh`` commands in a shell.

    pvesh differs from the API's daemons in one thing: it runs a task as its child, prints the task's output, and exits with 0
    even when the task failed. So a started task has ended when ``start`` returns, and how it ended says its status.
    """

    user = "root@pam"

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.name = shell.name

    def call(self, method: str, path: str, params: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Any:
        """See ``Api.call``."""
        code, out, err = self._run(method, path, params, timeout or REQUEST_S)
        if code != 0:
            raise error_of(err or out)
        return parse_output(out)

    def start(self, method: str, path: str, params: Mapping[str, str] | None, deadline: Deadline) -> str:
        """See ``Api.start``."""
        code, out, err = self._run(method, path, params, deadline.left)
        upid = find_upid(out)
        if upid is None:
            raise error_of(err.strip() or f"pvesh started no task and ended with status {code}")
        return upid.text

    def _run(self, method: str, path: str, params: Mapping[str, str] | None, timeout: float) -> tuple[int, str, str]:
        argv = ["pvesh", _VERBS[method], path, "--output-format", "json"]
        argv += [f"--{key}={value}" for key, value in sorted((params or {}).items())]
        return self.shell.run(argv, timeout=timeout)


def parse_output(text: str) -> Any:
    """The data of pvesh's output; lines of progress before it are skipped, no output is None."""
    lines = text.splitlines(keepends=True)
    for first in range(len(lines)):
        try:
            return json.loads("".join(lines[first:]))
        except ValueError:
            continue
    return None


def error_of(text: str) -> ApiError:
    """What pvesh wrote to its error output: status, text and the texts by parameter; its usage is left out."""
    status = None
    said: list[str] = []
    errors: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(("trying to acquire", "USAGE:")) or "<api_path>" in line or line.strip() == "OK":
            continue
        head = re.match(r"(\d{3}) (\S.*)", line)
        item = re.match(r"([a-z][a-z0-9_-]*): (\S.*)", line)
        if head and status is None:
            status = int(head[1])
            said.append(head[2])
        elif status == 400 and item:
            errors[item[1]] = item[2]
        else:
            said.append(line.strip())
    return ApiError(" ".join(said) or "pvesh failed and said nothing", status=status, errors=errors)
