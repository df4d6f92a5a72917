"""How long a prefill and a decode step take: the model behind the throughput figures (derivation in README.md)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

# Smallest request cap at which the autotuner's dummy batch is large enough to find the fast MoE tactics: it tunes with a batch of as many
# requests as the cap allows.
TUNED_MIN_CAP = 128

# How fast a deeper queue makes prefill batches grow (see README: solved from 806, 880 and 913 tokens/s at 128, 256 and 512).
QUEUE_SCALE, QUEUE_POWER = 94.0, 1.75


@dataclass(frozen=True)
class Speed:
    """Milliseconds of a decode step by batch size, of a prefill's fixed part, and of one prompt token."""

    decode_ms: tuple[tuple[int, float], ...]
    prefill_fixed_ms: float
    prefill_token_ms: float

    def decode_s(self, batch: int) -> float:
        """Seconds of one decode step, linear between the known batch sizes and beyond the last."""
        sizes = [size for size, _ in self.decode_ms]
        index = min(max(bisect_right(sizes, batch), 1), len(sizes) - 1)
        (low, low_ms), (high, high_ms) = self.decode_ms[index - 1], self.decode_ms[index]
        return (low_ms + (high_ms - low_ms) * (batch - low) / (high - low)) / 1000

    def prefill_s(self, tokens: int, chunks: int = 1) -> float:
        """Seconds of a prefill of so many new tokens in so many chunks."""
        return (chunks * self.prefill_fixed_ms + tokens * self.prefill_token_ms) / 1000


# 8x RTX PRO 6000, GLM-5-NVFP4, MoE kernels with the tactics of small batches: latency-bound below 64, all-reduce volume above.
UNTUNED = Speed(((1, 90.0), (8, 140.0), (32, 189.5), (64, 194.0), (128, 372.0), (256, 725.0), (512, 1420.0)), 91.0, 0.10)
# The same with autotuned MoE tactics for large batches.
TUNED = Speed(((1, 19.6), (8, 29.0), (32, 52.0), (64, 76.0), (128, 112.0), (256, 170.0), (512, 280.0)), 19.6, 0.05)


def prefill_batch(queue: int) -> float:
    """Requests that one prefill batch takes while so many others wait behind the free slots."""
    return 1.0 + (queue / QUEUE_SCALE) ** QUEUE_POWER
