"""Launches in files of other tools: compose and Kubernetes YAML by their structure, everything else as text."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import yaml

from gpunode.sglang.launch_text import Launch, NoLaunchError, extract, from_words, shown_gpus
from gpunode.sglang.launch_words import split_words
from gpunode.sglang.variables import without_statements

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMANDS = ("entrypoint", "command", "args")


def launches_in(text: str) -> list[Launch]:
    """Every launch in a text, in order; raises NoLaunchError where there is none."""
    found = list(_from_yaml(text))
    return found or extract(text)


def _from_yaml(text: str) -> Iterator[Launch]:
    if ":" not in text:
        return
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return
    for document in documents:
        yield from _settings(document)
        yield from _walk(document)


def _walk(node: object) -> Iterator[Launch]:
    if isinstance(node, dict):
        words = [word for key in _COMMANDS for word in _words(node.get(key))]
        if words:
            environment = _gpus(node) | _environment(node.get("environment")) | _environment(node.get("env"))
            with contextlib.suppress(NoLaunchError):  # a container that is no server
                yield from _with(_launches(words, str(node.get("image", ""))), environment)
        for value in node.values():
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)


def _launches(words: list[str], image: str) -> list[Launch]:
    # The image of sglang may bring the entry point itself.
    if words[0].startswith("--") and "sglang" in image:
        return [Launch("", tuple(words))]
    return from_words(words)


def _gpus(node: dict[str, Any]) -> dict[str, str]:
    """GPUs that compose reserves, or Kubernetes limits, as the variable that the container gets; empty where nothing is told."""
    limits = _at(node, "resources", "limits")
    if limits.get("nvidia.com/gpu") is not None:
        return shown_gpus(str(limits["nvidia.com/gpu"]))
    devices = _at(node, "deploy", "resources", "reservations").get("devices") or []
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and "gpu" in str(device.get("capabilities")):
            listed = device.get("device_ids")
            return shown_gpus(f"device={','.join(map(str, listed))}" if listed else str(device.get("count")))
    return {}


def _at(node: Any, *path: str) -> dict[str, Any]:
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def _with(launches: list[Launch], environment: dict[str, str]) -> Iterator[Launch]:
    for launch in launches:
        yield Launch(launch.entry, launch.arguments, {**environment, **launch.environment})


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        value = _plain(value)
        return split_words(value.replace("\\\n", " ")) if "\n" not in value.strip() else [value]
    if isinstance(value, list):
        return [_plain(str(item)) for item in value if item is not None]
    return []


def _plain(text: str) -> str:
    """A word as the container gets it: compose writes ``$$`` for a shell's ``$``, Helm puts its values in."""
    return without_statements(text).replace("$$", "$")


def _settings(document: object) -> Iterator[Launch]:
    """The file of ``--config``: a mapping of flags, of which sglang makes words as they stand (srt/utils/server_args_config_parser.py)."""
    if not isinstance(document, dict) or not {"model-path", "model_path"} & set(document):
        return
    words: list[str] = []
    for name, value in document.items():
        flag = f"--{name}"
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [flag, *(str(item) for item in value)]
        elif value is not None:
            words += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    yield Launch("", tuple(words))


def _environment(value: Any) -> dict[str, str]:
    """Compose's mapping or list of K=V, Kubernetes' list of name and value."""
    if isinstance(value, dict):
        return {str(name): "" if item is None else str(item) for name, item in value.items()}
    found: dict[str, str] = {}
    for item in value if isinstance(value, list) else []:
        if isinstance(item, str) and "=" in item:
            name, _, text = item.partition("=")
            found[name] = text
        elif isinstance(item, dict) and "name" in item and "value" in item:
            found[str(item["name"])] = str(item["value"])
    return found
