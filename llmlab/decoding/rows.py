"""The rows of a batch while they grow: which tokens each has, and which rows have ended."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from llmlab.decoding.generation import Generation, Step
from llmlab.decoding.prompts import Prompts


class Rows:
    """The new tokens of each row, and why it ended (None while it has not)."""

    def __init__(
        self,
        prompts: Prompts,
        *,
        stop_ids: Collection[int],
        on_token: Callable[..., Any] | None,
        pad_id: int,
    ):
        self.new_ids: list[list[int]] = [[] for _ in prompts.rows]
        self._reasons: list[str | None] = [None for _ in prompts.rows]
        self._prompts = prompts
        self._stop_ids = stop_ids
        self._on_token = on_token
        self._pad_id = pad_id

    @property
    def all_ended(self) -> bool:
        """Whether every row met a stop id."""
        return all(self._reasons)

    def take(self, chosen: list[int]) -> None:
        """Give each row that goes on its next token."""
        for row, token in enumerate(chosen):
            if self._reasons[row]:
                continue
            if token in self._stop_ids:
                self._reasons[row] = "stop"
                continue
            self.new_ids[row].append(token)
            if self._on_token is not None:
                self._on_token(token) if self._prompts.single else self._on_token(row, token)

    def last_column(self, device: torch.device) -> Int[Tensor, "B 1"]:
        """The token to feed next in each row: its newest, or padding where the row has ended."""
        newest = [
            [self._pad_id if reason else ids[-1]]
            for ids, reason in zip(self.new_ids, self._reasons, strict=True)
        ]
        return torch.tensor(newest, dtype=torch.int64, device=device)  # [B, 1]

    def real_in_every_row(self) -> int:
        """How many of the positions fed so far can hold real tokens in all rows, from the left."""
        if self._prompts.ragged:
            return 0
        return self._prompts.longest + min(len(ids) for ids in self.new_ids)

    def generation(self, steps: list[Step]) -> Generation:
        """The result, in the form of the prompt: one row, or a list of them."""
        reasons = [reason or "length" for reason in self._reasons]
        if self._prompts.single:
            return Generation(self.new_ids[0], reasons[0], tuple(steps))
        return Generation(self.new_ids, reasons, tuple(steps))
