"""The endpoints: who may call, what is told about the server, and where completions go."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any

from lab.sglang import completions
from lab.sglang.engine import Engine, Request, log
from lab.sglang.metrics import negotiated

if TYPE_CHECKING:
    from lab.sglang.http import Exchange
    from lab.sglang.launch import Server

OPEN_PREFIXES = ("/health", "/ready", "/metrics")  # sglang lets these through without the key
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class Api:
    """Routes of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.engine: Engine = server.engine
        self.metrics = server.metrics
        self.ready = False
        self.requests = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.routes: dict[tuple[str, str], Any] = {
            ("GET", "/health"): self.health,
            ("GET", "/health_generate"): self.health_generate,
            ("GET", "/v1/models"): self.models,
            ("GET", "/model_info"): self.model_info,
            ("GET", "/get_model_info"): self.model_info,
            ("GET", "/server_info"): self.server_info,
            ("GET", "/get_server_info"): self.server_info,
            ("GET", "/v1/loads"): self.loads,
            ("GET", "/flush_cache"): self.flush,
            ("POST", "/flush_cache"): self.flush,
            ("POST", "/v1/completions"): lambda exchange: completions.openai(self, exchange, chat=False),
            ("POST", "/v1/chat/completions"): lambda exchange: completions.openai(self, exchange, chat=True),
            ("POST", "/generate"): lambda exchange: completions.generate(self, exchange),
            ("PUT", "/generate"): lambda exchange: completions.generate(self, exchange),
            ("POST", "/tokenize"): lambda exchange: completions.tokenize(self, exchange),
            ("GET", "/ping"): lambda exchange: exchange.answer(200),
        }
        if server.args.get("enable_metrics"):
            self.routes["GET", "/metrics"] = self.show_metrics
        if server.source_has("/ready"):
            self.routes["GET", "/ready"] = self.health

    def follow(self) -> None:
        """A node of a higher rank answers health checks and nothing else."""
        paths = ("/health", "/health_generate", "/ping", "/metrics")
        self.routes = {key: handler for key, handler in self.routes.items() if key[1] in paths}
        self.routes["GET", "/health"] = self.routes["GET", "/health_generate"] = self.health

    # ---- every request ----
    def handle(self, exchange: Exchange) -> None:
        key = (exchange.path, exchange.method)
        self.metrics.http[key] += 1
        self.metrics.active[key] += 1
        if not self._allowed(exchange):
            exchange.json(401, {"error": "Unauthorized"})
            return
        handler = self.routes.get((exchange.method, exchange.path))
        if handler is None:
            known = any(path == exchange.path for _, path in self.routes)
            exchange.json(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})
            return
        try:
            handler(exchange)
        except completions.RequestError as error:
            exchange.json(400, {"object": "error", "message": error.message, "type": error.kind, "param": None, "code": 400})

    def left(self, exchange: Exchange) -> None:
        """An exchange is over, for whatever reason."""
        key = (exchange.path, exchange.method)
        self.metrics.active[key] -= 1
        if exchange.status:
            self.metrics.responses[(*key, exchange.status)] += 1

    def _allowed(self, exchange: Exchange) -> bool:
        expected = self.server.args.get("api_key")
        if not expected or exchange.method == "OPTIONS" or exchange.path.startswith(OPEN_PREFIXES):
            return True
        scheme, _, given = exchange.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.encode(), str(expected).encode())

    # ---- state ----
    def health(self, exchange: Exchange) -> None:
        if not self.ready:
            exchange.answer(503)
        elif self.engine.hang:
            exchange_timeout = 20 / self.server.scale
            asyncio.get_running_loop().call_later(exchange_timeout, exchange.answer, 503)
        else:
            exchange.answer(200)

    def health_generate(self, exchange: Exchange) -> None:
        if not self.ready or self.engine.hang:
            self.health(exchange)
            return
        self.engine.submit(Request("HEALTH_CHECK", 1, [], 1, lambda _count, _reason: exchange.answer(200)))

    def models(self, exchange: Exchange) -> None:
        name = self.server.model_name
        entry = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.server.context,
        }
        exchange.json(200, {"object": "list", "data": [entry]})

    def model_info(self, exchange: Exchange) -> None:
        if exchange.path.startswith("/get_"):
            log(
                f"Endpoint '{exchange.path}' is deprecated and will be removed in a future version. "
                f"Please use '{exchange.path.replace('get_', '')}' instead."
            )
        config = self.server.config
        exchange.json(
            200,
            {
                "model_path": self.server.args["model_path"],
                "tokenizer_path": self.server.args.get("tokenizer_path") or self.server.args["model_path"],
                "is_generation": True,
                "preferred_sampling_params": self.server.args.get("preferred_sampling_params"),
                "weight_version": "default",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": config.get("model_type"),
                "architectures": config.get("architectures"),
            },
        )

    def server_info(self, exchange: Exchange) -> None:
        server, engine = self.server, self.engine
        internal = {
            **server.args,
            "last_gen_throughput": engine.gauges["gen_throughput"],
            "memory_usage": {
                "weight": server.memory["weight_memory_usage_gb"],
                "kvcache": server.memory["kv_cache_memory_usage_gb"],
                "token_capacity": engine.kv_tokens,
            },
            "effective_max_running_requests_per_dp": engine.cap,
        }
        if engine.accept > 1:
            internal["avg_spec_accept_length"] = engine.accept
        exchange.json(
            200,
            {
                **server.args,
                "status": "ready" if self.ready else "starting",
                "max_total_num_tokens": engine.kv_tokens,
                "max_req_input_len": server.context - 6,
                "startup_time": server.startup,
                "internal_states": [internal],
                "version": server.version,
                "kv_events": None,
                "simulated": True,
            },
        )

    def loads(self, exchange: Exchange) -> None:
        engine = self.engine
        exchange.json(
            200,
            {
                "timestamp": dt.datetime.now(dt.UTC).isoformat(),
                "version": self.server.version,
                "num_accelerators": self.server.args.get("tp_size", 1),
                "loads": [
                    {
                        "timestamp": time.time(),
                        "dp_rank": 0,
                        **engine.state(),
                        "max_total_num_tokens": engine.kv_tokens,
                        "max_running_requests": engine.cap,
                        "token_usage": round(engine.used_tokens() / engine.kv_tokens, 4),
                        "gen_throughput": engine.gauges["gen_throughput"],
                        "cache_hit_rate": engine.gauges["hit_rate"],
                    }
                ],
            },
        )

    def flush(self, exchange: Exchange) -> None:
        log("Cache flushed successfully!" if self.engine.flush() else "Cache not flushed because there are pending requests.")
        exchange.answer(200, FLUSHED.encode())

    def show_metrics(self, exchange: Exchange) -> None:
        text, content_type = negotiated(self.metrics.text(self.engine), exchange.headers.get("accept", ""))
        exchange.chunked(200, text.encode(), content_type)

    # ---- faults that requests trigger ----
    def out_of_vocabulary(self, exchange: Exchange) -> None:
        """What a real server does with a token id beyond the vocabulary: it dies."""
        log(
            "Scheduler hit an exception: Traceback (most recent call last):\n  ...\n"
            "RuntimeError: Triton Error [CUDA]: device-side assert triggered\n"
        )
        self.die(exchange)

    def die(self, exchange: Exchange) -> None:
        log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        self.engine.hang = True
        exchange.on_disconnect = None

        def end() -> None:
            log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.get_running_loop().call_later(5 / self.server.scale, end)
