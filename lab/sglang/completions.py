"""Completions: the OpenAI forms and sglang's own, streamed or whole, with usage as the real server counts it."""

from __future__ import annotations

import json
import random
import re
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from lab.sglang.engine import Request, blocks_of
from lab.sglang.http import dumps

if TYPE_CHECKING:
    from lab.sglang.api import Api
    from lab.sglang.http import Exchange

WORDS = (
    " the",
    " node",
    " holds",
    " eight",
    " cards",
    " and",
    " each",
    " of",
    " them",
    " reads",
    "ing",
    " from",
    " its",
    " peer",
    ",",
    " over",
    " a",
    " switch",
    ".",
    " so",
)
EOS = 154820
CHAT_DEFAULT_TOKENS = 48  # a chat without max_tokens ends by itself after so many
EARLY_STOP_AT = 11


class RequestError(Exception):
    """A request that is answered with 400."""

    def __init__(self, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message, self.kind = message, kind


def _invalid(api: Api, path: str, problem: dict[str, Any]) -> RequestError:
    """A field that does not validate: the answer shows the server's own file and line."""
    name = "openai_v1_chat_completions" if "chat" in path else "openai_v1_completions" if "completions" in path else "generate_request"
    file, line = api.server.handler_position(name, path)
    text = f'1 validation error:\n  {problem}\n\n  File "{file}", line {line}, in {name}\n    POST {path} [{problem}]'
    return RequestError(text, "Bad Request")


def _body(api: Api, exchange: Exchange) -> dict[str, Any]:
    try:
        body = json.loads(exchange.body)
    except ValueError as error:
        position = getattr(error, "pos", 0)
        problem = {
            "type": "json_invalid",
            "loc": ("body", position),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": str(getattr(error, "msg", error))},
        }
        raise _invalid(api, exchange.path, problem) from None
    if not isinstance(body, dict):
        raise _invalid(
            api,
            exchange.path,
            {
                "type": "model_attributes_type",
                "loc": ("body",),
                "msg": "Input should be a valid dictionary or object to extract fields from",
                "input": body,
            },
        )
    return body


def _whole(api: Api, exchange: Exchange, body: dict[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name, default)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    kind = (
        ("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
        if isinstance(value, str)
        else ("int_type", "Input should be a valid integer")
    )
    raise _invalid(api, exchange.path, {"type": kind[0], "loc": ("body", name), "msg": kind[1], "input": value})


def _count(text: str) -> int:
    return max(1, len(re.findall(r"\w+|[^\w\s]", text)))


def _tokens(api: Api, exchange: Exchange, prompt: Any) -> tuple[int, list[int]] | None:
    """(number of prompt tokens, cache keys), or None when the prompt has just ended the server."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(item, int) for item in prompt):
        if len(prompt) >= api.server.context:
            return len(prompt), []
        if not 0 <= min(prompt) <= max(prompt) < api.server.vocabulary:
            api.out_of_vocabulary(exchange)
            return None
        return len(prompt), blocks_of(prompt)
    text = prompt if isinstance(prompt, str) else " ".join(map(str, prompt)) if isinstance(prompt, list) else str(prompt)
    return _count(text), blocks_of([hash(word) for word in text.split()])


class _Answer:
    """One answer being made: text so far, ids, and the request inside the engine."""

    def __init__(self, api: Api, prompt: int, max_new: int) -> None:
        self.rid = uuid.uuid4().hex
        self.created = int(time.time())
        self.received = time.time()
        self.random = random.Random(self.rid)
        self.vocabulary = min(api.server.vocabulary, EOS)
        self.prompt, self.max_new = prompt, max_new
        self.out = 0
        self.text = ""
        self.ids: list[int] = []
        self.factor = 2 if api.server.fault("wrong-usage") else 1
        self.request: Request | None = None

    def more(self, count: int) -> str:
        """The text of so many new tokens."""
        piece = "".join(WORDS[self.random.randrange(len(WORDS))] for _ in range(count))
        self.ids.extend(self.random.randrange(self.vocabulary) for _ in range(count))
        self.out += count
        self.text += piece
        return piece

    def usage(self, *, details: bool) -> dict[str, Any]:
        out = self.out * self.factor
        usage: dict[str, Any] = {"prompt_tokens": self.prompt, "total_tokens": self.prompt + out, "completion_tokens": out}
        if details:
            usage["prompt_tokens_details"] = None
        return {**usage, "reasoning_tokens": 0}


def _start(api: Api, exchange: Exchange, prompt: Any, max_new: int, emit_for: Any, *, stream: bool) -> None:
    counted = _tokens(api, exchange, prompt)
    if counted is None:
        return
    length, blocks = counted
    context = api.server.context
    if length >= context:
        raise RequestError(f"The input ({length} tokens) is longer than the model's context length ({context} tokens).")
    if length + max_new > context:
        raise RequestError(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. "
            f"You requested a total of {length + max_new} tokens: "
            f"{length} tokens from the input messages and {max_new} tokens for the completion. "
            "Please reduce the number of tokens in the input messages "
            "or the completion to fit within the limit."
        )
    if not api.ready:
        exchange.answer(503)
        return
    api.requests += 1
    api.server.before_request(exchange)
    if exchange.done:
        return
    answer = _Answer(api, length, max_new)
    stop_at = EARLY_STOP_AT if api.server.fault("early-stop") and api.requests % 2 == 0 else None
    request = Request(answer.rid, length, blocks, max_new, emit_for(answer), stream, stop_at)
    answer.request = request
    exchange.on_disconnect = lambda: api.engine.abort(request)
    if stream:
        exchange.start_stream()
    api.engine.submit(request)


def openai(api: Api, exchange: Exchange, *, chat: bool) -> None:
    """/v1/completions and /v1/chat/completions."""
    body = _body(api, exchange)
    needed = "messages" if chat else "prompt"
    if body.get(needed) is None:
        raise _invalid(api, exchange.path, {"type": "missing", "loc": ("body", needed), "msg": "Field required", "input": body})
    model = str(body.get("model", api.server.model_name))
    max_new = _whole(api, exchange, body, "max_tokens", None)
    if max_new is None:
        max_new = _whole(api, exchange, body, "max_completion_tokens", CHAT_DEFAULT_TOKENS if chat else 16)
    max_new = 16 if max_new is None else max_new
    if max_new < 1:
        raise RequestError(f"max_new_tokens must be at least 0, got {max_new}." if max_new < 0 else "max_tokens must be at least 1.")
    stream = bool(body.get("stream"))
    options = body.get("stream_options") or {}
    prompt = body[needed]
    if chat:
        prompt = "\n".join(str(part.get("content", "")) for part in prompt if isinstance(part, dict)) + " x"
    kind = ("chat.completion.chunk" if stream else "chat.completion") if chat else "text_completion"

    def emit_for(answer: _Answer) -> Any:
        head = {"id": answer.rid, "object": kind, "created": answer.created, "model": model}
        first = True

        def chunk(choice: dict[str, Any], reason: str | None) -> None:
            made: dict[str, Any] = {
                **head,
                "choices": [
                    {"index": 0, **choice, "logprobs": None, "finish_reason": reason, "matched_stop": EOS if reason == "stop" else None}
                ],
            }
            if options.get("continuous_usage_stats"):
                made["usage"] = answer.usage(details=True)
            elif not chat:
                made["usage"] = None
            exchange.event(dumps(made))

        def streamed(count: int, reason: str | None) -> None:
            nonlocal first
            piece = answer.more(count)
            if not chat:
                chunk({"text": piece}, reason)
            else:
                if first:
                    chunk({"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}, None)
                chunk({"delta": {"reasoning_content": None, "content": piece}}, None)
                if reason:
                    chunk({"delta": {"reasoning_content": None}}, reason)
            first = False
            if reason:
                if options.get("include_usage"):
                    exchange.event(dumps({**head, "choices": [], "usage": answer.usage(details=chat)}))
                exchange.event(b"[DONE]")
                exchange.end_stream()

        def whole(count: int, reason: str | None) -> None:
            answer.more(count)
            if not reason:
                return
            shown = (
                {"message": {"role": "assistant", "content": answer.text, "reasoning_content": None, "tool_calls": None}}
                if chat
                else {"text": answer.text}
            )
            choice = {"index": 0, **shown, "logprobs": None, "finish_reason": reason, "matched_stop": EOS if reason == "stop" else None}
            exchange.json(
                200, {**head, "choices": [choice], "usage": answer.usage(details=True), "metadata": {"weight_version": "default"}}
            )

        return streamed if stream else whole

    _start(api, exchange, prompt, max_new, emit_for, stream=stream)


def tokenize(api: Api, exchange: Exchange) -> None:
    """Serve /tokenize: one id for each word or sign of the text."""
    prompt = str(_body(api, exchange).get("prompt", ""))
    found = re.findall(r"\w+|[^\w\s]", prompt)
    ids = [1000 + zlib.crc32(word.encode()) % max(1, min(api.server.vocabulary, EOS) - 1000) for word in found]
    exchange.json(200, {"tokens": ids, "count": len(ids), "max_model_len": api.server.context})


def generate(api: Api, exchange: Exchange) -> None:
    """Serve sglang's own endpoint: cumulative text, meta_info with counts and times."""
    body = _body(api, exchange)
    prompt = body.get("input_ids", body.get("text"))
    if prompt is None:
        exchange.json(400, {"error": {"message": "Either text, input_ids or input_embeds should be provided."}})
        return
    sampling = body.get("sampling_params") or {}
    max_new = int(sampling.get("max_new_tokens") or 128)
    stream = bool(body.get("stream"))

    def emit_for(answer: _Answer) -> Any:
        def state(reason: str | None) -> dict[str, Any]:
            request = answer.request
            assert request is not None
            offset = answer.received - request.received
            finish = None
            if reason:
                finish = {"type": "length", "length": answer.out} if reason == "length" else {"type": "stop", "matched": EOS}
            meta: dict[str, Any] = {
                "id": answer.rid,
                "finish_reason": finish,
                "prompt_tokens": answer.prompt,
                "weight_version": "default",
                "num_retractions": 0,
                "forward_entry_time": request.started + offset,
                "prefill_finished_time": request.first + offset,
                "queue_time": request.started - request.received,
                "reasoning_tokens": 0,
                "completion_tokens": answer.out * answer.factor,
                "cached_tokens": request.cached,
                "cached_tokens_details": {"device": request.cached, "host": 0},
                "dp_rank": None,
            }
            if reason:
                meta["e2e_latency"] = request.finished - request.received
                meta["request_received_ts"] = answer.received
                meta["request_finished_ts"] = request.finished + offset
                meta["decode_throughput"] = max(answer.out - 1, 1) / max(request.finished - request.first, 1e-9)
            return {"text": answer.text, "output_ids": answer.ids, "meta_info": meta}

        def emit(count: int, reason: str | None) -> None:
            answer.more(count)
            if stream:
                exchange.event(dumps(state(reason)))
            if reason:
                if stream:
                    exchange.event(b"[DONE]")
                    exchange.end_stream()
                else:
                    exchange.json(200, state(reason))

        return emit

    _start(api, exchange, prompt, max_new, emit_for, stream=stream)
