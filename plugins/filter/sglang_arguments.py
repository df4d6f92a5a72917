"""Filter: a mapping of server flags as command-line arguments."""

from __future__ import annotations

import typing as t


def sglang_arguments(flags: t.Mapping[str, t.Any]) -> list[str]:
    """Arguments for a mapping of flags.

    True gives a bare flag, False or None leaves it out, a list gives several values, anything else its text.
    Raises TypeError for a value that is a mapping: flags that take JSON want it as text.
    """
    arguments: list[str] = []
    for name, value in flags.items():
        flag = "--" + str(name).lstrip("-")
        if value is None or value is False:
            continue
        if isinstance(value, t.Mapping):
            raise TypeError(f"{flag} has a mapping for a value; write its JSON as text")
        arguments.append(flag)
        if value is True:
            continue
        arguments.extend(str(item) for item in (value if isinstance(value, (list, tuple)) else [value]))
    return arguments


class FilterModule:
    """Ansible's filter interface."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_arguments": sglang_arguments}
