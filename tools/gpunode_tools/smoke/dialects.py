"""What goes over the wire: requests of each endpoint as bytes, and what one event of each says."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Stream(Protocol):
    """What a reader books into: the counts of one answer."""

    tokens: int
    """Output tokens so far: by usage where each event carries it, else one for each event with text."""
    events: int
    """Events that showed text."""
    usage: int
    counted: bool
    finish: str | None
    problem: str
    message: str


PATHS: Final = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "generate": "/generate"}

# Ids are drawn below this unless the vocabulary is known: the smallest vocabulary of a model that people serve is 32,000, and an id
# beyond the vocabulary ends a real sglang server.
DEFAULT_VOCABULARY: Final = 32_000
# The first ids of a vocabulary are control tokens (end of text, padding).
FIRST_ID: Final = 1_000
# Ids in front of each prompt that no other prompt has, so that not even one block of a prefix cache is shared.
UNIQUE_IDS: Final = 4
POOL: Final = 1 << 12
"""Random ids that are drawn once; prompts are cut from them at random places behind their unique ids."""
WORDS: Final = (
    "node",
    "card",
    "lane",
    "peer",
    "batch",
    "queue",
    "token",
    "cache",
    "route",
    "shard",
    "drain",
    "probe",
    "phase",
    "slot",
    "rank",
    "link",
)


@dataclass(frozen=True)
class Shape:
    """Lengths in tokens and what every request says."""

    endpoint: str
    model: str
    input_len: int
    output_len: int
    vocabulary: int = DEFAULT_VOCABULARY
    shared_prefix: int = 0
    ignore_eos: bool = True
    seed: int = 0
    extra: tuple[tuple[str, Any], ...] = ()
    alphabet: tuple[int, ...] = ()
    """Ids that are known to exist, where the vocabulary is not known."""


class Prompts:
    """Bodies of requests: unique prompts of exact length, made at about two microseconds each.

    A pool of random ids is drawn once and written as text; a prompt is four ids of its own followed by a cut of the pool.
    """

    def __init__(self, shape: Shape, first: int = 0, step: int = 1) -> None:
        self._random = random.Random(shape.seed * 1_000_003 + first)  # noqa: S311 - load, not secrets
        self._shape = shape
        self._count, self._step = first, step
        low = min(FIRST_ID, max(0, shape.vocabulary // 8))
        self._alphabet: Sequence[int] = shape.alphabet or range(low, max(low + 1, shape.vocabulary))
        self._span = len(self._alphabet)
        pool = self._random.choices(self._alphabet, k=POOL + shape.input_len)
        texts = [b"%d" % token for token in pool]
        self._pool = b",".join(texts)
        self._offsets = list(accumulate((len(text) + 1 for text in texts), initial=0))
        shared = [
            self._alphabet[(index * 7919) % self._span] for index in range(min(shape.shared_prefix, max(0, shape.input_len - UNIQUE_IDS)))
        ]
        self._shared = b"".join(b"%d," % token for token in shared)
        self._rest = max(0, shape.input_len - UNIQUE_IDS - len(shared))
        self._head, self._tail = self._frame()

    def _frame(self) -> tuple[bytes, bytes]:
        shape = self._shape
        extra = dict(shape.extra)
        if shape.endpoint == "generate":
            sampling: dict[str, Any] = {"max_new_tokens": "\0", "temperature": 0, **({"ignore_eos": True} if shape.ignore_eos else {})}
            body: dict[str, Any] = {"input_ids": "\1", "sampling_params": sampling, "stream": True, **extra}
        else:
            body = {"model": shape.model}
            if shape.endpoint == "chat":
                body["messages"] = [{"role": "user", "content": "\1"}]
            else:
                body["prompt"] = "\1"
            body |= {"max_tokens": "\0", "temperature": 0, "stream": True}
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            if shape.ignore_eos:
                body["ignore_eos"] = True
            body |= extra
        text = orjson.dumps(body)
        head, _, tail = text.partition(b'"\\u0001"')
        return head, tail

    def _ids(self) -> bytes:
        span, number = self._span, self._count
        own = []
        for _ in range(min(UNIQUE_IDS, self._shape.input_len)):
            number, rest = divmod(number, span)
            own.append(b"%d" % self._alphabet[rest])
        start = self._random.randrange(POOL)
        cut = self._pool[self._offsets[start] : self._offsets[start + self._rest] - 1] if self._rest else b""
        unique = b",".join(own)
        if self._shared:
            return b"[" + self._shared + unique + (b"," + cut if cut else b"") + b"]"
        return b"[" + unique + (b"," + cut if cut else b"") + b"]"

    def _words(self) -> bytes:
        """Prompt as text for chat, which takes no ids: about so many tokens, the exact number comes back in usage."""
        rng = self._random
        shared = min(self._shape.shared_prefix, self._shape.input_len)
        words = [WORDS[index % 16] for index in range(shared)]
        words += [f"{self._count}", *(WORDS[rng.randrange(16)] for _ in range(max(0, self._shape.input_len - shared - 2)))]
        return orjson.dumps(" ".join(words))

    def body(self, output_len: int) -> bytes:
        """One request's body."""
        prompt = self._words() if self._shape.endpoint == "chat" else self._ids()
        self._count += self._step
        return (self._head + prompt + self._tail).replace(b'"\\u0000"', b"%d" % output_len, 1)


def _error(event: dict[str, Any]) -> str | None:
    """Return the message of an event that reports an error (OpenAI's, sglang's and llama.cpp's forms), else None."""
    error = event.get("error")
    if error:
        return str(error.get("message", error)) if isinstance(error, dict) else str(error)
    if event.get("object") == "error":
        return str(event.get("message", "error"))
    return None


def read_completion(stream: Stream, event: dict[str, Any]) -> None:
    """Book one event of /v1/completions; an empty text is a token too (half of a character)."""
    choices, usage = event.get("choices"), event.get("usage")
    if not choices:
        _without_choices(stream, event, usage)
        return
    choice = choices[0]
    reason = choice.get("finish_reason")
    if reason:
        stream.finish = reason
    if usage:
        stream.counted = True
        total = stream.usage = usage["completion_tokens"]
        stream.tokens = total
        if choice["text"]:
            stream.events += 1
    elif choice["text"] or not reason:
        stream.tokens += 1
        stream.events += 1
    if "error" in event:
        _without_choices(stream, event, None)


def read_chat(stream: Stream, event: dict[str, Any]) -> None:
    """Book one event of /v1/chat/completions; the event that only names the role carries no token."""
    choices, usage = event.get("choices"), event.get("usage")
    if not choices:
        _without_choices(stream, event, usage)
        return
    choice = choices[0]
    delta = choice.get("delta") or {}
    shown = 1 if delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls") or delta.get("reasoning") else 0
    reason = choice.get("finish_reason")
    if reason:
        stream.finish = reason
    if usage:
        stream.counted = True
        total = stream.usage = usage["completion_tokens"]
        stream.tokens = total
    elif shown:
        stream.tokens += 1
    stream.events += shown
    if "error" in event:
        _without_choices(stream, event, None)


def read_generate(stream: Stream, event: dict[str, Any]) -> None:
    """Book one event of sglang's /generate, whose meta_info always counts."""
    meta = event.get("meta_info")
    if meta is None:
        _without_choices(stream, event, None)
        return
    total = stream.usage = meta["completion_tokens"]
    stream.counted = True
    if total > stream.tokens:
        stream.tokens = total
        stream.events += 1
    reason = meta.get("finish_reason")
    if reason:
        stream.finish = kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind == "abort":
            stream.problem, stream.message = "stream-error", str(reason.get("message", "aborted"))


def _without_choices(stream: Stream, event: dict[str, Any], usage: dict[str, Any] | None) -> None:
    """Book the last event, which holds the usage alone, or an error; anything else is not what was asked for."""
    message = _error(event)
    if message is not None:
        if not stream.problem:
            stream.problem, stream.message = "stream-error", message
    elif usage:
        stream.usage = usage["completion_tokens"]
    elif "choices" not in event:
        raise ValueError("an event without choices, usage or error")


READERS: Final[dict[str, Callable[[Stream, dict[str, Any]], None]]] = {
    "completions": read_completion,
    "chat": read_chat,
    "generate": read_generate,
}
