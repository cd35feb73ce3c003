"""Prompts of any accepted form, checked, and padded on the left."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from llmlab.cache.base import read_whole_number

# One prompt ([3, 1, 4] or a tensor [T]) or a batch ([[3, 1, 4], [1, 5]] or a tensor [B, T]).
# `Any`, so that `read_prompts` gets to say what is wrong with everything else.
TokenIds = Any


@dataclass(frozen=True)
class Prompts:
    """One or more prompts, as plain ids.

    Attributes:
        rows: the ids of each prompt.
        single: whether the caller gave one prompt, and not a batch (of one or more).
    """

    rows: tuple[tuple[int, ...], ...]
    single: bool

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt."""
        return max(len(row) for row in self.rows)

    @property
    def ragged(self) -> bool:
        """Whether the prompts have different lengths, so that some need padding."""
        return any(len(row) != self.longest for row in self.rows)

    def left_padded(
        self, pad_id: int, device: torch.device | str
    ) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"] | None]:
        """The ids as one tensor, and its mask: True where a token is real (None if all are).

        Padding goes to the left, so that the last column holds the last token of every row and its
        logits are the ones to sample from.
        """
        pads = [self.longest - len(row) for row in self.rows]
        padded = [[pad_id] * pad + list(row) for pad, row in zip(pads, self.rows, strict=True)]
        ids = torch.tensor(padded, dtype=torch.int64, device=device)  # [B, T]
        if not self.ragged:
            return ids, None
        first_real = torch.tensor(pads, device=device)  # [B]
        slots = torch.arange(self.longest, device=device)  # [T]
        return ids, slots >= first_real[:, None]  # [B, T]


def read_prompts(ids: TokenIds, *, vocab_size: int) -> Prompts:
    """Turn what the caller gave into `Prompts`.

    Raises:
        TypeError: not ids (text, floats, booleans, None ...).
        ValueError: no rows, an empty row, too many dimensions, or an id outside [0, vocab_size).
    """
    if isinstance(ids, str | bytes):
        raise TypeError(
            "ids must be token ids, not text: encode it first with tokenizer.encode(text)"
        )
    if isinstance(ids, Tensor):
        if ids.dim() not in (1, 2):
            raise ValueError(f"ids must have shape [T] or [B, T], got {list(ids.shape)}")
        ids = ids.tolist()
    if not isinstance(ids, Iterable) or isinstance(ids, Mapping | Set):  # those have no order
        raise TypeError(f"ids must be a list of token ids or a tensor, got {type(ids).__name__}")
    ids = [entry.tolist() if isinstance(entry, Tensor) else entry for entry in ids]
    if not ids:
        raise ValueError(
            "the prompt is empty: give at least one token id, such as tokenizer.bos_id"
        )
    single = not any(isinstance(entry, Iterable) for entry in ids)
    rows = [ids] if single else ids
    return Prompts(tuple(_read_row(row, i, vocab_size) for i, row in enumerate(rows)), single)


def _read_row(row: Any, index: int, vocab_size: int) -> tuple[int, ...]:
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        raise TypeError(f"row {index} of ids must be a list of token ids, got {row!r}")
    row = tuple(read_whole_number(token, "a token id") for token in row)
    if not row:
        raise ValueError(f"row {index} of ids is empty: every prompt needs at least one token")
    check_ids(row, vocab_size, f"row {index} of ids")
    return row


def check_ids(ids: Iterable[int], vocab_size: int, what: str) -> None:
    """Raise ValueError if an id is outside [0, vocab_size); `what` names the ids in the message."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{what}: {token} is outside the vocabulary, whose ids are 0 to {vocab_size - 1}; "
                "were these ids made with this model's tokenizer?"
            )
