"""Errors with the texts and HTTP codes that Proxmox VE gives."""

from __future__ import annotations


class PveError(Exception):
    """An error as Proxmox VE raises it: `text` without a trailing newline, `status` the HTTP code (500 for a plain die)."""

    def __init__(self, text: str, status: int = 500, errors: dict[str, str] | None = None, *, exit_code: int = 255) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.errors = errors or {}
        self.exit_code = exit_code

    def for_terminal(self) -> str:
        """The text as pct and pvesh print it: raised exceptions carry their code, a plain die does not."""
        head = self.text if self.status == 500 else f"{self.status} {self.text}"
        return "".join([head, "\n", *(f"{name}: {text.rstrip(chr(10))}\n" for name, text in self.errors.items())])


class ParamError(PveError):
    """400: one text for each parameter that was refused."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("Parameter verification failed.", 400, errors)


class PermError(PveError):
    """403: what the user lacks, in brackets."""

    def __init__(self, what: str = "") -> None:
        super().__init__("Permission check failed" + (f" ({what})" if what else ""), 403)


class MissingConfigError(PveError):
    """A guest's configuration is not on this node (500; the real tools leave with ENOENT's number)."""

    def __init__(self, relative: str) -> None:
        super().__init__(f"Configuration file '{relative}' does not exist", exit_code=2)
