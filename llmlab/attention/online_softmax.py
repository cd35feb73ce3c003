"""Softmax while the numbers are still arriving: one pass, a block at a time, exact."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class OnlineSoftmax:
    """What must be remembered of the numbers seen so far: their maximum and their sum.

    The sum is of e^(x - maximum). When a larger maximum m_new arrives, each old term was too large
    by the factor e^(m_new - m_old), so the whole sum is multiplied by `rescale` =
    e^(m_old - m_new): one multiplication mends them all. Whatever was summed with the old weights,
    such as an unfinished output, is mended the same way. Written for outputs that are divided at
    once, O = s^a O_old + s^b O_block, with the factors s^a = sum_old e^(m_old - m_new) / sum_new
    and s^b = sum_block e^(m_block - m_new) / sum_new.

    Source: Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, section 3.1.
    """

    maximum: Float[Tensor, "*rows"]  # -inf before the first number
    sum: Float[Tensor, "*rows"]  # 0 before the first number

    @classmethod
    def start(cls, *shape: int, dtype: torch.dtype = torch.float32, device=None) -> "OnlineSoftmax":
        """Nothing seen yet, for `shape` rows."""
        return cls(
            torch.full(shape, -math.inf, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )

    def update(
        self, block: Float[Tensor, "*rows S"]
    ) -> tuple["OnlineSoftmax", Float[Tensor, "*rows"], Float[Tensor, "*rows S"]]:
        """Take in one more block of numbers.

        Returns the new state; `rescale`, by which whatever was summed with the old maximum must be
        multiplied; and the block's weights e^(x - new maximum), not yet divided by the sum.
        A row that has seen nothing but -inf keeps a sum of 0, and no NaN arises.
        """
        maximum = torch.maximum(self.maximum, block.amax(dim=-1))  # [*rows]
        # -inf minus -inf is no number: rows that saw nothing yet are measured from 0 instead.
        reference = maximum.masked_fill(maximum == -math.inf, 0.0)
        rescale = (self.maximum - reference).exp()  # [*rows]
        weights = (block - reference.unsqueeze(-1)).exp()  # [*rows, S]
        return OnlineSoftmax(maximum, self.sum * rescale + weights.sum(-1)), rescale, weights

    @property
    def divisor(self) -> Float[Tensor, "*rows"]:
        """The sum, or 1 for a row that saw nothing: its weighted sum is 0, and 0 / 1 is 0."""
        return self.sum.masked_fill(self.sum == 0, 1.0)

    @property
    def log_sum_exp(self) -> Float[Tensor, "*rows"]:
        """log of the sum of e^x; -inf for a row that saw nothing."""
        return self.maximum + self.sum.log()


def online_softmax(
    scores: Float[Tensor, "*rows S"], *, block_size: int = 64
) -> Float[Tensor, "*rows S"]:
    """Softmax over the last dimension, looking at `block_size` numbers at a time.

    Rows of nothing but -inf give zeros. Equal to `scores.softmax(-1)` elsewhere.

    Raises ValueError where block_size is not positive.
    """
    if block_size < 1:
        raise ValueError(f"block_size must be above 0, not {block_size}")
    state = OnlineSoftmax.start(*scores.shape[:-1], dtype=scores.dtype, device=scores.device)
    pieces: list[Tensor] = []
    for block in scores.split(block_size, dim=-1):
        if block.shape[-1] == 0:
            break
        state, rescale, weights = state.update(block)
        pieces = [piece * rescale.unsqueeze(-1) for piece in pieces]
        pieces.append(weights)
    if not pieces:
        return scores.clone()
    return torch.cat(pieces, dim=-1) / state.divisor.unsqueeze(-1)  # [*rows, S]
