"""From logits to the next token: greedy choice, temperature, top-k, top-p.

A sampler is any callable that takes the logits of the last position, [B, V], and returns one token
id a row, [B]. `greedy` is one; a `Sampler` object is another; a function of your own will do.
"""

import math
import secrets
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmlab.cache.base import read_size

SamplerFunction = Callable[[Tensor], Tensor]  # logits [B, V] -> token ids [B]


def greedy(logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
    """The most likely token of each row."""
    return logits.argmax(dim=-1)  # [B]


def keep_top_k(logits: Float[Tensor, "B V"], k: int) -> Float[Tensor, "B V"]:
    """Set all but the k largest logits of each row to -inf (Fan et al. 2018, section 5.4).

    Tokens that tie with the k-th stay, as in transformers.

    Raises ValueError for k below 1, TypeError where it is no whole number.
    """
    k = read_size(k, "k")
    kth_largest = logits.topk(min(k, logits.shape[-1])).values[:, -1:]  # [B, 1]
    return logits.masked_fill(logits < kth_largest, -math.inf)


def keep_top_p(logits: Float[Tensor, "B V"], p: float) -> Float[Tensor, "B V"]:
    """Keep the fewest most likely tokens whose probabilities reach p; the other logits become -inf.

    At least one token of each row stays. Source: Holtzman et al. 2020, section 3.1 (nucleus).

    Raises ValueError for p outside (0, 1], TypeError where it is no number.
    """
    p = _read_share(p, "p")
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1)  # least likely first
    # A token may go while it and all less likely ones together are not needed to reach p. Summing
    # from the small end keeps the tail's tiny probabilities from drowning in rounding.
    drop_sorted = probabilities.cumsum(dim=-1) <= 1 - p
    drop_sorted[:, -1] = False
    drop = torch.zeros_like(drop_sorted).scatter(-1, order, drop_sorted)  # back in vocabulary order
    return logits.masked_fill(drop, -math.inf)


def _read_number(number: Any, what: str) -> float:
    if isinstance(number, bool | str):
        raise TypeError(f"{what} must be a number, got {number!r}")
    try:
        return float(number)
    except TypeError:
        raise TypeError(f"{what} must be a number, got {number!r}") from None


def _read_share(share: Any, what: str) -> float:
    read = _read_number(share, what)
    if not 0 < read <= 1:
        raise ValueError(f"{what} must be above 0 and at most 1, got {share}")
    return read


class Sampler:
    """Draws the next token at random: temperature first, then top-k, then top-p.

    Args:
        temperature: logits are divided by it; below 1 sharpens, above 1 flattens. Greater than 0.
        top_k: only the k most likely tokens may be drawn. None: no limit.
        top_p: only the fewest most likely tokens whose probabilities reach it may be drawn; above
            0, at most 1. None: no limit.
        seed: None draws a fresh one; `sampler.seed` tells which.

    Row r of a batch draws from a random stream of its own, seeded with `seed + r`. So what a row
    draws depends on its logits, its place r and how often the sampler was called, but not on the
    other rows. The streams go on from call to call: to repeat a run, make a new Sampler with the
    same seed. They live on the CPU, so one seed gives the same draws on every device.

    Raises:
        ValueError, TypeError: for a value outside these ranges, saying which.
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ):
        temperature = _read_number(temperature, "temperature")
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(
                f"temperature must be a finite number above 0, got {temperature}; "
                "for the most likely token every time use sampler=None (greedy)"
            )
        self.temperature = temperature
        self.top_k = None if top_k is None else read_size(top_k, "top_k")
        self.top_p = None if top_p is None else _read_share(top_p, "top_p")
        self.seed = secrets.randbits(32) if seed is None else read_size(seed, "seed", least=0)
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63, got {seed}")
        self._streams: list[torch.Generator] = []

    def probabilities(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """What `__call__` draws from, fp32: each row sums to 1."""
        logits = logits.float()
        # Softmax ignores a shift; after this one no temperature, however small, can overflow.
        # One that fp32 would round to zero counts as the smallest that it would not.
        temperature = max(self.temperature, torch.finfo(torch.float32).tiny)
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return logits.softmax(dim=-1)

    def __call__(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """Draw one token id a row."""
        rows = self.probabilities(logits).cpu()
        for row in range(len(self._streams), len(rows)):
            self._streams.append(torch.Generator().manual_seed(self.seed + row))
        drawn = [
            torch.multinomial(row, num_samples=1, generator=stream)
            for row, stream in zip(rows, self._streams, strict=False)
        ]
        return torch.cat(drawn).to(logits.device)  # [B]

    def __repr__(self) -> str:
        return (
            f"Sampler(temperature={self.temperature}, top_k={self.top_k}, "
            f"top_p={self.top_p}, seed={self.seed})"
        )
