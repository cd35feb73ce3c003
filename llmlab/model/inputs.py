"""What a forward asks of its inputs, checked before anything is computed or written to a cache."""

import torch
from torch import Tensor

from llmlab.cache.base import KVCache
from llmlab.config import ModelConfig
from llmlab.embedding import check_whole_numbers


def check_forward_inputs(
    config: ModelConfig,
    ids: Tensor,
    cache: KVCache | None,
    position_ids: Tensor | None,
    attention_mask: Tensor | None,
) -> None:
    """Raises ValueError, or TypeError for a wrong type or dtype, that says what does not fit."""
    _check_ids(config, ids)
    past = 0
    if cache is not None:
        _check_cache(config, cache, *ids.shape)
        past = cache.length
    total = past + ids.shape[1]
    if total > config.max_positions:
        raise ValueError(
            f"{total} positions ({past} cached and {ids.shape[1]} new) are more than this model's "
            f"context of {config.max_positions}: give a shorter text"
        )
    if attention_mask is not None:
        _check_mask(attention_mask, [ids.shape[0], total])
    if position_ids is not None:
        _check_positions(config, ids, position_ids)


def check_ids_and_positions(config: ModelConfig, ids: Tensor, position_ids: Tensor) -> None:
    """The same for tokens whose sequences lie elsewhere, as in a mixed batch."""
    _check_ids(config, ids)
    _check_positions(config, ids, position_ids)


def _check_ids(config: ModelConfig, ids: Tensor) -> None:
    check_whole_numbers(ids, "ids")
    if ids.dim() != 2 or ids.numel() == 0:
        raise ValueError(
            "ids must be a tensor [batch, length] of at least one token; "
            f"got the shape {list(ids.shape)}"
        )
    if torch.compiler.is_compiling():
        return  # to look at the values would break the compiled graph; `generate` has looked
    lowest, highest = (int(bound) for bound in ids.aminmax())
    if lowest < 0 or highest >= config.vocab_size:
        raise ValueError(
            f"ids must lie in 0 .. {config.vocab_size - 1}, this model's vocabulary; "
            f"got {lowest} .. {highest}: is this the tokenizer of this model?"
        )


def _check_mask(attention_mask: Tensor, wanted: list[int]) -> None:
    if not isinstance(attention_mask, Tensor):
        raise TypeError(
            "attention_mask must be a tensor, 1 for a real token and 0 for padding; "
            f"got {type(attention_mask).__name__}"
        )
    if attention_mask.is_floating_point():  # 0 might then mean "may attend": an additive mask
        raise TypeError(
            "attention_mask must be of booleans or whole numbers, 1 for a real token and 0 for "
            f"padding; got {attention_mask.dtype}"
        )
    if list(attention_mask.shape) != wanted:
        raise ValueError(
            f"attention_mask must cover the cached and the new positions, {wanted}; "
            f"got {list(attention_mask.shape)}"
        )


def _check_cache(config: ModelConfig, cache: KVCache, batch: int, count: int) -> None:
    if not isinstance(cache, KVCache):
        raise TypeError(
            "cache must be a KVCache, such as DynamicKVCache(model.config), or None; "
            f"got {type(cache).__name__}"
        )
    for what, got, wanted in (
        ("layers", cache.layers, config.layers),
        ("kv_heads", cache.kv_heads, config.kv_heads),
        ("head_dim", cache.head_dim, config.head_dim),
        ("batch_size", cache.batch_size, batch),
    ):
        if got is not None and got != wanted:
            raise ValueError(
                f"this cache does not fit: its {what} is {got}, {wanted} is needed; "
                "make a cache from this model's config for this batch"
            )
    cache.check_room(count)


def _check_positions(config: ModelConfig, ids: Tensor, position_ids: Tensor) -> None:
    check_whole_numbers(position_ids, "position_ids")
    if position_ids.shape != ids.shape:
        raise ValueError(
            f"position_ids must have the shape of ids, {list(ids.shape)}; "
            f"got {list(position_ids.shape)}"
        )
    if torch.compiler.is_compiling():
        return
    lowest, highest = (int(bound) for bound in position_ids.aminmax())
    if lowest < 0 or highest >= config.max_positions:
        raise ValueError(
            f"position_ids must lie in 0 .. {config.max_positions - 1}; got {lowest} .. {highest}"
        )
