"""Who is being measured: model names, engine and version, flags that matter, and ids that exist in its vocabulary."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpunode_tools.smoke.http import Unreachable, get_json, request

if TYPE_CHECKING:
    from gpunode_tools.smoke.level import Target

# Fields of /server_info that change from start to start, or must not be written anywhere.
VOLATILE: Final = {
    "status", "startup_time", "internal_states", "random_seed", "nccl_port", "port", "host", "dist_init_addr", "api_key", "admin_api_key",
    "version", "simulated", "kv_events", "max_total_num_tokens", "launch_command", "frontend", "ssl_keyfile_password",
}  # fmt: skip
KEPT: Final = (
    "max_running_requests", "tp_size", "pp_size", "mem_fraction_static", "kv_cache_dtype", "quantization", "moe_runner_backend",
    "attention_backend", "chunked_prefill_size", "disable_flashinfer_autotune", "disable_radix_cache", "speculative_algorithm",
)  # fmt: skip
SAMPLE_TEXT: Final = (
    "The quick brown fox jumps over the lazy dog while 37 engineers measure 8 cards, 2 sockets and 5 switches; nobody queues. "
)
ALPHABET_TOKENS: Final = 96
"""Tokens that are asked of a server to learn ids that exist: four of them in a row tell millions of prompts apart."""


@dataclass
class Server:
    """What the server told; `unknown` lists what it did not. `patches` is None where its version does not tell."""

    engine: str = "unknown"
    version: str | None = None
    patches: list[dict[str, str]] | None = None
    models: list[str] = field(default_factory=list)
    max_running_requests: int | None = None
    max_total_num_tokens: int | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    flags_digest: str | None = None
    model_path: str | None = None
    vocabulary: int | None = None
    alphabet: tuple[int, ...] = ()
    simulated: bool = False
    has_metrics: bool = False
    has_loads: bool = False
    can_flush: bool = False
    unknown: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As in the result."""
        return {
            "engine": self.engine,
            "version": self.version,
            "patches": self.patches,
            "models": self.models,
            "max_running_requests": self.max_running_requests,
            "max_total_num_tokens": self.max_total_num_tokens,
            "flags": self.flags,
            "flags_digest": self.flags_digest,
            "vocabulary": self.vocabulary,
            "metrics": self.has_metrics,
            "unknown": self.unknown,
        }


async def look(target: Target) -> Server:
    """Ask everything that can be asked; Unreachable when not even /v1/models answers."""
    server = Server()
    status, headers, body = await request(target, "/v1/models")
    if status == 200:
        try:
            listed = json.loads(body)["data"]
            server.models = [str(entry["id"]) for entry in listed]
            owner = str(listed[0].get("owned_by", "")) if listed else ""
        except (ValueError, KeyError, TypeError, IndexError):
            raise Unreachable(f"/v1/models answered something else than a list of models: {body[:120]!r}") from None
        server.engine = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llama.cpp"}.get(owner, "unknown")
    elif status in {401, 403}:
        raise Unreachable(f"/v1/models answered HTTP {status}: the server wants an API key (--api-key-file)")
    elif status == 404:
        server.unknown.append("models")
    else:
        raise Unreachable(f"/v1/models answered HTTP {status}: {body[:200].decode('utf-8', 'replace')}")
    server.simulated = "x-gpunode-simulated" in headers
    await _sglang(target, server)
    if server.engine in {"vllm", "unknown"} and server.version is None:
        found = await get_json(target, "/version")
        server.version = str(found["version"]) if isinstance(found, dict) and "version" in found else None
    if server.engine in {"llama.cpp", "unknown"} and server.version is None:
        found = await get_json(target, "/props")
        if isinstance(found, dict):
            server.version = str(found.get("build_info")) if found.get("build_info") else None
            server.max_running_requests = found.get("total_slots")
    status, _, _ = await request(target, "/metrics")
    server.has_metrics = status == 200
    if not server.has_metrics:
        server.unknown.append("metrics")
        server.has_loads = server.engine == "sglang" and isinstance(await get_json(target, "/v1/loads"), dict)
    return server


async def _sglang(target: Target, server: Server) -> None:
    for path in ("/server_info", "/get_server_info"):
        info = await get_json(target, path)
        if not isinstance(info, dict):
            continue
        server.engine = "sglang" if "internal_states" in info else server.engine
        server.version = str(info.get("version")) if info.get("version") else None
        if server.version and server.engine == "sglang":
            server.patches = _patches(server.version)
        server.simulated = server.simulated or bool(info.get("simulated"))
        server.max_total_num_tokens = info.get("max_total_num_tokens")
        states = info.get("internal_states")
        state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
        # One cap for each data-parallel rank; the resolved one where the version tells it.
        cap = state.get("effective_max_running_requests_per_dp") or info.get("max_running_requests")
        server.max_running_requests = int(cap) * int(info.get("dp_size") or 1) if cap else None
        server.flags = {key: info.get(key) for key in KEPT if key in info}
        stable = {
            key: value
            for key, value in info.items()
            if key not in VOLATILE and isinstance(value, (str, int, float, bool, list, type(None)))
        }
        server.flags_digest = hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]
        server.model_path = info.get("model_path")
        server.can_flush = True
        return


def _patches(version: str) -> list[dict[str, str]] | None:
    """Patches that a version's label stands for; None where it stands for none that is known."""
    if "+" not in version:
        return []  # as published: no need to look through the catalogue
    from gpunode.wheelpatch.catalogue import applied_in

    applied = applied_in(version)
    return None if applied is None else [{"id": patch.id, "why": patch.why, "upstream": patch.upstream} for patch in applied]


def vocabulary_of(path: str | None) -> int | None:
    """vocab_size of a checkpoint's config.json that can be read here: a folder, or a file."""
    if not path:
        return None
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return int(size) if isinstance(size, int) and size > 0 else None


async def learn_ids(target: Target, server: Server, model: str) -> None:
    """Fill `alphabet` with ids that exist, from the server's tokenizer or from its own output, where the vocabulary is not known.

    An id beyond the vocabulary ends a real sglang server, and no endpoint tells the vocabulary's size.
    """
    body = json.dumps({"model": model, "prompt": SAMPLE_TEXT * 3}).encode()
    try:
        status, _, answer = await request(target, "/tokenize", method="POST", body=body)
        if status == 200:
            found = json.loads(answer).get("tokens")
            server.alphabet = _distinct(found)
        if not server.alphabet and server.engine == "sglang":
            sampling = {"max_new_tokens": ALPHABET_TOKENS, "temperature": 1.0, "ignore_eos": True}
            body = json.dumps({"text": SAMPLE_TEXT, "sampling_params": sampling}).encode()
            status, _, answer = await request(target, "/generate", method="POST", body=body, timeout_s=120)
            if status == 200:
                server.alphabet = _distinct(json.loads(answer).get("output_ids"))
    except (Unreachable, ValueError, AttributeError):
        server.alphabet = ()


def _distinct(ids: Any) -> tuple[int, ...]:
    if isinstance(ids, list) and ids and isinstance(ids[0], list):
        ids = ids[0]
    found = sorted({item for item in ids if isinstance(item, int)}) if isinstance(ids, list) else []
    return tuple(found) if len(found) >= 8 else ()


async def flush(target: Target, server: Server) -> bool:
    """Empty the prefix cache where the server can."""
    if not server.can_flush:
        return False
    try:
        status, _, _ = await request(target, "/flush_cache", method="POST")
    except Unreachable:
        return False
    return status == 200
