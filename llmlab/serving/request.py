"""A request: how many tokens there are, and how many of them have been computed."""

from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from llmlab.decoding.sampling import SamplerFunction


@dataclass(eq=False, slots=True)
class Request:
    """What was asked for, and how far it is. There are no phases.

    `num_tokens` are known: the prompt's and the new ones. For `num_computed_tokens` of them keys
    and values lie in the blocks of `block_table`. Once the second number has caught up with the
    first, the last token's logits give the next token, and the first number grows by one. Prefill,
    a chunk of it, a decode, a prefix found in the cache and the new start after a preemption differ
    in how far apart the two numbers are, and in nothing else.

    Attributes:
        id: names the request; unique within an engine.
        prompt_tokens, max_new_tokens: lengths.
        arrival: when it came, in seconds of the engine's or simulator's clock.
        token_ids: prompt and new tokens; None where a simulation only counts them.
        sampler, stop_ids, on_token: as for `generate`, for this request alone.
        finish_reason: "length", "stop", "cancelled" or "error" (see `error`); None: not finished.
        error: what its sampler or callback raised.
        cached_tokens: tokens found in the cache instead of computed, all admissions together.
        preemptions: how often its blocks were taken away.
        token_times: when each new token came, in seconds.
    """

    id: Hashable
    prompt_tokens: int
    max_new_tokens: int
    arrival: int | float = 0.0
    token_ids: list[int] | None = None
    sampler: SamplerFunction | None = None
    stop_ids: frozenset[int] = frozenset()
    on_token: Callable[[int], Any] | None = None
    num_tokens: int = field(init=False)
    num_computed_tokens: int = field(default=0, init=False)
    block_table: list[int] = field(default_factory=list, init=False)
    block_keys: list[bytes] = field(default_factory=list, init=False)
    running: bool = field(default=False, init=False)
    finish_reason: str | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)
    cached_tokens: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    token_times: array = field(default_factory=lambda: array("d"), init=False)

    def __post_init__(self):
        self.num_tokens = self.prompt_tokens

    @property
    def new_tokens(self) -> int:
        """How many new tokens there are."""
        return self.num_tokens - self.prompt_tokens

    @property
    def ids(self) -> list[int]:
        """The new tokens, as `Generation.ids`: without the prompt and without a stop token."""
        return [] if self.token_ids is None else self.token_ids[self.prompt_tokens :]

    @property
    def longest(self) -> int:
        """Positions that it may come to need; the last new token is never fed."""
        return self.prompt_tokens + max(self.max_new_tokens - 1, 0)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from arrival to the first token, waiting included; None: none came yet."""
        return self.token_times[0] - self.arrival if self.token_times else None
