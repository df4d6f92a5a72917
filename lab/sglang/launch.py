"""Start of the server: arguments, checkpoint, devices, the log of a load, and then the port."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import re
import signal
import ssl
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.sglang import config_file, flags, models
from lab.sglang.api import Api
from lab.sglang.engine import Engine, log
from lab.sglang.group import Group
from lab.sglang.http import Protocol
from lab.sglang.metrics import Metrics
from lab.sglang.settings import Settings
from lab.sglang.speed import TUNED, TUNED_MIN_CAP, UNTUNED

if TYPE_CHECKING:
    from lab.sglang.http import Exchange

DEFAULT_CAP = 2048  # sglang's lower bound when --max-running-requests is not given
SPECULATIVE_CAP = 48  # speculative decoding resets the cap to this unless it is given
SPECULATIVE_ACCEPT = 2.6  # tokens per step with speculative decoding
AUTOTUNED_RUNNERS = {"auto", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_mxfp4", "flashinfer_cutedsl"}


def package_folder() -> Path:
    """Where the real sglang's files lie."""
    spec = importlib.util.find_spec("sglang")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / "srt").is_dir():
            return Path(location)
    raise SystemExit("sglang stand-in: the real sglang wheel is not installed beside it (pip install --no-deps sglang)")


class Server:
    """What is known before the first request: arguments, model, memory, speed."""

    def __init__(self, args: dict[str, Any], package: Path, settings: Settings) -> None:
        self.args, self.package, self.settings = args, package, settings
        self.group = Group(args)
        self.version = importlib.metadata.version("sglang")
        self.scale = float(settings.get("time_scale"))
        self.http_source = self._read("srt/entrypoints/http_server.py")
        self.folder, self.config = models.find(args)
        self.context = int(args.get("context_length") or self.config.get("max_position_embeddings") or 8192)
        self.vocabulary = int(self.config["vocab_size"])
        self.model_name = str(args.get("served_model_name") or args["model_path"])
        weights, kv_gb, kv_tokens = models.memory(self.config, args, float(settings.get("gpu_memory_gib")))
        self.memory = {"weight_memory_usage_gb": weights, "kv_cache_memory_usage_gb": kv_gb, "context_len": self.context}
        speculative = bool(args.get("speculative_algorithm"))
        cap = int(args.get("max_running_requests") or (SPECULATIVE_CAP if speculative else DEFAULT_CAP))
        self.args["max_running_requests"] = cap
        self.tuned = self.autotunes() and cap >= TUNED_MIN_CAP
        self.startup = {"load_weight": 36.1, "kv_cache_allocation": 0.02, "scheduler_e2e": 251.0, "tokenizer_e2e": 268.0}
        self.engine = Engine(
            TUNED if self.tuned else UNTUNED,
            cap=cap,
            kv_tokens=kv_tokens,
            chunk=max(1, int(args.get("chunked_prefill_size") or 8192)),
            time_scale=self.scale,
            radix=not args.get("disable_radix_cache"),
            accept=SPECULATIVE_ACCEPT if speculative else 1.0,
            log_every=int(args.get("decode_log_interval") or 40),
        )
        self.metrics = Metrics(self.model_name, self.startup, self.memory)
        self.engine.on_finish = lambda request: None if request.rid == "HEALTH_CHECK" else self.metrics.finished(request)

    def _read(self, name: str) -> str:
        path = self.package / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def source_has(self, route: str) -> bool:
        """Whether this release serves a path."""
        return f'"{route}"' in self.http_source

    def handler_position(self, function: str, route: str) -> tuple[str, int]:
        """File and line of a handler, decorators included, as a traceback would show them."""
        for number, line in enumerate(self.http_source.splitlines(), 1):
            if line.startswith("@app.") and f'"{route}"' in line:
                return str(self.package / "srt/entrypoints/http_server.py"), number
        return str(self.package / "srt/entrypoints/http_server.py"), max(1, self.http_source[: self.http_source.find(function)].count("\n"))

    def autotunes(self) -> bool:
        """Whether this release, as it is patched here, autotunes the MoE runner that was asked for."""
        if self.args.get("disable_flashinfer_autotune") or (self.args.get("moe_runner_backend") or "auto") not in AUTOTUNED_RUNNERS:
            return False
        runner = self._read("srt/model_executor/model_runner.py")
        start = runner.find("def _should_run_flashinfer_autotune")
        if start < 0:  # newer releases allow it
            return True
        return bool(re.search(r'^\s*"flashinfer_cutlass"', runner[start : start + 2500], re.MULTILINE))

    def fault(self, name: str) -> Any:
        return self.settings.fault(name)

    def before_request(self, exchange: Exchange) -> None:
        """Faults that strike when a request comes."""
        self.engine.slow = float(self.fault("slow") or 1.0)
        after = self.fault("crash-mid-load")
        if after is not None and self.api.requests > int(after):
            self.api.die(exchange)
        elif self.fault("http-500") and self.api.requests % 8 == 0:
            exchange.json(
                500, {"object": "error", "message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
            )
        elif self.fault("reset") and self.api.requests % 8 == 0:
            exchange.reset()
        elif self.fault("stall"):
            self.engine.hang = True
        elif self.engine.hang:
            self.engine.hang = False

    def load(self) -> None:
        """The first half of a load: before the port is open."""
        args, name = self.args, (self.config.get("architectures") or ["?"])[0]
        half = float(self.settings.get("load_s")) / 2
        log(f"server_args=ServerArgs({', '.join(f'{key}={value!r}' for key, value in args.items() if 'api_key' not in key)})")
        log("Init torch distributed begin.")
        self.group.join()
        log("Init torch distributed ends. elapsed=0.04 s, mem usage=0.09 GB")
        log(f"Load weight begin. avail mem={float(self.settings.get('gpu_memory_gib')) - 0.6:.2f} GB")
        time.sleep(half)
        if self.fault("never-healthy"):
            crash()
        log(
            f"Load weight end. elapsed={half:.2f} s, type={name}, avail mem=37.91 GB, "
            f"mem usage={self.memory['weight_memory_usage_gb']:.2f} GB."
        )
        log(f"KV Cache is allocated. #tokens: {self.engine.kv_tokens}, KV size: {self.memory['kv_cache_memory_usage_gb']:.2f} GB")
        if self.autotunes():
            log(f"Running FlashInfer autotune with a batch of {self.engine.cap} requests...")
        log(
            f"max_total_num_tokens={self.engine.kv_tokens}, chunked_prefill_size={self.engine.chunk}, max_prefill_tokens=16384, "
            f"max_running_requests={self.engine.cap}, context_len={self.context}, available_gpu_mem=5.40 GB"
        )

    async def serve(self) -> None:
        """The port, then the warm-up, then healthy until a signal."""
        loop = asyncio.get_running_loop()
        self.api = Api(self)
        if self.group.rank:
            self.api.follow()
        tls = None
        if self.args.get("ssl_certfile"):
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self.args["ssl_certfile"], self.args.get("ssl_keyfile"))
        host, port = self.args.get("host") or "127.0.0.1", int(self.args.get("port") or 30000)
        for line in (f"Started server process [{os.getpid()}]", "Waiting for application startup.", "Application startup complete."):
            log(f"INFO:     {line}")
        listener = await loop.create_server(lambda: Protocol(self.api), host, port, ssl=tls, backlog=2048)
        log(f"INFO:     Uvicorn running on http{'s' if tls else ''}://{host}:{port} (Press CTRL+C to quit)")
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._wait_for_rank_0 if self.group.rank else stop.set)
        loop.add_signal_handler(signal.SIGUSR1, stop.set)
        engine = loop.create_task(self.engine.run())
        warm = loop.create_task(self._warm_up())
        await stop.wait()
        log("SIGTERM received. Draining requests and shutting down...")
        self.group.end()
        listener.close()
        for task in (warm, engine):
            task.cancel()

    def _wait_for_rank_0(self) -> None:
        log(f"SIGTERM received on node_rank {self.group.rank}; waiting for the rank-0 ShutdownReq broadcast to stop the schedulers.")

    async def _warm_up(self) -> None:
        await asyncio.sleep(float(self.settings.get("load_s")) / 2)
        if self.fault("hang-loading"):
            return
        self.api.ready = True
        log("The server is fired up and ready to roll!")


def crash() -> None:
    """A load that ends as most do that end badly: out of memory, in every rank, and then the whole tree is killed."""
    log(
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File ".../sglang/srt/managers/scheduler.py", line 3517, in run_scheduler_process\n    scheduler = Scheduler(\n'
        '  File ".../sglang/srt/model_executor/model_runner.py", line 1211, in load_model\n    self.model = get_model(\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 94.97 GiB "
        "of which 1.13 GiB is free. "
        "Of the allocated memory 92.81 GiB is allocated by PyTorch, and 187.40 MiB is reserved by PyTorch but unallocated.\n"
    )
    log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)


def _normal(namespace: argparse.Namespace) -> dict[str, Any]:
    """Arguments by sglang's field names (older releases keep the long spelling)."""
    args = dict(vars(namespace))
    for old, new in (("tensor_parallel_size", "tp_size"), ("pipeline_parallel_size", "pp_size"), ("data_parallel_size", "dp_size")):
        if old in args:
            args[new] = args.pop(old)
    return {
        key: value for key, value in args.items() if key != "config" and isinstance(value, (str, int, float, bool, list, dict, type(None)))
    }


def main(arguments: list[str], prog: str = "sglang serve") -> int:
    """Parse as sglang does, load, serve; ends by a signal or as a real server ends."""
    package = package_folder()
    parser = flags.parser(package, prog)
    settings = Settings()
    args = _normal(parser.parse_args(config_file.merge(arguments, parser)))
    models.check_gpus(args, settings)
    server = Server(args, package, settings)
    server.load()
    asyncio.run(server.serve())
    return 0


def command(arguments: list[str]) -> int:
    """The `sglang` program: serve and version."""
    if arguments[:1] == ["serve"]:
        rest = arguments[1:]
        if rest and not rest[0].startswith("-"):
            rest = ["--model-path", *rest]
        return main(rest)
    if arguments[:1] == ["version"]:
        print(f"sglang version: {importlib.metadata.version('sglang')}")
        return 0
    parser = argparse.ArgumentParser(prog="sglang")
    parser.add_subparsers(dest="subcommand", required=True).add_parser("serve", help="Launch an SGLang server.")
    parser.parse_args(arguments)
    return 2


def module_main() -> int:
    """`python -m sglang.launch_server`."""
    warnings.warn(
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
        "  Example: sglang serve --model-path <model> [options]",
        UserWarning,
        stacklevel=1,
    )
    return main(sys.argv[1:])
