"""A launch as the rules see it: flags with all their spellings, environment, patches, and what kind of model it serves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARSE = ("glm-5", "glm5", "deepseek-v3.2", "deepseek-v32", "dsv32")
_DENSE_MLA = ("flashinfer", "triton")
_FP8_MOE = ("glm-4.5", "glm-4.6", "glm-4.7", "glm4", "deepseek", "qwen3")


@dataclass(frozen=True)
class Launched:
    """``flags`` maps every spelling of each flag that is set to its values; ``patches`` are ids of patches that the release has.

    ``open_ended`` says that a variable nobody here knows may add flags: what is missing may stand in it.
    """

    flags: Mapping[str, list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    patches: frozenset[str] = frozenset()
    open_ended: bool = False

    def values(self, *names: str) -> set[str]:
        """All values of these flags."""
        return {value for name in names for value in self.flags.get(name, ())}

    def has(self, *names: str) -> bool:
        """Whether any of these flags is set."""
        return any(name in self.flags for name in names)

    def number(self, *names: str) -> int | None:
        """The last whole number given for the first of these flags that is set."""
        for name in names:
            for value in reversed(self.flags.get(name, [])):
                if re.fullmatch(r"-?\d+", value):
                    return int(value)
        return None

    def last(self, *names: str) -> str:
        """The last value given for the first of these flags that is set, which is the one that counts; empty without one."""
        return next((self.flags[name][-1] for name in names if self.flags.get(name)), "")

    @property
    def model(self) -> str:
        """Path or repository id of the model in lower case; empty when unknown."""
        return next(iter(self.flags.get("--model-path", [])), "").lower()

    @property
    def sparse_attention(self) -> bool:
        """The model's name says DeepSeek sparse attention (GLM-5 family, DeepSeek-V3.2)."""
        return any(part in self.model for part in _SPARSE)

    @property
    def dense_attention(self) -> bool:
        """A dense MLA backend is asked for, which ignores the indexer of a sparse model; a value that is not known may be one."""
        backends = self.values("--attention-backend")
        return bool(backends & set(_DENSE_MLA)) or any("$" in backend for backend in backends)

    @property
    def plain_shared_expert(self) -> bool:
        """The model's name says an NVFP4 checkpoint of GLM-5.1 or newer, whose shared expert is not quantised."""
        return "nvfp4" in self.model and any(part in self.model for part in ("glm-5.1", "glm-5.2", "glm5.1", "glm5.2"))

    @property
    def fp8_moe(self) -> bool:
        """The model's name says a mixture of experts quantised to FP8."""
        return "fp8" in self.model and any(part in self.model for part in _FP8_MOE)

    @property
    def prefill_backends(self) -> set[str]:
        """Backends named for prefill attention."""
        return self.values("--prefill-attention-backend") or self.values("--attention-backend")

    @property
    def all_backends(self) -> set[str]:
        """Backends named for attention in any phase."""
        return self.values("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")

    @property
    def fp8_gemm(self) -> set[str]:
        """Backends named for FP8 matrix products."""
        return self.values("--fp8-gemm-backend")

    @property
    def sparse_backends(self) -> set[str]:
        """Backends named for sparse attention."""
        return self.values("--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend", "--nsa-decode-backend")
