"""What a call of `generate` returns: the tokens, and a record of the work each of them took."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One forward of the model, which gave one new token to each row.

    Attributes:
        input_length: columns fed to the model: all tokens so far without a cache; with one the
            prompt at first, then 1.
        cache_length: positions in the cache after the step; 0 without a cache.
        seconds: wall time from feeding the input to having the new ids on the host.
        projected_tokens: token positions that went through the layers, input_length x rows.
    """

    input_length: int
    cache_length: int
    seconds: float
    projected_tokens: int


@dataclass(frozen=True)
class Generation:
    """The result of `generate`.

    Attributes:
        ids: the new tokens, without the prompt and without the stop token. A list of ids for one
            prompt; a list of such lists, one a row, for a batch.
        finish_reason: "stop" if a stop id ended the row, "length" if max_new_tokens did. One string
            for one prompt, a list of strings for a batch.
        steps: one record a forward, in order.
    """

    ids: list[int] | list[list[int]]
    finish_reason: str | list[str]
    steps: tuple[Step, ...]

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds of the first step, which reads the whole prompt (None if there was no step)."""
        return self.steps[0].seconds if self.steps else None

    @property
    def time_per_output_token(self) -> float | None:
        """Mean seconds of the steps after the first (None if there was no second step)."""
        later = self.steps[1:]
        return sum(step.seconds for step in later) / len(later) if later else None

    @property
    def projected_tokens(self) -> int:
        """Token positions that went through the layers, all steps and rows together.

        For one prompt of n tokens and m steps: n + (n + 1) + ... + (n + m - 1) without a cache,
        n + m - 1 with one.
        """
        return sum(step.projected_tokens for step in self.steps)
