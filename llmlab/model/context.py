"""What all blocks of a model share during one forward: masks, rotary tables and the cache."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmlab.attention import combine_masks, padding_mask, sliding_window_mask
from llmlab.cache.base import KVCache
from llmlab.cache.mixed_batch import MixedBatch
from llmlab.config import ModelConfig
from llmlab.embedding import rotary_tables


@dataclass(frozen=True)
class ForwardContext:
    """Made once a forward, read by every block.

    Attention is always causal; a mask holds only what is forbidden beyond that. None: nothing is,
    as for one new token after a cache without padding.
    """

    full_mask: Bool[Tensor, "..."] | None  # for layers that see everything before them
    window_mask: Bool[Tensor, "..."] | None  # for layers with a sliding window
    rotary: tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]] | None
    cache: KVCache | None
    mixed_batch: MixedBatch | None = None  # instead of masks and cache: tokens of many sequences


def default_position_ids(
    ids: Int[Tensor, "B T"],
    past: int,
    attention_mask: Bool[Tensor, "B S"] | Int[Tensor, "B S"] | None,
) -> Int[Tensor, "B T"]:
    """Counts the tokens of each row, cached ones included and padding left out.

    So the first real token of a row that was padded on the left stands at 0, as it would alone.
    """
    batch, length = ids.shape
    if attention_mask is None:
        return torch.arange(past, past + length, device=ids.device).expand(batch, length)  # [B, T]
    counted = attention_mask.long().cumsum(dim=-1) - 1  # [B, S]
    return counted.clamp(min=0)[:, past:]  # [B, T]


def make_context(
    config: ModelConfig,
    x: Float[Tensor, "B T C"],
    position_ids: Int[Tensor, "B T"],
    attention_mask: Bool[Tensor, "B S"] | Int[Tensor, "B S"] | None,
    cache: KVCache | None,
) -> ForwardContext:
    """The context of a forward that starts from the embedded tokens `x`."""
    queries = x.shape[1]
    keys = queries + (0 if cache is None else cache.length)
    full_mask = None if attention_mask is None else padding_mask(attention_mask)
    window_mask = full_mask
    if config.sliding_window is not None and config.sliding_window < keys:
        window = sliding_window_mask(queries, keys, config.sliding_window, device=x.device)
        window_mask = combine_masks(window, full_mask)
    rotary = _rotary(config, x, position_ids)
    return ForwardContext(full_mask, window_mask, rotary, cache)


def make_mixed_context(
    config: ModelConfig, x: Float[Tensor, "1 N C"], mixed_batch: MixedBatch
) -> ForwardContext:
    """The context of a forward for the tokens of many sequences, end to end."""
    rotary = _rotary(config, x, mixed_batch.position_ids[None])
    return ForwardContext(None, None, rotary, None, mixed_batch)


def _rotary(
    config: ModelConfig, x: Float[Tensor, "B T C"], position_ids: Int[Tensor, "B T"]
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]] | None:
    if config.positions != "rotary":
        return None
    return rotary_tables(
        position_ids,
        config.head_dim,
        theta=config.rope_theta,
        scaling=config.rope_scaling,
        dtype=x.dtype,
    )
