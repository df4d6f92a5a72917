"""The checkpoint that is served and the memory it would take: found as the Hugging Face library finds it, checked as a load checks it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.sglang.group import per_node

if TYPE_CHECKING:
    from lab.sglang.settings import Settings

GB = 1e9
GIB = 2**30
# Weights of GLM-5-NVFP4 on each of 8 GPUs, and bytes of KV cache per token and GPU (published and worked out for that model).
GLM_WEIGHTS_GB = 57.06
GLM_KV_BYTES = {"bf16": 100_200, "fp8": 61_500}
TOTAL_WEIGHTS_GB = GLM_WEIGHTS_GB * 8
DEFAULT_MEM_FRACTION = 0.88


def hub_folder() -> Path:
    """The Hugging Face cache: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name])
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return Path(home) / "hub"


def find(args: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Return (folder, config.json) of --model-path, a folder or a cached repository; SystemExit, as a load ends, when parts lack."""
    name = str(args["model_path"])
    folder = Path(name)
    if not folder.is_dir():
        cached = hub_folder() / f"models--{name.replace('/', '--')}"
        revision = str(args.get("revision") or "main")
        ref = cached / "refs" / revision
        snapshot = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
        folder = cached / "snapshots" / snapshot
        if re.match(r"^[./]", name) or not folder.is_dir():
            raise SystemExit(
                f"OSError: {name} is not a local folder and is not a valid model identifier "
                f"in {hub_folder()} (offline mode is on: HF_HUB_OFFLINE=1)."
            )
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise SystemExit(f"OSError: {folder} does not appear to have a file named config.json.")
    config: dict[str, Any] = json.loads(config_path.read_text(encoding="utf-8"))
    override = args.get("json_model_override_args")
    if override and override != "{}":
        config.update(json.loads(override) if isinstance(override, str) else override)
    if args.get("load_format") != "dummy":
        _check_shards(folder)
    return folder, config


def _check_shards(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        for shard in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())):
            if not (folder / shard).is_file():
                raise SystemExit(f"FileNotFoundError: No such file or directory: {folder / shard}")
    elif not list(folder.glob("*.safetensors")):
        raise SystemExit(f"RuntimeError: Cannot find any model weights with `{folder}`")


def memory(config: dict[str, Any], args: dict[str, Any], gpu_gib: float) -> tuple[float, float, int]:
    """(weights in GB, KV cache in GB, KV cache in tokens) on each GPU. Ends the program when nothing is left for the cache."""
    ranks = int(args.get("tp_size") or 1) * int(args.get("pp_size") or 1)
    large = int(config.get("n_routed_experts") or 0) * int(config.get("hidden_size") or 0) > 10**6
    weights = TOTAL_WEIGHTS_GB / ranks if large else 2.3
    kind = "fp8" if "fp8" in str(args.get("kv_cache_dtype") or "auto") else "bf16"
    per_token = GLM_KV_BYTES[kind] if large else 12_288
    fraction = float(args.get("mem_fraction_static") or DEFAULT_MEM_FRACTION)
    left = gpu_gib * GIB * fraction - weights * GB
    if left <= 0:
        raise SystemExit(
            f"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction}. "
            f"weights={weights:.2f} GB on each of {ranks} GPUs"
        )
    tokens = int(left / per_token)
    if args.get("max_total_tokens"):
        tokens = min(tokens, int(args["max_total_tokens"]))
    return weights, tokens * per_token / GB, tokens


def check_gpus(args: dict[str, Any], settings: Settings) -> None:
    """End as torch does when the container lacks device nodes (only inside the lab, or when the settings ask for it)."""
    wanted = settings.get("check_gpus")
    if wanted is None:
        wanted = Path("/etc/lab/sglang").is_dir()
    if not wanted or args.get("device") == "cpu":
        return
    nodes = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    lacking = [name for name in ("/dev/nvidiactl", "/dev/nvidia-uvm") if not Path(name).exists()]
    if not nodes or lacking:
        raise SystemExit("RuntimeError: No CUDA GPUs are available" + (f" ({', '.join(lacking)} missing)" if lacking else ""))
    ranks = per_node(args)
    if ranks > len(nodes):
        raise SystemExit(
            f"RuntimeError: CUDA error: invalid device ordinal (this node has {ranks} ranks, the container has {len(nodes)} GPUs)"
        )
